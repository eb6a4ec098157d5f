"""Import of conversations into a memory. The turns of a file are written through the slot, in order.

An import can resume. The host store marks each event before it is sent and after it is stored. A second
import of the same file, or of a newer export, writes only the missing events. It looks up events that were
sent but not confirmed. If the backend has no lookup, such an event may be stored twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice
from pathlib import Path

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
    """The result of an import, or of a dry run."""

    kinds: Counter[str] = field(default_factory=Counter)  # kind of file -> conversations
    events: int = 0  # in the file
    tokens: int = 0  # in the file, by the configured counter
    written: int = 0  # events that this import stored
    earlier: int = 0  # events that an earlier import stored
    unknown: list[str] = field(default_factory=list)  # ids of events that got no answer
    undated: int = 0  # events without a time in the file; they carry the file's own
    left_out: Counter[str] = field(default_factory=Counter)  # kind of part -> how many are in no event
    problems: list[Problem] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every event of the file is known to be stored."""
        return self.written + self.earlier == self.events and not self.unknown


@dataclass(frozen=True)
class Source:
    """A file of conversations and the scope to import them into."""

    path: Path  # a file, zip file or directory; see :mod:`._transcripts`
    scope: MemoryScope  # of conversations that name no user
    kind: Kind | None = None  # None detects it

    def events(self, report: ImportReport) -> Iterator[MemoryEvent]:
        """Yield the events of the file: one per message of the user, with the answers that follow it.

        Events of an exported journal keep their content, ids and times, and get this memory's scope.

        Raises:
            ConfigError: the file does not exist or is of no known kind.
        """
        for conversation in read_conversations(self.path, self.kind, problems=report.problems):
            report.kinds[conversation.kind or ""] += 1
            report.left_out.update(conversation.left_out)
            scope = self.scope
            if conversation.user is not None:
                scope = MemoryScope(**{**dict(scope), "persona_id": conversation.user})
            if conversation.events:
                yield from (event.model_copy(update={"scope": scope}) for event in conversation.events)
            else:
                yield from self._turns(conversation, scope, report)

    def _turns(
        self, conversation: Conversation, scope: MemoryScope, report: ImportReport
    ) -> Iterator[MemoryEvent]:
        times = (each.at for each in conversation.messages if each.at is not None)
        at = next(times, None) or datetime.fromtimestamp(int(self.path.stat().st_mtime), UTC)
        for number, said in enumerate(_split(conversation.messages, report.left_out)):
            known = next((each.at for each in said if each.at is not None), None)
            report.undated += known is None
            at = known or at
            texts = [f"{each.message.role}: {each.message.content}" for each in said]
            yield MemoryEvent(
                event_id=f"import-{_digest(conversation.conversation_id, str(number), *texts)}",
                scope=scope,
                session_id=conversation.conversation_id,
                turn_id=str(number + 1),
                timestamp=at,
                messages=tuple(each.message for each in said),
            )


def _split(messages: Iterable[Spoken], left_out: Counter[str]) -> Iterator[list[Spoken]]:
    """Yield the turns of a conversation."""
    turn: list[Spoken] = []
    for spoken in messages:
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
    """Read the whole file and report what an import would write. Raises as :meth:`Source.events`."""
    report = ImportReport()
    for event in source.events(report):
        report.events += 1
        report.tokens += sum(counter.count(message.content) for message in event.messages)
    return report


async def import_conversations(
    source: Source, slot: MemorySlot, store: HostStore, report: ImportReport, progress: Progress
) -> ImportReport:
    """Write the events of a file that are not stored yet.

    ``store`` keeps a mark for each event. ``report`` is the result of :func:`dry_run`, which this completes.
    ``progress`` gets the unit ``events``, the number of finished events and their total.

    Raises:
        BackendError: the backend failed. Written events stay, and a second import continues from there.
    """
    events = source.events(ImportReport())  # the dry run has already counted the file
    progress("events", report.earlier, report.events)
    while batch := list(islice(events, _PIECE)):
        for scope in dict.fromkeys(event.scope for event in batch):
            await _write(slot, store, scope, [event for event in batch if event.scope == scope], report)
        progress("events", report.written + report.earlier, report.events)
    return report


async def _write(
    slot: MemorySlot, store: HostStore, scope: MemoryScope, events: list[MemoryEvent], report: ImportReport
) -> None:
    marks = store.get_many(_MARK, scope, [_digest(event.event_id) for event in events])
    missing = [event for event in events if not marks.get(_digest(event.event_id), {}).get("stored")]
    report.earlier += len(events) - len(missing)
    if missing:
        await slot.setup_scope(scope)
    size = _PIECE if slot.delivery.can_look_up else 1
    for begin in range(0, len(missing), size):
        piece = missing[begin : begin + size]
        store.put(*(_mark(event, stored=False) for event in piece))
        unsent: list[MemoryEvent] = []
        for event in piece:
            in_doubt = _digest(event.event_id) in marks and slot.delivery.can_look_up
            if in_doubt and await slot.delivery.find_event(event) is not None:
                report.earlier += 1
            else:
                unsent.append(event)
        receipts = await _record(slot, unsent)
        unknown = [receipt.event_id for receipt in receipts if receipt.status == "unknown"]
        report.unknown += unknown
        report.written += len(receipts) - len(unknown)
        store.put(*(_mark(event, stored=True) for event in piece if event.event_id not in unknown))


async def _record(slot: MemorySlot, events: list[MemoryEvent]) -> list[WriteReceipt]:
    bulk = slot.capability(SupportsBulkIngest)
    if len(events) > 1 and bulk is not None:
        return list(await bulk.record_events(events))
    return [await slot.record_event(event) for event in events]


def _mark(event: MemoryEvent, *, stored: bool) -> StoredObject:
    return StoredObject(_MARK, event.scope, _digest(event.event_id), {"stored": stored})


def _digest(*texts: str) -> str:
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
