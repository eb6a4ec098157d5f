"""Sinks for traces, none of which is on by default, and the sum of several traces."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
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
        None if trace.included_count is None else quantity(trace.included_count, "entries"),
        quantity(len(trace.warnings), "warnings") if trace.warnings else None,
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


_WEAKEST = ("pending", "queued", "committed")
_SUMS: dict[str, Callable[[list[Any]], Any]] = {
    **{name: sum for name, field in Trace.model_fields.items() if field.annotation in (int, int | None)},
    **dict.fromkeys(("newest_retrieved_at", "last_derived_at", "top_score"), max),
    "oldest_retrieved_at": min,
}


def summed(receipts: Sequence[Any]) -> tuple[Trace | None, dict[str, Any]]:
    """One trace for a call's receipts, and their ids, warnings and weakest state as fields of it."""
    if len(receipts) == 1:  # the fast path of nearly every call
        [only] = receipts
        state = getattr(only, "status", None)
        return getattr(only, "trace", None), {
            "native_ids": getattr(only, "native_ids", ()),
            "warnings": getattr(only, "warnings", ()),
            "consistency": state if state in _WEAKEST else None,
        }
    traces = [receipt.trace for receipt in receipts if receipt.trace is not None]
    trace: Trace | None = traces[0] if traces else None
    if trace is not None and any(other is not trace for other in traces):
        sums: dict[str, Any] = {}
        for name, add in _SUMS.items():
            values = [value for each in traces if (value := getattr(each, name)) is not None]
            sums[name] = add(values) if values else None
        trace = trace.model_copy(update={**sums, "event_id": None})
    states = {receipt.status for receipt in receipts}
    told_all = states <= set(_WEAKEST)
    return trace, {
        "native_ids": tuple(chain.from_iterable(receipt.native_ids for receipt in receipts)),
        "warnings": tuple(chain.from_iterable(receipt.warnings for receipt in receipts)),
        "consistency": next((state for state in _WEAKEST if state in states), None) if told_all else None,
    }
