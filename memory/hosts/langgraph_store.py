"""LangGraph: a ``BaseStore`` over a memory, for langmem, deep agents and graphs that read and write items.

A separate store keeps each item's value unchanged, and the memory holds its text. So ``get`` and filters are
exact with every backend, and a search with a query uses the backend's own search.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from memory import InputError
from memory.hosts._item_store import ItemStore, Namespace, fits
from memory.hosts._shared import tested
from memory.runtime import HostTurns, OpenMemory, turns_of
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
    from langgraph.store.memory import InMemoryStore


class SlotStore(BaseStore):  # type: ignore[misc]
    """A LangGraph store. Each namespace has a separate scope, whose persona is the labels joined by dots.

        graph = builder.compile(store=SlotStore(memory))

    A search with a query returns the items that the memory recalls. Without a filter, it also returns
    memories that the backend derived from items, with their native id as the key and ``{"text": ...}`` as the
    value. There is no time to live. Only a backend that can delete single memories can delete items; others
    raise an error. ``put`` waits for the memory and raises its errors.

    Args:
        memory: an open memory. The code that opened it closes it, after the store's last call. Its store
            keeps the values; without one, they last as long as this object.
    """

    __slots__ = ("_items", "_turns")

    def __init__(self, memory: OpenMemory) -> None:
        slot = turns_of(memory).slot
        self._items = ItemStore(slot)
        self._turns = HostTurns(memory, "langgraph", self._items.scope_of)

    def close(self) -> None:
        """Close the store of values. Idempotent."""
        self._items.close()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run the reads first, then the last write of each key.

        Raises:
            InputError, NotImplementedError: an operation is unknown, a value is not JSON-ready, or there is a
                time to live. Nothing is written.
            InvalidNamespaceError: a namespace is invalid by LangGraph's rules.
            MemslotError: the memory refused or failed.
        """
        return await self._turns.call(partial(self._batch, list(ops)))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations like :meth:`abatch`, from a thread other than that of the memory's event loop.

        Raises:
            LifecycleError: this is the thread of the memory's event loop.
        """
        return self._turns.call_blocking(partial(self._batch, list(ops)))

    async def _batch(self, ops: list[Op]) -> list[Result]:
        for op in ops:
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                if op.ttl is not None:
                    raise NotImplementedError("a memory keeps items until they are deleted; leave ttl out")
                try:
                    json.dumps(op.value, ensure_ascii=False).encode()
                except (TypeError, ValueError) as error:
                    raise InputError(f"an item's value is kept as JSON: {error}") from error
        writes = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        results: list[Result] = [await self._read(op) for op in ops]
        for (namespace, key), op in writes.items():
            if op.value is None:
                await self._items.delete(namespace, key)
            else:
                await self._items.put(namespace, key, op.value, _text(op.value, op.index))
        return results

    async def _read(self, op: Op) -> Result:
        if isinstance(op, PutOp):
            return None
        if isinstance(op, GetOp):
            row = self._items.get(op.namespace, op.key)
            return None if row is None else _item(Item, row)
        if isinstance(op, ListNamespacesOp):
            return self._list(op)
        if isinstance(op, SearchOp):
            return (await self._search(op))[op.offset : op.offset + op.limit]
        raise InputError(f"{type(op).__name__} is no operation of LangGraph's store")

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        prefix = op.namespace_prefix
        spaces = [space for space in self._items.namespaces() if space[: len(prefix)] == prefix]
        if not (op.query or "").strip():
            rows = [row for space in spaces for row in self._items.rows(space)]
            return [_item(SearchItem, row) for row in rows if fits(row["value"], op.filter)]
        hits: list[SearchItem] = []
        for space in spaces:
            for found, row in await self._items.recall(
                space, op.query or "", op.offset + op.limit, op.filter
            ):
                hits.append(_item(SearchItem, row, score=found.score) if row else _derived(space, found))
        return sorted(hits, key=lambda hit: -(hit.score or 0.0)) if len(spaces) > 1 else hits

    def _list(self, op: ListNamespacesOp) -> Result:
        """Match namespaces by LangGraph's own rules, in a store that holds nothing else."""
        own = InMemoryStore()
        own.batch([PutOp(space, "", {}) for space in self._items.namespaces()])
        return own.batch([op])[0]


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
    """Convert a memory that the backend derived from items to an item."""
    at = memory.timestamp or datetime.fromtimestamp(0, UTC)
    key = memory.id or uuid.uuid5(uuid.NAMESPACE_OID, memory.content).hex
    return SearchItem(space, key, {"text": memory.content}, at, at, memory.score)


def _text(value: Mapping[str, Any], index: Any) -> str:
    """Return a value's text for the memory: the only text at the paths, or each one below its path.

    ``index`` holds the paths. None takes every field, and False none, so that the item is not indexed.
    """
    paths = {key: [key] for key in value}
    if index is not None:
        paths = {path: tokenize_path(path) for path in index or ()}
    found = [(path, text) for path, tokens in paths.items() for text in get_text_at_path(value, tokens)]
    texts = [(path, text) for path, text in found if text.strip()]
    return texts[0][1] if len(texts) == 1 else "\n".join(f"{path}: {text}" for path, text in texts)
