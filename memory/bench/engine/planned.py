"""Requests that were planned: every one of them has a record, also where nobody got to ask it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from memory.bench.data.timeline import Timeline
from memory.bench.engine.probe_session import planned_probe
from memory.bench.engine.test_session import planned_requests
from memory.bench.scores.records import ProbeRecord


def planned_records(timeline: Timeline, *, answers: bool) -> Iterator[ProbeRecord]:
    """The records of a timeline's requests, in the order they are asked.

    Args:
        timeline: of one persona.
        answers: whether the assistant answers questions in words of its own.
    """
    for after in range(len(timeline.sessions) + 1):
        for test in timeline.tests_after(after):
            for _, record in planned_requests(timeline.persona_id, test):
                yield record
        for probe in timeline.probes_after(after):
            yield planned_probe(timeline.persona_id, probe, answers=answers)


def completed(
    records: Iterable[ProbeRecord],
    timeline: Timeline,
    *,
    answers: bool,
    fault: Literal["provider", "harness"] | None,
    error: str | None,
) -> list[ProbeRecord]:
    """Records of a cell, with those of the requests it did not get to.

    Args:
        records: of those it got to.
        timeline: what was planned.
        answers: as for :func:`planned_records`.
        fault: whose fault it was that it ended; None where it did not.
        error: class name of what ended it.
    """
    known = list(records)
    seen = {record.probe_id for record in known}
    status: Literal["failed", "missing"] = "failed" if fault == "provider" else "missing"
    rest = (
        replace(record, status=status, error=error)
        for record in planned_records(timeline, answers=answers)
        if record.probe_id not in seen
    )
    return [*known, *rest]
