"""Native calls: their place in the queue, deadline, error mapping and trace (DESIGN section 5)."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn, Self, TypeVar, cast

import anyio
from pydantic import BeforeValidator, Field

from memory.contract._loops import checkpoint, on_trio, running_loop
from memory.contract._model import Frozen, check_number
from memory.contract._surviving import ends_the_task
from memory.contract.adapter import MemoryAdapter, SupportsEventLookup, close_adapter
from memory.contract.admission import Admission, LlmUse
from memory.contract.errors import (
    BackendError,
    BackendProtocolError,
    BackendTimeout,
    BackendUnavailable,
    ConfigError,
    LifecycleError,
    MemslotError,
    ScopeError,
    StoreError,
)
from memory.contract.events import MemoryEvent
from memory.contract.native_errors import normalise_error
from memory.contract.receipts import Trace
from memory.contract.scope import MemoryScope
from memory.contract.traits import AdapterTraits
from memory.slot.gate import InFlight, ModeGate
from memory.slot.tracing import TraceSink, log_trace, summed

T = TypeVar("T")
log = logging.getLogger("memslot.slot")
Seconds = Annotated[float, BeforeValidator(check_number), Field(gt=0, allow_inf_nan=False)]


class Deadlines(Frozen):
    """Seconds that each kind of native call may take from its admission. SDK defaults run to 600 s.

    Attributes:
        setup_s, write_s, retrieve_s, reset_s, health_s: for the call of that name.
        bulk_s: upper bound of a bulk write, which gets ``write_s`` for each of its events.
        query_s: for look-ups, readiness, provenance and native queries.
        drain_s: how long a switch of the mode waits for writes under way.
        close_s: how long :meth:`MemorySlot.aclose` waits for calls under way.
    """

    setup_s: Seconds = 60.0
    write_s: Seconds = 60.0
    bulk_s: Seconds = 1800.0
    retrieve_s: Seconds = 15.0
    reset_s: Seconds = 300.0
    health_s: Seconds = 15.0
    query_s: Seconds = 30.0
    drain_s: Seconds = 120.0
    close_s: Seconds = 15.0


_JUDGED = ("record_event", "record_events", "retrieve")  # a failure of one makes health degraded


@dataclass(slots=True)
class Span:
    """A call of the contract, measured from its admission and not from its wait for a turn."""

    _calls: NativeCalls
    operation: str
    scope: MemoryScope | None
    fields: dict[str, Any]
    attempts: int = 0  # at the native system
    finished: bool = False  # its trace was emitted
    writes: bool = False  # it may change what is stored
    yielded: bool = False  # it has already let other tasks run
    llm: LlmUse = field(default_factory=LlmUse)
    started_at: datetime = field(init=False)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def __enter__(self) -> Self:
        self._calls.under_way.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        try:
            failure: dict[str, Any] = {} if error is None else {"error": type(error).__name__}
            if error is not None and not isinstance(error, Exception):
                failure["warnings"] = (f"given up {'after' if self.attempts else 'before'} it was sent",)
            if error is None:
                self._calls.failed.pop(self.operation, None)
            elif isinstance(error, BackendError) and self.operation in _JUDGED:
                self._calls.failed[self.operation] = str(error)
            if failure or not self.finished:
                self._calls.finish(self, None, **failure)
        finally:
            self._calls.under_way.__exit__()

    def begin(self) -> None:
        self.started_at = datetime.now(UTC)
        self.started = time.perf_counter()

    @property
    def elapsed_ms(self) -> float:
        return (time.perf_counter() - self.started) * 1000


class NativeCalls:
    """Makes every call of an adapter, so that each has its turn, its deadline and its trace."""

    def __init__(self, adapter: MemoryAdapter, deadlines: Deadlines, sink: TraceSink | None) -> None:
        self.adapter = adapter
        self.backend_name = adapter.backend_name
        self.traits = AdapterTraits.of(adapter)
        self.deadlines = deadlines
        self.gate = ModeGate()
        size = self.traits.max_concurrency
        self._limits = () if size is None else (anyio.Semaphore(size, fast_acquire=True),)
        self._order: dict[MemoryScope, anyio.Lock] = {}
        self.scopes: dict[MemoryScope, bool] = {}  # scope -> whether its set-up succeeded
        self.under_way = InFlight()
        self.closed = False  # new calls are refused
        self.released = False  # calls that still wait for a place are refused, too
        self.lost_traces = 0
        self.failed: dict[str, str] = {}  # operation whose last call failed -> why
        self.sinks = [] if sink is None else [sink]
        self.loop: object | None = None
        self._pid = 0  # the process that opened the slot
        self._closing = anyio.Lock(fast_acquire=True)
        self._clean = False  # the adapter has released everything
        self._given_up: dict[MemoryScope | None, set[Admission]] = {}  # writes that the slot no longer awaits

    def check_loop(self) -> None:
        loop = running_loop()
        if self.loop is not None and self._pid != os.getpid():
            raise LifecycleError(
                "this slot was opened before the process was forked; open one in each worker"
            )
        if self.loop is None:
            if self.traits.asyncio_only and on_trio():
                raise ConfigError(f"{self.backend_name} runs on asyncio only; run the host on asyncio")
            self.loop, self._pid = loop, os.getpid()
        elif self.loop is not loop:
            raise LifecycleError(
                "this slot was opened in another event loop; open one slot per loop, close it there"
            )

    def check_scope(self, scope: MemoryScope, *, tried: bool = False) -> None:
        """Raises ScopeError if the scope is not set up. With ``tried``, a failed set-up is enough."""
        if not self.scopes.get(scope, False) and not (tried and scope in self.scopes):
            raise ScopeError(f"scope {scope.label} is not set up; call setup_scope first")

    def order(self, scope: MemoryScope) -> anyio.Lock:
        """The lock that keeps a scope's writes in the order of their arrival."""
        if scope not in self._order:
            self._order[scope] = anyio.Lock(fast_acquire=True)
        return self._order[scope]

    def span(self, operation: str, scope: MemoryScope | None = None, **fields: Any) -> Span:
        """Begin a call of the contract, which is measured and traced even if it is refused."""
        if self.closed:
            raise LifecycleError("this slot is closed; open a new one")
        self.check_loop()
        return Span(self, operation, scope, fields)

    async def write(
        self, span: Span, perform: Callable[[], Awaitable[T]], skipped: Callable[[], T], tried: bool = False
    ) -> T:
        """Make a writing call in the scope's order. While the slot is read-only, ``skipped`` answers instead."""
        scope = cast(MemoryScope, span.scope)
        self.check_scope(scope, tried=tried)
        span.writes = True
        async with self.gate.writing(self.order(scope)) as allowed:
            # Yielding any earlier could let a later write take this one's place in the order.
            span.yielded = True
            await checkpoint()
            return self.traced(span, await perform() if allowed else skipped())

    async def call(
        self,
        span: Span,
        deadline_s: float,
        native: Callable[[], Awaitable[T]],
        answer: type[T] | None = None,
        *,
        check: Callable[[T], None] = lambda answer: None,
        operation: str | None = None,
        queue_timeout_s: float = math.inf,
    ) -> T:
        """Call the adapter in turn and within a deadline, and map its errors.

        Args:
            deadline_s: seconds from the call's admission, after at most ``queue_timeout_s`` of waiting for it.
            answer, check: the type that the call has to return, and a further check that raises.
            operation: the call's name in errors; by default the span's.
        """
        counts, operation = operation is None, operation or span.operation
        if not span.yielded:
            span.yielded = True
            await checkpoint()
        admission = Admission(self._limits)
        if admission.limits:
            with anyio.move_on_after(queue_timeout_s) as waiting:
                await admission.enter()
            if waiting.cancelled_caught:
                what = f"found no place among other calls within {queue_timeout_s:g} s"
                raise self._late(operation, what, sent=False)
        try:
            if self.released:
                raise LifecycleError("this slot was closed while the call waited; nothing was sent")
            if not span.attempts:
                span.begin()
                span.attempts = 1
            with anyio.move_on_after(deadline_s), span.llm.counting(), admission.active():
                returned = await native()
                if answer is not None and not isinstance(returned, answer):
                    raise BackendProtocolError(
                        f"{operation} returned {type(returned).__name__}, not {answer.__name__}"
                    )
                check(returned)
                return returned
        except BaseException as error:
            if ends_the_task(error):
                raise
            self._raise_mapped(error, operation)
        finally:
            admission.leave()
            if span.writes and not admission.over:
                others = {write for write in self._given_up.get(span.scope, ()) if not write.over}
                self._given_up[span.scope] = {admission, *others}
            if counts and not admission.sent:
                span.attempts -= 1
        what = f"did not answer within {deadline_s:g} s"
        if span.writes and not admission.sent:
            earlier = set(self._given_up.get(span.scope, ())) - {admission}
            if any(not write.over for write in earlier):
                what = f"waited {deadline_s:g} s for an earlier write that got no answer and goes on"
            what += "; nothing was stored"
        raise self._late(operation, what, sent=admission.sent, deadline_s=deadline_s) from TimeoutError(
            f"{deadline_s:g} s"
        )

    async def look_up(self, span: Span, event: MemoryEvent, deadline_s: float) -> tuple[str, ...] | None:
        """Native ids of an event, once its scope's abandoned writes have ended; they may still store it."""
        with anyio.move_on_after(deadline_s) as waiting:
            for write in self._given_up.get(event.scope, ()):
                await write.ended()
        if waiting.cancelled_caught:
            raise self._late("find_event", f"waited {deadline_s:g} s for an earlier write", sent=False)

        async def find() -> tuple[str, ...] | None:
            ids = await cast(SupportsEventLookup, self.adapter).find_event(event)
            return None if ids is None else tuple(ids)

        return await self.call(span, deadline_s, find, operation="find_event")

    async def close(self) -> None:
        """Refuse new calls, wait for those under way, and release the adapter, even if cancelled.

        A close that failed can be repeated.
        """
        if not self._clean:
            self.check_loop()
        self.closed, limit_s = True, self.deadlines.close_s
        with anyio.CancelScope(shield=True):
            await checkpoint()
            async with self._closing:
                if self._clean:
                    return
                with anyio.move_on_after(limit_s):
                    await self.under_way.ended()
                self.released = True
                with self.mapping("aclose"), anyio.move_on_after(limit_s):
                    await close_adapter(self.adapter)
                    self._clean = True
                    log.info("%s: closed", self.backend_name)
                    return
        raise self._late("aclose", f"did not end within {limit_s:g} s", sent=True)

    def _late(self, operation: str, what: str, *, sent: bool, **diagnostics: Any) -> BackendTimeout:
        return BackendTimeout(
            f"{self.backend_name}: {operation} {what}",
            backend_name=self.backend_name,
            operation=operation,
            diagnostics=diagnostics,
            sent=sent,
        )

    @contextmanager
    def mapping(self, operation: str) -> Iterator[None]:
        """Turn an error of the adapter into a memslot error, with the native error as its cause."""
        try:
            yield
        except Exception as error:
            self._raise_mapped(error, operation)

    def _raise_mapped(self, error: BaseException, operation: str) -> NoReturn:
        named: dict[str, Any] = {"backend_name": self.backend_name, "operation": operation}
        if not isinstance(error, Exception):  # an SDK that ends the process, such as by SystemExit
            why = f"{self.backend_name}: {operation} raised {type(error).__name__}"
            raise BackendProtocolError(why, **named) from error
        if isinstance(error, StoreError):
            # An adapter's own store failed. Only a server that did not answer may have written something.
            raise BackendUnavailable(str(error), **named, sent=error.maybe_done) from error
        if isinstance(error, MemslotError) and not isinstance(error, BackendError):
            raise error
        cause = error.__cause__ if isinstance(error, BackendError) else error
        raise normalise_error(error, **named, table=self.traits.errors) from cause

    def finish(self, span: Span, trace: Trace | None, **fields: object) -> Trace:
        """Complete the adapter's trace with the measurements, and emit it."""
        span.finished = True
        trace = trace or Trace(
            backend_name=self.backend_name, scope=span.scope, native_operation=span.operation
        )
        trace = trace.model_copy(
            update={
                "operation": span.operation,
                "condition_kind": self.traits.kind,
                "cs_filtering": self.traits.cs_filtering,
                "started_at": span.started_at,
                "latency_ms": span.elapsed_ms,
                "attempts": max(trace.attempts, span.attempts) if span.attempts else 0,
                "read_only": self.gate.read_only,
                "llm_calls": span.llm.calls if self.traits.counts_llm_calls else None,
                "llm_tokens": span.llm.tokens if self.traits.counts_llm_calls else None,
                **span.fields,
                **fields,
            }
        )
        log_trace(trace)
        for sink in self.sinks:
            try:
                sink.emit(trace)
            except Exception as error:  # a sink that fails does not undo the call
                self.lost_traces += 1
                if self.lost_traces == 1:
                    log.warning("the trace sink failed (%s); health counts lost traces", type(error).__name__)
        return trace

    def traced(self, span: Span, answer: T) -> T:
        """The answer with the call's trace in it: a receipt, or a bulk write's receipts, one per event."""
        receipts: list[Any] = answer if isinstance(answer, list) else [answer]
        trace, fields = summed(receipts)
        trace = self.finish(span, trace, **fields)
        traced: list[Any] = []
        for receipt in receipts:
            has_trace = "trace" in type(receipt).model_fields
            traced.append(receipt.model_copy(update={"trace": trace}) if has_trace else receipt)
        return cast(T, traced if isinstance(answer, list) else traced[0])
