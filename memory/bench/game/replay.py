"""Test sessions once more, with the sections that a memory showed then, for :mod:`memory.bench.game.verify`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from memory.bench.game.manifest import CellRecord, VariantRecord
from memory.bench.game.record import PlayJournal
from memory.bench.game.roles import Roles
from memory.bench.game.table import Dealings, PlayerSettings, Table
from memory.bench.game.tested import Told
from memory.bench.timeline import Script, Timeline
from memory.contract.errors import BackendError
from memory.contract.receipts import RetrieveResult, Trace
from memory.contract.requests import RetrieveRequest
from memory.slot.slot import MemorySlot

__all__ = ["Row", "Shown", "told_before"]

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
        table = Table(cast(MemorySlot, None), roles, PlayJournal(Path()), asking=self._asking)
        super().__init__(table, record.scope, PlayerSettings(budget=variant.budget))
        self._retrieved, self._sections = retrieved, dict[str, deque[str]]()
        for text in texts:
            self._sections.setdefault(text["probe_id"], deque()).append(text["context"])
        self._count = {probe: len(sections) for probe, sections in self._sections.items()}
        self._probe = ""

    @contextmanager
    def _asking(self, probe_id: str) -> Iterator[None]:
        self._probe = probe_id
        yield

    async def recall(self, user: str, session_id: str, script: Script) -> RetrieveResult:
        """The section that was shown, with its trace.

        Raises:
            BackendError: none was.
        """
        sections = self._sections.get(self._probe)
        if not sections:
            raise BackendError("nothing was shown")
        answered = [one for one in self._retrieved.get(self._probe, ()) if one.error is None]
        request = RetrieveRequest(
            query=user, scope=self.scope, session_id=session_id, budget=self.settings.budget
        )
        trace = answered[-len(sections)]
        return RetrieveResult(request=request, raw=None, formatted_context=sections.popleft(), trace=trace)

    def failed(self, error: BackendError) -> str:
        """What its trace names."""
        traces = self._retrieved.get(self._probe)
        return (traces[-1].error if traces else None) or type(error).__name__


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
