"""The probes of a run one by one, with question, context and verdict: where the run kept the texts."""

from __future__ import annotations

import json
from pathlib import Path

from memory.bench.engine.rundir import read_results
from memory.bench.report.page import Block
from memory.bench.scores.run_metrics import ProbeRecord

_MOST = 500


def probe_blocks(directory: Path) -> list[Block]:
    """A block of a run's probes, those that lost first; none where no texts were kept.

    Raises:
        ConfigError: the results cannot be read.
    """
    file = directory / "texts.jsonl"
    if not file.exists():
        return []
    with open(file, encoding="utf-8") as lines:
        kept = {(row["persona_id"], row["probe_id"]): row for row in map(json.loads, lines)}
    judged = [(*_verdict(record), record) for record in read_results(directory)]
    judged.sort(key=lambda one: one[0])
    details = []
    for _, verdict, record in judged[:_MOST]:
        row = kept.get((record.persona_id, record.probe_id))
        asked = row["query"] if row else record.probe_id
        title = f"{verdict}: {asked} ({record.persona_id}, {record.category}, after {record.after} sessions)"
        details.append((title, (row["context"] if row else "") or "nothing was shown"))
    left = len(judged) - len(details)
    note = f"{left:,} further probes are in texts.jsonl and results.jsonl." if left else ""
    return [Block("Probe by probe", details=details, note=f"Those that lost first. {note}".strip())]


def _verdict(record: ProbeRecord) -> tuple[int, str]:
    """How well it went, 0 being worst, and the same in words."""
    if record.status == "failed":
        return 0, f"no answer ({record.error})"
    if record.status == "not_ready":
        return 0, "memory was not ready"
    hit, evidence = record.preference, record.evidence
    if hit is not None:
        if not hit.current:
            return 1, "an old value alone" if hit.stale else "not shown"
        beside = [
            name
            for name, there in (("an old value", hit.stale), ("the other context", hit.unlabelled))
            if there
        ]
        return (2, f"shown, beside {' and '.join(beside)}") if beside else (3, "shown")
    if evidence is not None:
        found = evidence.by_id if record.names_events else evidence.by_text
        if not evidence.gold:
            return 3, "no evidence to find"
        return (3 if found == evidence.gold else 1), f"{found} of {evidence.gold} turns found"
    return 3, "not scored here"
