"""What an experiment cost, by provider: tokens, calls of models, time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from memory.bench.engine.manifest import CellRecord, ExperimentManifest
from memory.bench.report.page import Block, share
from memory.bench.scores.metrics import GameMetrics


def cost_blocks(manifest: ExperimentManifest) -> Iterable[Block]:
    """What was written, asked and shown, what the providers' own models took, and how long each thing took."""
    tokens, times = [], []
    for variant in manifest.variants:
        own = [cell for cell in manifest.cells if cell.label == variant.label]
        counts: Counter[str] = Counter()
        for cell in own:
            counts.update(cell.counts)
        tokens.append(
            [
                variant.shown,
                f"{sum(cell.status == 'completed' for cell in own)} of {len(own)}",
                *(
                    f"{counts[name]:,}"
                    for name in ("events", "written_tokens", "asked_tokens", "context_tokens")
                ),
                *(
                    "unknown" if counts[f"{name}_unknown"] else f"{counts[name]:,}"
                    for name in ("llm_calls", "llm_tokens")
                ),
                str(sum(cell.resumed for cell in own)),
            ]
        )
        times.append([variant.shown, *(_time(own, phase) for phase in _PHASES)])
    yield Block(
        "Cost",
        columns=["provider", "cells", "events", *_TOKENS, "model calls to write", "their tokens", "resumed"],
        rows=tokens,
        note="Of accumulation. The user corrects what does not suit, so a memory that does worse is told more. "
        "Models are the provider's own; what it derives later it seldom tells.",
    )
    yield Block(
        "Time",
        columns=["provider", *_PHASES.values()],
        rows=times,
        note="Milliseconds, p50 / p95 / p99; of its cells the middle one.",
    )


_TOKENS = ("tokens written", "tokens asked", "tokens shown")
_PHASES = {
    "write": "write",
    "wait": "until ready",
    "retrieve": "retrieve",
    "answer": "answer",
    "judge": "judge",
}


def _time(cells: Sequence[CellRecord], phase: str) -> str:
    """Of the cells, the middle one's."""
    seen = [cell.timings[phase] for cell in cells if phase in cell.timings]
    middle = [
        sorted(value for one in seen if (value := getattr(one, name)) is not None)
        for name in ("p50", "p95", "p99")
    ]
    return " / ".join(f"{values[len(values) // 2]:,.1f}" if values else "–" for values in middle)


def models_block(manifest: ExperimentManifest, metrics: GameMetrics) -> Block:
    """What the roles' models were asked, and how far their answers can be trusted."""
    rows = []
    for one in metrics.variants:
        spent: Counter[str] = Counter()
        for cell in manifest.cells:
            for counts in cell.models.values() if cell.label == one.label else ():
                spent.update(counts)
        agreed = share(one.agreement)
        tokens = "unknown" if spent["unmetered"] else f"{spent['tokens']:,}"
        rows.append([one.shown, f"{spent['calls']:,}", tokens, f"{spent['unread']:,}", agreed])
    asked = [
        f"{role.role}: {role.model or role.provider}, temperature {_given(role.temperature)}, "
        f"seed {_given(role.seed)}" + (f", {role.votes} votes" if role.votes > 1 else "")
        for role in manifest.roles
        if role.kind == "model"
    ]
    columns = ["provider", "calls", "tokens", "answers not read", "votes that agree"]
    return Block("Models in the roles", columns=columns, rows=rows, note=". ".join(asked) + ".")


def _given(value: float | None) -> str:
    return "not given" if value is None else f"{value:g}"
