"""The contamination control on the page: what a second round of asking would have changed."""

from __future__ import annotations

from memory.bench.report.page import Block
from memory.bench.report.results import Results
from memory.bench.scores.model import Measure

_NOTE = (
    "Each test session meets the memory as it stood before any test. Then the same memory is asked all of it once "
    "more, in reverse order. A difference means that it learns from what it is asked, or answers by chance. The "
    "figures of this page are those of the first time."
)


def contamination(results: Results) -> Block | None:
    """The requests that each provider answered differently the second time, and the shifted figures."""
    rows = []
    for entry in results.entries:
        counts = [cell.counts for _, cell in entry.cells]
        asked, otherwise, failed = (
            sum(count.get(name, 0) for count in counts)
            for name in ("asked_again", "answered_otherwise", "failed_again")
        )
        if asked:
            moved = [item for item in entry.metrics.measures if item.again]
            rows.append([entry.shown, f"{asked:,}", f"{otherwise:,}", f"{failed:,}", _moved(moved)])
    if not rows:
        return None
    columns = ["provider", "asked again", "answered otherwise", "failed then", "figures then, in points"]
    return Block("Control of contamination", columns=columns, rows=rows, note=_NOTE)


def _moved(measures: list[Measure]) -> str:
    shifts = sorted(measures, key=lambda item: -abs(item.again or 0.0))
    return ", ".join(f"{item.name} {100 * (item.again or 0.0):+.1f}" for item in shifts) or "all the same"
