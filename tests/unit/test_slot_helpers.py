"""Sinks, formatters, journals and odd rows: none makes a committed write look failed, none escapes unmapped."""

from datetime import UTC, datetime

import pytest
from everything_support import ALICE, Everything, calls
from journals import open_journal
from slot_support import Sink, ask, event

from memory import BackendError, MemorySlot, RetrieveResult
from memory.adapter import BackendProtocolError, ContextEntry
from memory.contract.errors import JournalError

SAID = "words of the user"


class Breaks:
    emitted = 0

    def emit(self, trace):
        self.emitted += 1
        raise OSError(f"disk full while writing {SAID}")


async def test_a_sink_that_raises_costs_traces_and_nothing_else(caplog):
    sink = Breaks()
    async with MemorySlot(Everything(), scope=ALICE, trace_sink=sink) as slot:
        for name, call in calls(slot).items():
            await call()
            assert sink.emitted, name
        assert (await slot.record_event(event(3))).status == "committed"
        health = await slot.health()
    assert health.details["slot"]["lost_traces"] == sink.emitted
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    (warning,) = [record for record in warnings if record.name.startswith("memslot")]
    assert "the trace sink failed (OSError)" in warning.getMessage()
    assert SAID not in caplog.text


def raising(result):
    raise KeyError(SAID)


@pytest.mark.parametrize("formatter", [raising, lambda result: None, lambda result: b"bytes"])
async def test_a_formatter_that_fails_is_an_error_of_ours(slot, adapter, sink, formatter):
    await slot.record_event(event())
    result = await slot.retrieve(ask())
    adapter.format_context = formatter
    with pytest.raises(BackendProtocolError) as raised:
        await slot.retrieve(ask())
    assert raised.value.operation == "format_context"
    assert SAID not in str(raised.value)
    assert (sink[-1].operation, sink[-1].error, sink[-1].attempts) == ("retrieve", "BackendProtocolError", 1)
    if formatter is raising:
        with pytest.raises(BackendProtocolError):
            slot.format_context(result.model_copy(update={"formatted_context": ""}))


NAIVE, AWARE = datetime(2024, 1, 1), datetime(2024, 1, 2, tzinfo=UTC)


def of(*entries):
    async def retrieve(request):
        trace = Everything().trace(request.scope, "rows")
        return RetrieveResult(request=request, raw=[], entries=entries, trace=trace)

    return retrieve


@pytest.mark.parametrize("times", [(NAIVE,), (NAIVE, AWARE), (AWARE, NAIVE)])
async def test_a_time_without_a_zone_is_an_error_by_name(slot, adapter, sink, times):
    """It would be another moment on every machine, and cannot be compared with the others."""
    adapter.retrieve = of(*(ContextEntry("tea", timestamp=moment) for moment in times))
    with pytest.raises(BackendProtocolError, match="a time without a zone"):
        await slot.retrieve(ask())
    assert sink[-1].error == "BackendProtocolError"


@pytest.mark.parametrize(
    "entry", [ContextEntry(None), ContextEntry("x", timestamp="2024"), ContextEntry("x", score="high"), "x"]
)
async def test_a_row_that_is_none_is_an_error_of_ours(slot, adapter, sink, entry):
    adapter.retrieve = of(ContextEntry("tea", score=0.5), entry)
    with pytest.raises(BackendError):
        await slot.retrieve(ask())
    assert sink[-1].error is not None


async def test_a_journal_that_cannot_keep_a_receipt_does_not_undo_a_write(tmp_path, monkeypatch):
    journal = open_journal(tmp_path)
    adapter, append = Everything(), journal.append

    async def disk_full(*_, **__):
        raise JournalError("memslot.db: the disk is full")

    async with MemorySlot(adapter, scope=ALICE, journal=journal) as slot:
        monkeypatch.setattr(journal, "note", disk_full)
        receipts = [await slot.record_event(event(1))]
        monkeypatch.setattr(journal, "append", disk_full)
        with pytest.raises(JournalError):
            await slot.record_event(event(2))
        monkeypatch.undo()
        assert journal.append == append
        receipts += [await slot.record_event(event(3)), await slot.record_event(event(1))]
    assert [receipt.status for receipt in receipts] == ["committed"] * 3
    assert "the disk is full; what was written may be asked for and sent again" in receipts[0].warnings[0]
    assert adapter.calls[:1] == ["e1"]
    assert "e2" not in adapter.calls


async def test_a_write_that_may_have_been_carried_out_is_unknown_whatever_it_changes():
    adapter, sink = Everything(), Sink()
    async with MemorySlot(adapter, scope=ALICE, trace_sink=sink) as slot:

        async def lost(name):
            raise ConnectionResetError

        adapter.native = lost
        for name in ("apply_feedback", "native_mutation"):
            receipt = await calls(slot)[name]()
            assert receipt.status == "unknown"
            assert "may or may not have been carried out" in receipt.warnings[0]
            assert receipt.trace == sink[-1]

        async def refused(name):
            raise ConnectionRefusedError

        adapter.native = refused
        for name in ("apply_feedback", "native_mutation"):
            with pytest.raises(BackendError):
                await calls(slot)[name]()
        adapter.native = lost
        assert (await slot.health()).details["slot"]["unknown_writes"] == 2
