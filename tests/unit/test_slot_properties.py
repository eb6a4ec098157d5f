"""Any schedule: order and mode are kept, and nothing is lost."""

import anyio
import pytest
from everything_support import ALICE
from hypothesis import given, settings
from hypothesis import strategies as st
from slot_support import BOB, Obedient, event
from variants import examples, plain

from memory import AdapterMode, MemorySlot, WriteReceipt

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from([ALICE, BOB])),
        st.tuples(st.just("switch"), st.booleans()),
        st.tuples(st.just("answer"), st.integers(1, 3)),
        st.tuples(st.just("give up"), st.integers(0, 20)),
    ),
    max_size=25,
)


class Slow(Obedient):
    """Answers writes when told to, and remembers which mode it was in when one began or ended."""

    def __init__(self):
        super().__init__()
        self.answers = anyio.Semaphore(0)
        self.read_only = False
        self.begun, self.done = [], []
        self.breaches = 0

    async def set_mode(self, mode):
        self.read_only = mode.read_only
        return await super().set_mode(mode)

    async def record_event(self, event):
        self.breaches += self.read_only
        self.begun.append(event.event_id)
        await self.answers.acquire()
        self.breaches += self.read_only
        self.done.append(event)
        return await super().record_event(event)


# On asyncio, anyio polls for a blocked task.
@pytest.mark.parametrize("loop", plain("trio", of=["asyncio", "trio"]))
@settings(max_examples=examples(100))
@given(steps=STEPS)
def test_any_schedule_keeps_order_and_mode(loop, steps):
    anyio.run(play, steps, backend=loop)


async def play(steps):
    adapter, receipts, tasks = Slow(), {}, []

    async def task(scope, call, *arguments):
        with scope:
            answer = await call(*arguments)
            if isinstance(answer, WriteReceipt):
                receipts[answer.event_id] = answer.status

    slot = MemorySlot(adapter, scope=ALICE)
    async with slot:
        await slot.setup_scope(BOB)
        written = {}
        async with anyio.create_task_group() as group:
            for number, (what, which) in enumerate(steps):
                scope = anyio.CancelScope()
                if what == "write":
                    sent = event(number, which)
                    written[sent.event_id] = sent, scope
                    group.start_soon(task, scope, slot.record_event, sent)
                elif what == "switch":
                    group.start_soon(task, scope, slot.set_mode, AdapterMode(read_only=which))
                elif what == "answer":
                    for _ in range(which):
                        adapter.answers.release()
                elif tasks:
                    tasks[which % len(tasks)].cancel()
                if what in ("write", "switch"):
                    tasks.append(scope)
                await anyio.wait_all_tasks_blocked()
            for _ in steps:
                adapter.answers.release()
        assert adapter.breaches == 0, "a write began or ended while read-only"
        for sent, scope in written.values():
            status = receipts.get(sent.event_id)
            assert status in ("committed", "skipped_read_only") or scope.cancel_called
            assert (status == "committed") <= (sent in adapter.done)
            assert (status == "skipped_read_only") <= (sent.event_id not in adapter.begun)
        for scope in (ALICE, BOB):
            begun = [written[event_id][0] for event_id in adapter.begun]
            numbers = [int(sent.turn_id) for sent in begun if sent.scope == scope]
            assert numbers == sorted(numbers)
        health = await slot.health()
        assert health.details["slot"]["writes_in_flight"] == 0
