"""Writes through the journal: nothing that was acknowledged is lost, nothing is sent twice without need."""

import time
from types import SimpleNamespace

import anyio
import pytest
from journals import backlog, open_journal
from slot_support import ALICE, BOB, QUICK, Lookup, Obedient, event, forever, until

from memory import AdapterMode, Deadlines, MemorySlot, PluginLoadError, SupportsBulkIngest, SupportsReadiness
from memory.adapter import BackendRejected, SequentialBulk
from memory.contract.errors import JournalError
from memory.contract.receipts import BackendReadiness
from memory.slot import writes
from memory.storage import entries, outbox


class Down(Obedient):
    """A backend that can be down: connections are refused, so nothing is ever sent."""

    down = False

    async def record_event(self, event):
        if self.down:
            raise ConnectionRefusedError("down")
        return await super().record_event(event)


class Bulk(SequentialBulk, Down):
    async def record_event(self, event):
        return await Down.record_event(self, event)


class Ready(Down):
    async def readiness(self, scope):
        return BackendReadiness(state="ready")

    async def wait_until_ready(self, scope, timeout_s):
        return BackendReadiness(state="ready")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch, each_store):
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.0)


def journaled(adapter, path, **more):
    return MemorySlot(adapter, scope=ALICE, journal=open_journal(path), **more)


def stored(adapter):
    return [row.event_id for row in adapter.rows]


async def test_a_turn_recorded_while_the_backend_is_down_is_delivered_later_and_in_order(tmp_path):
    adapter = Down()
    async with journaled(adapter, tmp_path) as slot:
        assert (await slot.record_event(event(1))).status == "committed"
        adapter.down = True
        receipts = [await slot.record_event(event(number)) for number in (2, 3)]
        assert [receipt.status for receipt in receipts] == ["queued", "queued"]
        assert "kept in the journal" in receipts[0].warnings[0]
        assert (await slot.health()).details["slot"]["waiting_writes"] == 2
        adapter.down = False
        assert (await slot.record_event(event(4))).status == "committed"
        assert stored(adapter) == ["e1", "e2", "e3", "e4"]
        assert (await slot.health()).details["slot"]["waiting_writes"] == 0


async def test_what_waits_is_delivered_by_the_next_process(tmp_path):
    adapter = Down()
    adapter.down = True
    async with journaled(adapter, tmp_path) as slot:
        for number in (1, 2):
            await slot.record_event(event(number))
    adapter.down = False
    async with journaled(adapter, tmp_path):
        assert stored(adapter) == ["e1", "e2"]


async def test_an_event_without_any_answer_does_not_hold_the_others_up_for_ever(tmp_path):
    class Mute(Obedient):
        async def record_event(self, event):
            self.calls.append(event.event_id)
            if event.event_id == "e1":
                raise ConnectionResetError("lost")
            return await Obedient.record_event(self, event)

    adapter = Mute()
    async with journaled(adapter, tmp_path) as slot:
        statuses = [(await slot.record_event(event(number))).status for number in range(1, 8)]
        assert statuses == ["unknown", *["queued"] * 3, *["committed"] * 3], "in their order"
        assert adapter.calls.count("e1") == outbox.MAX_UNANSWERED
        again = await slot.record_event(event(1))
        assert again.status == "unknown", "it may be stored, however often nobody answered"
        assert "no answer" in again.warnings[-1]
        assert adapter.calls.count("e1") == outbox.MAX_UNANSWERED
    assert stored(adapter) == [f"e{number}" for number in range(2, 8)]


async def test_what_nobody_can_look_up_is_not_overtaken(tmp_path):
    """Sent behind it, a newer event would be stored before an older one."""
    adapter = Lookup()
    adapter.next_write, adapter.found = [ConnectionResetError("lost")], ConnectionResetError("down")
    async with journaled(adapter, tmp_path) as slot:
        assert (await slot.record_event(event(1))).status == "unknown"
        receipt = await slot.record_event(event(2))
        assert receipt.status == "queued"
        assert "could not be asked for an older event" in receipt.warnings[0]
        adapter.found = None
        await slot.record_event(event(3))
    assert stored(adapter) == ["e1", "e2", "e3"]


async def test_a_long_backlog_stalls_no_turn(tmp_path, monkeypatch):
    """It goes out in order and in parts, as much before each write as may take the time of one."""
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], time=time.time)
    monkeypatch.setattr(writes, "time", clock)
    monkeypatch.setattr(outbox, "time", clock)
    monkeypatch.setattr(entries, "time", clock)

    class Slow(Down):
        async def record_event(self, event):
            now[0] += 10.0
            return await super().record_event(event)

    adapter = Slow()
    adapter.down = True
    deadlines, journal = Deadlines(write_s=60.0), open_journal(tmp_path)
    async with MemorySlot(adapter, scope=ALICE, deadlines=deadlines, journal=journal) as slot:
        for number in range(1, 21):
            await slot.record_event(event(number))
        adapter.down = False
        receipt = await slot.record_event(event(21))
        assert (receipt.status, stored(adapter)) == ("queued", [f"e{number}" for number in range(1, 7)])
        assert "older entries are still being delivered" in receipt.warnings[0]
        await slot.setup_scope(ALICE)
        assert stored(adapter)[-1] == "e12"
        while backlog(journal):
            await slot.setup_scope(ALICE)
        assert stored(adapter) == [f"e{number}" for number in range(1, 22)]
        assert (await slot.record_event(event(22))).status == "committed"


async def test_what_the_backend_refuses_for_good_is_raised_and_holds_nothing_up(tmp_path):
    adapter = Ready()
    adapter.next_write = [BackendRejected("too long")]
    async with journaled(adapter, tmp_path) as slot:
        with pytest.raises(BackendRejected):
            await slot.record_event(event(1))
        assert (await slot.record_event(event(2))).status == "committed"
        health = await slot.health()
        assert health.details["slot"]["waiting_writes"] == 0
        readiness = slot.capability(SupportsReadiness)
        for state in (await readiness.readiness(ALICE), await readiness.wait_until_ready(ALICE, 1)):
            assert (state.state, state.detail in health.warnings) == ("failed", True)
        await slot.setup_scope(BOB)
        assert (await readiness.readiness(BOB)).state == "ready"
        await slot.reset_scope(ALICE)
        assert (await readiness.readiness(ALICE)).state == "ready"


async def test_what_is_wrong_with_the_installation_is_no_refusal_of_the_event(tmp_path):
    adapter = Obedient()
    adapter.next_write = [PluginLoadError("obedient: install a client")]
    async with journaled(adapter, tmp_path) as slot:
        receipt = await slot.record_event(event(1))
        assert (receipt.status, "install a client" in receipt.warnings[0]) == ("queued", True)
        await slot.record_event(event(2))
    assert stored(adapter) == ["e1", "e2"]


async def test_bulk_writes_keep_their_order_and_their_receipts(tmp_path):
    adapter = Bulk(bulk_size=1)
    async with journaled(adapter, tmp_path) as slot:
        bulk = slot.capability(SupportsBulkIngest)
        adapter.next_write = [anyio.lowlevel.checkpoint, ConnectionRefusedError("down")]
        receipts = await bulk.record_events([event(number) for number in range(1, 4)])
        assert [receipt.status for receipt in receipts] == ["committed", "queued", "queued"]
        receipts = await bulk.record_events([event(number) for number in range(3, 6)])
        assert [receipt.event_id for receipt in receipts] == ["e3", "e4", "e5"]
    assert stored(adapter) == [f"e{number}" for number in range(1, 6)]


async def test_ready_is_not_said_while_something_waits(tmp_path):
    adapter = Ready()
    adapter.down = True
    async with journaled(adapter, tmp_path) as slot:
        readiness = slot.capability(SupportsReadiness)
        await slot.record_event(event(1))
        for state in (await readiness.readiness(ALICE), await readiness.wait_until_ready(ALICE, 0.1)):
            assert (state.state, state.pending_count) == ("pending", 1)
        adapter.down = False
        assert (await readiness.wait_until_ready(ALICE, 60)).state == "ready"
    assert stored(adapter) == ["e1"]


async def test_read_only_keeps_nothing_and_delivers_nothing(tmp_path):
    adapter = Down()
    adapter.down = True
    async with journaled(adapter, tmp_path) as slot:
        await slot.record_event(event(1))
        await slot.set_mode(AdapterMode(read_only=True))
        adapter.down = False
        assert (await slot.record_event(event(2))).status == "skipped_read_only"
        await slot.setup_scope(ALICE)
        assert stored(adapter) == []
        await slot.set_mode(AdapterMode(read_only=False))
        await slot.record_event(event(3))
    assert stored(adapter) == ["e1", "e3"]


async def test_a_repeated_event_keeps_no_other_process_from_delivering(tmp_path):
    async with journaled(Obedient(), tmp_path) as slot, journaled(Obedient(), tmp_path) as other:
        for _ in range(2):
            assert (await slot.record_event(event(1))).status == "committed"
        assert (await other.record_event(event(2))).status == "committed"


async def test_a_reset_ends_what_waits(tmp_path):
    adapter = Down()
    adapter.down = True
    async with journaled(adapter, tmp_path) as slot:
        await slot.setup_scope(BOB)
        await slot.record_event(event(1))
        await slot.record_event(event(2, BOB))
        adapter.down = False
        receipt = await slot.reset_scope(ALICE)
        assert (receipt.verified, receipt.left) == (
            True,
            ("its events in the journal, until they are forgotten",),
        )
        await slot.record_event(event(3))
        await slot.setup_scope(BOB)
    assert stored(adapter) == ["e3", "e2"]


async def test_a_caller_that_gives_up_and_sends_again_stores_once(tmp_path):
    class Slow(Lookup):
        async def record_event(self, event):
            self.found = (event.event_id,) if stored(self) else None
            receipt = await Obedient.record_event(self, event)
            self.found = (event.event_id,)
            await forever() if len(self.calls) == 1 else None
            return receipt

    adapter = Slow()
    async with journaled(adapter, tmp_path, deadlines=QUICK) as slot:
        async with anyio.create_task_group() as group:
            group.start_soon(slot.record_event, event(1))
            await until(lambda: stored(adapter))
            group.cancel_scope.cancel()
        receipt = await slot.record_event(event(1))
    assert (receipt.status, stored(adapter)) == ("committed", ["e1"])


@pytest.mark.parametrize("first", [None, ConnectionRefusedError("down")])
async def test_what_cannot_be_noted_is_not_sent_over_and_over(tmp_path, monkeypatch, first):
    """A full disk, seen only once the backend has answered: one attempt, and the rest later."""
    adapter = Obedient()
    adapter.next_write = [ConnectionRefusedError("down")]
    async with journaled(adapter, tmp_path) as slot:
        assert (await slot.record_event(event(1))).status == "queued"

        def full(*_, **__):
            raise JournalError("j.db: the disk is full")

        monkeypatch.setattr(slot.delivery.journal.outbox, "note_all", full)
        adapter.calls.clear()
        adapter.next_write = [first] if first else []
        assert "disk is full" in await slot.delivery.deliver(ALICE)
        assert adapter.calls == ["e1"]


async def test_a_store_that_hangs_after_the_write_is_asked_once(tmp_path, monkeypatch):
    """Each further call would take as long again, and the caller waits for them all."""
    asked = []

    async def hang(work, *, writes=True):
        asked.append(writes)
        raise JournalError("no answer within 5 s")

    async def stop():
        monkeypatch.setattr(slot.delivery.journal.store, "run", hang)

    adapter = Obedient()
    async with journaled(adapter, tmp_path) as slot:
        adapter.next_write = [stop]
        receipt = await slot.record_event(event(1))
        assert (receipt.status, asked) == ("committed", [True])
        monkeypatch.undo()
