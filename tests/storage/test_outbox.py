"""The outbox: entries go in their order, whichever process delivers, and a bad one blocks nothing."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outbox_process import LANE, arrived, deliver

from memory.contract.errors import BackendUnavailable, StoreError
from memory.storage import leases
from memory.storage.entries import (
    LONGEST_PAUSE_S,
    OUTBOX,
    Lane,
    Trouble,
    Verdict,
    forget_entries,
    list_entries,
    retry_entries,
    trouble_of,
)
from memory.storage.outbox import ELSEWHERE, MAX_UNANSWERED, Outbox, pause_s
from memory.storage.store import SqliteStore

ROUNDS = int(os.environ.get("MEMSLOT_ROUNDS", "4"))
LEASE_S = 0.4
PROCESS = Path(__file__).with_name("outbox_process.py")


@pytest.fixture
def open_outbox(open_handle):
    """Opens one more outbox of events, as another process would."""
    opened = []

    def open_one(kind="event", **options):
        opened.append(Outbox(open_handle(OUTBOX), kind, **{"keep": True, **options}))
        return opened[-1]

    yield open_one
    for outbox in opened:
        outbox.close()


class Destination:
    """Takes entries, and fails as it is told."""

    def __init__(self, *fates):
        self.took = []
        self.fates = list(fates)

    async def send(self, entry):
        await anyio.lowlevel.checkpoint()
        fate = self.fates.pop(0) if self.fates else Verdict("committed")
        if isinstance(fate, Exception):
            raise fate
        if fate.state not in ("waiting", "held"):
            self.took.append(entry.key)
        return fate


async def add(outbox, *keys, lane=LANE):
    return [await outbox.add(lane, key, json.dumps(key)) for key in keys]


async def sent(outbox, destination, lane=LANE, **options):
    async with outbox.leasing(lane) as lease:
        assert lease is not None
        return await outbox.deliver(lease, destination.send, **options)


async def states(outbox):
    entries = await outbox.store.run(lambda db: outbox.read(db, "seq > 0 ORDER BY seq"), writes=False)
    return {entry.key: entry.state for entry in entries}


async def make_due(outbox):
    await outbox.store.run(lambda db: db.execute("UPDATE outbox SET next_try = 0"))


async def test_entries_go_in_their_order(open_outbox):
    outbox, destination = open_outbox(), Destination()
    await add(outbox, *"abc")
    await add(outbox, "other", lane=Lane("elsewhere", "{}"))
    assert await sent(outbox, destination) is None
    assert destination.took == ["a", "b", "c"]
    assert await outbox.counts() == {Lane("elsewhere", "{}"): 1}


async def test_a_key_is_kept_once(open_outbox):
    outbox = open_outbox()
    [new, again] = await add(outbox, "a", "a")
    assert new is None
    assert (again.key, again.payload, again.state) == ("a", '"a"', "waiting")
    await add(outbox, "a", lane=Lane("elsewhere", "{}"))
    await sent(outbox, Destination())
    [delivered] = await add(outbox, "a")
    assert delivered.state == "committed"


async def test_a_write_delivers_what_is_older_and_nothing_newer(open_outbox):
    outbox, destination = open_outbox(), Destination()
    await add(outbox, *"abcd")
    [third] = await outbox.store.run(lambda db: outbox.read(db, "key = 'c'"), writes=False)
    assert await sent(outbox, destination, before=third.seq) is None
    assert destination.took == ["a", "b"]


async def test_one_that_fails_holds_its_lane_back_and_is_tried_again(open_outbox):
    outbox = open_outbox()
    destination = Destination(Verdict("waiting", "it is down", "BackendUnavailable"))
    await add(outbox, *"ab")
    assert await sent(outbox, destination) == "it is down"
    assert await sent(outbox, destination) == "older entries wait for their destination"
    assert destination.took == []
    await make_due(outbox)
    assert await sent(outbox, destination) is None
    assert destination.took == ["a", "b"]
    [first, _] = await outbox.store.run(lambda db: outbox.read(db, "seq > 0 ORDER BY seq"), writes=False)
    assert (first.attempts, first.error, first.state) == (1, "BackendUnavailable", "committed")


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), BackendUnavailable("x"), RecursionError()])
async def test_whatever_a_destination_raises_is_an_attempt_that_failed(open_outbox, error):
    outbox = open_outbox()
    await add(outbox, "a")
    assert await sent(outbox, Destination(error)) == type(error).__name__
    assert await states(outbox) == {"a": "waiting"}


async def test_one_that_is_refused_is_set_aside_and_blocks_nothing(open_outbox):
    outbox, destination = open_outbox(), Destination(Verdict("aside", error="BackendRejected"))
    await add(outbox, *"ab")
    assert await sent(outbox, destination) is None
    assert await states(outbox) == {"a": "aside", "b": "committed"}
    trouble = await outbox.trouble()
    assert trouble == Trouble(aside=1, first_aside=1)
    assert "1 entry is set aside (the first is number 1)" in trouble.warnings()[0]


async def test_one_that_cannot_be_read_is_set_aside(open_outbox):
    outbox, destination = open_outbox(), Destination()
    await add(outbox, *"abc")
    await outbox.store.run(lambda db: db.execute("UPDATE outbox SET payload = 'torn' WHERE key = 'b'"))
    assert await sent(outbox, destination) is None
    assert destination.took == ["a", "c"]
    [entry] = list_entries(outbox.store, "state = 'aside'")
    assert (entry.key, entry.error, entry.readable) == ("b", "Unreadable", False)


async def test_one_without_an_answer_is_set_aside_after_five_attempts(open_outbox):
    outbox, destination = open_outbox(), Destination(*[Verdict("unknown", "no answer")] * MAX_UNANSWERED)
    await add(outbox, *"ab")
    for _ in range(MAX_UNANSWERED - 1):
        assert await sent(outbox, destination) == "no answer"
        await make_due(outbox)
    assert await sent(outbox, destination) is None
    assert destination.took == ["a"] * MAX_UNANSWERED + ["b"]
    [entry] = list_entries(outbox.store, "state = 'aside'")
    assert (entry.key, entry.error, entry.attempts) == ("a", "NoAnswer", MAX_UNANSWERED)


async def test_what_was_set_aside_can_be_tried_again_or_forgotten(open_outbox):
    outbox = open_outbox()
    refused = Verdict("aside", error="BackendRejected")
    await add(outbox, *"abc")
    await sent(outbox, Destination(refused, refused, refused))
    assert retry_entries(outbox.store, [2, 77]) == [2]
    assert forget_entries(outbox.store, [3, 77]) == [3]
    destination = Destination()
    await sent(outbox, destination)
    assert destination.took == ["b"]
    assert retry_entries(outbox.store) == [1]


async def test_delivered_entries_are_gone_unless_they_are_kept(open_outbox):
    outbox = open_outbox("turn", keep=False)
    await add(outbox, *"ab")
    await sent(outbox, Destination(Verdict("done"), Verdict("aside")))
    assert await states(outbox) == {"b": "aside"}


async def test_an_entry_that_waits_for_a_minute_is_told(open_outbox):
    outbox = open_outbox()
    await add(outbox, *"ab")
    ago = (datetime.now(UTC) - timedelta(seconds=61)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    await outbox.store.run(lambda db: db.execute("UPDATE outbox SET recorded_at = ? WHERE key = 'a'", (ago,)))
    assert (await outbox.trouble()).late == 1
    assert (await outbox.store.run(trouble_of, writes=False)).late == 1
    await sent(outbox, Destination())
    assert (await outbox.trouble()).warnings() == []


@pytest.mark.parametrize("hours", [-1, 1, 24 * 365])
async def test_a_clock_that_was_moved_holds_nothing_up(open_outbox, hours):
    outbox = open_outbox()
    await add(outbox, "a")
    await sent(outbox, Destination(Verdict("waiting", "down")))
    moved = time.time() + hours * 3600
    await outbox.store.run(lambda db: db.execute("UPDATE outbox SET next_try = ?", (moved,)))
    assert await sent(outbox, Destination()) is None


def test_the_pauses_double_up_to_the_longest():
    pauses = [pause_s(attempts) for attempts in range(1, 12)]
    assert pauses[:4] == [0.5, 1, 2, 4]
    assert pauses[-1] == pause_s(10**9) == LONGEST_PAUSE_S


# Leases.


async def test_one_delivers_a_lane_at_a_time(open_outbox):
    one, other = open_outbox(), open_outbox()
    async with one.leasing(LANE) as lease, other.leasing(LANE) as none, other.leasing(Lane("b", "")) as free:
        assert lease is not None
        assert none is None
        assert free is not None
    async with other.leasing(LANE) as later:
        assert later.fence == lease.fence + 1


async def test_a_lane_is_waited_for(open_outbox):
    one, other = open_outbox(), open_outbox()

    async def hold():
        async with one.leasing(LANE):
            held.set()
            await anyio.sleep(0.1)

    held = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold)
        await held.wait()
        async with other.leasing(LANE, within_s=5.0) as lease:
            assert lease is not None


async def test_a_holder_that_lives_keeps_its_lane(open_outbox, monkeypatch):
    monkeypatch.setattr(leases, "LEASE_S", LEASE_S)
    one, other = open_outbox(), open_outbox()
    async with one.leasing(LANE) as lease:
        for _ in range(6):
            await anyio.sleep(LEASE_S / 2)
            async with other.leasing(LANE) as none:
                assert none is None
        assert await one.leases.holds(lease)


async def test_a_holder_that_stands_still_loses_its_lane_and_writes_nothing_more(open_outbox, monkeypatch):
    monkeypatch.setattr(leases, "LEASE_S", LEASE_S)
    stopped, other = open_outbox(), open_outbox()
    await add(stopped, *"ab")
    monkeypatch.setattr(stopped.leases, "_keep_beating", lambda: None)
    async with stopped.leasing(LANE) as lost:
        [_, second] = await stopped.waiting(LANE)
        async with other.leasing(LANE, within_s=10.0) as lease:
            destination = Destination()
            assert lease is not None
            assert await other.deliver(lease, destination.send, before=second.seq) is None
            assert not await stopped.leases.holds(lost)
            assert await stopped.deliver(lost, destination.send) == ELSEWHERE
            late = [(second, Verdict("aside", error="late"))]
            await stopped.store.run(lambda db: stopped.note_all(db, lost, late))
    assert destination.took == ["a"]
    assert await states(other) == {"a": "committed", "b": "waiting"}


async def test_the_lanes_of_a_closed_outbox_are_free(open_outbox):
    one, other = open_outbox(), open_outbox()
    await one.store.run(lambda db: one.leases.take(db, LANE))
    one.close()
    async with other.leasing(LANE) as lease:
        assert lease is not None


# Processes.


def start(place, file, name, count):
    command = [sys.executable, str(PROCESS), place, str(file), name, str(count), str(LEASE_S)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def place(open_handle, tmp_path, request):
    """What a process opens the same store by."""
    store = open_handle(OUTBOX)
    return request.getfixturevalue("state_url") if store.shared else str(store.path)


def assert_in_order(keys, names):
    """Every process' own entries in their order: it added each after the one before was acknowledged."""
    for name in names:
        numbers = [int(key.split("-")[1]) for key in keys if key.split("-")[0] == name]
        assert numbers == sorted(numbers)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [2, 5])
def test_processes_keep_the_order(place, tmp_path, count):
    file = tmp_path / "arrived"
    names = "abcde"[:count]
    processes = [start(place, file, name, 12) for name in names]
    acknowledged = [process.communicate(timeout=120)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * count
    keys = arrived(file)
    assert sorted(keys) == sorted(chain.from_iterable(acknowledged))
    assert_in_order(keys, names)


@pytest.mark.thorough
def test_kills_lose_and_repeat_nothing(place, open_outbox, tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "LEASE_S", LEASE_S)
    chance = random.Random(7)
    file, acknowledged = tmp_path / "arrived", []
    for number in range(ROUNDS):
        processes = [start(place, file, f"{number}{name}", 40) for name in "ab"]
        for process in processes:
            for _ in range(chance.randrange(1, 12)):
                acknowledged.append(process.stdout.readline().strip())
            process.send_signal(signal.SIGKILL)
        for process in processes:
            acknowledged += process.communicate()[0].split("\n")[:-1]

    async def deliver_the_rest():
        outbox = open_outbox()
        with anyio.fail_after(30):
            while await outbox.counts():
                await make_due(outbox)
                await deliver(outbox, file)
                await anyio.sleep(0.02)

    anyio.run(deliver_the_rest)
    keys = arrived(file)
    assert set(acknowledged) <= set(keys)
    assert len(keys) == len(set(keys))
    assert_in_order(keys, [f"{number}{name}" for number in range(ROUNDS) for name in "ab"])


# What is drawn.


@pytest.mark.thorough
@settings(max_examples=60)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 1)),
            st.tuples(
                st.just("deliver"), st.integers(0, 1), st.sampled_from(["committed", "waiting", "aside"])
            ),
        ),
        max_size=25,
    )
)
def test_whatever_happens_the_order_stays(steps):
    async def play():
        with closing(SqliteStore(None, [OUTBOX])) as store:
            outboxes = [Outbox(store, "event", keep=True) for _ in range(2)]
            took, added = [], []
            for step, which, *fate in steps:
                if step == "add":
                    added.append(f"{len(added):03}")
                    await outboxes[which].add(LANE, added[-1], "{}")
                else:
                    destination = Destination(Verdict(*fate))
                    await make_due(outboxes[which])
                    await sent(outboxes[which], destination)
                    took += destination.took
            for outbox in outboxes:
                outbox.close()
        assert took == sorted(took)
        assert len(set(took)) == len(took)

    anyio.run(play)


async def test_a_store_that_cannot_be_used_is_told(tmp_path):
    path = tmp_path / "memslot.db"
    path.write_bytes(b"nonsense " * 500)
    with closing(SqliteStore(path, [OUTBOX])) as store:
        outbox = Outbox(store, "event")
        with pytest.raises(StoreError, match="damaged, or not a SQLite file"):
            await outbox.add(LANE, "a", "{}")
