"""What a MemOS loses, and a process that was not there cannot see: events are noted before they are sent."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from threading import Thread

import pytest
from both_loops import anyio_backend as anyio_backend
from memos_support import ALICE, BOB, config, event, opened, ready

from memory import open_memory
from memory.adapter import AppendLog, BackendRateLimited
from memory.backends.memos.client import Native
from memory.backends.memos.readiness import Ledger, Written
from memory.slot import files


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


async def test_nor_over_an_empty_store(double):
    async with opened(double) as slot:
        double.model.loses_raw = True
        await slot.record_event(event("I like oolong."))
    double.model.work()
    async with opened(double) as slot:
        assert (await ready(slot)).state == "unknown"


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
        assert (answer.state, "of 1 events nothing is stored" in answer.detail) == ("unknown", True)


@pytest.mark.thorough
async def test_what_was_written_elsewhere_is_unknown_until_a_reset(double, tmp_path):
    async with opened(double) as slot:
        await slot.record_event(event("I like sencha."))
        assert (await ready(slot)).state == "ready"
    settings = config(double.url)
    for text in ("I like mate.", "I like chai."):  # what a process writes to it takes no doubt from the next
        async with open_memory(settings, scope=ALICE, data_dir=tmp_path / "another host") as slot:
            answer = await ready(slot)
            assert (answer.state, "nothing of it was noted" in answer.detail) == ("unknown", True)
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


async def test_two_processes_of_one_machine_do_not_disturb_each_other(double):
    async with opened(double) as first, opened(double) as second:
        for slot, text in ((first, "I like oolong."), (second, "I like mate."), (first, "I like chai.")):
            assert (await slot.record_event(event(text))).status == "queued"
        assert (await ready(first)).state == (await ready(second)).state == "ready"
        await first.reset_scope(ALICE)
        await second.record_event(event("I like sencha."))
        assert (await ready(second)).state == "ready"
    async with opened(double) as slot:
        assert (await ready(slot)).state == "ready"


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


async def test_an_event_that_was_refused_and_sent_again_is_in_question_again(double):
    said = event("I like oolong.")
    async with opened(double) as slot:
        double.faults.add("429", endpoint="POST /product/add")
        with pytest.raises(BackendRateLimited):
            await slot.record_event(said)
        double.model.loses_raw = True
        assert (await slot.record_event(said)).status == "queued"
        assert (await ready(slot)).state == "unknown"
    async with opened(double) as slot:
        assert (await ready(slot)).state == "unknown"


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


async def test_what_was_sent_more_than_once_is_one_event_in_question(double):
    said = event("I like oolong.")
    async with opened(double) as slot:
        for _ in range(2):
            double.faults.add("reset", endpoint="POST /product/add")
            assert (await slot.record_event(said)).status == "unknown"
        assert "of 1 events nothing is stored" in (await ready(slot)).detail
        assert (await slot.record_event(said)).status == "queued"
        assert (await ready(slot)).state == "ready"
    async with opened(double) as slot:
        assert (await ready(slot)).state == "ready"


@pytest.mark.thorough
async def test_a_ledger_that_goes_while_it_is_used_leaves_nothing_ready(double, tmp_path):
    async with open_memory(config(double.url), scope=ALICE, data_dir=tmp_path) as slot:
        double.model.loses_raw = True
        await slot.record_event(event("I like oolong."))
        for file in (tmp_path / "memos").iterdir():
            file.unlink()
        assert (await ready(slot)).state == "unknown"
        assert (await ready(slot)).state == "unknown"


async def test_many_processes_leave_few_files(double, tmp_path):
    for number in range(12):
        async with open_memory(config(double.url), scope=ALICE, data_dir=tmp_path) as slot:
            await slot.record_event(event(f"I own {number} boats."))
            assert (await ready(slot)).state == "ready"
    assert len(list((tmp_path / "memos").glob("*.events"))) < 12


@pytest.mark.parametrize("damage", ["cut", "gone", "changed", "zeros"])
async def test_a_ledger_that_is_damaged_is_never_ready(double, tmp_path: Path, damage: str):
    settings = config(double.url)
    async with open_memory(settings, scope=ALICE, data_dir=tmp_path) as slot:
        await slot.record_event(event("I like oolong."))
        double.model.work()
    (file,) = (tmp_path / "memos").glob("*.events")
    content = file.read_bytes()
    lines = content.splitlines(keepends=True)
    if damage == "gone":
        file.unlink()
    else:
        changed = {"cut": lines[0], "changed": content.replace(b"sent", b"gone"), "zeros": b"\0" * 40}
        file.write_bytes(changed[damage])
    async with open_memory(settings, scope=ALICE, data_dir=tmp_path) as slot:
        assert (await ready(slot)).state == "unknown"
        await slot.reset_scope(ALICE)
        assert (await ready(slot)).state == "ready"


@pytest.mark.thorough
async def test_nor_one_that_is_gone_over_an_empty_store(double, tmp_path: Path):
    settings = config(double.url)
    async with open_memory(settings, scope=ALICE, data_dir=tmp_path) as slot:
        double.model.loses_raw = True
        await slot.record_event(event("I like oolong."))
    double.model.work()
    (file,) = (tmp_path / "memos").glob("*.events")
    file.unlink()
    for _ in range(2):
        async with open_memory(settings, scope=ALICE, data_dir=tmp_path) as slot:
            assert (await ready(slot)).state == "unknown"


def _meanwhile(monkeypatch, target, name, condition, call) -> list[Thread]:
    """``call``, from another process as it were, right after the first call of a function that fits."""
    real, begun = getattr(target, name), []

    def both(*given, **named):
        answer = real(*given, **named)
        if not begun and condition(*given):
            begun.append(Thread(target=call))
            begun[0].start()
            begun[0].join(0.3)
        return answer

    monkeypatch.setattr(target, name, both)
    return begun


def _fresh(directory: Path) -> Ledger:
    return Ledger(directory, "http://memos", "cube")


def test_what_is_noted_while_another_process_makes_many_logs_one_stays(tmp_path, monkeypatch):
    earlier = [_fresh(tmp_path) for _ in range(9)]
    for number, ledger in enumerate(earlier):
        ledger.sent(Written(f"e{number}", "session", "place"))
    late = Written("late", "session", "place")
    log = earlier[-1]._own.path
    others = _meanwhile(
        monkeypatch, AppendLog, "load", lambda read: read.path == log, lambda: earlier[-1].sent(late)
    )
    assert len(_fresh(tmp_path).load()) == 9
    others[0].join()
    known = _fresh(tmp_path)
    known_ids = {written.event_id for written in known.load().values()}
    assert known_ids == {*(f"e{number}" for number in range(9)), "late"}
    assert known.problem == ""


def test_a_log_that_is_read_while_it_is_written_is_not_damaged(tmp_path, monkeypatch):
    ledger, reader = _fresh(tmp_path), _fresh(tmp_path)
    ledger.sent(Written("e1", "session", "place"))
    others = _meanwhile(
        monkeypatch, files, "append_bytes", lambda path, *_: path.suffix == ".events", reader.load
    )
    ledger.sent(Written("e2", "session", "place"))
    others[0].join()
    known = _fresh(tmp_path)
    assert (len(known.load()), known.problem, reader.problem) == (2, "", "")


def test_a_log_of_events_long_closed_is_made_short(tmp_path):
    ledger = _fresh(tmp_path)
    ledger.begin()
    for number in range(700):
        ledger.sent(Written(f"e{number}", "session", "place", f"mark{number}"))
    ledger.close([f"mark{number}" for number in range(699)])
    for _ in range(2):
        known = _fresh(tmp_path)
        assert (list(known.load()), known.begun) == (["mark699"], True)
    assert sum(len(file.read_bytes()) for file in tmp_path.glob("*.events")) < 200
    ledger.close(["mark699"])
    assert _fresh(tmp_path).load() == {}


def test_a_full_disk_on_which_no_log_can_be_made_anew_takes_no_event_away(tmp_path, monkeypatch):
    for number in range(9):
        _fresh(tmp_path).sent(Written(f"e{number}", "session", "place"))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files, "append_bytes", full)
        known = _fresh(tmp_path)
        assert (len(known.load()), known.problem) == (9, "")
        known.sent(Written("late", "session", "place"))
        assert "No space left" in known.problem
    assert len(_fresh(tmp_path).load()) == 9


@pytest.mark.parametrize("by_another", [False, True], ids=["one process", "two processes"])
@pytest.mark.parametrize(
    ("closed_at", "again_at"),
    [(1010, 500), (4600, 1001), (500, 400), (1000, 1000)],
    ids=["set back", "set forward and back", "set back twice", "stopped"],
)
def test_no_clock_says_whether_an_event_was_sent_after_it_was_closed(
    tmp_path, monkeypatch, closed_at, again_at, by_another
):
    def opened_after(at_s, write, *noted):
        monkeypatch.setattr(time, "time_ns", lambda: at_s * 10**9)
        write(*noted)
        return [written.event_id for written in _fresh(tmp_path).load().values()]

    sender = _fresh(tmp_path)
    closer = _fresh(tmp_path) if by_another else sender
    sent, sent_again = (Written("e1", "session", "place") for _ in range(2))
    assert opened_after(1000, sender.sent, sent) == ["e1"]
    assert opened_after(closed_at, closer.close, [sent.mark]) == []
    assert opened_after(again_at, sender.sent, sent_again) == ["e1"]
    for _ in range(9):  # so many that they are made one
        opened_after(again_at, _fresh(tmp_path).begin)
    assert len(list(tmp_path.glob("*.events"))) < 9
    assert opened_after(again_at, sender.close, [sent.mark]) == ["e1"]
    assert opened_after(closed_at, closer.close, [sent_again.mark]) == []


def test_a_line_with_more_than_its_fields_is_damage(tmp_path):
    ledger = Ledger(tmp_path, "http://memos", "cube")
    ledger.sent(Written("event", "session", "place", "mark"))
    assert list(Ledger(tmp_path, "http://memos", "cube").load()) == ["mark"]
    ledger._append(["sent", "event", "session", "place", "mark", "one more"])
    read = Ledger(tmp_path, "http://memos", "cube")
    assert read.load() == {}
    assert "not known any more" in read.problem


async def test_no_text_is_in_a_ledger_and_scopes_have_their_own(double, tmp_path):
    async with open_memory(config(double.url), data_dir=tmp_path) as slot:
        for scope in (ALICE, BOB):
            await slot.setup_scope(scope)
            await slot.record_event(event("I like oolong.", scope=scope))
    files = list((tmp_path / "memos").glob("*.events"))
    assert len(files) == 2
    assert not any("oolong" in file.read_text() for file in files)
