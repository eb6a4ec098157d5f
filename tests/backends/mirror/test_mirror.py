"""The mirror: the primary answers, shadows may fail, lag or lie without harm, and nothing of that is hidden."""

import json
from functools import partial

import anyio
import pytest
from both_loops import anyio_backend as anyio_backend

from memory import (
    AdapterMode,
    BackendError,
    ConfigError,
    Deadlines,
    MemoryScope,
    MemorySlot,
    PluginError,
)
from memory.adapter.stores import OUTBOX, Outbox, SqliteStore
from memory.backends.mirror.adapter import MirrorAdapter
from memory.backends.mirror.shadow import KIND, Shadow
from memory.plugins.opening import build_slot
from memory.testing import FakeBackend, FakeNativeStore

ADA = MemoryScope(run_id="run", persona_id="ada")
PATIENT_S = 20.0
PATIENT = Deadlines(reset_s=PATIENT_S, close_s=PATIENT_S)


class Gated(FakeBackend):
    """Writes nothing while it is held."""

    def __init__(self, store):
        super().__init__(store)
        self.hold(False)

    def hold(self, held=True):
        if not held and hasattr(self, "freed"):
            self.freed.set()
        self.held, self.freed = held, anyio.Event()

    async def record_event(self, event):
        if self.held:
            await self.freed.wait()
        return await super().record_event(event)


class Pair:
    """A mirror of two fake memories, and what is in their stores."""

    def __init__(self, log, *, drain_s=PATIENT_S, deadlines=PATIENT, stores=None, **primary):
        self.ours, self.theirs = stores or (FakeNativeStore(), FakeNativeStore())
        self.log = log

        self.file = log.parent.parent / "memslot.db"
        outbox = Outbox(SqliteStore(self.file, [OUTBOX]), KIND)
        behind = Gated(self.theirs)
        self.shadow = Shadow("new", behind, outbox, log, deadlines=deadlines)
        self.hold = behind.hold
        self.adapter = MirrorAdapter(
            "mirror", FakeBackend(self.ours, **primary), [self.shadow], drain_s, deadlines, outbox
        )
        self.slot = MemorySlot(self.adapter, scope=ADA, deadlines=deadlines, store=log.parent.parent)

    async def record(self, *said, scope=ADA):
        for text in said:
            await self.slot.after_turn(user=text, session_id="s1", scope=scope)

    def texts(self, store):
        return [row.text for row in store.rows.values()]

    def lines(self, kind):
        lines = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]
        return [line for line in lines if line["kind"] == kind]

    async def delivered(self):
        """Wait until nothing waits, however often the shadow has to be tried again."""
        with anyio.fail_after(PATIENT_S):
            while not await self.shadow.drained(PATIENT_S):  # noqa: ASYNC110 (of another clock, too)
                await anyio.sleep(0.05)

    async def state(self):
        health = await self.slot.health()
        return {"status": health.status, "warnings": health.warnings, **health.details["shadows"]["new"]}


@pytest.fixture
def make(tmp_path):
    return partial(Pair, tmp_path / "log" / "shadows.jsonl")


async def test_writes_reach_both_in_order_and_answers_are_compared_without_a_word_said(make):
    pair = make()
    async with pair.slot:
        await pair.record("I like oolong.", "My cat is called Momo.")
        context = await pair.slot.before_turn("What is my cat called?", session_id="s2")
        assert await pair.shadow.drained(PATIENT_S)
    assert 'backend="mirror"' in context
    assert "Momo" in context
    assert pair.texts(pair.theirs) == pair.texts(pair.ours) == ["I like oolong.", "My cat is called Momo."]
    (line,) = pair.lines("difference")
    assert (line["primary"], line["shadow"], line["same_text"], line["same_events"]) == (1, 1, 1, 1)
    assert {call["operation"] for call in pair.lines("call")} >= {"record_event", "retrieve"}
    assert "Momo" not in pair.log.read_text(encoding="utf-8")


async def test_a_slow_shadow_delays_no_turn(make):
    pair = make()
    async with pair.slot:
        await pair.shadow.drained(PATIENT_S)
        pair.hold()
        await pair.record("one", "two", "three")
        assert "one" in await pair.slot.before_turn("one?", session_id="s2")
        assert await pair.shadow.behind()
        pair.hold(False)
        assert await pair.shadow.drained(PATIENT_S)
        assert pair.texts(pair.theirs) == ["one", "two", "three"]


async def test_a_shadow_that_lacks_a_write_is_no_fair_comparison_until_a_reset(make):
    pair = make()
    async with pair.slot:
        await pair.shadow.drained(PATIENT_S)
        assert (await pair.state())["status"] == "ok"
        pair.theirs.faults.add("422", times=1)
        await pair.record("lost", "kept")
        await pair.shadow.drained(PATIENT_S)
        assert any("set aside" in warning for warning in (await pair.state())["warnings"])
        assert (await pair.slot.reset_scope(ADA)).verified
        assert not (await pair.state())["warnings"]
        assert pair.texts(pair.theirs) == pair.texts(pair.ours) == []


async def test_a_shadow_that_never_answers_is_unavailable_and_the_mirror_is_not(make):
    pair = make(deadlines=Deadlines(health_s=4.0))
    async with pair.slot:
        await pair.shadow.drained(PATIENT_S)
        pair.theirs.faults.add("late", times=None, delay_s=60)
        state = await pair.state()
        assert state["warnings"] == ("shadow new is unavailable",)


async def test_a_reset_that_fails_in_a_shadow_is_not_verified_and_keeps_the_old_memory_apart(make):
    pair = make()
    async with pair.slot:
        await pair.record("old")
        await pair.shadow.drained(PATIENT_S)
        pair.theirs.faults.add("500", times=None)
        receipt = await pair.slot.reset_scope(ADA)
        assert not receipt.verified
        assert receipt.left == ("shadow new: BackendUnavailable",)
        assert pair.texts(pair.ours) == []
        await pair.record("while it is down")
        await pair.shadow.drained(PATIENT_S)
        pair.theirs.faults.clear()
        await pair.record("new")
        await pair.delivered()
        assert pair.texts(pair.theirs) == ["while it is down", "new"]  # reset first, then written


async def test_a_reset_comes_after_the_write_under_way_and_before_those_that_wait(make):
    pair = make()
    async with pair.slot:
        await pair.shadow.drained(PATIENT_S)
        pair.hold()
        await pair.record("one", "two")
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as tasks:

            async def reset():
                assert (await pair.slot.reset_scope(ADA)).verified

            tasks.start_soon(reset)
            await anyio.wait_all_tasks_blocked()
            pair.hold(False)
        await pair.shadow.drained(PATIENT_S)
        assert pair.texts(pair.theirs) == []


async def test_while_read_only_nothing_is_written_to_a_shadow_that_lags_and_nothing_is_lost(make):
    pair = make(drain_s=0.01)
    async with pair.slot:
        await pair.shadow.drained(PATIENT_S)
        pair.hold()
        await pair.record("one", "two", "three")
        await pair.slot.set_mode(AdapterMode(read_only=True))
        pair.hold(False)
        await pair.slot.before_turn("one?", session_id="s2")
        await anyio.wait_all_tasks_blocked()
        assert pair.texts(pair.theirs) in ([], ["one"])  # one was under way
        assert await pair.shadow.behind()
        await pair.slot.set_mode(AdapterMode(read_only=False))
        await pair.delivered()
        assert pair.texts(pair.theirs) == ["one", "two", "three"]


async def test_closing_finishes_what_waits(make):
    pair = make()
    async with pair.slot:
        pair.hold()
        await pair.record("one", "two", "three")
        assert await pair.shadow.behind()
        pair.hold(False)
    assert pair.texts(pair.theirs) == ["one", "two", "three"]


async def test_what_the_primary_refuses_is_copied_nowhere_and_what_it_may_have_is(make):
    pair = make()
    async with pair.slot:
        pair.ours.faults.add("422", times=1)
        with pytest.raises(BackendError):
            await pair.record("refused")
        pair.ours.faults.add("lost", times=1)
        await pair.record("answer lost")
        await pair.shadow.drained(PATIENT_S)
        assert pair.texts(pair.theirs) == ["answer lost"]


def config(**options):
    block = {"primary": "full_history", "shadows": ["rolling_summary"], **options}
    return {
        "memory": {
            "backend": "mirror",
            "scope": {"run_id": "r", "persona_id": "p"},
            "backends": {"mirror": block},
        }
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"primary": "full_histroy"}, ["memory.backends.mirror.primary", "did you mean full_history"]),
        ({"primary": "mirror"}, ["primary", "list all shadows in one"]),
        ({"shadows": []}, ["shadows"]),
        ({"shadows": [{"backend": "no_memory", "options": {"variant": "x"}}]}, ["shadows.0.options.variant"]),
        ({"shadows": [{"name": "no_memory"}]}, ["shadows.0"]),
        ({"drain_s": -1}, ["drain_s"]),
    ],
)
def test_bad_options_name_the_field(options, words, tmp_path):
    with pytest.raises((ConfigError, PluginError)) as raised:
        build_slot(config(**options), data_dir=tmp_path)
    assert all(word in str(raised.value) for word in words), raised.value
