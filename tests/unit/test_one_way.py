"""One way to a native call: every kind of call has its turn, its deadline, its error and its trace (DESIGN 5.8)."""

import threading

import anyio
import anyio.lowlevel
import pytest
from everything_support import ALICE, NAMES, Everything, calls, feedback
from slot_support import BOB, Lookup, Obedient, Sink, ask, event, given_up

from memory import (
    AdapterMode,
    BackendTimeout,
    Deadlines,
    InputError,
    MemoryScope,
    MemorySlot,
    ReadOnlyError,
    ScopeError,
    SupportsBulkIngest,
    SupportsFeedback,
    SupportsReadiness,
    WriteReceipt,
)
from memory.adapter import BackendProtocolError, NativeWorker, ShieldedCalls

NOTHING = "<memory-context> x </memory-context>"


async def settle():
    await anyio.wait_all_tasks_blocked()


class Busy(Everything):
    """Counts native calls at a time."""

    def __init__(self, **traits):
        super().__init__(**traits)
        self.running = self.peak = 0

    async def native(self, name):
        self.running += 1
        self.peak = max(self.peak, self.running)
        await anyio.sleep(0.002)
        self.running -= 1


@pytest.mark.parametrize("limit", [1, 3])
async def test_declared_concurrency_is_kept_by_every_kind_of_call(limit):
    adapter = Busy(max_concurrency=limit)
    async with MemorySlot(adapter, scope=ALICE) as slot:
        await slot.setup_scope(BOB)
        async with anyio.create_task_group() as group:
            for scope in (ALICE, BOB):
                for call in calls(slot, scope).values():
                    group.start_soon(call)
    assert adapter.peak == limit


class Held(Everything):
    """Holds calls of some names until they are released."""

    def __init__(self, *names, **traits):
        super().__init__(**traits)
        self.names = names
        self.release = anyio.Event()
        self.seen = []

    async def native(self, name):
        self.seen.append(name)
        if name in self.names:
            await self.release.wait()


async def test_a_deadline_starts_when_the_call_is_admitted():
    """Searches that wait longer than their deadline, for a write that may take its time."""
    adapter, waited_s = Held("record_event", max_concurrency=1), 1.5
    deadlines = Deadlines(retrieve_s=1.2)
    slot = MemorySlot(adapter, scope=ALICE, deadlines=deadlines, trace_sink=(sink := Sink()))
    async with slot, anyio.create_task_group() as group:
        group.start_soon(slot.record_event, event())
        await settle()
        for _ in range(4):
            group.start_soon(slot.retrieve, ask())
        await anyio.sleep(waited_s)
        adapter.release.set()
    assert [trace.error for trace in sink] == [None] * 6


async def test_a_bulk_write_gives_others_a_turn_between_its_pieces():
    adapter, order = Everything(max_concurrency=1, bulk_size=1), []

    async def native(name):
        order.append(name)
        await anyio.sleep(0.02)

    adapter.native = native
    async with MemorySlot(adapter, scope=ALICE, deadlines=Deadlines(retrieve_s=20)) as slot:
        await slot.setup_scope(BOB)
        order.clear()
        bulk = slot.capability(SupportsBulkIngest)
        async with anyio.create_task_group() as group:
            group.start_soon(bulk.record_events, [event(number) for number in range(8)])
            while not order:
                await anyio.lowlevel.checkpoint()
            await slot.retrieve(ask(BOB))
            assert order == ["record_events", "retrieve"] or order[:3].count("retrieve") == 1
    assert order.count("record_events") == 8


@pytest.mark.parametrize(
    ("events", "bulk_s", "deadline_s"), [(3, 60.0, 0.06), (3, 0.03, 0.03), (1, 60, 0.02)]
)
async def test_a_bulk_write_has_a_deadline_for_each_event_up_to_a_bound(events, bulk_s, deadline_s):
    adapter = Held("record_events")
    deadlines = Deadlines(write_s=0.02, bulk_s=bulk_s)
    async with MemorySlot(adapter, scope=ALICE, deadlines=deadlines) as slot:
        with pytest.raises(BackendTimeout) as raised:
            await slot.capability(SupportsBulkIngest).record_events([event(n) for n in range(events)])
    assert raised.value.diagnostics["deadline_s"] == pytest.approx(deadline_s)


async def test_a_timeout_of_the_adapters_own_is_not_called_our_deadline():
    adapter = Everything()
    adapter.next_read = [TimeoutError("socket")]
    async with MemorySlot(adapter, scope=ALICE) as slot:
        with pytest.raises(BackendTimeout) as raised:
            await slot.retrieve(ask())
    assert raised.value.diagnostics == {"exception": "TimeoutError"}
    assert "did not answer within" not in str(raised.value)
    assert str(raised.value.__cause__) == "socket"


async def attempt(call):
    try:
        return await call(), None
    except BackendProtocolError as error:
        return None, error


@pytest.mark.parametrize("name", NAMES)
async def test_every_kind_of_call_maps_and_traces_what_goes_wrong(name):
    adapter, sink = Everything(), Sink()
    async with MemorySlot(adapter, scope=ALICE, trace_sink=sink) as slot:

        async def fail(_):
            raise KeyError("secret words")

        adapter.native = fail
        answer, error = await attempt(calls(slot)[name])
        if error is not None:
            assert isinstance(error.__cause__, KeyError)
            assert sink[-1].error == "BackendProtocolError"
        else:
            assert answer.status in ("unknown", "unavailable")
            assert "KeyError" in answer.warnings[0]
        assert (sink[-1].operation, sink[-1].attempts) == (name, 1)
    assert "secret" not in "".join(trace.model_dump_json() for trace in sink)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "setup_scope"])
async def test_an_answer_of_another_type_is_an_error_of_the_adapters(name):
    """It is not the host that shall stumble over it; and a write that got this far may be stored."""
    adapter = Everything()

    async def nothing(*_):
        return None

    setattr(adapter, name, nothing)
    async with MemorySlot(adapter, scope=ALICE) as slot:
        answer, error = await attempt(calls(slot)[name])
        assert error.ambiguous if error is not None else answer.status in ("unknown", "unavailable")


async def test_refusals_of_what_was_said_or_asked_are_traced():
    adapter, sink = Everything(), Sink()
    nothing = event(text=NOTHING)
    async with MemorySlot(adapter, scope=ALICE, trace_sink=sink) as slot:
        sink.clear()
        for refused, error in (
            (lambda: slot.record_event(nothing), InputError),
            (lambda: slot.capability(SupportsBulkIngest).record_events([event(1), nothing]), InputError),
            (lambda: slot.capability(SupportsBulkIngest).record_events([event(1), event(1)]), InputError),
            (lambda: slot.capability(SupportsFeedback).apply_feedback(feedback(text=NOTHING)), InputError),
            (lambda: slot.retrieve(ask(filters={"user_id": "bob"})), ScopeError),
        ):
            with pytest.raises(error):
                await refused()
        await slot.set_mode(AdapterMode(read_only=True))
        with pytest.raises(ReadOnlyError):
            await slot.reset_scope(ALICE)
    traced = [(trace.operation, trace.error, trace.attempts) for trace in sink]
    assert traced == [
        ("record_event", "InputError", 0),
        ("record_events", "InputError", 0),
        ("record_events", "InputError", 0),
        ("apply_feedback", "InputError", 0),
        ("retrieve", "ScopeError", 0),
        ("set_mode", None, 1),
        ("reset_scope", "ReadOnlyError", 0),
    ]
    assert adapter.calls == []


@pytest.mark.parametrize("name", NAMES)
async def test_a_call_given_up_in_the_queue_says_that_nothing_was_sent(name):
    adapter, sink = Held("retrieve", max_concurrency=1), Sink()
    slot = MemorySlot(adapter, scope=ALICE, trace_sink=sink)
    async with slot, anyio.create_task_group() as group:
        await slot.setup_scope(BOB)
        group.start_soon(slot.retrieve, ask(BOB))
        await settle()
        adapter.seen.clear()
        await given_up(calls(slot)[name])
        assert adapter.seen == []
        assert (sink[-1].operation, sink[-1].attempts) == (name, 0)
        assert sink[-1].warnings == ("given up before it was sent",)
        adapter.release.set()
    assert sink[-1].error is None


class OnWorker(Lookup):
    """As of a synchronous SDK: one thread, which a call given up keeps."""

    def __init__(self):
        super().__init__()
        self.worker = NativeWorker(name="memslot-one-way")
        self.go_on = threading.Event()

    async def record_event(self, event):
        def write():
            self.rows.append(event)
            self.go_on.wait(60)

        await self.worker.run(write)
        return WriteReceipt(event_id=event.event_id, status="committed")

    async def find_event(self, event):
        raise RuntimeError("cannot be asked")

    async def aclose(self):
        self.go_on.set()
        await super(Obedient, self).aclose()


class InShield(OnWorker):
    """As of an asynchronous SDK: one write of a scope at a time, also of those given up."""

    def __init__(self):
        super().__init__()
        self.shielded = ShieldedCalls()
        self.release = anyio.Event()

    async def record_event(self, event):
        async def write():
            self.rows.append(event)
            await self.release.wait()

        await self.shielded.run(event.scope, write)
        return WriteReceipt(event_id=event.event_id, status="committed")

    async def aclose(self):
        self.release.set()
        await super().aclose()


@pytest.mark.parametrize("kind", [OnWorker, InShield])
async def test_a_write_that_waited_inside_the_adapter_was_not_sent(kind):
    """The first is given up and its call goes on; the second's deadline passes before it has begun."""
    adapter, sink = kind(), Sink()
    async with MemorySlot(adapter, scope=ALICE, trace_sink=sink) as slot:
        async with anyio.create_task_group() as group:
            group.start_soon(slot.record_event, event(1))
            while not adapter.rows:  # noqa: ASYNC110 (on the worker)
                await anyio.sleep(0.001)
            group.cancel_scope.cancel()
        assert sink[-1].warnings == ("given up after it was sent",)
        slot._calls.deadlines = Deadlines(write_s=0.3)
        with pytest.raises(BackendTimeout) as raised:
            await slot.record_event(event(2))
        assert not raised.value.ambiguous
        assert sink[-1].attempts == 0
    assert [row.event_id for row in adapter.rows] == ["e1"]


async def test_health_does_not_wait_for_ever_behind_others():
    adapter = Held("retrieve", max_concurrency=1)
    slot = MemorySlot(adapter, scope=ALICE, deadlines=Deadlines(health_s=0.02))
    async with slot, anyio.create_task_group() as group:
        group.start_soon(slot.retrieve, ask())
        await settle()
        health = await slot.health()
        assert health.status == "unavailable"
        assert "no place among other calls within 0.02 s" in health.warnings[0]
        readiness = await slot.capability(SupportsReadiness).wait_until_ready(ALICE, 0.02)
        assert readiness.state == "pending"
        with pytest.raises(BackendTimeout) as late, slot._calls.span("health", ALICE) as span:
            await slot._calls.call(span, 1.0, adapter.health, queue_timeout_s=0.02)
        assert not late.value.sent
        adapter.release.set()


async def test_a_switch_does_not_wait_for_ever_and_leaves_the_mode_as_it_was():
    adapter = Held("record_event")
    slot = MemorySlot(adapter, scope=ALICE, deadlines=Deadlines(drain_s=0.3))
    async with slot, anyio.create_task_group() as group:
        group.start_soon(slot.record_event, event(1))
        await settle()
        with pytest.raises(BackendTimeout, match=r"still under way after 0\.3 s: 1 write;") as raised:
            await slot.set_mode(AdapterMode(read_only=True))
        assert not raised.value.ambiguous
        assert not slot.read_only
        adapter.release.set()
        assert (await slot.record_event(event(2))).status == "committed"
        assert (await slot.set_mode(AdapterMode(read_only=True))).read_only


async def test_a_scope_whose_set_up_writes_nothing_may_be_set_up_read_only():
    """Looking into an existing memory without touching it."""
    async with MemorySlot(Everything(setup_writes=False)) as slot:
        await slot.set_mode(AdapterMode(read_only=True))
        await slot.setup_scope(ALICE)
        assert (await slot.retrieve(ask())).entries == ()
        assert (await slot.record_event(event())).status == "skipped_read_only"


async def test_a_scope_is_not_set_up_while_read_only():
    """Setting up may write: MemOS' canary, a tenant's key, a collection."""
    adapter, sink = Everything(), Sink()
    async with MemorySlot(adapter, scope=ALICE, trace_sink=sink) as slot:
        await slot.set_mode(AdapterMode(read_only=True))
        adapter.native = None  # is not called
        await slot.setup_scope(ALICE)
        assert (sink[-1].error, sink[-1].attempts) == (None, 0)
        with pytest.raises(ReadOnlyError, match=r"r:bob is not set up.*before set_mode"):
            await slot.setup_scope(BOB)
        assert (sink[-1].error, sink[-1].attempts) == ("ReadOnlyError", 0)
        with pytest.raises(ScopeError, match="not set up"):
            await slot.retrieve(ask(BOB))


async def test_a_scope_whose_set_up_failed_may_be_reset_and_nothing_else():
    adapter = Everything()

    async def broken(scope):
        raise RuntimeError("damaged")

    adapter.setup_scope = broken
    async with MemorySlot(adapter) as slot:
        with pytest.raises(Exception, match="setup_scope failed"):
            await slot.setup_scope(ALICE)
        with pytest.raises(ScopeError):
            await slot.retrieve(ask())
        assert (await slot.reset_scope(ALICE)).verified
        with pytest.raises(ScopeError):
            await slot.reset_scope(MemoryScope(run_id="r", persona_id="never tried"))
        del adapter.setup_scope
        await slot.setup_scope(ALICE)
        assert (await slot.retrieve(ask())).entries == ()
