"""The turn policy: what a host does while its memory is slow, down or wrong.

It is the same for every host, on asyncio and trio, whichever task opens, uses and closes the memory.
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
        recall_s: longest wait for recall, in seconds, the set-up of a new scope included. 2 is what Signet's
            OpenCode plugin grants.
        on_failure: ``empty`` goes on without memory, and :class:`Recall`, trace, health and log name the failure;
            ``raise`` passes it on.
        exclude_session: leave what was said in the current session out of recall, because the host replays it.
        drain_s: seconds for sending what waits when this is closed.
        open_after: failures in a row after which the memory is left alone.
        pause_s: for how many seconds; then one call is tried.
        not_said: regular expressions, beside those that memslot has for each host. A prompt that one of them
            matches from its beginning is not the user's: it is neither a question to the memory nor recorded.
    """

    recall_s: Seconds = 2.0
    on_failure: Literal["raise", "empty"] = "empty"
    exclude_session: bool = False
    drain_s: SecondsOrZero = 15.0
    open_after: Positive = 3
    pause_s: Seconds = 30.0
    not_said: tuple[re.Pattern[str], ...] = ()


def first_of(group: BaseExceptionGroup[MemslotError]) -> MemslotError:
    """The first error of a group of failed tasks, for the host."""
    error = group.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error


@dataclass(frozen=True, slots=True)
class Recall:
    """The result of a recall for one turn.

    Attributes:
        section: the context section for the prompt, whose label says ``user`` in place of the scope; empty where
            nothing is remembered, and where recall failed.
        failure: why it failed; None where it did not.
        result: the retrieval behind it; None where it failed, or there was nothing to ask.
        took_ms: from the question to this.
    """

    section: str
    failure: MemslotError | None = None
    result: RetrieveResult | None = None
    took_ms: float = 0.0

    @property
    def trace(self) -> Trace | None:
        """The trace of the retrieval; None if there was none."""
        return self.result.trace if self.result else None


class TurnMemory:
    """A slot as a host uses it, turn by turn.

    Args:
        slot: the memory, open. Whoever opened it closes it, after this.
        policy: what the host grants it.
        on_trouble: called with ``recall`` or ``write``, and why it failed in words that hold no user text; with
            ``left_out``, and the kinds of parts of a turn that hold no words. It is called in the memory's event
            loop, or in the thread of whoever called from elsewhere. It must return at once.

    An event is acknowledged once it is in the slot's outbox. There it outlives the process, unless the slot has no
    store: :func:`memory.open_memory` gives it one.

    Use it as ``async with TurnMemory(slot) as memory:``, or call :meth:`aclose` yourself; no start is needed.

    Attributes:
        loop: the event loop it is used in; None until the first call where none was running.
        arriving: what bindings handed over from other threads, and this loop has not taken yet.
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
        self.loop = slot.loop or loop_or_none()
        self.arriving: set[Future[bool]] = set()
        self.on_trouble = on_trouble
        self._background = Background()
        self._reading = Circuit(f"{slot.backend_name}: recall", self.policy.open_after, self.policy.pause_s)
        self._writes = WriteBehind(slot, self._background)
        self._closing: anyio.Lock | None = None
        self._closed = False
        self._recalls = self._failed_recalls = self._left_out = 0
        self._last_failure: str | None = None
        self._new: set[MemoryScope] = set()  # scopes that one recall has waited for in vain

    async def __aenter__(self) -> Self:
        self.resume()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def resume(self) -> None:
        """Deliver what earlier processes left in the outbox, if the memory's event loop runs. Idempotent."""
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
            user: what the user just said. Blanks or recalled context alone ask nothing.
            session_id, scope, fields: as for :meth:`MemorySlot.before_turn`.

        Raises:
            MemslotError: recall failed, where ``on_failure`` is ``raise``.
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
            if not isinstance(error, CircuitOpen):  # which was said when it opened
                log.warning("%s: recall failed: %s", self.slot.backend_name, error)
            if self.policy.on_failure == "raise":
                raise
            return Recall("", error, None, took_ms)
        section = relabel_section(result.formatted_context, "user")
        return Recall(section, None, result, (time.perf_counter() - started) * 1000)

    async def record(self, event: MemoryEvent, *, corrects: MemoryEvent | None = None) -> bool:
        """Keep an event in the outbox, to be delivered in the background.

        Args:
            event: what was said.
            corrects: an earlier version of the same turn. The memory forgets it first where its backend deletes
                single memories. Elsewhere both stay, and ``metadata["corrects"]`` of the new one names the old one.

        Returns:
            False where nothing was kept: an event of this id and scope was before, nothing but recalled context is
            in it, the slot is read-only, or, where ``on_failure`` is ``empty``, it cannot be kept. That last is
            counted in :meth:`status`, and logged.

        Raises:
            LifecycleError: this is closed.
            StoreError, BackendError, InputError: it cannot be kept, where ``on_failure`` is ``raise``.
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
        """Record what was said in a turn, as :meth:`record`; fields as for :meth:`MemorySlot.after_turn`.

        Raises:
            InputError: a field is malformed, or nothing was said.
        """
        return await self.record(
            event_from_turn(session_id, self.slot.delivery.scope_or_default(scope), **fields)
        )

    async def drain(self, within_s: float) -> bool:
        """Wait until everything recorded so far is answered for; whether it was within so many seconds."""
        with anyio.move_on_after(within_s):
            await self._arrived()
            return await self._writes.drained(within_s)
        return False

    async def aclose(self) -> None:
        """Send what waits, for at most ``drain_s`` seconds, even if cancelled. Idempotent. The slot stays open.

        Events that are left wait in the outbox for the next start.
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
        """JSON-ready: counts of recalls and writes, how many wait, and whether the memory is left alone."""
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
        """Count a turn that a binding could not recall for, or not record, and report it."""
        if what == "recall":
            self._failed_recalls += 1
            self._last_failure = why
        else:
            self._writes.counts.not_recorded += 1
            self._writes.counts.last_failure = why
        if self.on_trouble is not None:
            self.on_trouble(what, why)

    def note_left_out(self, kinds: Sequence[str]) -> None:
        """Count parts of a recorded turn that hold no words, such as pictures, and report their kinds."""
        self._left_out += len(kinds)
        if self.on_trouble is not None:
            counted = ", ".join(f"{number} {kind}" for kind, number in sorted(Counter(kinds).items()))
            self.on_trouble("left_out", f"a turn is recorded without {counted}")

    async def health(self) -> BackendHealth:
        """The slot's health, with :meth:`status` in ``details["turns"]``.

        It is degraded while recall is left alone, or once an event was not recorded.
        """
        health, status = await self.slot.health(), self.status()
        warnings = []
        if self._reading.state != "closed":
            warnings.append("recall is left alone after repeated failures")
        if status["not_recorded"]:
            warnings.append(f"{status['not_recorded']} events were not recorded")
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
        """Ask in a task of its own, so that a call that cannot be cancelled delays nobody, and a set-up goes on."""
        slot, answered, stop = self.slot, anyio.Event(), anyio.CancelScope()
        answer: list[RetrieveResult | MemslotError] = []
        late = begun = False

        async def ask() -> None:
            nonlocal begun
            try:
                async with slot.delivery.leases.lease(request.scope):
                    begun = True
                    if not late:
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
                self._new.discard(request.scope)
                answered.set()

        self._background.start(ask)
        try:
            with anyio.move_on_after(self.policy.recall_s):
                await answered.wait()
        finally:
            late = True
            if not answered.is_set():
                stop.cancel()
        if not (answered.is_set() or begun or request.scope in self._new):
            # The next time it counts: what never ends may be a memory that is down.
            self._new.add(request.scope)
            why = f"{slot.backend_name}: the scope is still being set up after {self.policy.recall_s:g} s"
            raise SetUpTimedOut(why, backend_name=slot.backend_name, operation="setup_scope")
        if not answer:
            what = "was given up" if answered.is_set() else f"has no answer within {self.policy.recall_s:g} s"
            why = f"{slot.backend_name}: recall {what}"
            raise errors.BackendTimeout(why, backend_name=slot.backend_name, operation="retrieve")
        if isinstance(answer[0], MemslotError):
            raise answer[0]
        return answer[0]
