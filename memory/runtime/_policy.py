"""The turn policy: how a host treats a memory that is slow, down or failing.

It works on asyncio and trio. Different tasks may open, use and close the memory.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from typing import Annotated, Literal, Self, Unpack

import anyio
from pydantic import BeforeValidator, Field

from memory.contract import errors
from memory.contract._loops import loop_or_none
from memory.contract._model import Frozen, check_number
from memory.contract._quantity import quantity
from memory.contract._surviving import ends_the_task
from memory.contract.errors import MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.formatting import relabel_section, strip_json
from memory.contract.receipts import BackendHealth, RetrieveResult, Trace
from memory.contract.requests import Positive, RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.runtime._circuit import Circuit, CircuitOpen, SetUpTimedOut
from memory.runtime._writing import WriteBehind
from memory.slot.background import Background
from memory.slot.calls import Seconds
from memory.slot.rendering import without_recalled_context
from memory.slot.slot import MemorySlot
from memory.slot.turns import RecallFields, TurnFields, event_from_turn, request_of

log = logging.getLogger("memslot.runtime")

SecondsOrZero = Annotated[float, BeforeValidator(check_number), Field(ge=0, allow_inf_nan=False)]


class TurnPolicy(Frozen):
    """Limits that a host sets for its memory.

    Attributes:
        recall_s: longest wait for recall in seconds, including the set-up of a new scope. The default of 2 is
            that of Signet's OpenCode plugin.
        on_failure: ``empty`` goes on without memory, and :class:`Recall`, trace, health and log name the
            failure. ``raise`` raises the error.
        exclude_session: whether recall excludes the current session, because the host replays it.
        drain_s: seconds for sending waiting events on close.
        open_after: consecutive failures after which recall pauses.
        pause_s: the length of that pause in seconds. One call is tried after it.
        not_said: regular expressions in addition to memslot's own for each host. A prompt that matches one
            from its beginning is not the user's, so it is neither recalled for nor recorded.
    """

    recall_s: Seconds = 2.0
    on_failure: Literal["raise", "empty"] = "empty"
    exclude_session: bool = False
    drain_s: SecondsOrZero = 15.0
    open_after: Positive = 3
    pause_s: Seconds = 30.0
    not_said: tuple[re.Pattern[str], ...] = ()


@dataclass(frozen=True, slots=True)
class Recall:
    """The result of a recall for one turn.

    Attributes:
        section: the context section for the prompt, labelled ``user`` instead of the scope. It is empty if
            nothing is remembered or recall failed.
        failure: the error; None if recall succeeded.
        result: the retrieval; None if recall failed or there was nothing to ask.
        took_ms: how long recall took, in milliseconds.
    """

    section: str
    failure: MemslotError | None = None
    result: RetrieveResult | None = None
    took_ms: float = 0.0

    @property
    def trace(self) -> Trace | None:
        """The trace of the retrieval; None if there was no retrieval."""
        return self.result.trace if self.result else None


class TurnMemory:
    """A slot as a host uses it, turn by turn.

    An event is acknowledged once it is in the slot's outbox. It survives the process there if the slot has a
    store, which :func:`memory.open_memory` provides.

    Use it as ``async with TurnMemory(slot) as memory:``, or call :meth:`aclose` yourself. It needs no start.

    Args:
        slot: an open memory. The code that opened it closes it, after this.
        policy: the host's limits.
        on_trouble: called with ``recall`` or ``write`` and the reason of a failure, without user text. It is
            also called with ``left_out`` and the kinds of parts of a turn that hold no words. It runs in the
            memory's event loop or in the calling thread, and must return at once.

    Attributes:
        loop: the memory's event loop; None until the first call if no loop was running.
        arriving: turns that bindings sent from other threads and that the loop has not finished yet.
    """

    def __init__(
        self,
        slot: MemorySlot,
        policy: TurnPolicy | None = None,
        *,
        on_trouble: Callable[[str, str], None] | None = None,
    ) -> None:
        self.slot = slot
        self.policy = policy or TurnPolicy()
        self.loop = slot.delivery.loop or loop_or_none()
        self.arriving: set[Future[bool]] = set()
        self.on_trouble = on_trouble
        self._background = Background()
        self._reading = Circuit(f"{slot.backend_name}: recall", self.policy.open_after, self.policy.pause_s)
        self._writes = WriteBehind(slot, self._background)
        self._closing: anyio.Lock | None = None
        self._closed = False
        self._recalls = self._failed_recalls = self._left_out = 0
        self._last_failure: str | None = None

    async def __aenter__(self) -> Self:
        self.resume()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def resume(self) -> None:
        """Deliver events that earlier processes left in the outbox, if the memory's loop runs. Idempotent."""
        import asyncio

        if self.loop is not None and self.loop is loop_or_none():
            self._writes.resume()
        elif isinstance(self.loop, asyncio.AbstractEventLoop) and self.loop.is_running():
            self.loop.call_soon_threadsafe(self._writes.resume)

    async def recall(
        self, user: str, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[RecallFields]
    ) -> Recall:
        """Recall for the coming turn, within ``recall_s`` seconds, even if the memory hangs.

        Args:
            user: what the user just said. Blank text and mere recalled context are not looked up.
            session_id, scope, fields: as for :meth:`MemorySlot.before_turn`.

        Raises:
            MemslotError: recall failed, and ``on_failure`` is ``raise``.
        """
        started = time.perf_counter()
        asked: dict[str, str] = {}
        self._recalls += 1
        try:
            if isinstance(user, str) and not strip_json(user).strip():
                return Recall("")
            fields.setdefault("exclude_session", self.policy.exclude_session)
            fields["budget"] = fields.get("budget") or self.slot.delivery.budget
            request = request_of(user, session_id, self.slot.delivery.scope_or_default(scope), **fields)
            asked["session_id"] = session_id
            with self._reading.attempt():
                result = self.slot.for_prompt(await self._within_deadline(request))
        except MemslotError as error:
            took_ms = (time.perf_counter() - started) * 1000
            self.note_trouble("recall", str(error))
            self.slot.delivery.emit_trace(
                "recall", scope or self.slot.scope, latency_ms=took_ms, error=type(error).__name__, **asked
            )
            if not isinstance(error, CircuitOpen):  # the circuit logged it when it opened
                log.warning("%s: recall failed: %s", self.slot.backend_name, error)
            if self.policy.on_failure == "raise":
                raise
            return Recall("", error, None, took_ms)
        section = relabel_section(result.formatted_context, "user")
        return Recall(section, None, result, (time.perf_counter() - started) * 1000)

    async def record(self, event: MemoryEvent, *, corrects: MemoryEvent | None = None) -> bool:
        """Put an event into the outbox, for delivery in the background.

        Args:
            event: the event to record.
            corrects: an earlier version of the same turn. If the backend can delete single memories, the
                memory forgets the earlier version. ``metadata["corrects"]`` of the new event always names it.

        Returns:
            False if the outbox did not take the event. This id and scope were recorded before, the event
            holds only recalled context, or the slot is read-only. With ``on_failure`` ``empty``, it is also
            False after a failure, which :meth:`status` counts.

        Raises:
            LifecycleError: this memory is closed.
            StoreError, BackendError, InputError: it cannot be kept, and ``on_failure`` is ``raise``.
        """
        if corrects is not None:
            event = event.model_copy(update={"metadata": {**event.metadata, "corrects": corrects.event_id}})
        try:
            event = without_recalled_context(event)
        except errors.InputError:
            return False
        try:
            return await self._writes.add(event, corrects=corrects)
        except (errors.BackendError, errors.StoreError, errors.InputError) as error:
            self.note_trouble("write", str(error))
            if self.policy.on_failure == "raise":
                raise
            return False

    async def record_turn(
        self, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[TurnFields]
    ) -> bool:
        """Record a turn like :meth:`record`. The fields are those of :meth:`MemorySlot.after_turn`.

        Raises:
            InputError: a field is malformed, or nothing was said.
        """
        return await self.record(
            event_from_turn(session_id, self.slot.delivery.scope_or_default(scope), **fields)
        )

    async def drain(self, within_s: float) -> bool:
        """Wait until the outbox is empty, for at most ``within_s`` seconds. Returns whether it is."""
        with anyio.move_on_after(within_s):
            await self._arrived()
            return await self._writes.drained(within_s)
        return False

    async def aclose(self) -> None:
        """Send waiting events for at most ``drain_s`` seconds, even if cancelled. Idempotent.

        The slot stays open.
        The remaining events wait in the outbox for the next start. A slot without a store loses them.
        """
        with anyio.CancelScope(shield=True):
            self._closing = self._closing or anyio.Lock()
            async with self._closing:
                if not self._closed:
                    with anyio.move_on_after(self.policy.drain_s):
                        await self._arrived()
                    await self._writes.close(self.policy.drain_s)
                    self._closed = True

    def status(self) -> dict[str, int | str | None]:
        """Return JSON-ready counts of recalls, writes and waiting events, and the recall circuit's state."""
        return {
            "recalls": self._recalls,
            "recalls_failed": self._failed_recalls,
            "last_recall_failure": self._last_failure,
            **asdict(self._writes.counts),
            "parts_left_out": self._left_out,
            "waiting": self._writes.waiting,
            "recall_circuit": self._reading.state,
        }

    def note_trouble(self, what: Literal["recall", "write"], why: str) -> None:
        """Count and report a turn that could not be recalled for or recorded."""
        if what == "recall":
            self._failed_recalls += 1
            self._last_failure = why
        else:
            self._writes.counts.not_recorded += 1
            self._writes.counts.last_failure = why
        if self.on_trouble is not None:
            self.on_trouble(what, why)

    def note_left_out(self, kinds: Sequence[str]) -> None:
        """Count and report the parts of a recorded turn that hold no words, such as pictures."""
        self._left_out += len(kinds)
        if self.on_trouble is not None:
            counted = ", ".join(f"{number} {kind}" for kind, number in sorted(Counter(kinds).items()))
            self.on_trouble("left_out", f"a turn is recorded without {counted}")

    async def health(self) -> BackendHealth:
        """Return the slot's health, with :meth:`status` in ``details["turns"]``.

        The health is degraded while the recall circuit is not closed, and after an event was not recorded.
        """
        health, status = await self.slot.health(), self.status()
        warnings = []
        if self._reading.state != "closed":
            warnings.append("recall is left alone after repeated failures")
        if failed := self._writes.counts.not_recorded:
            warnings.append(f"{quantity(failed, 'events were', 'event was')} not recorded")
        changed = {
            "status": "degraded" if warnings and health.status == "ok" else health.status,
            "warnings": (*health.warnings, *warnings),
            "details": {**health.details, "turns": status},
        }
        return health.model_copy(update=changed)

    async def _arrived(self) -> None:
        if self.arriving:
            import asyncio

            await asyncio.wait([asyncio.wrap_future(sent) for sent in tuple(self.arriving)])

    async def _within_deadline(self, request: RetrieveRequest) -> RetrieveResult:
        """Ask in a separate task, so that a hanging call delays no caller and a scope's set-up continues."""
        slot, answered, stop = self.slot, anyio.Event(), anyio.CancelScope()
        answer: list[RetrieveResult | MemslotError] = []
        begun = False

        async def ask() -> None:
            nonlocal begun
            try:
                await slot.delivery.set_up(request.scope)
                begun = True
                if not stop.cancel_called:
                    with stop:
                        answer.append(await slot.retrieve(request))
            except MemslotError as error:
                answer.append(error)
            except BaseException as error:
                if ends_the_task(error):
                    raise
                why = f"{slot.backend_name}: recall failed ({type(error).__name__})"
                answer.append(errors.BackendError(why, backend_name=slot.backend_name))
            finally:
                answered.set()

        self._background.start(ask)
        try:
            with anyio.move_on_after(self.policy.recall_s):
                await answered.wait()
        finally:
            stop.cancel()
        if not answer:
            late = f"after {self.policy.recall_s:g} s"
            kind, operation, what = errors.BackendTimeout, "retrieve", f"recall has no answer {late}"
            if answered.is_set():
                what = "recall was given up"
            elif not begun:
                kind, operation, what = (
                    SetUpTimedOut,
                    "setup_scope",
                    f"the scope is still being set up {late}",
                )
            raise kind(f"{slot.backend_name}: {what}", backend_name=slot.backend_name, operation=operation)
        if isinstance(answer[0], MemslotError):
            raise answer[0]
        return answer[0]
