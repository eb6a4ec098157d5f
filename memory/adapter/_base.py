"""The base class that most adapters share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache, wraps
from typing import Any

import anyio

from memory.adapter._worker import NativeWorker, ShieldedCalls
from memory.contract.admission import yield_turn
from memory.contract.errors import BackendError, MemslotError, ReadOnlyError
from memory.contract.events import MemoryEvent
from memory.contract.formatting import Utf8TokenCounter, fit_entries, render_section, section_overhead
from memory.contract.native_errors import normalise_error
from memory.contract.receipts import (
    BackendHealth,
    BackendReadiness,
    FeedbackReceipt,
    HealthStatus,
    ModeReceipt,
    NativeMutationReceipt,
    RetrieveResult,
    Trace,
    WriteReceipt,
    WriteStatus,
)
from memory.contract.requests import AdapterMode
from memory.contract.scope import MemoryScope
from memory.contract.traits import AdapterTraits, declared_health
from memory.slot.gate import InFlight

_CLOSE_S = 8.0
_STEP_S = 30.0


async def release(*steps: Callable[[], Awaitable[object]]) -> None:
    """Run all steps of a shutdown, each for at most 30 s, even if one fails or the caller is cancelled.

    Raises the first error of a step, after all steps have run.
    """
    failures: list[Exception] = []
    for step in steps:
        try:
            with anyio.fail_after(_STEP_S, shield=True):
                await step()
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]


# Most traces of a scope's reads are equal, and validating thirty fields is an adapter's most costly step.
_trace = lru_cache(maxsize=256)(Trace)


def _skipped_event(event: MemoryEvent) -> WriteReceipt:
    return WriteReceipt(event_id=event.event_id, status="skipped_read_only")


def _refuse_reset(scope: object) -> None:
    raise ReadOnlyError("reset_scope is refused while the adapter is read-only; set_mode first")


_READ_ONLY_ANSWERS: Mapping[str, Callable[[Any], Any]] = {
    "record_event": _skipped_event,
    "record_events": lambda events: [_skipped_event(event) for event in events],
    "apply_feedback": lambda feedback: FeedbackReceipt(
        feedback_id=feedback.feedback_id, status="skipped_read_only"
    ),
    "native_mutation": lambda request: NativeMutationReceipt(status="skipped_read_only"),
    "reset_scope": _refuse_reset,
}


def _guarded(method: Callable[..., Awaitable[Any]], answer: Callable[[Any], Any]) -> Any:
    """The method as it is called: while the adapter is read-only, ``answer`` takes its place."""

    @wraps(method)
    async def guarded(self: BaseAdapter, argument: Any) -> Any:
        if self._read_only:
            return answer(argument)
        with self._writing:
            return await method(self, argument)

    guarded.skips_read_only = True  # type: ignore[attr-defined]
    return guarded


class BaseAdapter:
    """A base for adapters. The protocol, and not this class, is the contract.

    Set ``backend_name`` and ``traits``; implement ``native_scope``, ``record_event``, ``retrieve``,
    ``reset_scope`` and ``health``. The base enforces read-only mode, with or without a slot.
    """

    backend_name: str = ""
    traits: AdapterTraits = AdapterTraits()
    withheld_capabilities: frozenset[str] = frozenset()

    # Mode switches and closing wait for the calls of both.
    worker: NativeWorker | None = None  # for a synchronous SDK: the threads its calls run on
    shielded: ShieldedCalls | None = None  # for an asynchronous SDK: writes that continue if abandoned

    # wait_until_ready: first and longest pause between polls, and how many may be without a clear answer.
    readiness_pauses_s: tuple[float, float] = (0.02, 0.5)
    max_unclear_looks: int = 1

    _read_only = False

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        for name, answer in _READ_ONLY_ANSWERS.items():
            method = getattr(cls, name, None)
            if method is not None and not hasattr(method, "skips_read_only"):
                setattr(cls, name, _guarded(method, answer))

    @cached_property
    def _writing(self) -> InFlight:
        return InFlight()

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Nothing to prepare, unless overridden."""

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        """Wait for writes under way, including calls abandoned at their deadline, then switch.

        While read-only, every write returns ``skipped_read_only`` and a reset raises ReadOnlyError.
        """
        try:
            await self.join_abandoned()
            while mode.read_only and not self._read_only and self._writing.count:
                await self._writing.ended()
                await self.join_abandoned()
        finally:  # read-only even if a call failed
            self._read_only = self._read_only or mode.read_only
        self._read_only = mode.read_only
        return ModeReceipt(read_only=mode.read_only, reason=mode.reason)

    async def join_abandoned(self) -> None:
        """Wait until abandoned native calls have ended. Override this if other objects hold such calls."""
        if self.shielded is not None:
            await self.shielded.idle()
        if self.worker is not None:
            await self.worker.idle()

    async def wait_until_ready(self, scope: MemoryScope, timeout_s: float) -> BackendReadiness:
        """Poll ``readiness`` until it is ``ready``, unclear :attr:`max_unclear_looks` times, or late."""
        asked: Any = self
        answer = BackendReadiness(state="pending", detail=f"no answer within {timeout_s:g} s")
        with anyio.move_on_after(timeout_s):
            wait_s, longest_s = self.readiness_pauses_s
            unclear_looks = 0
            while True:
                answer = await asked.readiness(scope)
                unclear_looks += answer.state in ("unknown", "failed")
                if answer.state == "ready" or unclear_looks >= self.max_unclear_looks:
                    break
                await yield_turn(wait_s)
                wait_s = min(wait_s * 2, longest_s)
        return answer

    def format_context(self, result: RetrieveResult) -> str:
        """Render the shared section. Override this only if the backend prescribes its own rendering."""
        label = result.request.scope.label
        if not result.is_fitted:
            counter = Utf8TokenCounter()
            overhead = section_overhead(self.backend_name, label, counter)
            fitting = fit_entries(result.entries, result.request.budget, counter, overhead=overhead)
            result = result.model_copy(update={"included": fitting})
        return render_section(self.backend_name, label, result.context_entries)

    async def aclose(self) -> None:
        """Wait for calls under way, close the SDK's resources, and end the worker. Idempotent.

        The wait takes at most 8 s for shielded calls and 10 s for the worker's. All steps run, even if one
        fails or the caller is cancelled.
        """
        await release(self._end_calls, self.aclose_native)

    async def _end_calls(self) -> None:
        if self.shielded is not None:
            with anyio.move_on_after(_CLOSE_S):
                await self.shielded.idle()
        if self.worker is not None:
            await self.worker.aclose(self.close_native)

    async def aclose_native(self) -> None:
        """Release the clients and connections of an asynchronous SDK."""

    def close_native(self) -> None:
        """Release the clients, locks and files of a synchronous SDK. Runs on the worker."""

    def trace(self, scope: MemoryScope, native_operation: str, **fields: object) -> Trace:
        """A trace that names the native call. The slot completes it."""
        named = {"backend_name": self.backend_name, "scope": scope, "native_operation": native_operation}
        try:
            return _trace(**named, **fields)
        except TypeError:  # an unhashable field, which the cache refuses
            return Trace(**named, **fields)

    def receipt(
        self,
        event: MemoryEvent,
        native_operation: str,
        native_ids: Sequence[str] = (),
        *,
        status: WriteStatus = "committed",
        warnings: Sequence[str] = (),
    ) -> WriteReceipt:
        """A receipt for an event, with a trace that names the native call."""
        ids = tuple(native_ids)
        return WriteReceipt(
            event_id=event.event_id,
            status=status,
            native_ids=ids,
            warnings=tuple(warnings),
            trace=self.trace(event.scope, native_operation).model_copy(
                update={"native_ids": ids, "event_id": event.event_id}
            ),
        )

    def health_of(
        self, status: HealthStatus = "ok", *, versions: Mapping[str, str] | None = None, **seen: object
    ) -> BackendHealth:
        """A health report with the traits' declarations, and further fields of :class:`BackendHealth`."""
        return declared_health(self.backend_name, self.traits, status=status, versions=versions, **seen)

    @staticmethod
    @contextmanager
    def clearing() -> Iterator[None]:
        """Wrap a reset from its first deletion on: an error is marked as ambiguous."""
        try:
            yield
        except BackendError as error:
            error.sent = True
            raise


class SynchronousWrites(BaseAdapter):
    """Readiness of a backend whose writes are retrievable as soon as it answers."""

    async def probe_scope(self, scope: MemoryScope) -> None:
        """Raise if the store of a scope does not answer."""
        raise NotImplementedError

    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        """Ready as soon as the store answers."""
        await self.probe_scope(scope)
        return BackendReadiness(state="ready", detail=f"{self.backend_name} stores before it answers")

    async def wait_until_ready(self, scope: MemoryScope, timeout_s: float) -> BackendReadiness:
        """Return :meth:`readiness`, because there is nothing to wait for."""
        return await self.readiness(scope)


class SequentialBulk(BaseAdapter):
    """Bulk ingest one event at a time. Declare ``bulk_size=1``, so that each event has its own deadline."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """Write one event by the backend's native path."""
        raise NotImplementedError

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Call ``record_event`` for each event. After a failure, later events are not sent.

        Raises:
            MemslotError: an event failed. Its ``receipts`` cover the events written before it.
        """
        receipts: list[WriteReceipt] = []
        try:
            for event in events:
                receipts.append(await self.record_event(event))
        except MemslotError as error:
            error.receipts = tuple(receipts)
            raise
        except Exception as error:
            name, table = self.backend_name, self.traits.errors
            failure = normalise_error(error, backend_name=name, operation="record_events", table=table)
            failure.receipts = tuple(receipts)
            raise failure from error
        return receipts
