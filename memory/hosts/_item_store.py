"""Items with a namespace and a key. The store keeps their values unchanged; the memory holds their text."""

from __future__ import annotations

import operator
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from memory import BackendUnavailable, CapabilityNotSupported, InputError, MemoryScope, MemorySlot
from memory.runtime import HostStore, Item, MemoryItems, StoredObject

Namespace = tuple[str, ...]
Row = Mapping[str, Any]
_MAX_KEYS = 500  # in one filter
_OWNER = "langgraph"  # the agent_id of written events, and the prefix of their ids
_ITEMS, _NAMESPACES = "langgraph item", "langgraph namespace"
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


class ItemStore:
    """Items over a slot. The slot's store keeps the values. Call it in the slot's event loop."""

    def __init__(self, slot: MemorySlot) -> None:
        self._slot = slot
        self._all = self.scope_of((f"{_OWNER} namespaces",))
        self._store = HostStore(slot.backend_name, slot.delivery.store, max_objects=2**62)

    def close(self) -> None:
        """Close the store of values. Idempotent."""
        self._store.close()

    def scope_of(self, namespace: Namespace) -> MemoryScope:
        """Return a namespace's scope. Its persona is the labels joined by dots."""
        run_id = self._slot.scope.run_id if self._slot.scope else _OWNER
        return MemoryScope(run_id=run_id, persona_id=".".join(namespace))

    def namespaces(self) -> list[Namespace]:
        rows: Sequence[Row] = self._store.all(_NAMESPACES, self._all)
        return sorted(tuple(row["namespace"]) for row in rows)

    def get(self, namespace: Namespace, key: str) -> Row | None:
        """Return an item's row, with the keys that :meth:`put` writes; None if there is no such item."""
        return self._store.get(_ITEMS, self.scope_of(namespace), key)

    def rows(self, namespace: Namespace) -> Sequence[Row]:
        return self._store.all(_ITEMS, self.scope_of(namespace))[::-1]

    async def recall(
        self, namespace: Namespace, query: str, limit: int, wanted: Row | None
    ) -> list[tuple[Item, Row | None]]:
        """Search the memory. Returns memories, best first, each with its item, or None for a derived memory.

        Replaced and deleted items and items without the wanted fields are left out. If the backend cannot
        filter, it is asked for more rows until there are enough or no further ones.
        """
        memories, filters, goal = self._memories(namespace), None, limit
        if wanted:
            keys = [
                row["key"] for row in self.rows(namespace) if row["indexed"] and fits(row["value"], wanted)
            ]
            goal = min(limit, len(keys))
            if len(keys) <= _MAX_KEYS and "in" in self._slot.traits.filter_operators:
                filters = {"key": {"in": keys}}
        asked, seen, found = max(goal, 1), -1, list[tuple[Item, Row | None]]()
        while len(found) < goal:
            items = await memories.search(query, asked, filters=filters)
            found = self._current(namespace, items, wanted)
            if len(items) <= seen:
                break
            seen, asked = len(items), asked * 16
        return found[:limit]

    def _current(
        self, namespace: Namespace, items: Sequence[Item], wanted: Row | None
    ) -> list[tuple[Item, Row | None]]:
        """Return the recalled memories that belong to a current item or are derived."""
        own = [
            next((name for name in item.event_ids if name.startswith(f"{_OWNER}:")), None) for item in items
        ]
        keys = {name.partition(":")[2].partition(":")[2] for name in own if name}
        if "" in keys:
            rows = self.rows(namespace)
        else:
            rows = list(self._store.get_many(_ITEMS, self.scope_of(namespace), keys).values())
        by_event = {row["event_id"]: row for row in rows}
        found: dict[str, tuple[Item, Row | None]] = {}
        for item, name in zip(items, own, strict=True):
            row = by_event.get(name) if name else None
            if row is not None and fits(row["value"], wanted):
                found.setdefault(f"key {row['key']}", (item, row))
            elif not name and not wanted:
                found.setdefault(f"text {item.id or item.content}", (item, None))
        return list(found.values())

    async def put(self, namespace: Namespace, key: str, value: Mapping[str, Any], text: str) -> None:
        """Replace an item's value.

        Raises:
            BackendUnavailable: the memory did not confirm that it stored ``text``, so the old value stays, or
                that it deleted the old text.
        """
        scope, before = self.scope_of(namespace), self.get(namespace, key)
        old = before["native_ids"] if before and "forget" in self._memories(namespace).offered else []
        now, event_id = datetime.now(UTC).isoformat(), f"{_OWNER}:{uuid.uuid4().hex}:{_named(key)}"
        native_ids: tuple[str, ...] = ()
        if text:
            receipt = await self._memories(namespace).store(
                text, session_id=_OWNER, event_id=event_id, agent_id=_OWNER, metadata={"key": key}
            )
            if receipt.status == "skipped_read_only":
                return
            if receipt.status == "unknown":
                raise BackendUnavailable(
                    f"{self._slot.backend_name} did not say whether it has the item; put it again"
                )
            native_ids = receipt.native_ids
        row = {
            "namespace": list(namespace),
            "key": key,
            "value": dict(value),
            "created_at": before["created_at"] if before else now,
            "updated_at": now,
            "event_id": event_id,
            "native_ids": [*native_ids, *old],  # the old ids stay until their memories are deleted
            "indexed": bool(text),
        }
        named = {"namespace": list(namespace)}
        self._store.put(
            StoredObject(_NAMESPACES, self._all, ".".join(namespace), named, scope),
            StoredObject(_ITEMS, scope, key, row),
        )
        if old and await self._memories(namespace).forget_all(old):
            self._store.put(StoredObject(_ITEMS, scope, key, {**row, "native_ids": list(native_ids)}))

    async def delete(self, namespace: Namespace, key: str) -> None:
        """Delete an item, if it exists, from the memory and the store.

        Raises:
            CapabilityNotSupported: the backend cannot delete a single memory.
            BackendUnavailable: the memory did not confirm the deletion.
        """
        row = self.get(namespace, key)
        if row is None:
            return
        if row["indexed"] and not (row["native_ids"] and "forget" in self._memories(namespace).offered):
            raise CapabilityNotSupported(
                f"{self._slot.backend_name} cannot delete a single memory, so the item stays; put it without an "
                "index, or reset the scope"
            )
        if not await self._memories(namespace).forget_all(row["native_ids"]):
            return
        self._store.drop(_ITEMS, self.scope_of(namespace), key)
        if not self.rows(namespace):
            self._store.drop(_NAMESPACES, self._all, ".".join(namespace))

    def _memories(self, namespace: Namespace) -> MemoryItems:
        return MemoryItems(self._slot, self.scope_of(namespace))


def _named(key: str) -> str:
    """Return a key as the part of an event id that identifies its item; empty if an id cannot hold it."""
    return key if re.fullmatch(r"[\w ./@-]{1,200}", key) else ""


def fits(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether a value has every wanted field, by equality or by an operator such as ``{"$gt": 3}``.

    Raises:
        InputError: an operator is unknown.
    """
    return all(_is(value.get(key), want) for key, want in (wanted or {}).items())


def _is(have: Any, want: Any) -> bool:
    if not isinstance(want, Mapping):
        return bool(have == want)
    if not any(str(key).startswith("$") for key in want):
        return isinstance(have, Mapping) and fits(have, want)
    if unknown := [key for key in want if key not in _COMPARE]:
        raise InputError(f"filter: {unknown[0]} is unknown; use {', '.join(_COMPARE)}")
    try:
        return all(_COMPARE[key](have, bound) for key, bound in want.items())
    except TypeError:
        return False
