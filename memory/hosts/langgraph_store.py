"""LangGraph: a memory as its ``BaseStore``, for langmem, deep agents and graphs that read and write items.

An item's value is kept beside the memory, as it is; its text is what the memory remembers and finds. So ``get`` and
filters are exact whatever the backend, and a search with a query is the backend's own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from memory import BackendUnavailable, CapabilityNotSupported, InputError, MemoryScope
from memory.hosts._items import fits, matches, text_of
from memory.hosts._registry import tested
from memory.runtime import HostStore, HostTurns, MemoryItems, TurnMemory
from memory.runtime import Item as Memory

with tested("langchain"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        get_text_at_path,
        tokenize_path,
        validate_op_namespace,
    )

Namespace = tuple[str, ...]
_ITEMS, _NAMESPACES = "langgraph item", "langgraph namespace"
_ALL = MemoryScope(run_id="langgraph", persona_id="namespaces")


class SlotStore(BaseStore):  # type: ignore[misc]
    """Every namespace a scope of its own.

        graph = builder.compile(store=SlotStore(memory))

    A search with a query answers what the memory recalls for it: items, and, without a filter, what the backend
    derived from items, under its native id and as ``{"text": ...}``. There is no time to live. To delete an item
    takes a backend that can delete a single memory; others refuse it in words. ``put`` waits for the memory and
    raises what it raises.

    Args:
        memory: whoever opened it closes it, after the store's last call. Its slot's ``host_file`` keeps the values;
            without one they are kept as long as the store.
        scope_of: the scope of a namespace; by default a persona named by its labels, joined by dots.
    """

    __slots__ = ("_scope_of", "_store", "_turns")

    def __init__(
        self, memory: TurnMemory, *, scope_of: Callable[[Namespace], MemoryScope] | None = None
    ) -> None:
        slot = memory.slot
        run_id = slot.scope.run_id if slot.scope else "langgraph"
        self._scope_of = scope_of or (
            lambda namespace: MemoryScope(run_id=run_id, persona_id=".".join(namespace))
        )
        self._turns = HostTurns(memory, "langgraph")
        self._store = HostStore(slot.backend_name, slot.host_file, max_objects=2**62)

    def close(self) -> None:
        """Give the file of values back. Idempotent."""
        self._store.close()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Reads first, then the last write of each key.

        Raises:
            InputError, NotImplementedError: an operation is none of LangGraph's, or has a time to live.
            InvalidNamespaceError: by LangGraph's rules.
            MemslotError: the memory refused or failed.
        """
        return await self._turns.call(partial(self._batch, list(ops)))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """As :meth:`abatch`, from a thread that is not that of the memory's event loop.

        Raises:
            LifecycleError: it is.
        """
        return self._turns.call_blocking(partial(self._batch, list(ops)))

    async def _batch(self, ops: list[Op]) -> list[Result]:
        for op in ops:
            validate_op_namespace(op)
            if isinstance(op, PutOp) and op.ttl is not None:
                raise NotImplementedError("a memory keeps items until they are deleted; leave ttl out")
        writes = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        results: list[Result] = [await self._read(op) for op in ops]
        for op in writes.values():
            await (self._delete(op) if op.value is None else self._put(op))
        return results

    async def _read(self, op: Op) -> Result:
        if isinstance(op, PutOp):
            return None
        if isinstance(op, GetOp):
            row = self._store.get(_ITEMS, self._scope_of(op.namespace), op.key)
            return None if row is None else _item(Item, row)
        if isinstance(op, ListNamespacesOp):
            return self._list(op)
        if isinstance(op, SearchOp):
            found = [item async for item in self._search(op)]
            return found[op.offset : op.offset + op.limit]
        raise InputError(f"{type(op).__name__} is no operation of LangGraph's store")

    # -- reading ----------------------------------------------------------------------------------------

    async def _search(self, op: SearchOp) -> Any:
        spaces = [
            space for space in self._namespaces() if space[: len(op.namespace_prefix)] == op.namespace_prefix
        ]
        if not (op.query or "").strip():
            for space in spaces:
                for row in reversed(self._store.all(_ITEMS, self._scope_of(space))):
                    if fits(row["value"], op.filter):
                        yield _item(SearchItem, row)
            return
        hits: list[SearchItem] = []
        for space in spaces:
            hits.extend(await self._recalled(space, op))
        for hit in sorted(hits, key=lambda hit: -(hit.score or 0.0)) if len(spaces) > 1 else hits:
            yield hit

    async def _recalled(self, space: Namespace, op: SearchOp) -> list[SearchItem]:
        scope = self._scope_of(space)
        rows = {row["event_id"]: row for row in self._store.all(_ITEMS, scope)}
        # A filter is applied to what was recalled, so there has to be more of it.
        limit = (op.offset + op.limit) * (4 if op.filter else 1)
        hits: dict[str, SearchItem] = {}
        for memory in await MemoryItems(self._turns.memory.slot, scope).search(op.query or "", max(limit, 1)):
            own = [event_id for event_id in memory.event_ids if event_id.startswith("langgraph:")]
            row = next((rows[event_id] for event_id in own if event_id in rows), None)
            if row is not None and fits(row["value"], op.filter):
                hits.setdefault(row["key"], _item(SearchItem, row, score=memory.score))
            elif not own and not op.filter:
                hit = _derived(space, memory)
                hits.setdefault(hit.key, hit)
        return list(hits.values())

    def _namespaces(self) -> list[Namespace]:
        return sorted(tuple(row["namespace"]) for row in self._store.all(_NAMESPACES, _ALL))

    def _list(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        found = [
            space
            for space in self._namespaces()
            if all(matches(one.match_type, one.path, space) for one in conditions)
        ]
        if op.max_depth is not None:
            found = sorted({space[: op.max_depth] for space in found})
        return found[op.offset : op.offset + op.limit]

    # -- writing ----------------------------------------------------------------------------------------

    async def _put(self, op: PutOp) -> None:
        scope, value = self._scope_of(op.namespace), dict(op.value or {})
        before = self._store.get(_ITEMS, scope, op.key)
        now, event_id = datetime.now(UTC).isoformat(), f"langgraph:{uuid.uuid4().hex}"
        native_ids: tuple[str, ...] = ()
        if text := _text(value, op.index):
            items = MemoryItems(self._turns.memory.slot, scope)
            receipt = await items.store(
                text,
                session_id="langgraph",
                event_id=event_id,
                agent_id="langgraph",
                metadata={"key": op.key},
            )
            if receipt.status == "skipped_read_only":
                return
            if receipt.status == "unknown":
                raise BackendUnavailable(
                    f"{items.slot.backend_name} did not say whether it has the item; put it again"
                )
            native_ids = receipt.native_ids
        row = {
            "namespace": list(op.namespace),
            "key": op.key,
            "value": value,
            "created_at": before["created_at"] if before else now,
            "updated_at": now,
            "event_id": event_id,
            "native_ids": list(native_ids),
            "indexed": bool(text),
        }
        name = ".".join(op.namespace)
        self._store.put(_NAMESPACES, _ALL, [(name, {"namespace": list(op.namespace)})], scope)
        self._store.put(_ITEMS, scope, [(op.key, row)])
        if before is not None and "forget" in self._offered(scope):
            await self._forget(scope, before)

    async def _delete(self, op: PutOp) -> None:
        scope = self._scope_of(op.namespace)
        row = self._store.get(_ITEMS, scope, op.key)
        if row is None:
            return
        if row["indexed"] and not (row["native_ids"] and "forget" in self._offered(scope)):
            raise CapabilityNotSupported(
                f"{self._turns.memory.slot.backend_name} cannot delete a single memory, so the item stays; put it "
                "with index=False, or reset the scope"
            )
        await self._forget(scope, row)
        self._store.drop(_ITEMS, scope, op.key)
        if not self._store.all(_ITEMS, scope):
            self._store.drop(_NAMESPACES, _ALL, ".".join(op.namespace))

    async def _forget(self, scope: MemoryScope, row: Mapping[str, Any]) -> None:
        for native_id in row["native_ids"]:
            await MemoryItems(self._turns.memory.slot, scope).forget(native_id)

    def _offered(self, scope: MemoryScope) -> tuple[str, ...]:
        return MemoryItems(self._turns.memory.slot, scope).offered


def _item(kind: Any, row: Mapping[str, Any], **more: Any) -> Any:
    return kind(
        namespace=tuple(row["namespace"]),
        key=row["key"],
        value=row["value"],
        created_at=datetime.fromisoformat(row["created_at"]),
        updated_at=datetime.fromisoformat(row["updated_at"]),
        **more,
    )


def _derived(space: Namespace, memory: Memory) -> SearchItem:
    """What a backend made of items, which are not its own words any more."""
    at = memory.timestamp or datetime.fromtimestamp(0, UTC)
    key = memory.id or uuid.uuid5(uuid.NAMESPACE_OID, memory.content).hex
    return SearchItem(space, key, {"text": memory.content}, at, at, memory.score)


def _text(value: Mapping[str, Any], index: Any) -> str:
    """What the memory is told of a value."""
    if index:
        return "\n".join(text for path in index for text in get_text_at_path(value, tokenize_path(path)))
    return "" if index is False else text_of(value)
