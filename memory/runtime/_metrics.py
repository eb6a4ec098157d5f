"""What a server does, in figures that Prometheus reads: requests, calls of the memory, events, the process."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from memory.contract.receipts import Trace
from memory.runtime._policy import TurnMemory

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_COUNTED = {
    "recalls": "Recalls for a turn.",
    "recalls_failed": "Recalls that failed, or were late.",
    "recorded": "Events with a receipt; with a journal, those that are in it.",
    "unknown": "Events sent without an answer.",
    "not_recorded": "Events refused, not taken in time, or lost.",
}


class Metrics(Collector):
    """Of one server; also a trace sink."""

    def __init__(self, memory: TurnMemory) -> None:
        self._memory = memory
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        self._requests = self._seconds("request", "Requests by route and status.", "route", "status")
        self._calls = self._seconds("memory_call", "Calls of the memory.", "operation", "error")

    def _seconds(self, what: str, help_text: str, *labels: str) -> Histogram:
        return Histogram(f"memslot_{what}_seconds", help_text, labels, registry=self._registry)

    def emit(self, trace: Trace) -> None:
        if trace.latency_ms is not None:
            self._calls.labels(trace.operation or "call", trace.error or "").observe(trace.latency_ms / 1000)

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """What is counted elsewhere; called by prometheus_client."""
        status = self._memory.status()
        for name, what in _COUNTED.items():
            yield CounterMetricFamily(f"memslot_{name}", what, value=status[name])
        yield GaugeMetricFamily("memslot_waiting", "Events not delivered yet.", value=status["waiting"])
        circuits = GaugeMetricFamily("memslot_left_alone", "1 while the memory is left alone.", labels=["of"])
        for name in ("recall", "write"):
            circuits.add_metric([name], float(status[f"{name}_circuit"] != "closed"))
        yield circuits

    def text(self) -> bytes:
        return generate_latest(self._registry)
