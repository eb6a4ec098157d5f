"""Test sessions once more, with the sections that a memory showed then, for :mod:`memory.bench.engine.verify`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from memory.bench.data.timeline import Beat, Probe, Script, Timeline
from memory.bench.engine.context import CellContext, CellSettings
from memory.bench.engine.driver import CellMemory, SessionDriver
from memory.bench.engine.files import CellJournal
from memory.bench.engine.manifest import CellRecord, VariantRecord
from memory.bench.engine.roles import Exchange, Roles, Verdict
from memory.bench.scores.sections import WholeTurns
from memory.contract.errors import BackendError
from memory.contract.receipts import RetrieveResult, Trace
from memory.contract.requests import RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.contract.tokens import TokenCounter
from memory.runtime._policy import Recall
from memory.slot.slot import MemorySlot
from memory.slot.turns import RecallFields, request_of
from memory.testing import FakeBackend

Row = Mapping[str, Any]
"""A line of a JSON lines file."""


class SilentJudge:
    """In place of roles that are models and not asked again: no verdict, so that one reply ends each request."""

    async def judge(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> Verdict:
        """None."""
        return Verdict(fit=None)


class ReplayDriver(SessionDriver):
    """Deals with a memory that shows again what it showed then."""

    def __init__(
        self,
        record: CellRecord,
        variant: VariantRecord,
        roles: Roles,
        timeline: Timeline,
        foreign: Sequence[str],
        texts: Iterable[Row],
        retrieved: Mapping[str, Sequence[Trace]],
        counter: TokenCounter,
    ) -> None:
        # Of the slot the session loop counts tokens alone; nothing is asked of it, and nothing offered to it.
        context = CellContext(
            MemorySlot(FakeBackend(), token_counter=counter),
            roles,
            CellJournal(Path()),
            turns=WholeTurns({turn.event_id: turn.text for turn in timeline.turns}),
            foreign=tuple(foreign),
            mark_probe=self._mark_probe,
        )
        super().__init__(context, record.scope, CellSettings(budget=variant.budget, read_only=False))
        self._retrieved, self._rows = retrieved, dict[str, deque[Row]]()
        for text in texts:
            self._rows.setdefault(text["probe_id"], deque()).append(text)
        self._probe = ""
        self._event_ids: list[str] | None = None

    def _mark_probe(self, probe_id: str | None) -> None:
        self._probe = probe_id or self._probe

    def memory(self, where: Script | Probe) -> CellMemory:
        """A memory that shows it."""
        return _ShownAgain(self.context.slot, self._section)

    def event_ids(self, result: RetrieveResult) -> list[str] | None:
        """As they were named then."""
        return self._event_ids

    def _section(self, request: RetrieveRequest) -> Recall:
        rows = self._rows.get(self._probe)
        if not rows:
            return Recall("", failure=BackendError("nothing was shown"))
        answered = [item for item in self._retrieved.get(self._probe, ()) if item.error is None]
        trace, row = answered[-len(rows)], rows.popleft()
        self._event_ids = row["event_ids"]
        section = row["context"]
        result = RetrieveResult(request=request, raw=None, formatted_context=section, trace=trace)
        return Recall(section, result=result)

    def outcome(self, recall: Recall) -> str | None:
        """What its trace names."""
        if recall.failure is None:
            return None
        traces = self._retrieved.get(self._probe)
        return (traces[-1].error if traces else None) or type(recall.failure).__name__


class _ShownAgain(CellMemory):
    def __init__(self, slot: MemorySlot, section: Callable[[RetrieveRequest], Recall]) -> None:
        super().__init__(slot)
        self._section = section

    async def recall(
        self, user: str, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[RecallFields]
    ) -> Recall:
        return self._section(request_of(user, session_id, self.slot.scope_or_default(scope)))
