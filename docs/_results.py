"""Writes ``docs/results.md`` from runs: ``python docs/_results.py CONFIG[#NOTE]=RUN_DIR...``.

The page holds figures, counts and seconds, and no word of the data.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from memory.bench.report.page import count, share
from memory.bench.report.results import Entry, Results, read_results
from memory.bench.report.tables import cost_values, main_figures, quantiles, trouble
from memory.bench.report.verdict import verdict
from memory.bench.scores.model import Estimate

HEAD = """# Results

`python docs/_results.py CONFIG=RUN_DIR...` writes this page. The command above each table repeats its run. Each row
names its model, or what stands in for one. Two numbers in a cell are the median and the 95th percentile.

Read the page with care:

- No language model works in these memories. We did **not run** mem0 and Graphiti with a model that extracts, and
  the long game of 200,000 tokens. They take hours on the machine that made this page.
- A small model reads poorly. SmolLM2 has 135 million parameters, so its answers say little about a memory.
- The LoCoMo file has two conversations. Below five personas there are no intervals.
- Evidence recall says whether a memory showed the turns that hold the answer. It does not say whether a model would
  answer. Answer F1 is the token F1 of what the model did answer.
- The machine was busy and has two cores. Compare seconds within a table only.
"""

NAMES = {"game": "The preference game", "locomo": "LoCoMo"}


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
        seconds = cost_values(entry)["seconds for 1,000 messages"]
        cells = [
            entry.variant.series,
            model_of(entry),
            count(entry.variant.budget.max_tokens),
            *(figure(entry.estimate(name)) for name in names),
            count(entry.metrics.tokens.mean),
            milliseconds(entry, "write"),
            milliseconds(entry, "retrieve"),
            "–" if seconds is None else f"{seconds:,.1f}",
            trouble(entry),
        ]
        yield f"| {' | '.join(cells)} |"


def section(config: str, directory: Path) -> Iterator[str]:
    results = read_results([directory])
    (manifest,) = results.manifests
    data = next(iter(manifest.data.values()))
    given = "" if data.name is None else f" --data {data.name}"
    config, _, note = config.partition("#")
    turns = "" if data.timeline == "game" else f"{data.turns:,} turns, "
    yield f"## {NAMES.get(data.timeline, data.timeline)}"
    yield ""
    file = Path(config).name
    yield f"`memslot example {file} && memslot run {file}{given}`"
    yield ""
    yield from (
        f"Questions are answered by {role.model}.\n"
        for role in manifest.roles
        if role.role == "reader" and role.model
    )
    git = manifest.versions.git
    yield (
        f"{manifest.created_at:%Y-%m-%d}, memslot {manifest.versions.memslot}"
        + (f" at {git.revision[:12]}" if git else "")
        + f", Python {manifest.versions.python}. {data.personas} personas, {data.sessions:,} sessions, "
        f"{turns}{data.probes:,} requests. Data sha256 `{data.sha256[:16]}`." + (f" {note}." if note else "")
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
    (Path(__file__).parent / "results.md").write_text(page(runs), encoding="utf-8")
