"""Import of conversations into a memory. The turns of a file are written through the slot, in order.

An import can resume. The host store notes the progress of each conversation before and after each batch is
sent. A second import of the same file, or of a newer export, writes only the missing events. It looks up
events that were sent but not confirmed. If the backend has no lookup, such an event may be stored twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from memory.contract.adapter import SupportsBulkIngest
from memory.contract.events import MemoryEvent
from memory.contract.formatting import TokenCounter
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.runtime._transcript_items import Conversation, Kind, Problem, Spoken
from memory.runtime._transcripts import read_conversations
from memory.slot.slot import MemorySlot
from memory.storage.kept import HostStore, StoredObject

_PIECE = 100  # events
_MARK = "import"  # kind of the objects in the host store

Progress = Callable[[str, int, int], None]


@dataclass
class ImportReport:
    """The result of an import, or of a dry run.

    Attributes:
        kinds: how many conversations were read as each kind of file.
        events, tokens: counts of the file. The configured counter counts the tokens.
        written: how many events this import stored.
        earlier: how many events an earlier import stored.
        unknown: ids of events that got no answer. They may or may not be stored.
        undated: how many events have no time in the file. They carry the file's own time.
        left_out: how many parts of each kind are not in the events, such as ``{"images": 3}``.
        problems: what cannot be read, with its place.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    events: int = 0
    tokens: int = 0
    written: int = 0
    earlier: int = 0
    unknown: list[str] = field(default_factory=list)
    undated: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every event of the file is known to be stored."""
        return self.written + self.earlier == self.events and not self.unknown


@dataclass(frozen=True)
class Source:
    """A file of conversations and the scope to import them into.

    Attributes:
        path: the file, zip file or directory; see :mod:`._transcripts`.
        scope: the scope of conversations that name no user.
        kind: the kind of file; None detects it.
        one_person: whether every conversation goes into ``scope``, whichever user it names.
    """

    path: Path
    scope: MemoryScope
    kind: Kind | None = None
    one_person: bool = False

    def conversations(self, problems: list[Problem]) -> Iterator[Conversation]:
        return read_conversations(self.path, self.kind, problems=problems)

    def scope_of(self, conversation: Conversation) -> MemoryScope:
        if conversation.user is None or self.one_person:
            return self.scope
        return MemoryScope(**{**dict(self.scope), "persona_id": conversation.user})

    def turns(self, conversation: Conversation, report: ImportReport) -> list[MemoryEvent]:
        """Return the events of a conversation: one per message of the user, with the answers that follow it.

        Events of an exported journal keep their content, ids and times, and get this memory's scope.
        """
        scope, at = self.scope_of(conversation), self._first_time(conversation)
        if conversation.events:
            return [event.model_copy(update={"scope": scope}) for event in conversation.events]
        events: list[MemoryEvent] = []
        for number, said in enumerate(_turns_of(conversation, report.left_out)):
            known = next((each.at for each in said if each.at is not None), None)
            report.undated += known is None
            at = known or at
            texts = [f"{each.message.role}: {each.message.content}" for each in said]
            key = "\0".join((conversation.conversation_id, str(number), *texts))
            events.append(
                MemoryEvent(
                    event_id=f"import-{blake2b(key.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}",
                    scope=scope,
                    session_id=conversation.conversation_id,
                    turn_id=str(number + 1),
                    timestamp=at,
                    messages=tuple(each.message for each in said),
                )
            )
        return events

    def _first_time(self, conversation: Conversation) -> datetime:
        known = (each.at for each in conversation.messages if each.at is not None)
        return next(known, None) or datetime.fromtimestamp(int(self.path.stat().st_mtime), UTC)


def _turns_of(conversation: Conversation, left_out: Counter[str]) -> Iterator[list[Spoken]]:
    left_out.update(conversation.left_out)
    turn: list[Spoken] = []
    for spoken in conversation.messages:
        if spoken.message.role not in ("user", "assistant"):
            left_out[f"{spoken.message.role} messages"] += 1
            continue
        if spoken.message.role == "user" and any(each.message.role == "assistant" for each in turn):
            yield turn
            turn = []
        turn.append(spoken)
    if turn:
        yield turn


def dry_run(source: Source, counter: TokenCounter) -> ImportReport:
    """Read the whole file and report what an import would write.

    Raises:
        ConfigError: the file does not exist or is of no known kind.
    """
    report = ImportReport()
    for conversation in source.conversations(report.problems):
        events = source.turns(conversation, report)
        report.kinds[conversation.kind or ""] += 1
        report.events += len(events)
        report.tokens += sum(counter.count(message.content) for event in events for message in event.messages)
    return report


async def import_conversations(
    source: Source, slot: MemorySlot, store: HostStore, report: ImportReport, progress: Progress
) -> ImportReport:
    """Write the events of a file that are not stored yet.

    Args:
        source: the file.
        slot: the open memory.
        store: keeps the progress of each conversation.
        report: the result of :func:`dry_run`, which this import completes.
        progress: called with the unit ``events``, the number of finished events and their total.

    Raises:
        BackendError: the backend failed. Written events stay, and a second import continues from there.
    """
    ignored = ImportReport()  # the dry run has already counted the file
    pending = (
        piece
        for conversation in source.conversations(ignored.problems)
        for piece in _missing(source, conversation, store, report, ignored)
    )
    size = _PIECE if slot.delivery.can_look_up else 1
    progress("events", report.earlier, report.events)
    while batch := list(islice(pending, size)):
        for scope in dict.fromkeys(each.event.scope for each in batch):
            await _write(slot, store, [each for each in batch if each.event.scope == scope], report)
        progress("events", report.written + report.earlier, report.events)
    return report


@dataclass(frozen=True, slots=True)
class _Missing:
    event: MemoryEvent
    number: int  # within its conversation, from 1
    in_doubt: bool  # an earlier import sent it and got no confirmation
    done: int  # events of the conversation that earlier imports finished


def _missing(
    source: Source, conversation: Conversation, store: HostStore, report: ImportReport, ignored: ImportReport
) -> Iterator[_Missing]:
    events = source.turns(conversation, ignored)
    if not events:
        return
    mark: dict[str, Any] = store.get(_MARK, events[0].scope, _name(conversation.conversation_id)) or {}
    done, sending = int(mark.get("done", 0)), int(mark.get("sending", 0))
    if done and (done > len(events) or mark.get("last") != events[done - 1].event_id):
        done, sending = 0, len(events)  # the conversation was edited, so each event is looked up
    unsure = set(mark.get("unknown", ()))
    for number, event in enumerate(events, 1):
        if number <= done and event.event_id not in unsure:
            report.earlier += 1
        else:
            yield _Missing(event, number, number <= sending or event.event_id in unsure, done)


async def _write(slot: MemorySlot, store: HostStore, batch: list[_Missing], report: ImportReport) -> None:
    scope = batch[0].event.scope
    await slot.setup_scope(scope)
    before = {each.event.session_id: max(each.done, each.number - 1) for each in reversed(batch)}
    after = {each.event.session_id: each for each in batch}
    marks: dict[str, dict[str, Any]] = {name: store.get(_MARK, scope, _name(name)) or {} for name in after}
    store.put(
        *(
            _mark(scope, name, {**marks[name], "done": before[name], "sending": max(each.done, each.number)})
            for name, each in after.items()
        )
    )
    unsent: list[MemoryEvent] = []
    for each in batch:
        if (
            each.in_doubt
            and slot.delivery.can_look_up
            and await slot.delivery.find_event(each.event) is not None
        ):
            report.earlier += 1
        else:
            unsent.append(each.event)
    receipts = await _record(slot, unsent)
    unknown = [receipt.event_id for receipt in receipts if receipt.status == "unknown"]
    report.unknown += unknown
    report.written += len(receipts) - len(unknown)
    asked = {each.event.event_id for each in batch}
    for name, each in after.items():
        mark, further = marks[name], each.number > each.done
        store.put(
            _mark(
                scope,
                name,
                {
                    "done": max(each.done, each.number),
                    "sending": max(each.done, each.number),
                    "last": each.event.event_id if further else mark["last"],
                    "unknown": sorted((set(mark.get("unknown", ())) - asked) | set(unknown)),
                },
            )
        )


async def _record(slot: MemorySlot, events: list[MemoryEvent]) -> list[WriteReceipt]:
    bulk = slot.capability(SupportsBulkIngest)
    if len(events) > 1 and bulk is not None:
        return list(await bulk.record_events(events))
    return [await slot.record_event(event) for event in events]


def _mark(scope: MemoryScope, conversation_id: str, value: dict[str, object]) -> StoredObject:
    return StoredObject(_MARK, scope, _name(conversation_id), value)


def _name(conversation_id: str) -> str:
    return blake2b(conversation_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
