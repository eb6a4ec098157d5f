"""A reset is noted before it begins and after it ended: whoever dies over it, or gets no answer, leaves no lie.

The store is a real file that outlives the process, and each process is really killed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from journals import key, open_journal, outlive_a_lease
from slot_support import ALICE, QUICK, Obedient, ask, event, forever
from variants import plain

from memory import (
    AdapterMode,
    BackendReadiness,
    BackendUnavailable,
    MemorySlot,
    MemslotError,
    NativeMutationReceipt,
    NativeMutationRequest,
    NativeQueryRequest,
    ResetReceipt,
    SupportsNativeMutation,
    SupportsNativeQuery,
    SupportsReadiness,
    WriteReceipt,
)
from memory.storage import outbox

STEPS = ["begin_reset", "reset_scope", "end_reset"]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch, each_store):
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.0)


class OnDisk(Obedient):
    """Rows in a file. ``answer`` of a reset: ``done``, ``refused``, or ``lost`` after it was done."""

    def __init__(self, directory, answer="done"):
        super().__init__()
        self.file, self.answer = Path(directory, "rows.json"), answer
        self.rows = []
        for row in json.loads(self.file.read_text()) if self.file.exists() else []:
            self.rows.append(event(**row))

    def _save(self):
        rows = [{"number": int(row.event_id[1:]), "text": row.messages[0].content} for row in self.rows]
        self.file.write_text(json.dumps(rows))

    async def record_event(self, event):
        self.rows.append(event)
        self._save()
        return WriteReceipt(event_id=event.event_id, status="committed")

    async def find_event(self, event):
        return next(((row.event_id,) for row in self.rows if row.event_id == event.event_id), None)

    async def reset_scope(self, scope):
        if self.answer == "refused":
            raise ConnectionRefusedError("down")
        self.rows = []
        self._save()
        if self.answer == "lost":
            raise ConnectionResetError("lost")
        return ResetReceipt(scope=scope, verified=True)


def opened(directory, answer="done", **more):
    return MemorySlot(OnDisk(directory, answer), scope=ALICE, journal=open_journal(Path(directory)), **more)


async def reset_and_die(directory, answer, step, moment):
    """Fill a memory, reset it, and be killed before or after a step of that."""
    slot = opened(directory, answer)
    owner = slot._adapter if step == "reset_scope" else slot.delivery.journal.resets
    step = step.removesuffix("_reset")
    carry_out = getattr(owner, step)

    async def dies(*given):
        if moment == "before":
            os._exit(9)
        try:
            return await carry_out(*given)
        finally:
            os._exit(9)

    async with slot:
        for number in (1, 2):
            await slot.record_event(event(number, text="an erased word"))
        setattr(owner, step, dies)
        try:
            await slot.reset_scope(ALICE)
        except MemslotError:
            os._exit(8)


CHILD = "import sys, anyio; from test_reset_intent import reset_and_die as run; anyio.run(run, *sys.argv[1:])"


@pytest.mark.thorough
@pytest.mark.parametrize("anyio_backend", plain("asyncio", of=["asyncio", "trio"]))
@pytest.mark.parametrize("answer", plain("done", of=["done", "refused", "lost"]))
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_any_step_leaves_no_erased_word_and_no_receipt_that_lies(
    tmp_path, step, moment, answer
):
    places = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    died = subprocess.run(  # noqa: ASYNC221 (nothing else runs in this loop)
        [sys.executable, "-c", CHILD, str(tmp_path), answer, step, moment],
        env={**os.environ, "PYTHONPATH": places},
        check=False,
    )
    assert died.returncode in (8, 9)
    outlive_a_lease()
    begun = (step, moment) != ("begin_reset", "before")
    # A refusal that was noted is a reset that never was; one that died over it may have been.
    erased = begun and (died.returncode == 9 or answer == "lost")
    async with opened(tmp_path) as slot:
        shown = (await slot.retrieve(ask())).formatted_context
        assert ("an erased word" in shown) == (not erased)
        assert [row.event_id for row in slot._adapter.rows] == ([] if erased else ["e1", "e2"])
        assert len(list(slot.delivery.journal.entries())) == (0 if erased else 2), "nothing is replayed"
        receipt = await slot.record_event(event(1, text="an erased word"))
        assert receipt.status == "committed"
        assert "e1" in [row.event_id for row in slot._adapter.rows], "what is committed is there"


@pytest.mark.parametrize("answer", ["refused", "lost"])
async def test_a_reset_without_an_answer_is_finished_before_anything_else(tmp_path, answer):
    async with opened(tmp_path, "lost") as slot:
        adapter = slot._adapter
        await slot.record_event(event(1, text="an erased word"))
        with pytest.raises(MemslotError):
            await slot.reset_scope(ALICE)
        adapter.answer = answer
        with pytest.raises(BackendUnavailable, match="its end is not known, so nothing of it is shown"):
            await slot.retrieve(ask())
        receipt = await slot.record_event(event(2))
        assert receipt.status == "queued"
        assert "could not be finished" in receipt.warnings[0]
        with pytest.raises(BackendUnavailable, match="could not be finished"):
            await slot.setup_scope(ALICE)
        adapter.answer = "done"
        assert (await slot.record_event(event(3))).status == "committed"
        assert [row.event_id for row in adapter.rows] == ["e2", "e3"]
        assert "hello" in (await slot.retrieve(ask())).formatted_context
        assert not slot.delivery.journal.resets.is_open(key(ALICE))


async def test_a_reset_that_was_refused_takes_nothing_away(tmp_path):
    async with opened(tmp_path, "refused") as slot:
        await slot.record_event(event(1))
        with pytest.raises(MemslotError):
            await slot.reset_scope(ALICE)
        assert "hello" in (await slot.retrieve(ask())).formatted_context
        assert (await slot.record_event(event(1))).warnings == ("recorded before; it was not sent again",)


async def test_a_write_behind_a_reset_without_an_answer_is_not_removed_by_it(tmp_path):
    """Without a journal as well: else the reset, carried out again, would remove what was acknowledged."""
    adapter = OnDisk(tmp_path, "lost")
    async with MemorySlot(adapter, scope=ALICE) as slot:
        for refusal in (slot.reset_scope(ALICE), slot.record_event(event(1))):
            with pytest.raises(MemslotError):
                await refusal
        assert adapter.rows == []
        adapter.answer = "done"
        assert (await slot.record_event(event(2))).status == "committed"
        await slot.setup_scope(ALICE)
        assert "hello" in (await slot.retrieve(ask())).formatted_context


async def test_two_backends_over_one_journal_each_have_what_was_sent_to_them(tmp_path):
    class Other(Obedient):
        backend_name = "other"

    async with opened(tmp_path) as slot:
        await slot.record_event(event(1))
    other = Other()
    other.next_write = [ConnectionRefusedError("down")]
    async with MemorySlot(other, scope=ALICE, journal=open_journal(tmp_path)) as slot:
        assert (await slot.record_event(event(1))).status == "queued", "it is not recorded here"
        assert (await slot.health()).details["slot"]["waiting_writes"] == 1
    async with opened(tmp_path) as slot:
        assert [row.event_id for row in slot._adapter.rows] == ["e1"], "what waits for another is not ours"
        health = await slot.health()
        assert health.details["slot"]["waiting_writes"] == 0
        assert (health.status, "1 event waits for another backend" in health.warnings[0]) == (
            "degraded",
            True,
        )
    async with MemorySlot(other, scope=ALICE, journal=open_journal(tmp_path)):
        assert [row.event_id for row in other.rows] == ["e1"]


async def test_what_was_kept_is_delivered_without_being_looked_for(tmp_path):
    class CountsLookups(OnDisk):
        looked_up = 0

        async def find_event(self, event):
            self.looked_up += 1
            return await super().find_event(event)

    adapter = CountsLookups(tmp_path)
    async with MemorySlot(adapter, journal=open_journal(tmp_path)) as slot:
        for number in range(3):
            assert await slot.delivery.keep(event(number))
        assert (adapter.rows, slot.delivery.waiting_scopes(), slot.delivery.waiting()) == ([], [ALICE], 3)
    adapter = CountsLookups(tmp_path)
    async with MemorySlot(adapter, scope=ALICE, journal=open_journal(tmp_path)) as slot:
        assert [row.event_id for row in adapter.rows] == ["e0", "e1", "e2"], "the next process delivers"
        assert adapter.looked_up == 0, "what was never sent is not looked for, whichever process kept it"
        assert await slot.delivery.keep(event(0)) is False
        await slot.delivery.keep(event(3))
        await slot.delivery.deliver(ALICE)
        assert adapter.rows[-1].event_id == "e3"
        await slot.set_mode(AdapterMode(read_only=True))
        assert await slot.delivery.keep(event(4)) is None


async def test_a_reset_that_hangs_is_open_until_it_is_finished(tmp_path, monkeypatch):
    async def native_mutation(self, request):
        return NativeMutationReceipt(status="committed")

    async def ready(*given):
        return BackendReadiness(state="ready")

    for name, carry_out in (
        ("native_mutation", native_mutation),
        ("readiness", ready),
        ("wait_until_ready", ready),
        ("native_query", ready),
    ):
        monkeypatch.setattr(OnDisk, name, carry_out, raising=False)
    async with opened(tmp_path, deadlines=QUICK.model_copy(update={"reset_s": 0.1})) as slot:
        await slot.record_event(event(1))
        slot._adapter.reset_scope = lambda scope: forever()
        with pytest.raises(MemslotError):
            await slot.reset_scope(ALICE)
        assert slot.delivery.journal.resets.is_open(key(ALICE))
        with pytest.raises(BackendUnavailable, match="so nothing of it is shown"):
            await slot.capability(SupportsReadiness).readiness(ALICE)
        with pytest.raises(BackendUnavailable, match="so nothing of it is shown"):
            await slot.capability(SupportsNativeQuery).native_query(
                NativeQueryRequest(scope=ALICE, operation="o")
            )
        # A change must not touch memories that the reset is about to remove: the reset is finished first.
        change = NativeMutationRequest(scope=ALICE, operation="delete", native_id="n1")
        with pytest.raises(BackendUnavailable, match="was begun and could not be finished"):
            await slot.capability(SupportsNativeMutation).native_mutation(change)
        del slot._adapter.reset_scope
        receipt = await slot.capability(SupportsNativeMutation).native_mutation(change)
        assert receipt.status == "committed"
        assert not slot.delivery.journal.resets.is_open(key(ALICE))
