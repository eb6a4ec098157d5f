"""Trace sinks: a line a trace, or a span a trace (DESIGN section 5.7)."""

import json
from datetime import UTC, datetime

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memory import ConfigError, JsonlTraceSink, MemoryScope, OpenTelemetrySink, Trace

TRACE = Trace(
    backend_name="mem0",
    scope=MemoryScope(run_id="r", persona_id="p"),
    operation="retrieve",
    native_operation="Memory.search",
    native_ids=("a", "b"),
    started_at=datetime(2024, 1, 1, tzinfo=UTC),
    latency_ms=12.5,
)


def test_jsonl_appends_one_line_a_trace_and_loses_none(tmp_path):
    path = tmp_path / "traces.jsonl"
    for _ in range(2):
        with JsonlTraceSink(path) as sink:
            sink.emit(TRACE)
            assert Trace.model_validate_json(path.read_text().splitlines()[-1]) == TRACE
    lines = path.read_text().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[0])["token_count"] is None


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"trace file .*missing.*choose a writable path"):
        JsonlTraceSink(tmp_path / "missing" / "traces.jsonl")


def test_a_trace_becomes_a_finished_span():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    OpenTelemetrySink(provider.get_tracer("test")).emit(TRACE)
    (span,) = exporter.get_finished_spans()
    assert span.name == "memslot.retrieve"
    assert span.end_time - span.start_time == 12_500_000
    assert span.attributes["memslot.scope"] == "r:p"
    assert span.attributes["memslot.native_ids"] == ("a", "b")
    assert "memslot.token_count" not in span.attributes
    provider.shutdown()


def test_the_global_tracer_is_the_default(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    OpenTelemetrySink().emit(TRACE)
    assert [span.name for span in exporter.get_finished_spans()] == ["memslot.retrieve"]
