"""The beats of an experiment one by one, with what was said, shown and judged: where its cells kept the texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory.bench.engine.experiment import load_beats
from memory.bench.engine.manifest import CellRecord, ExperimentManifest
from memory.bench.report.page import Block
from memory.bench.scores.records import BeatRecord
from memory.contract.errors import ConfigError

INSTEAD = {
    "stale": "an older setting",
    "other": "the other context's",
    "decoy": "hearsay or a single case",
    "unknown": "some other setting",
    "nothing": "none",
}
"""What a reply shows in place of the setting in force, in words."""
_MOST = 500
_Judged = tuple[int, str, BeatRecord, list[dict[str, Any]]]


def beat_blocks(directory: Path, manifest: ExperimentManifest) -> list[Block]:
    """A block of each provider's beats, those that lost first; none where no texts were kept.

    Raises:
        ConfigError: results or texts cannot be read.
    """
    blocks = []
    for variant in manifest.variants:
        cells = [cell for cell in manifest.cells if cell.label == variant.label]
        judged = [one for cell in cells for one in _judged(directory, cell)]
        if judged:
            blocks.append(_block(variant.shown, judged, max(1, _MOST // len(manifest.variants))))
    return blocks


def _block(shown: str, judged: list[_Judged], most: int) -> Block:
    judged.sort(key=lambda one: one[0])
    left = len(judged) - most
    note = f" {left:,} further ones are in the cells' texts.jsonl and results.jsonl." if left > 0 else ""
    return Block(
        f"Request by request: {shown}",
        details=[_detail(verdict, beat, said) for _, verdict, beat, said in judged[:most]],
        note=f"Those that lost first.{note}",
    )


def _judged(directory: Path, cell: CellRecord) -> list[_Judged]:
    file = directory / "cells" / cell.cell_id / "texts.jsonl"
    if not file.exists():
        return []
    kept: dict[str, list[dict[str, Any]]] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
        if line:
            try:
                row = json.loads(line)
                kept.setdefault(row["probe_id"], []).append(row)
            except (ValueError, TypeError, KeyError):
                raise ConfigError(f"{file}, line {number}, is damaged") from None
    beats = [one.beat for one in load_beats(directory, [cell])]
    return [(*_verdict(one), one, kept.get(one.probe_id, [])) for one in beats]


def _verdict(beat: BeatRecord) -> tuple[int, str]:
    """How well it went, 0 being worst, and the same in words."""
    if beat.status != "scored":
        words = {"not_ready": "memory was not ready", "unreadable": "the judgement cannot be read"}
        return 0, words.get(beat.status, f"no memory ({beat.error})")
    if beat.fit_first is None and beat.gold and beat.found is not None:
        whole = beat.found >= beat.gold
        return (3 if whole else 2 if beat.found else 1), f"{beat.found} of {beat.gold} turns found"
    if beat.fit_first is None:
        return 3, "not judged"
    if beat.fit_first:
        return 3, "suited"
    instead = f", showed {INSTEAD[beat.first]}" if beat.first in INSTEAD else ""
    later = f"; suited after {beat.turns} replies" if beat.fit_last else ""
    return (2 if beat.fit_last else 1), f"did not suit{instead}{later}"


def _detail(verdict: str, beat: BeatRecord, said: Sequence[dict[str, Any]]) -> tuple[str, str]:
    asked = said[0].get("user") if said else None
    what = ", ".join(filter(None, (beat.persona_id, beat.attribute, beat.kind)))
    title = f"{verdict}: {asked or beat.probe_id} ({what}, after {beat.after} sessions)"
    section = (said[0].get("context") if said else None) or "nothing"
    lines = [f"{name}: {row[name]}" for row in said for name in ("user", "reply") if row.get(name)]
    return title, "\n".join([*lines, "", "Shown to the first reply:", section]).strip()
