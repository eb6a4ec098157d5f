"""Everything that was said, in order, as far as the budget goes: the long-context control (spec section
2.2)."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from sys import intern
from typing import Any

from pydantic import Field

from conditions._control import ControlCondition
from conditions._storage import EventLog, Known, OwnedDirectory, read_off_loop, said, write
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
    DataPath,
    Durability,
    PluginInfo,
    PluginOptions,
    entry_cost,
    hookimpl,
    section_overhead,
)

_MAX_PASSED_OVER = 100  # messages larger than a whole budget: packing stays bounded


class FullHistoryOptions(PluginOptions):
    """The block ``memory.conditions.full_history``."""

    path: DataPath | None = None
    """One JSONL file per scope, in a directory for one slot at a time. Default: ``<data_dir>/full_history``."""
    phrases: tuple[str, ...] = Field(default=(), repr=False)
    """Only messages that hold one of these are shown, ignoring case; empty: all. For controls of a benchmark."""
    durability: Durability = "process"
    """What an acknowledged event survives: the end of the ``process``, or a power cut of the ``machine`` too."""


@dataclass(slots=True, eq=False)
class _Turn:
    of: Known
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
        return {"id": self.native_id, "role": self.role, "text": self.text, **self.of.raw()}


@dataclass(slots=True)
class _Transcript:
    """The history of one scope, sorted by time, and by arrival where the time is the same."""

    log: EventLog
    phrases: tuple[str, ...] = ()
    turns: list[_Turn] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, event: MemoryEvent) -> None:
        known = Known.of(event)
        for index, message in enumerate(event.messages):
            name = intern(str(message.name)) if message.name else None
            turn = _Turn(known, index, message.role, name, said(message))
            if self.phrases and not any(phrase in turn.text.casefold() for phrase in self.phrases):
                continue
            insort(self.turns, turn, key=lambda turn: turn.of.timestamp)
        self.sizes[known.event_id] = len(event.messages)

    def newest(self, budget: ContextBudget, counter: TokenCounter, overhead: int) -> list[_Turn]:
        """The newest turns that fit, oldest first. One too large for any window is passed over."""
        max_turns = len(self.turns) if budget.max_items is None else budget.max_items
        if budget.max_tokens is None:
            return self.turns[-max_turns:]
        room = budget.max_tokens - overhead
        chosen: list[_Turn] = []
        spent = passed_over = 0
        for turn in reversed(self.turns):
            if len(chosen) == max_turns:
                break
            if turn.cost is None:
                turn.cost = entry_cost(turn.entry(), counter)
            if turn.cost > room:
                passed_over += 1
                if passed_over > _MAX_PASSED_OVER:
                    break
                continue
            spent += turn.cost
            if spent > room:
                break
            chosen.append(turn)
        chosen.reverse()
        return chosen


class FullHistory(ControlCondition):
    def __init__(self, name: str, options: FullHistoryOptions, counter: TokenCounter, default: Path) -> None:
        traits = AdapterTraits(
            kind="control",
            pet_observability="dated",
            store=str(options.path or ""),
            recalls_writes=not options.phrases,  # else only texts with one of the phrases come back
        )
        super().__init__(name, traits)
        self._directory = OwnedDirectory(options.path or default, name)
        self._durability = options.durability
        self._phrases = tuple(phrase.casefold() for phrase in options.phrases)
        self._counter = counter
        self._transcripts: dict[MemoryScope, _Transcript] = {}

    async def start(self) -> None:
        self._directory.take()

    async def setup_scope(self, scope: MemoryScope) -> None:
        await self._transcript(scope)

    async def _transcript(self, scope: MemoryScope) -> _Transcript:
        self._directory.take()
        if scope not in self._transcripts:
            transcript = _Transcript(self._log(scope), self._phrases)
            for event in await read_off_loop(transcript.log.events):
                if event.event_id not in transcript.sizes:
                    transcript.add(event)
            self._transcripts.setdefault(scope, transcript)
        return self._transcripts[scope]

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        transcript = await self._transcript(event.scope)
        warnings = []
        if event.event_id in transcript.sizes:
            warnings.append("this event_id was recorded before; the first version is kept")
        else:
            await write(partial(transcript.log.add, event), self._durability)
            transcript.add(event)
        ids = [f"{event.event_id}/{index}" for index in range(transcript.sizes[event.event_id])]
        return self.receipt(event, "history.append", ids, warnings=warnings)

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        loaded = self._transcripts.get(request.scope)  # asking owns no directory
        overhead = section_overhead(self.backend_name, request.scope.label, self._counter)
        turns = loaded.newest(request.budget, self._counter, overhead) if loaded else []
        left_out = len(loaded.turns) - len(turns) if loaded else 0
        warnings = [f"the budget leaves out {left_out} older messages"] if left_out else []
        problem = loaded.log.problem() if loaded else None
        return self.found(
            request,
            "history.tail",
            tuple(turn.entry() for turn in turns),
            {
                "messages_total": len(turns) + left_out,
                "messages_left_out": left_out,
                "messages": [turn.raw() for turn in turns],
            },
            consistency="committed",
            left_out_count=left_out,
            warnings=(*warnings, *([problem] if problem else [])),
        )

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        log = self._log(scope)
        log.remove()
        transcript = self._transcripts.pop(scope, None)
        return ResetReceipt(
            scope=scope,
            verified=scope not in self._transcripts and not log.path.exists(),
            removed=len(transcript.turns) if transcript else None,
            trace=self.trace(scope, "history.clear"),
        )

    async def health(self) -> BackendHealth:
        transcripts = list(self._transcripts.values())
        logs = [transcript.log for transcript in transcripts]
        kept = sum(len(transcript.turns) for transcript in transcripts)
        return self.health_of(
            status="degraded" if any(log.problem() or log.lost for log in logs) else "ok",
            details={"kept_in": "JSONL files", "messages": kept},
            warnings=tuple(warning for log in logs for warning in log.warnings()),
        )

    async def aclose(self) -> None:
        self._transcripts.clear()
        self._directory.release()

    def _log(self, scope: MemoryScope) -> EventLog:
        self._directory.take()
        return EventLog(self._directory.file(scope, ".jsonl"), scope, self._durability)


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
    default = settings.data_dir / settings.name
    return FullHistory(settings.name, settings.options, settings.token_counter, default)
