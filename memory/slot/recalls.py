"""What each turn recalled. A memory with a journal keeps it, so that it can be shown later as it was then."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import Any

from anyio import to_thread

from memory.contract.errors import StoreError
from memory.contract.events import MemoryEvent
from memory.contract.formatting import strip_json
from memory.contract.receipts import ContextEntry, RetrieveResult
from memory.contract.scope import MemoryScope
from memory.storage.kept import HostStore, StoredObject
from memory.storage.store import Store

_KIND = "recall"
_WAITING, _KEPT = 1000, 10_000  # recalls without their turn yet, and turns for each store
_ROWS, _CHARACTERS = 50, 1000  # of a recall


class Recalls:
    """The recalls of one memory; without a store, none is kept.

    The recall of a turn is the last one of its session, if it asked what the user said in the turn.
    """

    def __init__(self, memory: str, store: Store | None) -> None:
        self._kept = None if store is None else HostStore(memory, store, max_objects=_KEPT)
        self._last: OrderedDict[tuple[MemoryScope, str | None], tuple[RetrieveResult, int]] = OrderedDict()
        self._resets: dict[MemoryScope, int] = {}

    async def resets(self, scope: MemoryScope) -> int | None:
        """At least how often a scope was reset before a recall that begins now. None if recalls are not kept."""
        if self._kept is not None and scope not in self._resets:
            with suppress(StoreError):
                count = await to_thread.run_sync(self._kept.resets, scope)
                if len(self._resets) >= _WAITING:
                    self._resets.clear()
                self._resets[scope] = count
        return self._resets.get(scope)

    def note(self, shown: RetrieveResult, resets: int | None) -> None:
        """Note what the prompt of a coming turn shows, and :meth:`resets` from before the recall began."""
        if resets is not None:
            self._last[shown.request.scope, shown.request.session_id] = shown, resets
            if len(self._last) > _WAITING:
                self._last.popitem(last=False)

    async def keep(self, event: MemoryEvent) -> None:
        """Keep the recall of a recorded turn, unless its scope was reset since the recall began.

        A store that fails costs the recall, never the turn.
        """
        shown, resets = self._last.pop((event.scope, event.session_id), (None, 0))
        if self._kept is None or shown is None:
            return
        said = next((each.content for each in event.messages if each.role == "user"), "")
        if shown.request.query != strip_json(said):
            return
        rows = [_row(entry, index in shown.included) for index, entry in enumerate(shown.entries[:_ROWS])]
        recall = StoredObject(_KIND, event.scope, event.event_id, {"event_id": event.event_id, "rows": rows})
        with suppress(StoreError):
            self._resets[event.scope] = await to_thread.run_sync(self._kept.put_since, resets, recall)

    def of(self, event: MemoryEvent) -> list[dict[str, Any]] | None:
        """What was recalled for a turn: ``id``, ``text``, ``time``, ``score`` and ``used``. None if not kept."""
        found: Any = self._kept and self._kept.get(_KIND, event.scope, event.event_id)
        return list(found["rows"]) if found else None

    def forget(self, scope: MemoryScope, native_id: str | None = None) -> None:
        """Remove the recalls that show a row, or those of a scope that still wait for their turn."""
        for key in [key for key in self._last if key[0] == scope]:
            del self._last[key]
        if native_id is None:
            self._resets.pop(scope, None)
        elif self._kept is not None:
            kept: list[Any] = [*self._kept.all(_KIND, scope)]
            for found in kept:
                if any(row["id"] == native_id for row in found["rows"]):
                    self._kept.drop(_KIND, scope, found["event_id"])

    def close(self) -> None:
        """Close the handle on the store. Idempotent."""
        if self._kept is not None:
            self._kept.close()


def _row(entry: ContextEntry, used: bool) -> dict[str, object]:
    time = entry.timestamp and entry.timestamp.isoformat()
    text = entry.text[:_CHARACTERS]
    return {"id": entry.native_id, "text": text, "time": time, "score": entry.score, "used": used}
