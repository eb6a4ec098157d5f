"""Moving a memory: the events of a journal, written into another backend in their order and with their times.

What an interrupted replay had sent without noting it is looked up; where it cannot be, one event may be written
twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice

from memory.contract.adapter import SupportsBulkIngest, SupportsReadiness
from memory.contract.errors import InputError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import BackendReadiness, WriteReceipt
from memory.contract.requests import ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.slot.slot import MemorySlot
from memory.storage.journal import Journal
from memory.storage.resets import JournalKey

_PIECE, _FIRST = 100, 10  # events
_QUICK_S, _SLOW_S = 0.5, 2.0  # of a piece: a slow target shows its progress by smaller ones
_ASKED = 20
_SHOWN = 50

Progress = Callable[[str, int, int], None]


@dataclass
class ReplayedScope:
    scope: MemoryScope
    events: int  # in the journal
    earlier: int = 0  # of these, written by an earlier replay to the same target
    written: int = 0  # now
    found_written: int = 0  # of these, found in the target before they were sent
    unknown: tuple[str, ...] = ()  # ids of what was sent without an answer, now or earlier, and may be stored
    resolved: int = 0  # events an earlier replay got no answer for, and which are stored
    readiness: BackendReadiness | None = None  # when all was sent
    asked: int = 0  # afterwards, for events by their own words
    recalled: int = 0  # of these, with their own event id, or unlabelled from a target that derives

    @property
    def complete(self) -> bool:
        return self.earlier + self.written == self.events and not self.unknown


@dataclass(frozen=True)
class ReplayReport:
    target: str
    scopes: tuple[ReplayedScope, ...] = ()

    @property
    def complete(self) -> bool:
        return all(scope.complete for scope in self.scopes)


def target_of(provider: str, *places: str) -> str:
    """The name under which a journal notes how far a replay has come: a provider, and a hash of where it keeps."""
    return f"{provider}:{sha256(chr(0).join(places).encode()).hexdigest()[:16]}"


async def replay(
    journal: Journal,
    slot: MemorySlot,
    target: str,
    *,
    persona_id: str | None = None,
    anew: bool = False,
    retry_unknown: bool = False,
    progress: Progress | None = None,
    ready_timeout_s: float = 60.0,
) -> ReplayReport:
    """Write the past that a journal keeps, of one person or all, into another memory, open and without a journal.

    ``anew`` begins anew, whatever was written before; ``retry_unknown`` sends again what got no answer, and may be
    stored twice. ``progress`` is told (scope label, events done, events in all). A second call goes on.
    """
    scopes = [(scope, count) for scope, count in journal.scopes() if persona_id in (None, scope.persona_id)]
    if not scopes:
        whom = f" of persona {persona_id!r}" if persona_id else ""
        raise InputError(f"{journal.place} holds no events{whom}; nothing was replayed")
    if slot.read_only:
        raise InputError("the target is read-only; set_mode first; nothing was replayed")
    done = []
    for scope, count in scopes:
        await slot.setup_scope(scope)
        done.append(ReplayedScope(scope, count))
        scope_replay = _Replay(journal, slot, target, done[-1], progress or (lambda *_: None))
        await scope_replay.run(anew, retry_unknown, ready_timeout_s)
    return ReplayReport(target, tuple(done))


@dataclass
class _Replay:
    journal: Journal
    slot: MemorySlot
    target: str
    done: ReplayedScope
    progress: Progress

    async def run(self, anew: bool, retry_unknown: bool, ready_timeout_s: float) -> None:
        journal, done, scope = self.journal, self.done, self.done.scope
        position = 0 if anew else journal.position(self.target, scope)
        done.earlier = journal.count(scope, until=position)
        uncertain = journal.unanswered(self.target, scope)
        if anew:
            journal.note_answered(self.target, scope, uncertain)
        elif uncertain and (retry_unknown or self.slot.delivery.can_look_up):
            for event_id in uncertain:  # looked up, and sent again where it is not there
                entry = await journal.recorded(scope, event_id)
                if entry is None or not (await self._write([entry.event], look_up=True))[1]:
                    journal.note_answered(self.target, scope, [event_id])
                    done.resolved += 1
        self.progress(scope.label, done.earlier, done.events)
        # One that died may have sent its last piece without noting it, its first one too.
        resumed = journal.begin(self.target, scope)
        entries = journal.entries(scope, after=position)
        # A piece is what may have to be looked up again; where nothing can be, it is one event.
        max_size = _PIECE if self.slot.delivery.can_look_up else 1
        size = min(_FIRST, max_size)
        while piece := list(islice(entries, size)):
            began = time.monotonic()
            found, unknown = await self._write([entry.event for entry in piece], look_up=resumed)
            done.found_written, done.written = done.found_written + found, done.written + len(piece)
            journal.note_unanswered(self.target, scope, unknown)
            journal.replayed(self.target, scope, piece[-1].seq)
            self.progress(scope.label, done.earlier + done.written, done.events)
            resumed = False
            took_s = time.monotonic() - began
            if took_s < _QUICK_S:
                size = min(2 * size, max_size)
            elif took_s > _SLOW_S:
                size = max(size // 2, 1)
        if readiness := self.slot.capability(SupportsReadiness):
            done.readiness = await readiness.wait_until_ready(scope, ready_timeout_s)
        await self._ask()
        done.unknown = journal.unanswered(self.target, scope)

    async def _write(self, events: list[MemoryEvent], *, look_up: bool) -> tuple[int, list[str]]:
        """Write events: how many were found there before, and ids of those that got no answer."""
        count = len(events)
        if look_up and self.slot.delivery.can_look_up:
            events = [event for event in events if await self.slot.delivery.find_event(event) is None]
        receipts: list[WriteReceipt] = []
        bulk = self.slot.capability(SupportsBulkIngest)
        if events and bulk is not None:
            receipts = await bulk.record_events(events)
        elif events:
            receipts = [await self.slot.record_event(event) for event in events]
        return count - len(events), [receipt.event_id for receipt in receipts if receipt.status == "unknown"]

    async def _ask(self) -> None:
        """Ask for a few events, spread over the past, by their own words."""
        if not self.slot.traits.recalls_writes:
            return
        for event in [entry.event for entry in self.journal.sample(self.done.scope, _ASKED)]:
            words = next((message.content for message in event.messages if message.content.strip()), None)
            if words is None:
                continue
            self.done.asked += 1
            request = RetrieveRequest(
                query=words[:2000],
                scope=self.done.scope,
                session_id="memslot-replay",
                budget=ContextBudget(max_items=_SHOWN),
            )
            entries = (await self.slot.retrieve(request)).entries
            labels = [entry.event_ids for entry in entries]
            known = any(event.event_id in ids for ids in labels) if any(labels) else bool(entries)
            self.done.recalled += known


FORMAT = "memslot-journal-1"


def exported(journal: Journal, persona_id: str | None = None) -> Iterator[str]:
    """The lines of an export, without their line breaks; they hold what was said."""
    yield json.dumps({"format": FORMAT})
    for entry in journal.entries():
        if persona_id in (None, entry.event.scope.persona_id):
            event = entry.event.model_dump(mode="json", exclude_none=True)
            line = {"event": event, "status": entry.status, "destination": entry.destination}
            yield json.dumps(line, ensure_ascii=False)


@dataclass
class Forgotten:
    scopes: int = 0  # that held events of theirs
    recorded: bool = False
    left: list[str] = field(default_factory=list)  # what is still somewhere, each as a phrase for the user


async def forget_person(
    journal: Journal,
    persona_id: str,
    provider: str,
    open_slot: Callable[[], AbstractAsyncContextManager[MemorySlot]] | None,
) -> Forgotten:
    """Reset a person's scopes, then remove their events from the journal for good: a backend that is down leaves
    the list of what to reset. ``open_slot`` opens the memory of ``provider``; None leaves it as it is.
    """
    events = (entry.event for entry in journal.entries(everything=True))
    scopes = {event.scope for event in events if event.scope.persona_id == persona_id}
    forgotten = Forgotten(scopes=len(scopes))
    reset: set[JournalKey] = set()
    if scopes and open_slot is not None:
        async with open_slot() as slot:
            for scope in scopes:
                reset.add(JournalKey.of_adapter(slot, scope))
                await slot.setup_scope(scope)
                receipt = await slot.reset_scope(scope)
                forgotten.left.extend(receipt.left)
                if not receipt.verified:
                    forgotten.left.append(f"scope {scope.label} was not verified empty")
    removed = journal.forget(persona_id)
    forgotten.recorded = bool(removed)
    for other in sorted({key.destination for key in removed if key not in reset}):
        another = other.split(":")[0] != provider
        if another or open_slot is not None:
            store = other if another else f"another store of {provider}, {other}"
            forgotten.left.append(f"what was delivered to {store}; run forget with its configuration")
    return forgotten
