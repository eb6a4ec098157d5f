"""Writes ``docs/results.md`` from runs: ``python docs/_results.py CONFIG[#NOTE]=RUN_DIR...``.

The page holds figures, counts and seconds, and no word of the data.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from memory.bench.engine.files import each_line
from memory.bench.report.page import count, share
from memory.bench.report.results import Entry, Results, read_results
from memory.bench.report.tables import cost_values, main_figures, quantiles, trouble
from memory.bench.report.verdict import verdict
from memory.bench.scores.model import Estimate

HEAD = """# Results

`python docs/_results.py CONFIG=RUN_DIR...` writes this page and its records. The command above each table repeats
its run. Each row names its model, or what stands in for one.

Read the page with care:

- A small model reads poorly. SmolLM2 has 135 million parameters, so its answers say little about a memory.
- The LoCoMo file has two conversations. Below five personas there are no intervals.
- Evidence recall says whether a memory showed the turns that hold the answer. It does not say whether a model
  would answer. Answer F1 is the token F1 of what the model did answer.
- The machine was busy and has two cores. Compare seconds within a table only.
- BM25 beside vectors is mem0's own search on Qdrant, with fastembed's encoder. Its stop words came from the package
  stop-words, because the model hub was not reachable.
- [The long game's figures by budget](experiment.md#what-is-played) tell ideal memories of each kind apart.
- Evidence recall counts turns in their own words. A model that extracts or summarises rewords them, so it shows
  none. Compare answer F1, or the record's `answer_shown`: in the six short talks the gold answer is shown for 3 of
  4 questions by mem0, and for 4 of 4 by Graphiti.
- Qwen2.5-Coder 1.5B extracted on one busy core. mem0's first write took 1,552 s, because its prompt has about 8,000
  tokens. The next ones took 80 to 281 s. Graphiti's took 151 to 766 s.

## Recompute it

Each table links its record, a gzip file with one JSON object per line. It holds no word of the data. A line with
`probe_id` is a request. A line with `ms` is one persona's run, with the milliseconds of every call by phase.
`memory` and `budget` name the row. `persona`, `seed`, `replicate` and `probe_id` name a request. A request with an
`error` failed, and counts 0. The column *requests* counts all requests of the row. A figure is the mean over these:

| figure | requests | value |
|---|---|---|
| evidence recall | `gold` above 0 | `found` (null is 0) / `gold` |
| MRR | `gold` above 0 | 1 / the smallest of `ranks`; 0 without ranks |
| gold answer shown | `has_answer` | `answer_shown`; null is left out |
| answer F1, exact match | `read` | `answer_f1`, `exact` |
| style fit | `judged`, `kind` is neither neutral nor question, not `repeated` | `fit_first` |
| discrimination | the same with `has_other` | `fit_first` |
| detection | the changes; see below | 1 if two requests in a row have `fit_first` |
| tokens shown | `status` is scored or unready | `tokens` |

- **A change** is all requests of style fit with the same `persona`, `seed`, `replicate` and `change`, where
  `change` is not null. Their order is by `after`, then by the text of `probe_id`. Any two in a row count.
- **Intervals** (95 %, from five personas on). K personas have n requests, or n changes for detection, with mean
  m. The variance is V = K / (K-1) x the sum over personas of (their sum - m x their count)² / n². The size N is K
  if m is 0 or 1. Otherwise N is n if V is 0, and else m (1 - m) / V, at most n. q is the two-sided 95 % quantile
  of Student's t for K - 1 degrees of freedom. If K = n, N is n and q is 1.959964. With z = q² / N, the interval
  is (m + z / 2 ± sqrt(z (m (1 - m) + z / 4))) / (1 + z).
- **Controls** are all memories that are neither an architecture (mem0, graphiti) nor a reference (the floor
  no_memory and the ceiling oracle_ipas). References have no interval, and no sentence ranks them.
- **A difference** of two rows is the mean of their differences by request. It is taken before rounding. Its
  interval is that mean ± q sqrt(V), with V of the differences. Here q is the two-sided quantile of Student's t
  for K - 1 degrees of freedom, at the confidence 1 - 0.05 / comparisons. Each architecture is compared with each
  control of its budget, and without architectures each pair of controls. All comparisons of a table count. If
  rows are equal, a sentence names the first.
- **Rounding** follows the binary number. Exact halves go to the even digit. Tokens below 100 have one decimal
  unless they are whole.
- **Milliseconds**: the median and the 95th percentile of all calls of `write` and of `retrieve`, linearly
  interpolated. A call of `write` may hold several messages.
- **Seconds to write 1,000 messages**: the sum of `write` and `wait`, divided by the sum of `messages`.
"""

HERE = Path(__file__).parent
NAMES = {"own": "Six short talks", "game": "The preference game", "locomo": "LoCoMo"}
TIMED = {"write", "wait", "retrieve"}


def figure(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return share(found.value)
    return f"{share(found.value)} ({found.low:.0%} to {found.high:.0%})"


def milliseconds(entry: Entry, phase: str) -> str:
    middle, slow = quantiles(entry, phase)
    return "–" if middle is None else f"{middle:,.1f} / {slow:,.1f}"


def model_of(entry: Entry) -> str:
    """What works in a memory: its language models, its embedder, or neither."""
    memory = entry.variant
    named = (*memory.models, *memory.provider.fallback_components)
    group = "backends" if memory.provider.backend else "conditions"
    blocks: Any = memory.config["memory"]
    block = (blocks.get(group) or {}).get(memory.provider.name) or {}
    embedder = block.get("embedder")
    if isinstance(embedder, dict) and isinstance(name := embedder.get("model"), str):
        named = (*named, f"{name} embedder")
    return ", ".join(dict.fromkeys(named)) or "none"


def table(results: Results) -> Iterator[str]:
    names = main_figures(results)
    columns = ["memory", "model", "budget", *names, "tokens shown", "ms to write", "ms to retrieve",
               "s to write 1,000 messages", "requests"]  # fmt: skip
    yield f"| {' | '.join(columns)} |"
    yield f"|---|---|{'---:|' * (len(columns) - 2)}"
    for entry in results.entries:
        seconds = cost_values(entry)["a thousand messages: seconds to write"]
        cells = [
            entry.variant.series,
            model_of(entry),
            count(entry.variant.budget.max_tokens),
            *(figure(entry.estimate(name)) for name in names),
            count(entry.metrics.tokens),
            milliseconds(entry, "write"),
            milliseconds(entry, "retrieve"),
            "–" if seconds is None else f"{seconds:,.1f}",
            trouble(entry),
        ]
        yield f"| {' | '.join(cells)} |"


def rows(results: Results) -> Iterator[dict[str, Any]]:
    """The record of a run: each request, and for each persona the milliseconds of every call."""
    for entry in results.entries:
        row = {"memory": entry.variant.series, "budget": entry.variant.budget.max_tokens}
        for place, cell in entry.cells:
            cell_row = {**row, "persona": cell.persona_id, "seed": cell.seed, "replicate": cell.replicate}
            spent: dict[str, list[float]] = {}
            for line in each_line(place / "times.jsonl"):
                for phase in sorted(TIMED & line.keys()):
                    spent.setdefault(phase, []).extend(line[phase])
            yield {**cell_row, "messages": cell.counts["messages"], "ms": spent}
            for record in each_line(place / "results.jsonl"):
                yield {**cell_row, **record}


def write_record(results: Results, name: str) -> str:
    """Write the record of a run beside the page, and return its path from there."""
    file = Path("records", f"{name}.jsonl.gz")
    text = "".join(json.dumps(row) + "\n" for row in rows(results))
    (HERE / file).parent.mkdir(exist_ok=True)
    (HERE / file).write_bytes(gzip.compress(text.encode(), mtime=0))
    return file.as_posix()


def section(config: str, directory: Path) -> Iterator[str]:
    results = read_results(directory)
    manifest = results.manifest
    data = next(iter(manifest.data.values()))
    given = "" if data.name is None else f" --data {data.name}"
    config, _, note = config.partition("#")
    turns = "" if data.timeline == "game" else f"{data.turns:,} turns, "
    game: Any = manifest.settings.get("game") or {}
    name = "The long game" if game.get("tokens") else NAMES.get(data.timeline, data.timeline)
    yield f"## {name}"
    yield ""
    file = Path(config).name
    yield f"`memslot example {file} && memslot run {file}{given}`"
    yield ""
    yield from (
        f"Questions are answered by {role.model}.\n"
        for role in manifest.roles
        if role.role == "reader" and role.model
    )
    revision = manifest.versions.revision
    yield (
        f"{manifest.created_at:%Y-%m-%d}, memslot {manifest.versions.memslot}"
        + (f" at {revision}" if revision else "")
        + f", Python {manifest.versions.python}. {data.personas} persona{'s' * (data.personas > 1)}, "
        f"{data.sessions:,} sessions, {turns}{data.probes:,} requests. Data sha256 `{data.sha256[:16]}`."
        + (f" {note}." if note else "")
        + f" [Record]({write_record(results, Path(config).stem)})."
    )
    yield ""
    yield from (f"- {sentence}" for sentence in verdict(results))
    yield ""
    yield from table(results)
    yield ""


def page(runs: Sequence[tuple[str, Path]]) -> str:
    """The whole page, of configurations and the directories of their runs."""
    return "\n".join([HEAD, *(line for config, directory in runs for line in section(config, directory))])


if __name__ == "__main__":
    runs = [(config, Path(run)) for config, _, run in (given.partition("=") for given in sys.argv[1:])]
    (HERE / "results.md").write_text(page(runs), encoding="utf-8")
