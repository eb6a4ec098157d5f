"""Sinks for traces, none of which is on by default, and the sum of several traces."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from memory.contract._quantity import quantity
from memory.contract.errors import ConfigError
from memory.contract.receipts import Trace

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

log = logging.getLogger("memslot.slot")
_SELDOM = frozenset({"aclose", "reset_scope", "set_mode", "setup_scope", "start"})


def log_trace(trace: Trace) -> None:
    """Log a call in one line without user text: rare operations at INFO, the rest at DEBUG."""
    level = logging.INFO if trace.operation in _SELDOM else logging.DEBUG
    if not log.isEnabledFor(level):
        return
    parts = [
        f"failed ({trace.error})" if trace.error else trace.consistency,
        None if trace.latency_ms is None else f"{trace.latency_ms:.1f} ms",
        None if trace.attempts == 1 else f"{trace.attempts} attempts",
        None
        if trace.included_count is None
        else f"{trace.included_count} of {trace.retrieved_count} entries",
        None if trace.token_count is None else f"{trace.token_count} tokens",
        quantity(len(trace.warnings), "warnings") if trace.warnings else None,
        "read-only" if trace.read_only else None,
    ]
    call = f"{trace.operation} of {trace.scope.label}" if trace.scope else trace.operation
    log.log(level, "%s: %s: %s", trace.backend_name, call, ", ".join(part for part in parts if part))


class TraceSink(Protocol):
    """Receives the trace of every call. A sink must be quick and must not raise."""

    def emit(self, trace: Trace) -> None: ...


class JsonlTraceSink(AbstractContextManager["JsonlTraceSink"]):
    """Appends each trace as one line of JSON and flushes it, so that a crash loses none.

    Raises:
        ConfigError: the file cannot be opened for appending.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            self._file: IO[str] = Path(path).open("a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise ConfigError(f"trace file {path}: {error.strerror}; choose a writable path") from error

    def emit(self, trace: Trace) -> None:
        """Append the trace."""
        self._file.write(trace.model_dump_json() + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def __exit__(self, *ended: object) -> None:
        self.close()


class OpenTelemetrySink:
    """Turns each trace into a finished span named ``memslot.<operation>`` with ``memslot.*`` attributes.

    Args:
        tracer: an OpenTelemetry tracer; by default the global provider's.

    Raises:
        ConfigError: ``opentelemetry-api`` is not installed.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        if tracer is None:
            try:
                from opentelemetry.trace import get_tracer
            except ImportError as error:
                raise ConfigError("OpenTelemetry traces need: pip install opentelemetry-api") from error
            tracer = get_tracer("memslot")
        self._tracer = tracer

    def emit(self, trace: Trace) -> None:
        """Hand the trace to the tracer, as a span that began and ended when the call did."""
        start = int(trace.started_at.timestamp() * 1e9) if trace.started_at else None
        span = self._tracer.start_span(f"memslot.{trace.operation or 'call'}", start_time=start)
        for name, value in trace.model_dump(mode="json", exclude={"scope", "started_at"}).items():
            if value is not None:
                span.set_attribute(f"memslot.{name}", value)
        if trace.scope is not None:
            span.set_attribute("memslot.scope", trace.scope.label)
        end = start + int(trace.latency_ms * 1e6) if start and trace.latency_ms is not None else None
        span.end(end_time=end)


_ADDED = ("attempts", "token_count", "retrieved_count", "left_out_count", "included_count")
_WEAKEST = ("pending", "queued", "committed")


def summed_trace(receipts: Sequence[Any]) -> Trace | None:
    """One trace for a bulk write's receipts: counts are added up, times span the first to the last."""
    if len(receipts) == 1:  # the fast path of nearly every call
        return getattr(receipts[0], "trace", None)
    found = [getattr(receipt, "trace", None) for receipt in receipts]
    traces = [trace for trace in found if isinstance(trace, Trace)]
    if len(traces) < 2:
        return traces[0] if traces else None
    first = traces[0]
    if all(trace is first for trace in traces):
        return first

    def said(name: str) -> list[Any]:
        return [value for trace in traces if (value := getattr(trace, name)) is not None]

    added = {name: sum(values) for name in _ADDED if (values := said(name))}
    spans = {
        "oldest_retrieved_at": min(said("oldest_retrieved_at"), default=None),
        "newest_retrieved_at": max(said("newest_retrieved_at"), default=None),
        "last_derived_at": max(said("last_derived_at"), default=None),
        "top_score": max(said("top_score"), default=None),
    }
    one_event = {"event_id": None} if len({trace.event_id for trace in traces}) > 1 else {}
    return first.model_copy(update={**added, **spans, **one_event})


def summed_fields(receipts: Sequence[Any]) -> dict[str, Any]:
    """Ids and warnings of all receipts, and the weakest of their states."""
    if len(receipts) == 1:  # the fast path of nearly every call
        [only] = receipts
        state = getattr(only, "status", None)
        return {
            "native_ids": getattr(only, "native_ids", ()),
            "warnings": getattr(only, "warnings", ()),
            "consistency": state if state in _WEAKEST else None,
        }
    states = {getattr(receipt, "status", None) for receipt in receipts}
    told = states <= set(_WEAKEST)
    return {
        "native_ids": tuple(chain.from_iterable(getattr(each, "native_ids", ()) for each in receipts)),
        "warnings": tuple(chain.from_iterable(getattr(each, "warnings", ()) for each in receipts)),
        "consistency": next((state for state in _WEAKEST if state in states), None) if told else None,
    }
