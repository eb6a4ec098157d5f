"""Declarations of a memory's author, and the aids that only the author can give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from memory import MemoryAdapter, MemoryScope, NativeMutationRequest, NativeQueryRequest
from memory.adapter import ContextEntry, PluginInfo
from memory.testing._faults import FaultKind

Fingerprint = Callable[[], object]
"""Returns the native state as a comparable value, or an awaitable of it."""
FaultInjector = Callable[[FaultKind], AbstractContextManager[object]]
"""Makes the backend fail for as long as its context is open; the kit asks for ``"500"`` and ``"late"``."""
EVENT_FIELDS = (
    "event_id", "session_id", "turn_id", "agent_id", "scenario", "context", "attribute", "metadata",
)  # fmt: skip


class Declarations:
    """Promises that a memory cannot make, and places where the kit looks. Override the class attributes."""

    ready_timeout_s: ClassVar[float] = 10.0
    """How long a write may take to become retrievable, in seconds."""

    event_fields: ClassVar[tuple[str, ...]] = EVENT_FIELDS
    """Fields of an event that can be found again in the raw payload or by provenance (spec section 1)."""

    without_ids: ClassVar[Mapping[str, str]] = {}
    """``native_id`` or ``event_ids`` -> why entries of this backend cannot carry it; ``native_ids`` -> what those
    of receipts are, where they are not records that can be read."""

    rewrites: ClassVar[str] = ""
    """Why texts come back in other words than they were said, such as ``a model extracts facts``; empty: they do
    not."""

    cannot_fail: ClassVar[str] = ""
    """Why no native call can fail, such as ``nothing is stored``; empty: some can."""

    answers_at_once: ClassVar[str] = ""
    """Why no native call keeps its caller waiting, such as ``what is shown comes from memory``; empty: some do."""

    blocks_loop_ms: ClassVar[float] = 50.0
    """How long the event loop may stand still; more only with the reason beside it."""

    lists_in_order: ClassVar[bool] = False
    """``native_query`` lists what was written in the order of its arrival."""

    limits_natively: ClassVar[bool] = True
    """``budget.max_items`` reaches the native call, so that no more records than that come back."""

    native_query: ClassVar[tuple[str, Mapping[str, object]] | None] = None
    """Operation and arguments of a native query that shows a scope's content; None if there is none."""

    native_mutations: ClassVar[Mapping[str, Mapping[str, object]]] = {"delete": {}}
    """Operation -> arguments of native mutations that work on the native id of a retrieved entry."""

    concurrent_scopes: ClassVar[int] = 64
    """How many scopes are used at once."""

    clean_up: ClassVar[bool] = False
    """Reset every scope after each spec: for servers that outlive it."""

    def native_rows(self, raw: object) -> Sequence[object] | None:
        """The native records in a payload: the payload itself, or its only list. Override for other shapes."""
        if isinstance(raw, list):
            return raw
        lists = [value for value in raw.values() if isinstance(value, list)] if isinstance(raw, dict) else []
        return lists[0] if len(lists) == 1 else None

    def mutations(
        self, scope: MemoryScope, entries: Iterable[ContextEntry]
    ) -> Iterator[NativeMutationRequest]:
        """Every declared mutation of every record that was retrieved, addressed to ``scope``."""
        for entry in entries:
            for operation, arguments in self.native_mutations.items():
                yield NativeMutationRequest(
                    scope=scope, operation=operation, native_id=entry.native_id, arguments=dict(arguments)
                )

    def query(self, scope: MemoryScope) -> NativeQueryRequest | None:
        """The declared native query of a scope, if there is one."""
        if self.native_query is None:
            return None
        operation, arguments = self.native_query
        return NativeQueryRequest(scope=scope, operation=operation, arguments=dict(arguments))


@dataclass(frozen=True)
class Aids:
    """Aids for the kit beside the adapter. None means not given."""

    make_adapter: Callable[[], MemoryAdapter] | None = None  # a further one of the same native system
    fingerprint: Fingerprint | None = None
    native_fault: FaultInjector | None = None
    native_peak: Callable[[], int] | None = None  # most native calls at a time
    described: PluginInfo | None = None


class ConformanceProfile(Declarations):
    """Declarations and aids of a plugin, for ``memslot conform``: what its hook ``memslot_conformance`` returns.

    Override what your plugin needs. Each spec gets an instance of its own.

    Args:
        data_dir: an empty directory, where the adapter's store lies unless the configuration says otherwise.
    """

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def fingerprint(self, adapter: Any) -> object:
        """The native state as a comparable value (or an awaitable of it), read past the adapter where possible.

        Raises:
            NotImplementedError: by default, which the report shows as not tested.
        """
        raise NotImplementedError

    def native_fault(self, adapter: Any, kind: FaultKind) -> AbstractContextManager[object]:
        """While it is open, native calls fail (``"500"``) or take half a second longer (``"late"``).

        Raises:
            NotImplementedError: by default, which the report shows as not tested.
        """
        raise NotImplementedError

    def native_peak(self, adapter: Any) -> int:
        """How many native calls there were at a time, at most.

        Raises:
            NotImplementedError: by default; the kit then counts the adapter's calls.
        """
        raise NotImplementedError

    def aids(self, adapter: MemoryAdapter, **given: Any) -> Aids:
        """The overridden methods of this profile, bound to an adapter."""
        for name in ("fingerprint", "native_fault", "native_peak"):
            if getattr(type(self), name) is not getattr(ConformanceProfile, name):
                given[name] = partial(getattr(self, name), adapter)
        return Aids(**given)
