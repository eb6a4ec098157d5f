"""Broken adapters that once passed the kit: what is missing, late, hidden or done at the wrong moment."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from typing import Any

import anyio

from memory import (
    AdapterMode,
    MemoryEvent,
    MemoryScope,
    ModeReceipt,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.testing import FakeBackend, FakeNativeStore


class _Entries(FakeBackend):
    """Not a mutant: a place to change entries."""

    def changed(self, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        raise NotImplementedError

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        return result.model_copy(update={"entries": self.changed(result.entries)})


class NoNativeIds(_Entries):
    """Shows texts that cannot be traced to a record."""

    def changed(self, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(entry, native_id=None) for entry in entries)


class NoEventIds(_Entries):
    """Shows texts that cannot be traced to a turn, so that no evidence is ever found."""

    def changed(self, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(entry, event_ids=()) for entry in entries)


class ScoresNothing(_Entries):
    """Gives a score that is no number, as a division by zero leaves it."""

    def changed(self, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(entry, score=math.nan) for entry in entries)


class DropsRows(_Entries):
    """Leaves the last native row out."""

    def changed(self, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        return entries[: max(1, len(entries) - 1)]


class ReordersRows(_Entries):
    """Ranks by itself."""

    def changed(self, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        return entries[::-1]


class CutsEntries(_Entries):
    """Shows the start of each row."""

    def changed(self, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(entry, text=entry.text[:300]) for entry in entries)


def blocks_the_loop(call: str) -> type[FakeBackend]:
    """Calls a synchronous SDK where the event loop runs."""

    async def method(self: FakeBackend, *arguments: Any) -> Any:
        time.sleep(0.6)  # noqa: ASYNC251 (the mistake itself; long enough to be seen on a busy machine)
        return await getattr(super(made, self), call)(*arguments)

    made = type(f"BlocksTheLoopBy_{call}", (FakeBackend,), {call: method})
    return made


class Forgets(FakeBackend):
    """Keeps what is written in this object alone, and calls it committed."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(FakeNativeStore(latency_s=0.001))


class Truncates(FakeBackend):
    """Keeps the start of a message."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        cut = [
            message.model_copy(update={"content": message.content and message.content[:500]})
            for message in event.messages
        ]
        return await super().record_event(event.model_copy(update={"messages": tuple(cut)}))


class NamesOtherRecords(FakeBackend):
    """Makes up the native ids of its receipts."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        return (await super().record_event(event)).model_copy(update={"native_ids": ("made-up",)})


class PendingForNothing(FakeBackend):
    """Stores at once, as its traits say, and calls every write pending."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        return (await super().record_event(event)).model_copy(update={"status": "pending"})


class CountsWhatItDidNotRemove(FakeBackend):
    """Says that a reset removed something where nothing was."""

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        return (await super().reset_scope(scope)).model_copy(update={"removed": 7})


class Logs(FakeBackend):
    """Logs what it was told."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        logging.getLogger("mine").info("stored %s", event.messages[0].content)
        return await super().record_event(event)


class Prints(FakeBackend):
    """Prints what it is asked."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        print(request.query)  # noqa: T201 (the mistake itself)
        return await super().retrieve(request)


class Quadratic(FakeBackend):
    """Looks at all of a text for each of its characters."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        text = event.messages[0].content or ""
        for start in range(0, len(text), 16):
            text[start:].lower()
        return await super().record_event(event)


class LacksACapability(FakeBackend):
    """Is described with a capability that it does not have."""

    provenance = property()  # type: ignore[assignment]


class Soft(FakeBackend):
    """Not a mutant: CS fields join the question, as on backends that cannot filter."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.traits = replace(self.traits, cs_filtering="soft")

    def asked(self, request: RetrieveRequest) -> str:
        return " ".join((request.query, *request.cs_filters.values()))

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        plain = {"scenario": None, "context": None, "attribute": None, "query": self.asked(request)}
        result = await super().retrieve(request.model_copy(update=plain))
        return result.model_copy(update={"request": request})


class IgnoresSoftFields(Soft):
    """Declares an influence and sends the question alone."""

    def asked(self, request: RetrieveRequest) -> str:
        return request.query


class _Filters(FakeBackend):
    def clause(self, operator: str, value: Any) -> dict[str, Any]:
        raise NotImplementedError

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        filters: dict[str, Any] = {}
        for key, condition in request.filters.items():
            clauses = condition.items() if isinstance(condition, dict) else [("eq", condition)]
            made = {
                name: operand
                for operator, value in clauses
                for name, operand in self.clause(operator, value).items()
            }
            if made:
                filters[key] = made
        result = await super().retrieve(request.model_copy(update={"filters": filters}))
        return result.model_copy(update={"request": request})


class IgnoresRanges(_Filters):
    """Sends the operators it knows, and drops the others."""

    def clause(self, operator: str, value: Any) -> dict[str, Any]:
        return {} if operator in ("gt", "gte", "lt", "lte") else {operator: value}


class WrongBounds(_Filters):
    """Takes ``gt`` for ``gte`` and ``lt`` for ``lte``."""

    def clause(self, operator: str, value: Any) -> dict[str, Any]:
        return {f"{operator}e" if operator in ("gt", "lt") else operator: value}


class UnlimitedInItsSession(FakeBackend):
    """Adds all of the session that asks to what was searched for."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        if request.session_id != "session-1":
            return await super().retrieve(request)
        unlimited = request.budget.model_copy(update={"max_items": None})
        result = await super().retrieve(request.model_copy(update={"budget": unlimited}))
        return result.model_copy(update={"request": request})


class HidesWhatItReset(FakeBackend):
    """Remembers in this process what is not to be shown any more, and removes nothing."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._hidden: set[str] = set()

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        rows = await self.store.list_rows(self._space(scope))
        self._hidden |= {row["id"] for row in rows}
        return ResetReceipt(scope=scope, verified=True, removed=len(rows))

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        rows = [row for row in result.raw["rows"] if row["id"] not in self._hidden]
        entries = tuple(entry for entry in result.entries if entry.native_id not in self._hidden)
        return result.model_copy(update={"raw": {"rows": rows}, "entries": entries})


class ResetsWhatItFinds(FakeBackend):
    """Searches for what there is, and deletes that: what is still being derived turns up later."""

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        space = self._space(scope)
        found = [row for row in self.store._in(space) if self.store._findable(row)]
        for row in found:
            await self.store.delete(space, row.id)
        return ResetReceipt(scope=scope, verified=True, removed=len(found))


class LeaksWhilePending(FakeBackend):
    """Shows the queue of what is still to be derived, whose ever it is."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        waiting = [row.text for row in self.store.rows.values() if not self.store._findable(row)]
        return result.model_copy(update={"raw": {**result.raw, "waiting": waiting}})


class SendsTheLastFirst(FakeBackend):
    """Queues writes and empties the queue from the wrong end, when it must."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._queued: list[MemoryEvent] = []

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        self._queued.append(event)
        return WriteReceipt(event_id=event.event_id, status="queued")

    async def _flush(self) -> None:
        while self._queued:
            await super().record_event(self._queued.pop())

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        await self._flush()
        return ModeReceipt(read_only=mode.read_only)

    async def wait_until_ready(self, scope: MemoryScope, timeout_s: float) -> Any:
        await self._flush()
        return await super().wait_until_ready(scope, timeout_s)


class Narrow(FakeBackend):
    """Not a mutant: a client that stands one call at a time."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.traits = replace(self.traits, max_concurrency=1)


def breaks_its_limit(call: str) -> type[Narrow]:
    """Sends two requests at once in one kind of call, over a client that stands one at a time."""

    async def method(self: Narrow, *arguments: Any) -> Any:
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(self.store.ping)
        return await getattr(super(made, self), call)(*arguments)

    made = type(f"BreaksItsLimitBy_{call}", (Narrow,), {call: method})
    return made
