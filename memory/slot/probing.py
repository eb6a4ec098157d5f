"""Questions of the doctor to a slot, beyond the contract."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memory.contract.adapter import SupportsModelProbe, SupportsProbeScopes, missing_methods
from memory.contract.errors import MemslotError
from memory.contract.scope import MemoryScope
from memory.slot.slot import MemorySlot


def missing_of(slot: MemorySlot, declared: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Declared capabilities that are neither offered nor withheld, and the methods they lack."""
    return missing_methods(slot._calls.adapter, declared)


def allocate_probe_scopes(slot: MemorySlot, scopes: Sequence[MemoryScope]) -> int:
    """How many of these synthetic scopes, from the first on, can be set up."""
    adapter = slot._calls.adapter
    return adapter.allocate_probe_scopes(scopes) if isinstance(adapter, SupportsProbeScopes) else len(scopes)


async def probe_models(slot: MemorySlot) -> dict[str, MemslotError | None] | None:
    """Reach every model that the adapter calls itself, each within ``write_s``: why it does not answer, or None."""
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
