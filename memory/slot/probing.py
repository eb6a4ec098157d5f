"""The doctor's questions to a slot, beyond the contract."""

from __future__ import annotations

from collections.abc import Iterable

from memory.contract.adapter import SupportsModelProbe, missing_methods
from memory.contract.errors import MemslotError
from memory.slot.slot import MemorySlot


def missing_of(slot: MemorySlot, declared: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The adapter's gaps: ``MemoryAdapter`` or a declared capability -> its missing methods."""
    return missing_methods(slot._calls.adapter, declared)


async def probe_models(slot: MemorySlot) -> dict[str, MemslotError | None] | None:
    """Call each of the adapter's models within ``write_s``: role -> its error or None. None without probes."""
    calls = slot._calls
    if not isinstance(calls.adapter, SupportsModelProbe):
        return None
    answers: dict[str, MemslotError | None] = {}
    with calls.span("probe_models") as span:
        for role, probe in calls.adapter.model_probes().items():
            try:
                await calls.call(span, calls.deadlines.write_s, probe, operation=role)
                answers[role] = None
            except MemslotError as error:
                answers[role] = error
    return answers
