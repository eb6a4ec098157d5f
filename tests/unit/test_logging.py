"""What is logged: a line a call under ``memslot``, never a word of a user; SDKs say nothing below a warning."""

import json
import logging
import os
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from everything_support import ALICE, NAMES, Everything, calls
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from slot_support import ask, event

from memory import (
    AdapterMode,
    ConfigError,
    JsonlTraceSink,
    MemoryScope,
    MemorySlot,
    MemslotError,
    Message,
    OpenTelemetrySink,
    Trace,
)
from memory.adapter import ContextEntry
from memory.adapter.sdk import environment_kept, quiet_loggers, warnings_only

SAID = "zqsentence"


class Talks(Everything):
    """Repeats what was said wherever it can."""

    fails = False

    async def native(self, name):
        if self.fails:
            raise ValueError(f"{SAID} in the error of {name}")

    async def record_event(self, event):
        receipt = await super().record_event(event)
        return receipt.model_copy(update={"warnings": (SAID,), "native_ids": (SAID,)})

    async def retrieve(self, request):
        found = await super().retrieve(request)
        return found.model_copy(update={"entries": (ContextEntry(SAID),), "raw": [SAID]})


def ours(caplog, level=None):
    """Messages of the slot; threads of other tests may have something to say as well."""
    of_slot = [record for record in caplog.records if record.name == "memslot.slot"]
    return [record.getMessage() for record in of_slot if level in (None, record.levelno)]


@pytest.mark.parametrize("fails", [False, True])
async def test_every_call_is_a_line_without_what_was_said(caplog, fails):
    caplog.set_level(logging.DEBUG, "memslot")
    adapter = Talks()
    async with MemorySlot(adapter, scope=ALICE) as slot:
        adapter.fails = fails
        every = calls(slot)
        every["reset_scope"] = every.pop("reset_scope")  # the last: nothing is read behind a failed one
        for call in every.values():
            with suppress(MemslotError):
                await call()
        adapter.fails = False
        said = Message(role="user", content=SAID, name=SAID)
        await slot.record_event(event(7).model_copy(update={"messages": (said,), "metadata": {SAID: SAID}}))
        await slot.retrieve(ask().model_copy(update={"query": SAID}))
        await slot.set_mode(AdapterMode(read_only=True, reason=SAID))
    messages = ours(caplog)
    assert {line.split()[1].rstrip(":") for line in messages} == {*NAMES, "set_mode", "closed"}
    failed = {line.split()[1] for line in messages if "failed (BackendError)" in line}
    unknown = {"record_event", "apply_feedback", "native_mutation"}  # it may have been carried out
    assert failed == ({*NAMES} - unknown - {"health"} if fails else set())
    assert messages[-1] == "obedient: closed"
    assert SAID not in caplog.text


async def test_what_happens_seldom_is_told_at_info_and_nothing_by_default(caplog):
    adapter = Talks()
    caplog.set_level(logging.WARNING)  # as a program begins; an SDK of another test may have set the root's
    caplog.handler.setLevel(logging.NOTSET)
    for level, expected in ((logging.INFO, ["setup_scope", "set_mode", "reset_scope", "closed"]), (None, [])):
        caplog.clear()
        caplog.set_level(logging.NOTSET if level is None else level, "memslot")
        caplog.handler.setLevel(logging.NOTSET)
        async with MemorySlot(adapter, scope=ALICE) as slot:
            await slot.record_event(event())
            await slot.retrieve(ask())
            await slot.set_mode(AdapterMode(read_only=True))
            await slot.set_mode(AdapterMode(read_only=False))
            await slot.reset_scope(ALICE)
        operations = [line.split()[1].rstrip(":") for line in ours(caplog, logging.INFO)]
        assert sorted(set(operations)) == sorted(expected)
        assert ours(caplog, logging.DEBUG) == []


async def test_a_retrieval_is_told_with_its_counts(caplog):
    caplog.set_level(logging.DEBUG, "memslot")
    async with MemorySlot(Everything(), scope=ALICE) as slot:
        await slot.record_event(event())
        await slot.retrieve(ask())
    (line,) = (line for line in ours(caplog, logging.DEBUG) if "retrieve" in line)
    assert line.startswith("obedient: retrieve of r:alice: ")
    assert line.endswith(" ms, 1 entry")


def test_an_sdk_says_nothing_below_a_warning_unless_the_host_wants_it(caplog):
    noisy, wanted = logging.getLogger("zqsdk"), logging.getLogger("zqwanted")
    wanted.setLevel(logging.DEBUG)
    caplog.set_level(logging.DEBUG)
    warnings_only("zqsdk", "zqwanted")
    for logger in (noisy, logging.getLogger("zqsdk.part"), wanted):
        logger.info("of %s", logger.name)
        logger.warning("warning of %s", logger.name)
    own = [record for record in caplog.records if record.name.startswith("zq")]
    assert [record.getMessage() for record in own] == [
        "warning of zqsdk",
        "warning of zqsdk.part",
        "of zqwanted",
        "warning of zqwanted",
    ]


def test_a_line_that_an_sdk_formats_wrongly_fails_no_call_and_shows_nothing(caplog):
    log = logging.getLogger("zqbroken.part")
    quiet_loggers("zqbroken", "zqbroken.part")
    log.warning("stored %d rows: %s", SAID)
    [record] = [record for record in caplog.records if record.name == log.name]
    assert record.getMessage() == "stored %d rows"
    assert record.args == ()


def test_an_import_sees_its_settings_and_leaves_none(monkeypatch):
    """A ``.env`` file beside the process would set keys and addresses for all of it."""
    monkeypatch.setenv("KEPT", "mine")
    before = dict(os.environ)
    with environment_kept(KEPT="theirs"):
        assert (os.environ["PYTHON_DOTENV_DISABLED"], os.environ["KEPT"]) == ("1", "theirs")
        os.environ["READ_FROM_A_FILE"] = "1"
    assert dict(os.environ) == before


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
