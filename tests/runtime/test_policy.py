"""How a host lives with a memory that is slow, failing or hanging: no turn is lost to it, and no event either."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from both_loops import anyio_backend as anyio_backend
from journals import open_journal
from slot_support import Lookup, Obedient, Sink, forever, until
from turn_support import ADA, BOB, event

from memory import (
    AdapterMode,
    BackendTimeout,
    BackendUnavailable,
    ContextBudget,
    Deadlines,
    InputError,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    RetrieveRequest,
    RetrieveResult,
    ScopeError,
)
from memory.contract.errors import BackendRejected, LifecycleError
from memory.runtime import _circuit as circuit
from memory.runtime import _writing as writing
from memory.runtime._policy import TurnMemory, TurnPolicy
from memory.storage.journal import JournalKey
from memory.storage.lock import FileLock
from memory.storage.outbox import OUTBOX
from memory.storage.store import SqliteStore

DOWN = ConnectionRefusedError("down")


@pytest.fixture
def adapter() -> Obedient:
    obedient = Obedient()
    obedient.names_sessions = True
    return obedient


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
async def slot(adapter: Obedient, sink: Sink) -> AsyncIterator[MemorySlot]:
    limits = Deadlines(write_s=20, retrieve_s=20, close_s=5)
    async with MemorySlot(adapter, scope=ADA, deadlines=limits, trace_sink=sink) as opened:
        sink.clear()
        yield opened


class Refused(BackendRejected):
    def __init__(self) -> None:
        super().__init__("refused")


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = time.perf_counter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(circuit, "time", clock)
    return clock


# -- recall ---------------------------------------------------------------------------------------------


async def test_recalled_context_alone_is_nothing_to_record_and_no_failure(slot: MemorySlot) -> None:
    section = '<memory-context backend="fake" scope="r:ada">\n- tea\n</memory-context>'
    async with TurnMemory(slot, TurnPolicy(on_failure="raise")) as memory:
        assert not await memory.record_turn(session_id="s", user=section)
        assert await memory.record_turn(session_id="s", user=f"{section} And tea?")
    assert (memory.status()["recorded"], memory.status()["not_recorded"]) == (1, 0)


async def test_a_turn_is_recorded_and_recalled(slot: MemorySlot) -> None:
    async with TurnMemory(slot) as memory:
        assert await memory.record_turn(user="I like oolong.", assistant="Noted.", session_id="s1")
        assert await memory.drain(20)
        recall = await memory.recall("Which tea?", session_id="s2")
        assert "oolong" in recall.section
        assert recall.failure is None
        assert recall.trace is not None
        assert memory.status()["recorded"] == 1


@pytest.mark.parametrize("deaf", [False, True])
async def test_recall_ends_at_its_deadline_whatever_the_memory_does(
    slot: MemorySlot, adapter: Obedient, sink: Sink, deaf: bool
) -> None:
    gate = anyio.Event()

    async def hang() -> None:
        with anyio.CancelScope(shield=deaf):
            await gate.wait()

    adapter.next_read = [hang]
    async with TurnMemory(slot, TurnPolicy(recall_s=0.2)) as memory:
        recall = await memory.recall("tea?", session_id="s")
        assert isinstance(recall.failure, BackendTimeout)
        assert recall.section == ""
        recalls = [trace for trace in sink if trace.operation == "recall"]
        assert [(trace.error, trace.scope) for trace in recalls] == [("BackendTimeout", ADA)]
        assert "recall" in memory.status()["last_recall_failure"]
        gate.set()
        memory.policy = TurnPolicy(recall_s=20)
        assert (await memory.recall("tea?", session_id="s")).failure is None


async def test_a_recall_that_came_too_late_is_given_up(slot: MemorySlot, adapter: Obedient) -> None:
    given_up = anyio.Event()

    async def hang() -> None:
        try:
            await forever()
        finally:
            given_up.set()

    adapter.next_read = [hang]
    async with TurnMemory(slot, TurnPolicy(recall_s=1)) as memory:
        await memory.recall("tea?", session_id="s")
        with anyio.fail_after(60):
            await given_up.wait()


async def test_empty_and_failed_do_not_look_alike(slot: MemorySlot, adapter: Obedient) -> None:
    async with TurnMemory(slot) as memory:
        nothing = await memory.recall("tea?", session_id="s")
        adapter.next_read = [DOWN]
        failed = await memory.recall("tea?", session_id="s")
    assert nothing.section == failed.section == ""
    assert nothing.failure is None
    assert nothing.result is not None
    assert isinstance(failed.failure, BackendUnavailable)


async def test_raise_passes_the_failure_on(slot: MemorySlot, adapter: Obedient) -> None:
    adapter.next_read = [DOWN, forever]
    async with TurnMemory(slot, TurnPolicy(on_failure="raise", recall_s=20)) as memory:
        with pytest.raises(BackendUnavailable):
            await memory.recall("tea?", session_id="s")
        memory.policy = TurnPolicy(on_failure="raise", recall_s=0.3)
        with pytest.raises(BackendTimeout):
            await memory.recall("tea?", session_id="s")


async def test_a_hosts_own_mistake_costs_no_turn_and_opens_no_circuit(slot: MemorySlot) -> None:
    async with TurnMemory(slot, TurnPolicy(open_after=1)) as memory:
        assert isinstance((await memory.recall("tea?", session_id="")).failure, InputError)
        assert isinstance((await memory.recall(None, session_id="s")).failure, InputError)  # type: ignore[arg-type]
        assert isinstance((await memory.recall("a\ud800", session_id="s")).failure, InputError)
        assert memory.status()["recall_circuit"] == "closed"
    async with MemorySlot(Obedient()) as bare, TurnMemory(bare) as memory:
        assert isinstance((await memory.recall("tea?", session_id="s")).failure, ScopeError)


async def test_of_nothing_nothing_is_asked(slot: MemorySlot, adapter: Obedient) -> None:
    async with TurnMemory(slot) as memory:
        for said in ("", " \n", '<memory-context backend="x">old</memory-context>'):
            recall = await memory.recall(said, session_id="s")
            assert (recall.section, recall.failure) == ("", None)
    assert adapter.asked == 0


async def test_the_current_session_is_left_out_where_the_host_replays_it(slot: MemorySlot) -> None:
    async with TurnMemory(slot, TurnPolicy(exclude_session=True)) as memory:
        await memory.record(event(1, session="now"))
        await memory.record(event(2, session="before"))
        await memory.drain(20)
        section = (await memory.recall("fact?", session_id="now")).section
        assert "fact 2" in section
        assert "fact 1" not in section
        whole = await memory.recall("fact?", session_id="now", exclude_session=False)
        assert "fact 1" in whole.section


async def test_a_cancelled_turn_gives_its_recall_up(slot: MemorySlot, adapter: Obedient, sink: Sink) -> None:
    adapter.next_read = [forever]
    async with TurnMemory(slot, TurnPolicy(recall_s=20, open_after=1)) as memory:
        with anyio.move_on_after(0.01):
            await memory.recall("tea?", session_id="s")
        await until(lambda: any(trace.operation == "retrieve" for trace in sink))
        assert memory.status()["recall_circuit"] == "closed"
        assert (await memory.recall("tea?", session_id="s")).failure is None


async def test_a_new_persons_set_up_goes_on_after_the_deadline(slot: MemorySlot, adapter: Obedient) -> None:
    gate = anyio.Event()
    adapter.next_setup = [gate.wait]
    async with TurnMemory(slot, TurnPolicy(recall_s=0.3)) as memory:
        assert isinstance((await memory.recall("tea?", session_id="s", scope=BOB)).failure, BackendTimeout)
        gate.set()
        memory.policy = TurnPolicy(recall_s=20)
        await until(lambda: adapter.set_up == ["ada", "bob"])
        assert (await memory.recall("tea?", session_id="s", scope=BOB)).failure is None
        slot.delivery.release_scope(BOB)
        adapter.next_setup, memory.policy = [forever], TurnPolicy(recall_s=0.05)
        again = await memory.recall("tea?", session_id="s", scope=BOB)
        assert "still being set up" in str(again.failure), "it is new once more"
    assert adapter.asked == 1


async def test_a_turn_without_a_budget_of_its_own_has_the_slots(adapter: Obedient) -> None:
    asked, of_slot, own = [], ContextBudget(max_items=3), ContextBudget(max_items=2)
    retrieve = adapter.retrieve

    async def noted(request: RetrieveRequest) -> RetrieveResult:
        asked.append(request.budget)
        return await retrieve(request)

    adapter.retrieve = noted
    async with MemorySlot(adapter, scope=ADA, budget=of_slot) as slot, TurnMemory(slot) as memory:
        await memory.recall("tea?", session_id="s")
        await memory.recall("tea?", session_id="s", budget=own)
    assert asked == [of_slot, own]


# -- the circuit ----------------------------------------------------------------------------------------


async def test_new_scopes_that_take_their_time_keep_nobody_from_recall(
    slot: MemorySlot, adapter: Obedient
) -> None:
    gate = anyio.Event()
    async with TurnMemory(slot, TurnPolicy(recall_s=0.05, open_after=2)) as memory:
        await memory.recall("tea?", session_id="s")
        adapter.next_setup = [gate.wait] * 4
        for number in range(4):
            new = MemoryScope(run_id="r", persona_id=f"new-{number}")
            recall = await memory.recall("tea?", session_id="s", scope=new)
            assert "still being set up" in str(recall.failure)
        assert memory.status()["recall_circuit"] == "closed"
        assert (await memory.recall("tea?", session_id="s")).failure is None
        for _ in range(2):  # one that never ends is a failure from the second time on
            assert "has no answer" in str((await memory.recall("tea?", session_id="s", scope=new)).failure)
        assert memory.status()["recall_circuit"] == "open"
        gate.set()


async def test_a_memory_with_nothing_to_say_is_as_well_as_its_slot(slot: MemorySlot) -> None:
    async with TurnMemory(slot) as memory:
        health = await memory.health()
    assert (health.status, health.warnings) == ("ok", ())


async def test_after_failures_in_a_row_the_memory_is_left_alone(
    slot: MemorySlot, adapter: Obedient, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    adapter.always = DOWN
    async with TurnMemory(slot, TurnPolicy(open_after=3, pause_s=30)) as memory:
        for _ in range(5):
            assert (await memory.recall("tea?", session_id="s")).failure is not None
        assert adapter.asked == 3
        last = await memory.recall("tea?", session_id="s")
        assert "left alone after 3 failures" in str(last.failure)
        health = await memory.health()
        assert health.details["turns"]["recall_circuit"] == "open"
        assert "recall is left alone after repeated failures" in health.warnings
        assert "left alone for 30 s" in caplog.text

        clock.now = 31
        assert memory.status()["recall_circuit"] == "half-open"
        await memory.recall("tea?", session_id="s")  # the one that decides: still down
        await memory.recall("tea?", session_id="s")
        assert adapter.asked == 4

        clock.now = 62
        adapter.always = None
        assert (await memory.recall("tea?", session_id="s")).failure is None
        assert memory.status()["recall_circuit"] == "closed"


async def test_a_half_open_circuit_lets_one_through(
    slot: MemorySlot, adapter: Obedient, clock: Clock
) -> None:
    adapter.next_read = [DOWN]
    async with TurnMemory(slot, TurnPolicy(open_after=1, pause_s=1)) as memory:
        await memory.recall("tea?", session_id="s")
        clock.now, gate = 2, anyio.Event()
        adapter.next_read = [gate.wait]
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(lambda: memory.recall("tea?", session_id="s"))
            await until(lambda: memory.status()["recalls_failed"] == 5)
            gate.set()
        assert adapter.asked == 2
        assert memory.status()["recall_circuit"] == "closed"


async def test_what_is_refused_says_nothing_of_the_next(slot: MemorySlot, adapter: Obedient) -> None:
    adapter.always = Refused()
    async with TurnMemory(slot, TurnPolicy(open_after=2)) as memory:
        for _ in range(4):
            await memory.recall("tea?", session_id="s")
        assert adapter.asked == 4
        assert memory.status()["recall_circuit"] == "closed"


async def test_a_failure_between_successes_opens_nothing(slot: MemorySlot, adapter: Obedient) -> None:
    adapter.next_read = [DOWN, None, DOWN, None, DOWN]
    async with TurnMemory(slot, TurnPolicy(open_after=2)) as memory:
        for _ in range(5):
            await memory.recall("tea?", session_id="s")
        assert memory.status()["recall_circuit"] == "closed"
        assert memory.status()["recalls_failed"] == 3


# -- writing --------------------------------------------------------------------------------------------


async def test_a_write_delays_nobody_and_is_drained_on_closing(slot: MemorySlot, adapter: Obedient) -> None:
    gate = anyio.Event()
    adapter.next_write = [gate.wait]
    async with TurnMemory(slot) as memory:
        for number in range(20):
            assert await memory.record(event(number))
        assert memory.status()["waiting"] == 20
        assert adapter.rows == []
        gate.set()
    assert [row.event_id for row in adapter.rows] == [f"e{number}" for number in range(20)]
    assert memory.status()["recorded"] == 20


async def test_one_persons_slow_write_does_not_hold_up_another(slot: MemorySlot, adapter: Obedient) -> None:
    gate = anyio.Event()
    adapter.next_write = [gate.wait]
    async with TurnMemory(slot) as memory:
        await memory.record(event(1))
        await until(lambda: adapter.calls == ["e1"])
        await memory.record(event(2, BOB))
        await until(lambda: [row.event_id for row in adapter.rows] == ["e2"])
        gate.set()


async def test_the_order_of_a_scope_is_that_of_handing_over(slot: MemorySlot, adapter: Obedient) -> None:
    """Also where the queue is full, and where a write has to be repeated."""
    adapter.next_write = [DOWN]
    adapter.always = lambda: anyio.sleep(0.001)
    async with TurnMemory(slot, TurnPolicy(queue_size=3, queue_wait_s=30)) as memory:
        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(_recorded, memory, event(number, BOB if number % 3 else ADA))
                # Handed over: kept, however full the queue is.
                await until(lambda: len(adapter.rows) + memory.status()["waiting"] > number)  # noqa: B023
        assert await memory.drain(30)
    for scope in (ADA, BOB):
        order = [int(row.event_id[1:]) for row in adapter.rows if row.scope == scope]
        handed = [number for number in range(30) if (number % 3 == 0) == (scope == ADA)]
        assert order == handed


async def _recorded(memory: TurnMemory, memory_event: MemoryEvent) -> None:
    assert await memory.record(memory_event)


async def test_what_was_certainly_not_sent_goes_again_in_its_place(
    slot: MemorySlot, adapter: Obedient
) -> None:
    adapter.next_write = [DOWN]
    async with TurnMemory(slot) as memory:
        await memory.record(event(1))
        await memory.record(event(2))
        assert await memory.drain(20)
    assert adapter.calls == ["e1", "e1", "e2"]
    assert [row.event_id for row in adapter.rows] == ["e1", "e2"]


async def test_what_may_be_stored_is_not_sent_twice(slot: MemorySlot, adapter: Obedient) -> None:
    adapter.next_write = [ConnectionResetError("lost")]
    async with TurnMemory(slot) as memory:
        await memory.record(event(1))
        assert await memory.drain(20)
        assert memory.status()["unknown"] == 1
    assert adapter.calls == ["e1"]


async def test_an_event_handed_over_twice_is_written_once(slot: MemorySlot, adapter: Obedient) -> None:
    async with TurnMemory(slot) as memory:
        assert await memory.record(event(1))
        assert not await memory.record(event(1))
        await memory.drain(20)
        assert not await memory.record(event(1))
        assert await memory.record(event(1, BOB))  # another memory's
    assert sorted(row.scope.persona_id for row in adapter.rows) == ["ada", "bob"]


async def test_an_event_that_was_refused_may_be_handed_over_again(
    slot: MemorySlot, adapter: Obedient
) -> None:
    adapter.next_write = [Refused()]
    async with TurnMemory(slot) as memory:
        await memory.record(event(1))
        await memory.drain(20)
        assert memory.status()["not_recorded"] == 1
        assert await memory.record(event(1))
    assert [row.event_id for row in adapter.rows] == ["e1"]


async def test_an_event_that_met_a_defect_is_counted_and_may_be_handed_over_again(
    slot: MemorySlot, adapter: Obedient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(event: MemoryEvent, resets: int) -> None:
        raise RuntimeError(event.messages[0].content)

    async with TurnMemory(slot) as memory:
        with monkeypatch.context() as defect:
            defect.setattr(slot.delivery, "record", broken)
            await memory.record(event(1))
            await memory.drain(20)
        status = memory.status()
        assert (status["not_recorded"], status["last_failure"]) == (1, "RuntimeError")
        assert await memory.record(event(1))
    assert [row.event_id for row in adapter.rows] == ["e1"]


@pytest.mark.parametrize("closes", [False, True])
async def test_what_waits_when_its_scope_is_reset_is_erased_with_the_rest(
    slot: MemorySlot, adapter: Obedient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closes: bool
) -> None:
    monkeypatch.setattr(writing, "_FIRST_PAUSE_S", 1000.0 if closes else 0.1)
    slot.delivery.store = SqliteStore(tmp_path / "memslot.db", [OUTBOX])
    adapter.next_write = [DOWN] * 1000
    async with TurnMemory(slot, TurnPolicy(open_after=1000)) as memory:
        await memory.record(event(1))
        await memory.record(event(2))
        await memory.record(event(3, BOB))
        await until(lambda: {"e1", "e3"} <= set(adapter.calls))
        await slot.reset_scope(ADA)
        if not closes:
            adapter.next_write.clear()
            assert await memory.drain(20)
            assert [row.event_id for row in adapter.rows] == ["e3"]
            assert await memory.record(event(1)), "it is not there any more"
            await memory.drain(20)
            assert [row.event_id for row in adapter.rows] == ["e3", "e1"]
    adapter.next_write.clear()
    async with TurnMemory(slot) as memory:
        await memory.recall("tea?", session_id="s")
        assert await memory.drain(20)
    assert [row.event_id for row in adapter.rows] == (["e3"] if closes else ["e3", "e1"])


async def test_what_an_earlier_start_left_is_erased_by_a_reset_that_is_finished_now(
    adapter: Obedient, tmp_path: Path
) -> None:
    place, adapter.next_write = tmp_path, [DOWN] * 1000
    async with MemorySlot(adapter, scope=ADA, store=place) as slot, TurnMemory(slot) as memory:
        await memory.record(event(1))
    adapter.next_write.clear()
    with open_journal(tmp_path) as journal:
        await journal.resets.begin(JournalKey.of_adapter(adapter, ADA))
    again = MemorySlot(adapter, store=place, journal=open_journal(tmp_path))
    async with again, TurnMemory(again) as memory:
        assert memory.status()["waiting"] == 1
        assert await memory.drain(20)
    assert adapter.rows == []


async def test_what_an_earlier_start_left_is_erased_by_a_reset_while_it_is_read(
    adapter: Obedient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, adapter.next_write = tmp_path, [DOWN] * 1000
    async with MemorySlot(adapter, scope=ADA, store=place) as slot, TurnMemory(slot) as memory:
        await memory.record(event(1))
    adapter.next_write.clear()
    read = writing.WriteBehind._left_by_earlier

    def read_late(writes: writing.WriteBehind) -> list[MemoryEvent]:
        found = read(writes)
        if found:
            anyio.from_thread.run(again.reset_scope, ADA)
        return found

    monkeypatch.setattr(writing.WriteBehind, "_left_by_earlier", read_late)
    async with MemorySlot(adapter, scope=ADA, store=place) as again, TurnMemory(again) as memory:
        assert await memory.drain(20)
    assert adapter.rows == []


async def test_a_full_queue_makes_the_host_wait_and_then_says_so(slot: MemorySlot, adapter: Obedient) -> None:
    gate = anyio.Event()
    adapter.next_write = [gate.wait]
    async with TurnMemory(slot, TurnPolicy(queue_size=2, queue_wait_s=0.02)) as memory:
        assert await memory.record(event(1))
        assert await memory.record(event(2))
        assert not await memory.record(event(3))
        status = memory.status()
        assert (status["not_recorded"], status["waiting"]) == (1, 2)
        gate.set()
        await memory.drain(20)
        assert await memory.record(event(3))
        assert (await memory.health()).status == "degraded"
    assert [row.event_id for row in adapter.rows] == ["e1", "e2", "e3"]


async def test_an_event_for_which_there_was_no_room_certainly_was_not_sent(
    slot: MemorySlot, adapter: Obedient
) -> None:
    gate = anyio.Event()
    adapter.next_write = [gate.wait]
    policy = TurnPolicy(queue_size=1, queue_wait_s=0.01, on_failure="raise")
    async with TurnMemory(slot, policy) as memory:
        await memory.record(event(1))
        with pytest.raises(BackendUnavailable, match="1 writes wait already") as raised:
            await memory.record(event(2))
        assert not raised.value.ambiguous, "or who retries looks for it first"
        gate.set()


async def test_who_gets_a_place_does_not_wait_for_its_write(slot: MemorySlot, adapter: Obedient) -> None:
    first, second = anyio.Event(), anyio.Event()
    adapter.next_write = [first.wait, second.wait]
    async with TurnMemory(slot, TurnPolicy(queue_size=1, queue_wait_s=30)) as memory:
        await memory.record(event(1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(memory.record, event(2))
            await until(lambda: memory.status()["waiting"] == 2)
            first.set()
            # The group ends with the second record, whose write still hangs.
        assert memory.status()["waiting"] == 1
        second.set()


async def test_a_full_queue_of_a_memory_that_is_down_makes_nobody_wait(
    slot: MemorySlot, adapter: Obedient, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter.always = DOWN
    policy = TurnPolicy(queue_size=1, queue_wait_s=1000, open_after=1, pause_s=1000)
    async with TurnMemory(slot, policy) as memory:
        await memory.record(event(1))
        await until(lambda: memory.status()["write_circuit"] == "open")
        put, waits_s = memory._writes._queue.put, []

        async def noted(scope: MemoryScope, pending: writing._Pending, within_s: float) -> bool:
            waits_s.append(within_s)
            return await put(scope, pending, within_s)

        monkeypatch.setattr(memory._writes._queue, "put", noted)
        with anyio.fail_after(60):
            assert not await memory.record(event(2))
        assert waits_s == [0]
        adapter.always = None


def test_only_what_certainly_was_not_sent_may_go_again() -> None:
    assert writing._may_go_again(BackendUnavailable("x", sent=False))
    assert not writing._may_go_again(BackendUnavailable("x", sent=True))
    assert not writing._may_go_again(InputError("x"))


async def test_a_place_that_becomes_free_is_taken(slot: MemorySlot, adapter: Obedient) -> None:
    gate = anyio.Event()
    adapter.next_write = [gate.wait]
    policy = TurnPolicy(queue_size=1, queue_wait_s=30, on_failure="raise")
    async with TurnMemory(slot, policy) as memory:
        assert await memory.record(event(1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(memory.record, event(2))
            tasks.start_soon(memory.record, event(3, BOB))
            await until(lambda: memory.status()["waiting"] == 3 or len(adapter.rows) == 1)
            gate.set()
    assert sorted(row.event_id for row in adapter.rows) == ["e1", "e2", "e3"]


async def test_an_event_whose_turn_was_cancelled_in_the_queue_is_taken_back(
    slot: MemorySlot, adapter: Obedient
) -> None:
    gate = anyio.Event()
    adapter.next_write = [gate.wait]
    async with TurnMemory(slot, TurnPolicy(queue_size=1, queue_wait_s=30)) as memory:
        await memory.record(event(1))
        with anyio.move_on_after(0.01):
            await memory.record(event(2))
        assert memory.status()["waiting"] == 1
        gate.set()
        await memory.drain(20)
        assert await memory.record(event(2))
    assert [row.event_id for row in adapter.rows] == ["e1", "e2"]


async def test_writes_wait_while_the_circuit_is_open(
    slot: MemorySlot, adapter: Obedient, clock: Clock
) -> None:
    adapter.always = DOWN
    async with TurnMemory(slot, TurnPolicy(open_after=1, pause_s=0.2)) as memory:
        await memory.record(event(1))
        await until(lambda: memory.status()["write_circuit"] == "open")
        tried = len(adapter.calls)
        await memory.record(event(2, BOB))
        await anyio.sleep(0.6)  # longer than the pauses between attempts
        assert len(adapter.calls) == tried
        adapter.always = None
        clock.now = 1
        assert await memory.drain(20)
    assert sorted(row.event_id for row in adapter.rows) == ["e1", "e2"]


async def test_closing_sends_what_waits_for_a_pause(
    slot: MemorySlot, adapter: Obedient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_FIRST_PAUSE_S", 1000.0)
    adapter.next_write = [DOWN]
    async with TurnMemory(slot, TurnPolicy(open_after=5, pause_s=1000)) as memory:
        await memory.record(event(1))
        await until(lambda: adapter.calls == ["e1"])
    assert [row.event_id for row in adapter.rows] == ["e1"]


async def test_closing_ends_although_the_memory_hangs_and_says_what_was_left(
    slot: MemorySlot, adapter: Obedient, caplog: pytest.LogCaptureFixture
) -> None:
    adapter.always = forever
    memory = TurnMemory(slot, TurnPolicy(drain_s=0.05))
    for number in range(3):
        await memory.record(event(number))
    with anyio.fail_after(60):
        await memory.aclose()
        await memory.aclose()
    assert "3 events are lost" in caplog.text
    assert memory.status()["not_recorded"] == memory.lost == 3
    with pytest.raises(LifecycleError, match="3 acknowledged events are lost"):
        memory.check_none_lost()
    with pytest.raises(LifecycleError):
        await memory.record(event(9))


async def test_what_was_not_sent_is_delivered_by_the_next_start_and_by_no_later_one(tmp_path: Path) -> None:
    class HasSecond(Lookup):
        async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
            return ("n1",) if event.event_id == "e1" else None

    def started(adapter: Obedient) -> MemorySlot:
        return MemorySlot(adapter, scope=ADA, store=tmp_path)

    for handed_over in (4, 0):
        hangs = Obedient()
        hangs.next_write = [forever]
        async with started(hangs) as slot:
            async with TurnMemory(slot, TurnPolicy(drain_s=0.05)) as memory:
                for number in range(handed_over):
                    assert await memory.record(event(number))
            assert (memory.lost, memory.status()["left_for_next_start"]) == (0, 4)
            memory.check_none_lost()
    backend = HasSecond()
    backend.next_write = [Refused()]
    async with started(backend) as slot, TurnMemory(slot) as memory:
        assert await memory.drain(20)
        assert not await memory.record(event(3)), "it was handed over before"
        assert memory.status()["not_recorded"] == 1
        free = FileLock(tmp_path / "memslot.db-unsent", what="what was left", instead="wait")
        free.acquire()
        free.release()
    assert [row.event_id for row in backend.rows] == ["e2", "e3"], "e0 was refused, e1 was there"
    backend.rows.clear()
    async with started(backend) as slot, TurnMemory(slot) as memory:
        assert await memory.drain(20)
    assert backend.rows == []


async def test_with_a_journal_no_scope_waits_for_room_and_what_is_held_up_is_asked_for_once(
    adapter: Obedient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, asked = anyio.Event(), []
    async with (
        MemorySlot(adapter, scope=ADA, journal=open_journal(tmp_path)) as slot,
        TurnMemory(slot, TurnPolicy(queue_size=1)) as memory,
    ):
        await slot.setup_scope(BOB)
        deliver = slot.delivery.deliver

        async def counted(scope: MemoryScope) -> str | None:
            asked.append(scope)
            return await deliver(scope)

        monkeypatch.setattr(slot.delivery, "deliver", counted)
        adapter.next_write = [go_on.wait]
        assert await memory.record(event(1))
        await until(lambda: adapter.calls == ["e1"])
        assert await memory.record(event(2, BOB))
        await until(lambda: [row.event_id for row in adapter.rows] == ["e2"])
        go_on.set()
        assert await memory.drain(20)
        asked.clear()
        adapter.next_write = [DOWN]
        assert await memory.record(event(3))
        assert await memory.drain(20)
        assert (asked, slot.delivery.waiting(ADA)) == ([ADA], 1)


async def test_closing_goes_on_when_the_host_is_cancelled(slot: MemorySlot, adapter: Obedient) -> None:
    """The writers are nobody's children: what ends the host does not end them half-way."""
    adapter.always = lambda: anyio.sleep(0.01)
    async with anyio.create_task_group() as tasks:

        async def host() -> None:
            async with TurnMemory(slot) as memory:
                for number in range(5):
                    await memory.record(event(number))
                tasks.cancel_scope.cancel()
                await anyio.sleep_forever()

        tasks.start_soon(host)
    assert [row.event_id for row in adapter.rows] == [f"e{number}" for number in range(5)]


async def test_two_close_at_once(slot: MemorySlot, adapter: Obedient) -> None:
    adapter.always = lambda: anyio.sleep(0.01)
    memory = TurnMemory(slot)
    await memory.record(event(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(memory.aclose)
        tasks.start_soon(memory.aclose)
    assert len(adapter.rows) == 1


async def test_read_only_is_counted_as_skipped(slot: MemorySlot, adapter: Obedient) -> None:
    await slot.set_mode(AdapterMode(read_only=True))
    async with TurnMemory(slot) as memory:
        await memory.record(event(1))
        assert await memory.drain(20)
        assert memory.status()["skipped"] == 1
    assert adapter.rows == []


async def test_no_user_text_stands_in_status_or_log(
    slot: MemorySlot, adapter: Obedient, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "sk-planted-sentence"
    adapter.always = RuntimeError(secret)
    async with TurnMemory(slot) as memory:
        await memory.recall(secret, session_id="s")
        await memory.record_turn(user=secret, session_id="s")
        await memory.drain(20)
        report = f"{memory.status()} {await memory.health()}"
    assert secret not in report
    assert secret not in caplog.text
