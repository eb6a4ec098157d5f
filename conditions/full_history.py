"""The long-context control: the newest messages that fit the budget, in order (spec section 2.2)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import Field

from conditions._control import ControlCondition
from conditions._storage import Row, ScopeTables, event_in, fields_of, said, unreadable
from memory import (
    BackendHealth,
    ContextBudget,
    MemoryEvent,
    MemoryScope,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    TokenCounter,
    WriteReceipt,
)
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    ContextEntry,
    PluginInfo,
    PluginOptions,
    entry_cost,
    hookimpl,
    section_overhead,
)
from memory.adapter.stores import Durability, Store

_PAGE = 100  # events per read
_REMEMBERED = 4096  # events whose parsed form and cost are cached
_MAX_PASSED_OVER = 100  # limit of messages larger than a whole budget, so that packing stays bounded


class FullHistoryOptions(PluginOptions):
    """The block ``memory.conditions.full_history``."""

    phrases: tuple[str, ...] = Field(default=(), repr=False)
    """Only messages that hold one of these are shown, ignoring case; empty: all. For controls of a benchmark."""
    durability: Durability = "process"
    """What an acknowledged event survives: the end of the ``process``, or a power cut of the ``machine`` too."""


@dataclass(slots=True, eq=False)
class _Turn:
    of: MemoryEvent
    index: int
    role: str
    name: str | None
    text: str
    cost: int | None = None

    @property
    def native_id(self) -> str:
        return f"{self.of.event_id}/{self.index}"

    def entry(self) -> ContextEntry:
        return ContextEntry(
            self.text,
            labels=(("by", self.name or self.role),),
            native_id=self.native_id,
            timestamp=self.of.timestamp,
            event_ids=(self.of.event_id,),
            session_id=self.of.session_id,
        )

    def raw(self) -> dict[str, Any]:
        return {"id": self.native_id, "role": self.role, "text": self.text, **fields_of(self.of)}


class _Packing:
    """The newest turns that fit a budget.

    Args:
        budget: the request's budget.
        counter: measures a turn.
        overhead: tokens of the section around the turns.

    Attributes:
        chosen: what fits, newest first.
        seen: turns that were offered.
        full: whether no further turn is taken.
    """

    def __init__(self, budget: ContextBudget, counter: TokenCounter, overhead: int) -> None:
        self.chosen: list[_Turn] = []
        self.seen = 0
        self.full = budget.max_items == 0
        self._max_items = budget.max_items
        self._room = None if budget.max_tokens is None else budget.max_tokens - overhead
        self._counter = counter
        self._spent = 0
        self._passed_over = 0

    def offer(self, turn: _Turn) -> None:
        """Take the next older turn if it fits. A turn larger than the whole budget is skipped."""
        self.seen += 1
        if self.full:
            return
        if self._room is not None:
            if turn.cost is None:
                turn.cost = entry_cost(turn.entry(), self._counter)
            if turn.cost > self._room:
                self._passed_over += 1
                self.full = self._passed_over > _MAX_PASSED_OVER
                return
            self._spent += turn.cost
            if self._spent > self._room:
                self.full = True
                return
        self.chosen.append(turn)
        self.full = len(self.chosen) == self._max_items


class FullHistory(ControlCondition):
    def __init__(self, name: str, options: FullHistoryOptions, counter: TokenCounter, store: Store) -> None:
        traits = AdapterTraits(
            kind="control",
            pet_observability="dated",
            recalls_writes=not options.phrases,  # otherwise only texts with a phrase come back
        )
        super().__init__(name, traits)
        self.tables = ScopeTables(store, name, options.durability)
        # Thousands of phrases, by their first characters: a text is compared with those alone that may stand in it.
        self._start = min((len(phrase) for phrase in options.phrases), default=0)
        self._phrases: defaultdict[str, list[str]] = defaultdict(list)
        for phrase in options.phrases:
            self._phrases[phrase.casefold()[: self._start]].append(phrase.casefold())
        self._counter = counter
        self._unreadable: defaultdict[MemoryScope, set[int]] = defaultdict(set)
        self._turns = lru_cache(_REMEMBERED)(self._parsed)

    async def start(self) -> None:
        await self.tables.check()

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        messages, new = await self.tables.add(event)
        warnings = [] if new else ["this event_id was recorded before; the first version is kept"]
        ids = [f"{event.event_id}/{index}" for index in range(messages)]
        return self.receipt(event, "history.append", ids, warnings=warnings)

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        messages = await self.tables.messages_of(event)
        return None if messages is None else tuple(f"{event.event_id}/{index}" for index in range(messages))

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        overhead = section_overhead(self.backend_name, request.scope.label, self._counter)
        packing = _Packing(request.budget, self._counter, overhead)
        unread: set[int] = set()
        last: Row | None = None
        # With phrases, the omitted messages can only be counted by reading everything.
        while not packing.full or self._phrases:
            rows = await self.tables.before(request.scope, last, _PAGE)
            for row in rows:
                turns = self._turns(row, request.scope)
                if turns is None:
                    unread.add(row.seq)
                for turn in reversed(turns or ()):
                    packing.offer(turn)
            if len(rows) < _PAGE:
                break
            last = rows[-1]
        if unread:
            self._unreadable[request.scope] |= unread
        chosen = packing.chosen[::-1]
        total = packing.seen if self._phrases else await self.tables.count(request.scope)
        left_out = max(0, total - len(chosen))
        warnings = [f"the budget leaves out {left_out} older messages"] if left_out else []
        return self.found(
            request,
            "history.tail",
            tuple(turn.entry() for turn in chosen),
            {
                "messages_total": total,
                "messages_left_out": left_out,
                "messages": [turn.raw() for turn in chosen],
            },
            consistency="committed",
            left_out_count=left_out,
            warnings=(*warnings, *unreadable(sorted(unread))),
        )

    def _parsed(self, row: Row, scope: MemoryScope) -> tuple[_Turn, ...] | None:
        """The turns of a row that may be shown, or None if the row cannot be read."""
        if (event := event_in(row, scope)) is None:
            return None
        turns = (
            _Turn(event, index, message.role, message.name, said(message))
            for index, message in enumerate(event.messages)
        )
        return tuple(turn for turn in turns if self._is_shown(turn.text.casefold()))

    def _is_shown(self, text: str) -> bool:
        if not self._phrases:
            return True
        starts = {text[at : at + self._start] for at in range(len(text))} & self._phrases.keys()
        return any(phrase in text for start in starts for phrase in self._phrases[start])

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        removed = await self.tables.count(scope)
        await self.tables.clear(scope)
        self._turns.cache_clear()
        self._unreadable.pop(scope, None)
        return ResetReceipt(
            scope=scope,
            verified=not await self.tables.before(scope, None, 1),
            removed=removed,
            trace=self.trace(scope, "history.clear"),
        )

    async def health(self) -> BackendHealth:
        await self.tables.check()
        unread = sorted(row for rows in self._unreadable.values() for row in rows)
        return self.health_of(
            status="degraded" if unread else "ok",
            details={"kept_in": "the memory's store", "messages": await self.tables.count()},
            warnings=tuple(unreadable(unread)),
        )

    async def aclose(self) -> None:
        self._turns.cache_clear()
        self.tables.store.close()


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="full_history",
        kind="control",
        pet_observability="dated",
        summary="the newest messages that fit the budget, in chronological order",
        options=FullHistoryOptions,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[FullHistoryOptions]) -> FullHistory:
    return FullHistory(settings.name, settings.options, settings.token_counter, settings.store)


@hookimpl
def memslot_conformance() -> type[Any]:
    from conditions._conformance import InTables

    return InTables
