"""The rules every call goes through: mode gate, write order, deadline, error mapping, trace (DESIGN section 5).

The slot and the guarded capabilities are both built on these, so that no rule exists twice.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar, cast

import anyio
from pydantic import BeforeValidator, Field

from memory.contract._loops import on_trio, running_loop
from memory.contract._model import Frozen, check_number
from memory.contract.adapter import MemoryAdapter
from memory.contract.errors import (
    BackendError,
    BackendTimeout,
    ConfigError,
    InputError,
    LifecycleError,
    MemslotError,
    ScopeError,
    normalise_error,
)
from memory.contract.events import MemoryEvent
from memory.contract.formatting import strip_json
from memory.contract.receipts import Trace
from memory.contract.requests import MemoryFeedback
from memory.contract.scope import MemoryScope
from memory.slot.gate import Lanes, ModeGate
from memory.slot.tracing import TraceSink

__all__ = ["Deadlines", "Rules", "without_recalled_context"]

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=Frozen)
SaidT = TypeVar("SaidT", MemoryEvent, MemoryFeedback)


Seconds = Annotated[float, BeforeValidator(check_number), Field(gt=0, allow_inf_nan=False)]


class Deadlines(Frozen):
    """Seconds each kind of native call may take; SDK defaults run to 600 s."""

    setup_s: Seconds = 60.0
    write_s: Seconds = 60.0
    retrieve_s: Seconds = 15.0
    reset_s: Seconds = 300.0
    health_s: Seconds = 15.0
    query_s: Seconds = 30.0
    close_s: Seconds = 15.0


class Span:
    """A call being measured."""

    __slots__ = ("fields", "finished", "operation", "scope", "started", "started_at")

    def __init__(self, operation: str, scope: MemoryScope | None, fields: dict[str, Any]) -> None:
        self.operation = operation
        self.scope = scope
        self.fields = fields
        self.finished = False
        self.started_at = datetime.now(UTC)
        self.started = time.perf_counter()

    @property
    def elapsed_ms(self) -> float:
        return (time.perf_counter() - self.started) * 1000


class Rules:
    """State and rules shared by a slot and its capabilities.

    Args:
        adapter: the backend or condition.
        deadlines: seconds per kind of native call.
        sink: receives the trace of every call, or None.
    """

    def __init__(self, adapter: MemoryAdapter, deadlines: Deadlines, sink: TraceSink | None) -> None:
        self.adapter = adapter
        self.backend_name = adapter.backend_name
        self.traits = adapter.traits
        self.deadlines = deadlines
        self.gate = ModeGate()
        self.lanes = Lanes(self.traits)
        self.closed = False
        self._sink = sink
        self._scopes: set[MemoryScope] = set()
        self._tried: set[MemoryScope] = set()
        self._loop: object | None = None

    def enter(self) -> None:
        """Refuse a call on a closed slot or from another event loop than the first one.

        Raises:
            LifecycleError: either is the case.
            ConfigError: the loop is trio's, and the adapter's SDK knows asyncio alone.
        """
        if self.closed:
            raise LifecycleError("this slot is closed; open a new one")
        loop = running_loop()
        if self._loop is None:
            if self.traits.asyncio_only and on_trio():
                raise ConfigError(f"{self.backend_name} runs on asyncio only; run the host on asyncio")
            self._loop = loop
        elif self._loop is not loop:
            raise LifecycleError(
                "this slot was opened in another event loop; open one slot per loop, close it there"
            )

    def try_scope(self, scope: MemoryScope) -> None:
        """The scope is about to be set up: it may be reset from now on, should that fail."""
        self.lanes.add(scope)
        self._tried.add(scope)

    def add_scope(self, scope: MemoryScope) -> None:
        """The scope is set up: calls for it are allowed from now on."""
        self._scopes.add(scope)

    def knows(self, scope: MemoryScope) -> bool:
        """Whether the scope is set up."""
        return scope in self._scopes

    def drop_scope(self, scope: MemoryScope) -> None:
        """The scope is not used any more; calls for it are refused until it is set up again."""
        self._scopes.discard(scope)
        self._tried.discard(scope)
        self.lanes.drop(scope)

    def check_scope(self, scope: MemoryScope, *, tried: bool = False) -> None:
        """Refuse a scope that was never set up; with ``tried``, one of which that was not even tried.

        Raises:
            ScopeError: it was not.
        """
        self.enter()
        if scope not in (self._tried if tried else self._scopes):
            raise ScopeError(f"scope {scope.label} is not set up; call setup_scope first")

    async def write(
        self,
        operation: str,
        scope: MemoryScope,
        perform: Callable[[], Awaitable[T]],
        skipped: Callable[[], T],
        *,
        tried: bool = False,
        **fields: Any,
    ) -> T:
        """A writing call: allowed by the mode, in the scope's order, traced.

        Args:
            operation: the contract's name of the call.
            scope: whose memory is written.
            perform: does it, through :meth:`call`.
            skipped: what to answer while read-only, instead.
            tried: whether a scope will do whose set-up has failed.
            fields: further fields of the trace.
        """
        self.check_scope(scope, tried=tried)
        async with self.gate.writing() as allowed:
            if not allowed:
                return self._traced(Span(operation, scope, {**fields, "attempts": 0}), skipped())
            async with self.lanes.enter(scope, write=True), self.observed(operation, scope, **fields) as span:
                return self._traced(span, await perform())

    async def read(
        self, operation: str, scope: MemoryScope, perform: Callable[[], Awaitable[T]], **fields: Any
    ) -> T:
        """A reading call: never waits for writes, traced."""
        self.check_scope(scope)
        async with self.observed(operation, scope, **fields) as span:
            return self._traced(span, await perform())

    async def call(self, operation: str, deadline_s: float, native: Callable[[], Awaitable[T]]) -> T:
        """One call of the adapter, within its deadline and with its errors mapped.

        Raises:
            BackendError: what the adapter raised, mapped and chained; :class:`BackendTimeout` past the deadline.
        """
        try:
            with anyio.fail_after(deadline_s) as limit:
                return await native()
        except BackendError as error:
            raise normalise_error(
                error, backend_name=self.backend_name, operation=operation
            ) from error.__cause__
        except MemslotError:
            raise
        except TimeoutError as error:
            if not limit.cancelled_caught:
                raise normalise_error(error, backend_name=self.backend_name, operation=operation) from error
            raise BackendTimeout(
                f"{self.backend_name}: {operation} did not answer within {deadline_s:g} s",
                backend_name=self.backend_name,
                operation=operation,
                diagnostics={"deadline_s": deadline_s},
            ) from error
        except Exception as error:
            raise normalise_error(error, backend_name=self.backend_name, operation=operation) from error

    @asynccontextmanager
    async def observed(self, operation: str, scope: MemoryScope | None, **fields: Any) -> AsyncIterator[Span]:
        """Measure a call and trace it; a failed one with the class of its error."""
        span = Span(operation, scope, fields)
        try:
            yield span
        except BaseException as error:
            self.finish(span, None, error=type(error).__name__)
            raise
        if not span.finished:
            self.finish(span, None)

    def finish(self, span: Span, trace: Trace | None, **fields: Any) -> Trace:
        """Complete the adapter's trace with what was measured, and emit it."""
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
                "read_only": self.gate.read_only,
                **span.fields,
                **fields,
            }
        )
        if self._sink is not None:
            self._sink.emit(trace)
        return trace

    def _traced(self, span: Span, answer: T) -> T:
        """The answer (a receipt, or one per event of a bulk write) with the call's trace in it."""
        receipts: list[Any] = answer if isinstance(answer, list) else [answer]
        first = receipts[0] if receipts else None
        status = getattr(first, "status", None)
        trace = self.finish(
            span,
            getattr(first, "trace", None),
            native_ids=tuple(one for receipt in receipts for one in getattr(receipt, "native_ids", ())),
            warnings=tuple(one for receipt in receipts for one in getattr(receipt, "warnings", ())),
            consistency=status if status in ("committed", "queued", "pending") else None,
        )
        traced: list[Any] = [
            receipt.model_copy(update={"trace": trace}) if "trace" in type(receipt).model_fields else receipt
            for receipt in receipts
        ]
        return cast(T, traced if isinstance(answer, list) else traced[0])


def without_recalled_context(said: SaidT) -> SaidT:
    """An event or feedback without any memory section, so that memory never feeds on itself.

    Sections go from what was said and from the names, tool calls and metadata beside it.

    Raises:
        InputError: nothing else was in it.
    """
    if isinstance(said, MemoryEvent):
        messages = [_stripped(message, "content", "name", "tool_calls") for message in said.messages]
        kept = tuple(message for message in messages if message.content or message.tool_calls)
        if kept != said.messages:
            said = said.model_copy(update={"messages": kept})
        something = bool(kept)
    else:
        said = _stripped(said, "content", "corrected_answer")
        something = bool(said.content or said.corrected_answer)
    if not something:
        raise InputError(f"{type(said).__name__} holds nothing but recalled context; nothing was written")
    return _stripped(said, "metadata")


def _stripped(said: ModelT, *names: str) -> ModelT:
    """With sections taken out of these fields; a text of which nothing is left is absent, where that is allowed."""
    changed = {}
    for name in names:
        before = getattr(said, name)
        after = strip_json(before)
        if after != before:
            optional = type(said).model_fields[name].default is None
            changed[name] = None if optional and not after else after
    return said.model_copy(update=changed) if changed else said
