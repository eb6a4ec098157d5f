"""Test sessions once more, with the sections that a memory showed then, for :mod:`memory.bench.engine.verify`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from memory.bench.data.timeline import Script, Timeline
from memory.bench.engine.context import Dealings, GameMemory, PlayerSettings, Table
from memory.bench.engine.manifest import CellRecord, VariantRecord
from memory.bench.engine.record import PlayJournal
from memory.bench.engine.roles import Roles
from memory.bench.engine.test_session import Told
from memory.contract.errors import BackendError
from memory.contract.receipts import RetrieveResult, Trace
from memory.contract.requests import RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.runtime._policy import Recall
from memory.slot.slot import MemorySlot
from memory.slot.turns import RecallFields, request_of
from memory.testing import FakeBackend

Row = Mapping[str, Any]
"""A line of a JSON lines file."""


class Shown(Dealings):
    """Dealings with a memory that shows again what it showed then."""

    def __init__(
        self,
        record: CellRecord,
        variant: VariantRecord,
        roles: Roles,
        texts: Iterable[Row],
        retrieved: Mapping[str, Sequence[Trace]],
    ) -> None:
        # Of the slot the session loop counts tokens alone; nothing is asked of it, and nothing offered to it.
        table = Table(MemorySlot(FakeBackend()), roles, PlayJournal(Path()), asking=self._asking)
        super().__init__(table, record.scope, PlayerSettings(budget=variant.budget, read_only=False))
        self._retrieved, self._sections = retrieved, dict[str, deque[str]]()
        for text in texts:
            self._sections.setdefault(text["probe_id"], deque()).append(text["context"])
        self._count = {probe: len(sections) for probe, sections in self._sections.items()}
        self._probe = ""

    def _asking(self, probe_id: str | None) -> None:
        self._probe = probe_id or self._probe

    def memory(self, script: Script) -> GameMemory:
        """A memory that shows it."""
        return _Shown(self.table.slot, self._section)

    def _section(self, request: RetrieveRequest) -> Recall:
        sections = self._sections.get(self._probe)
        if not sections:
            return Recall("", failure=BackendError("nothing was shown"))
        answered = [one for one in self._retrieved.get(self._probe, ()) if one.error is None]
        section, trace = sections[0], answered[-len(sections)]
        sections.popleft()
        result = RetrieveResult(request=request, raw=None, formatted_context=section, trace=trace)
        return Recall(section, result=result)

    def outcome(self, recall: Recall) -> str | None:
        """What its trace names."""
        if recall.failure is None:
            return None
        traces = self._retrieved.get(self._probe)
        return (traces[-1].error if traces else None) or type(recall.failure).__name__


class _Shown(GameMemory):
    def __init__(self, slot: MemorySlot, section: Callable[[RetrieveRequest], Recall]) -> None:
        super().__init__(slot)
        self._section = section

    async def recall(
        self, user: str, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[RecallFields]
    ) -> Recall:
        return self._section(request_of(user, session_id, self.slot.scope_or_default(scope)))


def told_before(timeline: Timeline, rows: Iterable[Row], after: int) -> list[Told]:
    """What the user had said and was written before a test session."""
    said: dict[str, list[Row]] = {}
    for row in rows:
        if row["kind"] == "turn":
            said.setdefault(row["session"], []).append(row)
    found: list[Told] = []
    for number, session in enumerate(timeline.sessions[:after], start=1):
        found += [(number, turn.event_id, turn.messages[0].content.casefold()) for turn in session.turns]
        found += [
            (number, f"{timeline.persona_id}:{session.session_id}.{row['n']}", row["user"].casefold())
            for row in said.get(session.session_id, ())
        ]
    return found
