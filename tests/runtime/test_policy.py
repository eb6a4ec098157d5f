"""How a host lives with a memory that is slow, failing or hanging: no turn is lost to it, and no event either."""

import time

import anyio
import pytest
from both_loops import anyio_backend as anyio_backend
from journals import open_journal
from slot_support import Obedient, Sink, forever, until
from turn_support import ADA, BOB, event

from memory import (
    AdapterMode,
    BackendTimeout,
    BackendUnavailable,
    Deadlines,
    InputError,
    MemoryScope,
    MemorySlot,
    ScopeError,
)
from memory.contract.errors import BackendRejected, LifecycleError, StoreError
from memory.runtime import TurnMemory, TurnPolicy
from memory.runtime import _circuit as circuit
from memory.runtime import _writing as writing
from memory.storage import outbox

DOWN = ConnectionRefusedError("down")


@pytest.fixture
def adapter():
    obedient = Obedient()
    obedient.names_sessions = True
    return obedient


@pytest.fixture
def sink():
    return Sink()


@pytest.fixture
async def slot(adapter, sink):
    limits = Deadlines(write_s=20, retrieve_s=20, close_s=0.2)
    async with MemorySlot(adapter, scope=ADA, deadlines=limits, trace_sink=sink) as opened:
        sink.clear()
        yield opened


class Finds(Obedient):
    """Can be asked which events it has."""

    async def find_event(self, event):
        return (event.event_id,) if event.event_id in ids(self) else None


def ids(adapter, scope=None):
    return [row.event_id for row in adapter.rows if scope in (None, row.scope)]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(writing, "_LOOK_S", 0.02)


class Refused(BackendRejected):
    def __init__(self):
        super().__init__("refused")


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now

    perf_counter = time.perf_counter


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(circuit, "time", clock)
    return clock


async def test_recalled_context_alone_is_nothing_to_record_and_no_failure(slot):
    section = '<memory-context backend="fake" scope="r:ada">\n- tea\n</memory-context>'
    async with TurnMemory(slot, TurnPolicy(on_failure="raise")) as memory:
        assert not await memory.record_turn(session_id="s", user=section)
        assert await memory.record_turn(session_id="s", user=f"{section} And tea?")
    assert (memory.status()["recorded"], memory.status()["not_recorded"]) == (1, 0)


async def test_a_turn_is_recorded_and_recalled(slot):
    async with TurnMemory(slot) as memory:
        assert await memory.record_turn(user="I like oolong.", assistant="Noted.", session_id="s1")
        assert await memory.drain(20)
        recall = await memory.recall("Which tea?", session_id="s2")
        assert "oolong" in recall.section
        assert recall.failure is None
        assert recall.trace is not None
        assert memory.status()["recorded"] == 1


@pytest.mark.parametrize("deaf", [False, True])
async def test_recall_ends_at_its_deadline_whatever_the_memory_does(slot, adapter, sink, deaf):
    gate = anyio.Event()

    async def hang():
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


async def test_empty_and_failed_do_not_look_alike(slot, adapter):
    async with TurnMemory(slot) as memory:
        nothing = await memory.recall("tea?", session_id="s")
        adapter.next_read = [DOWN]
        failed = await memory.recall("tea?", session_id="s")
    assert nothing.section == failed.section == ""
    assert nothing.failure is None
    assert nothing.result is not None
    assert isinstance(failed.failure, BackendUnavailable)


async def test_raise_passes_the_failure_on(slot, adapter):
    adapter.next_read = [DOWN, forever]
    async with TurnMemory(slot, TurnPolicy(on_failure="raise", recall_s=20)) as memory:
        with pytest.raises(BackendUnavailable):
            await memory.recall("tea?", session_id="s")
        memory.policy = TurnPolicy(on_failure="raise", recall_s=0.3)
        with pytest.raises(BackendTimeout):
            await memory.recall("tea?", session_id="s")


async def test_a_hosts_own_mistake_costs_no_turn_and_opens_no_circuit(slot):
    async with TurnMemory(slot, TurnPolicy(open_after=1)) as memory:
        assert isinstance((await memory.recall("tea?", session_id="")).failure, InputError)
        assert isinstance((await memory.recall(None, session_id="s")).failure, InputError)
        assert isinstance((await memory.recall("a\ud800", session_id="s")).failure, InputError)
        assert memory.status()["recall_circuit"] == "closed"
    async with MemorySlot(Obedient()) as bare, TurnMemory(bare) as memory:
        assert isinstance((await memory.recall("tea?", session_id="s")).failure, ScopeError)


async def test_of_nothing_nothing_is_asked(slot, adapter):
    async with TurnMemory(slot) as memory:
        for said in ("", " \n", '<memory-context backend="x">old</memory-context>'):
            recall = await memory.recall(said, session_id="s")
            assert (recall.section, recall.failure) == ("", None)
    assert adapter.asked == 0


async def test_a_cancelled_turn_gives_its_recall_up(slot, adapter, sink):
    adapter.next_read = [forever]
    async with TurnMemory(slot, TurnPolicy(recall_s=20, open_after=1)) as memory:
        async with anyio.create_task_group() as turn:
            turn.start_soon(lambda: memory.recall("tea?", session_id="s"))
            await until(lambda: adapter.asked == 1)
            turn.cancel_scope.cancel()
        await until(lambda: any(trace.operation == "retrieve" for trace in sink))
        assert memory.status()["recall_circuit"] == "closed"
        assert (await memory.recall("tea?", session_id="s")).failure is None


async def test_a_new_persons_set_up_goes_on_after_the_deadline(slot, adapter):
    gate = anyio.Event()
    adapter.next_setup = [gate.wait]
    async with TurnMemory(slot, TurnPolicy(recall_s=0.3)) as memory:
        assert isinstance((await memory.recall("tea?", session_id="s", scope=BOB)).failure, BackendTimeout)
        gate.set()
        memory.policy = TurnPolicy(recall_s=20)
        await until(lambda: adapter.set_up == ["ada", "bob"])
        assert (await memory.recall("tea?", session_id="s", scope=BOB)).failure is None
    assert adapter.asked == 1


async def test_new_scopes_that_take_their_time_keep_nobody_from_recall(slot, adapter):
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
        gate.set()


async def test_a_memory_with_nothing_to_say_is_as_well_as_its_slot(slot):
    async with TurnMemory(slot) as memory:
        health = await memory.health()
    assert (health.status, health.warnings) == ("ok", ())


async def test_after_failures_in_a_row_the_memory_is_left_alone(slot, adapter, clock, caplog):
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


async def test_a_half_open_circuit_lets_one_through(slot, adapter, clock):
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


async def test_what_is_refused_says_nothing_of_the_next(slot, adapter):
    adapter.always = Refused()
    async with TurnMemory(slot, TurnPolicy(open_after=2)) as memory:
        for _ in range(4):
            await memory.recall("tea?", session_id="s")
        assert adapter.asked == 4
        assert memory.status()["recall_circuit"] == "closed"


async def test_a_failure_between_successes_opens_nothing(slot, adapter):
    adapter.next_read = [DOWN, None, DOWN, None, DOWN]
    async with TurnMemory(slot, TurnPolicy(open_after=2)) as memory:
        for _ in range(5):
            await memory.recall("tea?", session_id="s")
        assert memory.status()["recall_circuit"] == "closed"
        assert memory.status()["recalls_failed"] == 3


async def test_a_write_delays_nobody_and_is_drained_on_closing(slot, adapter):
    gate = anyio.Event()
    adapter.next_write = [gate.wait]
    async with TurnMemory(slot) as memory:
        for number in range(20):
            assert await memory.record(event(number))
        assert memory.status()["waiting"] == 20
        assert adapter.rows == []
        assert await memory.record(event(20, BOB))
        await until(lambda: ids(adapter) == ["e20"])  # a slow write of one person delays no other
        gate.set()
    assert ids(adapter, ADA) == [f"e{number}" for number in range(20)]
    assert memory.status()["recorded"] == 21


async def test_an_event_handed_over_twice_is_written_once(slot, adapter):
    async with TurnMemory(slot) as memory:
        assert await memory.record(event(1))
        assert not await memory.record(event(1))
        await memory.drain(20)
        assert not await memory.record(event(1))
        assert await memory.record(event(1, BOB))  # another memory's
    assert sorted(row.scope.persona_id for row in adapter.rows) == ["ada", "bob"]


@pytest.mark.parametrize("on_failure", ["empty", "raise"])
async def test_a_refused_event_is_set_aside_and_holds_up_no_other(slot, adapter, on_failure):
    adapter.next_write = [Refused()]
    async with TurnMemory(slot, TurnPolicy.model_validate({"on_failure": on_failure})) as memory:
        await memory.record(event(1))
        await memory.record(event(2))
        assert await memory.drain(20)
        assert ids(adapter) == ["e2"]
        health = await memory.health()
        assert health.status == "degraded"
        assert "1 entry is set aside (the first is number 1)" in str(health.warnings)
        if on_failure == "raise":
            with pytest.raises(BackendRejected, match="refused for good"):
                await memory.record(event(1))
        else:
            assert not await memory.record(event(1))
        assert memory.status()["not_recorded"] == 1


@pytest.mark.parametrize("closes", [False, True])
async def test_what_waits_when_its_scope_is_reset_is_erased_with_the_rest(adapter, tmp_path, closes):
    adapter.next_write = [DOWN] * 1000
    async with MemorySlot(adapter, scope=ADA, store=tmp_path) as slot, TurnMemory(slot) as memory:
        await memory.record(event(1))
        await memory.record(event(2))
        await memory.record(event(3, BOB))
        await until(lambda: {"e1", "e3"} <= set(adapter.calls))
        await slot.reset_scope(ADA)
        assert b"fact 1" not in (tmp_path / "memslot.db").read_bytes()
        if not closes:
            adapter.next_write.clear()
            await until(lambda: ids(adapter) == ["e3"])
            assert await memory.record(event(1)), "it is not there any more"
            await until(lambda: ids(adapter) == ["e3", "e1"])
    adapter.next_write.clear()
    async with MemorySlot(adapter, store=tmp_path) as slot, TurnMemory(slot) as memory:
        await until(lambda: ids(adapter) == (["e3"] if closes else ["e3", "e1"]))
        assert memory.status()["waiting"] == 0


@pytest.mark.parametrize("on_failure", ["empty", "raise"])
async def test_an_event_that_cannot_be_kept_is_not_acknowledged(adapter, tmp_path, on_failure):
    troubles = []
    (tmp_path / "memslot.db").write_bytes(b"not a database, but longer than a header" * 50)
    slot = MemorySlot(adapter, store=tmp_path)
    policy = TurnPolicy.model_validate({"on_failure": on_failure})
    async with slot, TurnMemory(slot, policy, on_trouble=lambda *told: troubles.append(told)) as memory:
        if on_failure == "raise":
            with pytest.raises(StoreError, match=r"memslot\.db"):
                await memory.record(event(1))
        else:
            assert not await memory.record(event(1))
        assert [what for what, _ in troubles] == ["write"]
        assert memory.status()["not_recorded"] == 1
        assert (await memory.health()).status == "degraded"
    assert adapter.rows == []


@pytest.mark.parametrize("hangs", [True, False])
async def test_closing_ends_whatever_the_memory_does_and_says_what_was_lost(slot, adapter, caplog, hangs):
    """Nothing outlives this slot, which has no store: closing waits for the pause after a failed attempt."""
    adapter.always = forever if hangs else None
    adapter.next_write = [] if hangs else [DOWN]
    memory = TurnMemory(slot, TurnPolicy(drain_s=0.05 if hangs else 20))
    for number in range(3):
        await memory.record(event(number))
    with anyio.fail_after(60):
        await memory.aclose()
        await memory.aclose()
    lost = 3 if hangs else 0
    assert memory.status()["not_recorded"] == lost
    assert ("3 events are lost" in caplog.text) == hangs
    assert len(adapter.rows) == 3 - lost
    with pytest.raises(LifecycleError):
        await memory.record(event(9))


async def test_what_was_not_sent_is_delivered_by_the_next_start_and_by_no_later_one(tmp_path):
    for handed_over in (4, 0):
        hangs = Finds()
        hangs.next_write = [forever] * 9
        async with MemorySlot(hangs, scope=ADA, store=tmp_path, deadlines=Deadlines(write_s=0.1)) as slot:
            async with TurnMemory(slot, TurnPolicy(drain_s=0.05)) as memory:
                for number in range(handed_over):
                    assert await memory.record(event(number))
            assert memory.status()["left_for_next_start"] == 4
    backend = Finds()
    backend.rows = [event(0)]  # although its answer was lost
    backend.next_write = [Refused()]
    async with MemorySlot(backend, scope=ADA, store=tmp_path) as slot, TurnMemory(slot) as memory:
        assert await memory.drain(20)
        assert not await memory.record(event(3)), "it was handed over before"
    assert ids(backend) == ["e0", "e2", "e3"], "e1 was refused"
    backend.rows.clear()
    async with MemorySlot(backend, scope=ADA, store=tmp_path) as slot, TurnMemory(slot) as memory:
        assert await memory.drain(20)
    assert backend.rows == []


async def test_with_a_store_closing_waits_for_no_pause(adapter, tmp_path):
    async with MemorySlot(adapter, scope=ADA, journal=open_journal(tmp_path)) as slot:
        memory = TurnMemory(slot, TurnPolicy(drain_s=1000))
        adapter.next_write = [DOWN] * 10_000
        assert await memory.record(event(3))
        assert not await memory.drain(0.1)
        with anyio.fail_after(20):
            await memory.aclose()
        assert memory.status()["left_for_next_start"] == 1


async def test_closing_goes_on_when_the_host_is_cancelled(slot, adapter):
    """The writers are nobody's children: what ends the host does not end them half-way."""
    adapter.always = lambda: anyio.sleep(0.01)
    async with anyio.create_task_group() as tasks:

        async def host():
            async with TurnMemory(slot) as memory:
                for number in range(5):
                    await memory.record(event(number))
                tasks.cancel_scope.cancel()
                await anyio.sleep_forever()

        tasks.start_soon(host)
    assert ids(adapter) == [f"e{number}" for number in range(5)]


async def test_read_only_is_counted_as_skipped(slot, adapter):
    await slot.set_mode(AdapterMode(read_only=True))
    async with TurnMemory(slot) as memory:
        assert not await memory.record(event(1))
        assert await memory.drain(20)
        assert memory.status()["skipped"] == 1
    assert adapter.rows == []


async def test_no_user_text_stands_in_status_or_log(slot, adapter, caplog):
    secret = "sk-planted-sentence"
    adapter.always = RuntimeError(secret)
    async with TurnMemory(slot, TurnPolicy(drain_s=0)) as memory:
        await memory.recall(secret, session_id="s")
        await memory.record_turn(user=secret, session_id="s")
        await until(lambda: memory.status()["last_failure"])
        report = f"{memory.status()} {await memory.health()}"
    assert secret not in report
    assert secret not in caplog.text


async def test_an_id_that_is_used_for_other_words_is_logged_and_counted(adapter, tmp_path, caplog):
    async with (
        MemorySlot(adapter, scope=ADA, journal=open_journal(tmp_path)) as slot,
        TurnMemory(slot) as memory,
    ):
        assert await memory.record_turn(session_id="s", user="I like tea.", event_id="e")
        assert not await memory.record_turn(session_id="s", user="I like mate.", event_id="e")
        assert memory.status()["not_recorded"] == 1
    assert "an event was not recorded: event_id 'e' stands in the journal for other messages" in caplog.text
