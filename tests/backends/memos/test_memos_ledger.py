"""What a MemOS loses, and a process that was not there cannot see: events are noted before they are sent."""

import pytest
from both_loops import anyio_backend as anyio_backend
from memos_support import ALICE, BOB, config, event, opened, ready

from memory import MemslotError, open_memory
from memory.adapter import BackendRateLimited, StoreError
from memory.adapter.stores import Outbox
from memory.backends.memos.client import Native


async def _lose(double, *texts):
    """A process whose events the scheduler loses without a row, and that does not ask for them."""
    async with opened(double) as slot:
        await slot.record_event(event("I like sencha."))
        await ready(slot)
        double.model.loses_raw = True
        for text in texts:
            assert (await slot.record_event(event(text))).status == "queued"
        await ready(slot)
        double.model.loses_raw = False


@pytest.mark.thorough
async def test_a_fresh_process_is_not_ready_over_events_that_the_scheduler_lost(double):
    await _lose(double, "I like oolong.", "I like mate.", "I like rooibos.")
    for _ in range(2):
        async with opened(double) as slot:
            answer = await ready(slot)
            assert (answer.state, "of 3 events nothing is stored" in answer.detail) == ("unknown", True)
            await slot.record_event(event("I like chai."))
            assert (await ready(slot)).state == "unknown"
    async with opened(double) as slot:
        assert (await slot.reset_scope(ALICE)).verified
        assert (await ready(slot)).state == "ready"


async def test_a_raw_memory_that_was_seen_is_still_asked_for_when_it_is_gone(double):
    """Found as it was sent is not found as the model made it: between the two the scheduler may lose it."""
    async with opened(double) as slot:
        double.model.held = True
        await slot.record_event(event("I like oolong."))
        assert (await ready(slot, 1.0)).state == "pending"
        double.model.queue.clear()  # as where it was restarted
        assert (await ready(slot)).state == "unknown"
        double.model.rows = [row for row in double.model.rows if "oolong" not in row.memory]
        answer = await ready(slot)
        assert (answer.state, "of 1 event nothing is stored" in answer.detail) == ("unknown", True)


@pytest.mark.thorough
async def test_what_was_written_elsewhere_is_unknown_until_a_reset(double, tmp_path):
    async with opened(double) as slot:
        await slot.record_event(event("I like sencha."))
        assert (await ready(slot)).state == "ready"
    settings = config(double.url)
    for text in ("I like mate.", "I like chai."):  # what a process writes to it takes no doubt from the next
        async with open_memory(settings, scope=ALICE, data_dir=tmp_path / "another host") as slot:
            answer = await ready(slot)
            assert (answer.state, "of which nothing was noted" in answer.detail) == ("unknown", True)
            await slot.record_event(event(text))
            assert (await ready(slot)).state == "unknown"
    async with open_memory(settings, scope=ALICE, data_dir=tmp_path / "another host") as slot:
        assert (await ready(slot)).state == "unknown"
        assert (await slot.reset_scope(ALICE)).verified
        assert (await ready(slot)).state == "ready"
        await slot.record_event(event("I like mate."))
        assert (await ready(slot)).state == "ready"


async def test_an_event_sent_again_by_a_later_process_is_stored_once(double):
    said = event("I like oolong.", event_id="e1")
    async with opened(double) as slot:
        double.faults.add("lost", endpoint="POST /product/add")
        double.faults.add(
            "500", endpoint="POST /product/get_memory", times=1
        )  # so that the look-up fails too
        assert (await slot.record_event(said)).status == "unknown"
    async with opened(double) as slot:
        receipt = await slot.record_event(said)
        assert receipt.status == "queued"
        assert (await ready(slot)).state == "ready"
    assert (
        sum(request.path == "/product/add" and "oolong" in str(request.json) for request in double.requests)
        == 1
    )


@pytest.mark.thorough
async def test_a_process_is_not_ready_over_what_another_sent_and_the_scheduler_lost(double):
    async with opened(double) as first, opened(double) as second:
        double.model.loses_raw = True
        await first.record_event(event("I like oolong."))
        for _ in range(2):
            assert (await ready(second)).state == (await ready(first)).state == "unknown"
        assert (await first.reset_scope(ALICE)).verified
        assert (await ready(second)).state == (await ready(first)).state == "ready"


@pytest.mark.thorough
async def test_two_processes_that_meet_a_new_scope_at_once_lose_no_event(double, monkeypatch):
    listing, met = Native.listing, []
    double.model.loses_raw = True
    async with open_memory(config(double.url)) as first, open_memory(config(double.url)) as second:

        async def listed(native, cube, *given):
            found = await listing(native, cube, *given)
            if cube == first.native_scope(ALICE)["cube_id"] and not met:
                met.append(cube)
                await first.setup_scope(ALICE)
                await first.record_event(event("I like oolong."))
            return found

        monkeypatch.setattr(Native, "listing", listed)
        await second.setup_scope(ALICE)
        assert (await ready(second)).state == "unknown"
    async with opened(double) as slot:
        assert (await ready(slot)).state == "unknown"


@pytest.mark.thorough
async def test_a_reset_takes_no_event_away_that_another_process_sent_after_it(double, monkeypatch):
    clear = Native.clear
    async with opened(double) as first, opened(double) as second:
        await first.record_event(event("I like sencha."))

        async def cleared(*given):
            answer = await clear(*given)
            double.model.loses_raw = True
            assert (await second.record_event(event("I like oolong."))).status == "queued"
            return answer

        with monkeypatch.context() as patched:
            patched.setattr(Native, "clear", cleared)
            await first.reset_scope(ALICE)
        assert (await ready(second)).state == (await ready(first)).state == "unknown"
        assert (await first.reset_scope(ALICE)).verified
        assert (await ready(second)).state == (await ready(first)).state == "ready"


@pytest.mark.parametrize("by_another", [False, True], ids=["one process", "two processes"])
async def test_a_refusal_of_a_repeat_takes_no_doubt_from_what_was_sent_before(double, by_another):
    """Also of a process that has not heard of the first sending."""
    said = event("I like oolong.")
    async with opened(double) as first, opened(double) as second:
        double.faults.add("reset", endpoint="POST /product/add")
        assert (await first.record_event(said)).status == "unknown"
        double.faults.add("429", endpoint="POST /product/add")
        with pytest.raises(BackendRateLimited):
            await (second if by_another else first).record_event(said)
        assert (await ready(second)).state == (await ready(first)).state == "unknown"


async def test_two_machines_with_one_state_do_not_take_each_others_losses_for_ready(
    double, tmp_path, state_url
):
    """Each machine has a data directory of its own; what the other one sent stands in the shared state."""

    def machine(name):
        settings = config(double.url)
        settings["memory"] |= {"state": state_url, "data_dir": str(tmp_path / name)}
        return open_memory(settings, scope=ALICE)

    async with machine("a") as first, machine("b") as second:
        await first.record_event(event("I like sencha."))
        assert (await ready(first)).state == "ready"
        double.model.loses_raw = True
        for text in ("I like oolong.", "I like mate."):
            assert (await second.record_event(event(text))).status == "queued"
        answer = await ready(first)
        assert (answer.state, "of 2 events nothing is stored" in answer.detail) == ("unknown", True)
    async with machine("a") as fresh:
        assert (await ready(fresh)).state == "unknown"
        assert (await fresh.reset_scope(ALICE)).verified
        assert (await ready(fresh)).state == "ready"


async def test_an_event_that_cannot_be_noted_is_not_sent(double, monkeypatch):
    async with opened(double) as slot:
        with monkeypatch.context() as patched:
            patched.setattr(Outbox, "insert", full)
            with pytest.raises(MemslotError, match="disk is full"):
                await slot.record_event(event("I like oolong."))
        assert not any("oolong" in str(body) for body in double.sent("/product/add"))
        assert (await ready(slot)).state == "ready"


def full(*_, **__):
    raise StoreError("the disk is full")


async def test_an_event_in_question_is_no_delivery_that_is_late(double, monkeypatch):
    monkeypatch.setattr("memory.storage.entries.LATE_S", -60.0)  # every delivery is
    async with opened(double) as slot:
        await slot.record_event(event("I like oolong."))
        assert "have waited" not in str((await slot.health()).warnings)


async def test_no_text_is_noted(double, tmp_path):
    async with open_memory(config(double.url), data_dir=tmp_path) as slot:
        for scope in (ALICE, BOB):
            await slot.setup_scope(scope)
            await slot.record_event(event("I like oolong.", scope=scope))
    assert not any(b"oolong" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
