"""How a session deals with the user, the assistant, the judge and the memory; tested or not, the same."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Unpack, cast

from memory.bench.data.timeline import Beat, Probe, Script
from memory.bench.engine.context import CellContext, CellSettings
from memory.bench.engine.errors import NO_ANSWER, HarnessFailed, Interrupted
from memory.bench.engine.roles import Exchange, Verdict
from memory.contract.adapter import SupportsReadiness
from memory.contract.errors import BackendError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import RetrieveResult
from memory.contract.requests import CROSS_CONTEXT
from memory.contract.scope import MemoryScope
from memory.runtime._policy import Recall, TurnMemory, TurnPolicy
from memory.slot.slot import MemorySlot
from memory.slot.turns import RecallFields, TurnFields, event_from_turn

_MAX_FAILURES = 5
"""Retrievals that may fail one after another before a cell is abandoned."""
_POLICY = TurnPolicy(recall_s=3600, open_after=_MAX_FAILURES)  # calls have deadlines of their own


class CellMemory(TurnMemory):
    """The slot as the session loop has it here. What the loop records is kept for the cell.

    Args:
        slot: the memory.

    Attributes:
        recall_fields: how recalls ask.
        turn_fields: time, ids and CS fields of the turn that is recorded next.
        event: what was recorded last.
    """

    recall_fields: RecallFields
    turn_fields: TurnFields
    event: MemoryEvent

    def __init__(self, slot: MemorySlot) -> None:
        super().__init__(slot, _POLICY)

    def recall(
        self, user: str, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[RecallFields]
    ) -> Coroutine[Any, Any, Recall]:
        """As any host recalls, by the matrix's budget and CS fields."""
        fields.update(self.recall_fields)
        return super().recall(user, session_id=session_id, scope=scope, **fields)

    async def record_turn(
        self, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[TurnFields]
    ) -> bool:
        """Keep what any host would hand over, with the time and the ids of the timeline."""
        fields.update(self.turn_fields)
        self.event = event_from_turn(session_id, self.slot.scope_or_default(scope), **fields)
        return True


@contextmanager
def role_calls(role: str) -> Iterator[None]:
    """What a role's model raises becomes the harness's failure: the memory has no part in it.

    Raises:
        Interrupted: the model did not answer.
        HarnessFailed: it failed for good.
    """
    try:
        yield
    except BackendError as error:
        failure = Interrupted if isinstance(error, NO_ANSWER) else HarnessFailed
        raise failure(f"the {role}: {error}") from error


class SessionDriver:
    """Carries a cell's sessions out.

    Args:
        context: what there is.
        scope: the persona's.
        settings: how it is asked.

    Attributes:
        readiness: says whether what was written is retrievable; None where the memory cannot.
    """

    def __init__(self, context: CellContext, scope: MemoryScope, settings: CellSettings) -> None:
        self.context, self.scope, self.settings = context, scope, settings
        self.readiness = context.slot.capability(SupportsReadiness)
        self._memory = CellMemory(context.slot)
        self._failures_in_a_row = 0

    async def say(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> str | None:
        """What the user says next, or None."""
        with self.context.timed("simulate"), role_calls("simulator"):
            return await self.context.roles.simulator.say(script, beat, exchanges)

    async def judge(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> Verdict:
        """What the judge says of the last exchange."""
        with self.context.timed("judge"), role_calls("judge"):
            return await self.context.roles.judge.judge(script, beat, exchanges)

    def memory(self, where: Script | Probe) -> CellMemory:
        """The memory as the session that begins has it."""
        fields: dict[str, Any] = {name: getattr(where, name, None) for name in self.settings.cs}
        fields["budget"] = self.settings.budget
        if isinstance(where, Probe) and where.cross_context:
            fields["filters"] = {CROSS_CONTEXT: True}
        self._memory.recall_fields = cast(RecallFields, fields)
        return self._memory

    def event_ids(self, result: RetrieveResult) -> list[str] | None:
        """Ids of the events that entries of a section name, sorted; None where none names any."""
        named = {event_id for entry in result.context_entries for event_id in entry.event_ids}
        return sorted(named) or None

    def outcome(self, recall: Recall) -> str | None:
        """None of a retrieval that worked, else the failure's name; several in a row are raised."""
        error = recall.failure
        if error is None:
            self._failures_in_a_row = 0
            return None
        self._failures_in_a_row += 1
        if not isinstance(error, BackendError) or self._failures_in_a_row >= _MAX_FAILURES:
            raise error
        return type(error).__name__
