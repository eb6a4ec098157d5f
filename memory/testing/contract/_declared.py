"""The declarations and aids of a memory's author."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import anyio

from memory import MemoryAdapter, MemoryScope, NativeMutationRequest, NativeQueryRequest
from memory.adapter import ContextEntry, PluginInfo
from memory.testing._faults import FAKE_KEY, FaultKind

Fingerprint = Callable[[], object]
"""Returns the native state as a comparable value, or an awaitable of it."""
FaultInjector = Callable[[FaultKind], AbstractContextManager[object]]
"""Makes the backend fail while its context is open. The kit uses ``"500"`` and ``"late"``."""
EVENT_FIELDS = (
    "event_id", "session_id", "turn_id", "agent_id", "scenario", "context", "attribute", "metadata",
)  # fmt: skip


class Declarations:
    """The promises that a memory cannot make, and hints for the kit. Override the class attributes."""

    ready_timeout_s: ClassVar[float] = 10.0
    """The seconds that a write may take to become retrievable."""

    event_fields: ClassVar[tuple[str, ...]] = EVENT_FIELDS
    """The fields of an event that the raw payload or provenance shows again (spec section 1)."""

    without_ids: ClassVar[Mapping[str, str]] = {}
    """``native_id`` or ``event_ids`` -> the reason why entries cannot carry it. ``native_ids`` -> the meaning of a
    receipt's ids, if they do not name readable records."""

    rewrites: ClassVar[str] = ""
    """The reason why texts come back in other words, such as ``a model extracts facts``. Empty if they do not."""

    cannot_fail: ClassVar[str] = ""
    """The reason why no native call can fail, such as ``nothing is stored``. Empty if one can."""

    answers_at_once: ClassVar[str] = ""
    """The reason why no native call can wait, such as ``answers come from memory``. Empty if one can."""

    lists_in_order: ClassVar[bool] = False
    """Whether ``native_query`` lists writes in the order of their arrival."""

    limits_natively: ClassVar[bool] = True
    """Whether ``budget.max_items`` reaches the native call and limits its records."""

    native_query: ClassVar[tuple[str, Mapping[str, object]] | None] = None
    """The operation and arguments of a native query that shows a scope's content, or None."""

    native_mutations: ClassVar[Mapping[str, Mapping[str, object]]] = {"delete": {}}
    """Operation -> arguments of a native mutation that accepts the native id of a retrieved entry."""

    concurrent_scopes: ClassVar[int] = 64
    """The number of concurrent scopes."""

    clean_up: ClassVar[bool] = False
    """Whether to reset every scope after each spec, for servers that outlive it."""

    def native_rows(self, raw: object) -> Sequence[object] | None:
        """The native records in a payload: the payload itself, or its only list. Override it for other shapes."""
        if isinstance(raw, list):
            return raw
        lists = [value for value in raw.values() if isinstance(value, list)] if isinstance(raw, dict) else []
        return lists[0] if len(lists) == 1 else None

    def mutations(
        self, scope: MemoryScope, entries: Iterable[ContextEntry]
    ) -> Iterator[NativeMutationRequest]:
        """Every declared mutation of every retrieved record, addressed to ``scope``."""
        for entry in entries:
            for operation, arguments in self.native_mutations.items():
                yield NativeMutationRequest(
                    scope=scope, operation=operation, native_id=entry.native_id, arguments=dict(arguments)
                )

    def query(self, scope: MemoryScope) -> NativeQueryRequest | None:
        """The declared native query of a scope, or None."""
        if self.native_query is None:
            return None
        operation, arguments = self.native_query
        return NativeQueryRequest(scope=scope, operation=operation, arguments=dict(arguments))


@dataclass(frozen=True)
class Aids:
    """Aids for the kit beside the adapter. None means missing."""

    make_adapter: Callable[[], MemoryAdapter] | None = None  # makes another adapter of the same native system
    fingerprint: Fingerprint | None = None
    native_fault: FaultInjector | None = None
    described: PluginInfo | None = None


class ConformanceProfile(Declarations):
    """A plugin's declarations and aids. Its hook ``memslot_conformance`` returns the class.

    Override what your plugin needs. Each spec gets its own instance.

    Args:
        data_dir: an empty directory for the adapter's store, unless the configuration names another.
    """

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def fingerprint(self, adapter: Any) -> object:
        """The native state as a comparable value or an awaitable of one. Read it past the adapter if possible.

        Raises:
            NotImplementedError: by default, which the report shows as not tested.
        """
        raise NotImplementedError

    def native_fault(self, adapter: Any, kind: FaultKind) -> AbstractContextManager[object]:
        """A context in which native calls fail (``"500"``) or take half a second longer (``"late"``).

        Raises:
            NotImplementedError: by default, which the report shows as not tested.
        """
        raise NotImplementedError

    def aids(self, adapter: MemoryAdapter, **given: Any) -> Aids:
        """This profile's overridden methods, bound to an adapter."""
        for name in ("fingerprint", "native_fault"):
            if getattr(type(self), name) is not getattr(ConformanceProfile, name):
                given[name] = partial(getattr(self, name), adapter)
        return Aids(**given)


class HttpConformance(ConformanceProfile):
    """For a plugin whose adapter reaches its server by httpx: what makes the server fail stands in between."""

    database: ClassVar[str] = ""
    """The environment variable with the PostgreSQL address that :meth:`rows` reads; empty: nothing is read."""

    @contextmanager
    def native_fault(self, adapter: Any, kind: FaultKind) -> Iterator[None]:
        """Every request is answered as a proxy of a broken server does, with what was sent; or waits."""
        import httpx

        native = httpx.AsyncHTTPTransport.handle_async_request

        async def faulty(transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
            if kind == "500":
                sent = f"{dict(request.headers)} {request.content.decode()}"
                return httpx.Response(500, text=f"Internal Server Error (key {FAKE_KEY}): {sent}")
            await anyio.sleep(0.5)
            return await native(transport, request)

        with patch.object(httpx.AsyncHTTPTransport, "handle_async_request", faulty):
            yield

    def rows(self, query: str) -> list[Any]:
        """The rows of a query, read past the server."""
        import psycopg

        with psycopg.connect(os.environ[self.database]) as database:
            return database.execute(query).fetchall()

    def aids(self, adapter: MemoryAdapter, **given: Any) -> Aids:
        """Without a fingerprint, where no variable names the server's database."""
        aids = super().aids(adapter, **given)
        unread = self.database and self.database not in os.environ
        return replace(aids, fingerprint=None) if unread else aids
