"""Moving a memory: the events of a journal, written into another backend in their order and with their times.

A replay that was interrupted goes on where it stopped. What had been sent by then without being noted is looked up
where the backend can be asked; where it cannot, at most one event may be written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice

from memory.contract.adapter import SupportsBulkIngest, SupportsReadiness
from memory.contract.errors import InputError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import BackendReadiness, WriteReceipt
from memory.contract.requests import ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.slot.journal import Journal, JournalEntry
from memory.slot.slot import MemorySlot

__all__ = ["ReplayReport", "ReplayedScope", "replay", "target_of"]

_PIECE = 100
_ASKED = 20
_SHOWN = 50

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class ReplayedScope:
    """What became of one scope.

    Attributes:
        scope: whose events.
        events: events of it in the journal.
        earlier: of these, written by an earlier replay to the same target.
        written: written now.
        found_written: of ``written``, found in the target before they were sent.
        unknown: sent without an answer, now or by an earlier replay, so they may or may not be stored.
        readiness: what the target said when all was sent; None where it does not say.
        asked: events asked for afterwards, each by its own words where it has any.
        recalled: of these, how many came back with their own event id, or unlabelled from a target that derives.
    """

    scope: MemoryScope
    events: int
    earlier: int
    written: int
    found_written: int
    unknown: int
    readiness: BackendReadiness | None
    asked: int
    recalled: int

    @property
    def complete(self) -> bool:
        """Whether every event is known to be in the target."""
        return self.earlier + self.written == self.events and not self.unknown


@dataclass(frozen=True)
class ReplayReport:
    """A replay, scope by scope."""

    target: str
    scopes: tuple[ReplayedScope, ...] = field(default_factory=tuple)

    @property
    def complete(self) -> bool:
        """Whether every event of every scope is known to be in the target."""
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
    progress: Progress | None = None,
    ready_timeout_s: float = 60.0,
) -> ReplayReport:
    """Write the past that a journal keeps into another memory.

    Args:
        journal: the past.
        slot: the target, open, without a journal of its own.
        target: see :func:`target_of`.
        persona_id: only this person's scopes; all by default.
        anew: from the beginning, whatever an earlier replay has written.
        progress: told (scope label, events done, events in all).
        ready_timeout_s: how long to wait for a target that derives, per scope, in seconds.

    Raises:
        InputError: the journal holds nothing of this person, or the target is read-only.
        BackendError: the target failed; a second call goes on where this one stopped.
    """
    scopes = [(scope, count) for scope, count in journal.scopes() if persona_id in (None, scope.persona_id)]
    if not scopes:
        whom = f" of persona {persona_id!r}" if persona_id else ""
        raise InputError(f"{journal.path.name} holds no events{whom}; nothing was replayed")
    if slot.read_only:
        raise InputError("the target is read-only; set_mode first; nothing was replayed")
    done = []
    for scope, count in scopes:
        await slot.setup_scope(scope)
        one = _Replay(journal, slot, target, scope, count, progress or (lambda *_: None))
        done.append(await one.run(anew, ready_timeout_s))
    return ReplayReport(target, tuple(done))


class _Replay:
    """One scope on its way."""

    def __init__(
        self,
        journal: Journal,
        slot: MemorySlot,
        target: str,
        scope: MemoryScope,
        count: int,
        progress: Progress,
    ) -> None:
        self._journal = journal
        self._slot = slot
        self._target = target
        self._scope = scope
        self._count = count
        self._progress = progress
        self._bulk = slot.capability(SupportsBulkIngest)
        self._written = self._found = self._unknown = 0
        self._doubts = f"{target} unknown"  # kept beside the position: a doubt does not end by asking twice

    async def run(self, anew: bool, ready_timeout_s: float) -> ReplayedScope:
        journal, scope = self._journal, self._scope
        position = 0 if anew else journal.position(self._target, scope)
        earlier = journal.count(scope, until=position)
        noted = journal.position(self._doubts, scope)
        self._unknown = noted if position else 0
        self._progress(scope.label, earlier, self._count)
        # One that died may have sent its last piece without noting it, its first one too.
        resumed = journal.begin(self._target, scope)
        for piece in _pieces(journal.entries(scope, after=position), self._size):
            await self._write([entry.event for entry in piece], look_up=resumed)
            if self._unknown != noted:
                journal.replayed(self._doubts, scope, noted := self._unknown)
            journal.replayed(self._target, scope, piece[-1].seq)
            self._progress(scope.label, earlier + self._written, self._count)
            resumed = False
        readiness = self._slot.capability(SupportsReadiness)
        state = await readiness.wait_until_ready(scope, ready_timeout_s) if readiness else None
        asked, recalled = await self._ask()
        return ReplayedScope(
            scope, self._count, earlier, self._written, self._found, self._unknown, state, asked, recalled
        )

    @property
    def _size(self) -> int:
        # A piece is what may have to be looked up again; where nothing can be, it is one event.
        return _PIECE if self._slot.can_look_up else 1

    async def _write(self, events: list[MemoryEvent], *, look_up: bool) -> None:
        if look_up and self._slot.can_look_up:
            missing = [event for event in events if await self._slot.find_event(event) is None]
            self._found += len(events) - len(missing)
            self._written += len(events) - len(missing)
            events = missing
        if not events:
            return
        receipts: list[WriteReceipt]
        if self._bulk is not None:
            receipts = await self._bulk.record_events(events)
        else:
            receipts = [await self._slot.record_event(event) for event in events]
        self._written += len(receipts)
        self._unknown += sum(receipt.status == "unknown" for receipt in receipts)

    async def _ask(self) -> tuple[int, int]:
        """Ask for a few events, spread over the past, by their own words."""
        if not self._slot.traits.recalls_writes:
            return 0, 0
        sample = [entry.event for entry in self._journal.sample(self._scope, _ASKED)]
        asked = recalled = 0
        for event in sample:
            words = next((message.content for message in event.messages if message.content.strip()), None)
            if words is None:
                continue
            asked += 1
            request = RetrieveRequest(
                query=words[:2000],
                scope=self._scope,
                session_id="memslot-replay",
                budget=ContextBudget(max_items=_SHOWN),
            )
            entries = (await self._slot.retrieve(request)).entries
            labelled = any(entry.event_ids for entry in entries)
            recalled += (
                any(event.event_id in entry.event_ids for entry in entries) if labelled else bool(entries)
            )
        return asked, recalled


def _pieces(entries: Iterator[JournalEntry], size: int) -> Iterator[list[JournalEntry]]:
    while piece := list(islice(entries, size)):
        yield piece
