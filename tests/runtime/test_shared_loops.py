"""One failure ends no loop that others share: every exception class, thrown into every loop by one item."""

import asyncio
import builtins
import json
import logging
from importlib.metadata import EntryPoint

import anyio
import pytest
from signet_support import BASE, daemon

from conditions.full_history import FullHistory
from memory import Deadlines, MemoryScope, MemorySlot
from memory.adapter.stores import OUTBOX, Outbox, SqliteStore
from memory.contract import errors
from memory.plugins.registry import MemoryAdapterRegistry
from memory.runtime import (
    AgentSession,
    Failures,
    HookQueue,
    ToolCall,
    ToolRegistry,
    TurnMemory,
    TurnPolicy,
    UserTurn,
    open_shared,
)
from memory.runtime.providers.scripted import ScriptedProvider
from memory.slot.background import Background
from memory.storage.insert import insert
from memory.testing import FakeBackend


def _made(kind):
    if issubclass(kind, BaseExceptionGroup):
        return kind("several", [ValueError("secret")])
    if issubclass(kind, UnicodeDecodeError):
        return kind("utf-8", b"\xff", 0, 1, "secret")
    if issubclass(kind, UnicodeEncodeError):
        return kind("utf-8", "\ud800", 0, 1, "secret")
    if issubclass(kind, UnicodeTranslateError):
        return kind("\ud800", 0, 1, "secret")
    return kind("secret")


BUILT_IN = [
    kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)
]
OURS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
KINDS = list(dict.fromkeys([*BUILT_IN, *OURS, asyncio.CancelledError]))
THROWN = [_made(kind) for kind in KINDS]


class Throwing(FakeBackend):
    """Throws what it is told to, in every call; without that it remembers."""

    thrown: BaseException | None = None

    def _throw(self):
        if self.thrown is not None:
            raise self.thrown

    async def retrieve(self, request):
        self._throw()
        return await super().retrieve(request)

    async def record_event(self, event):
        self._throw()
        return await super().record_event(event)

    async def health(self):
        self._throw()
        return await super().health()


def test_there_are_sixty_classes_and_more():
    assert len(KINDS) >= 60
    assert {SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError} <= set(KINDS)


@pytest.mark.parametrize("thrown", THROWN, ids=[kind.__name__ for kind in KINDS])
async def test_a_loop_names_and_counts_the_failed_item_and_goes_on(thrown, caplog):
    done, failures = [], Failures("the loop", logging.getLogger("memslot.test"))
    for item in range(3):
        with failures.survived(f"item {item}"):
            if item == 1:
                raise thrown
            done.append(item)
    assert (done, failures.count) == ([0, 2], 1)
    assert "item 1" in str(failures.last)
    if type(thrown).__module__ != errors.__name__:
        assert "secret" not in caplog.text


async def test_the_cancellation_of_the_loop_itself_passes():
    failures = Failures("the loop", logging.getLogger("memslot.test"))
    with anyio.move_on_after(0.01) as scope:
        with failures.survived("an item"):
            await anyio.sleep_forever()
        pytest.fail("the loop went on")
    assert scope.cancelled_caught
    assert failures.count == 0


@pytest.mark.thorough
async def test_the_server_answers_on_whatever_its_memory_throws():
    backend = Throwing()
    async with daemon(backend, TurnPolicy(open_after=10_000, drain_s=1)) as signet:
        for number, thrown in enumerate(THROWN):
            backend.thrown = thrown
            for path, body in (
                ("/api/hooks/user-prompt-submit", {"harness": "t", "userMessage": "tea", "sessionKey": "s"}),
                ("/api/memory/recall", {"query": "tea"}),
                ("/api/memory/remember", {"content": f"note {number}"}),
                ("/api/hooks/session-end", {"harness": "t", "transcript": "User: hello"}),
            ):
                status, answer = await signet.post(path, body)
                assert status < 600
                assert "secret" not in str(answer) or isinstance(thrown, errors.MemslotError)
            await signet.send("GET", "/health/ready")
        backend.thrown = None
        status, answer = await signet.post("/api/memory/remember", {"content": "I like oolong."})
        assert status == 200, answer
        assert (await signet.post("/api/memory/recall", {"query": "oolong"}))[1]["results"]


async def test_tools_and_background_tasks_go_on_whatever_one_throws():
    class Tool:
        name, description, input_schema = "throw", "", {"type": "object"}
        run_before_generation = False

        async def execute(self, given, context):
            raise thrown

    tools, background = ToolRegistry([Tool()]), Background()
    context = None
    for thrown in THROWN:
        result = await tools.execute(ToolCall(id="1", name="throw", arguments={}), context)
        assert result.is_error

        async def work(thrown=thrown):
            raise thrown

        background.start(work)
    with anyio.fail_after(20):
        while background.failures.count < len(THROWN):  # noqa: ASYNC110
            await anyio.sleep(0.01)


@pytest.mark.thorough
async def test_a_conversation_goes_on_whatever_its_model_throws():
    class Model(ScriptedProvider):
        thrown: BaseException | None = None

        async def stream(self, conversation, options=None):
            if self.thrown is not None:
                raise self.thrown
            async for chunk in super().stream(conversation, options):
                yield chunk

    model = Model()
    async with MemorySlot(FakeBackend(), scope=BASE) as slot, TurnMemory(slot) as memory:
        conversation = AgentSession(model, memory, scope=BASE)

        async def shown(output):
            await anyio.lowlevel.checkpoint()

        for thrown in THROWN:
            model.thrown = thrown
            with anyio.fail_after(20):
                assert (await conversation.turn(UserTurn(content="hello"), shown)).output.error
        model.thrown = None
        assert not (await conversation.turn(UserTurn(content="hello"), shown)).output.error


def test_a_listing_goes_on_whatever_the_import_of_one_plugin_throws(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    points = []
    for number in range(len(THROWN)):
        file = tmp_path / f"throwing_{number}.py"
        file.write_text(f"import test_shared_loops\nraise test_shared_loops.THROWN[{number}]\n", "utf-8")
        points.append(EntryPoint(f"throwing-{number}", file.stem, "memslot.backends"))
    rows = MemoryAdapterRegistry(points).rows()
    assert len(rows) == len(THROWN)
    assert [row.name for row in rows if not row.error] == []
    assert {row.name for row in rows} == {point.name for point in points}


async def test_a_shadow_is_written_on_whatever_its_memory_of_one_person_throws(tmp_path):
    class Picky(FakeBackend):
        async def record_event(self, event):
            if (persona := event.scope.persona_id).isdigit():
                raise THROWN[int(persona)]
            return await super().record_event(event)

    mirror = pytest.importorskip("memory.backends.mirror.adapter")
    shadows = pytest.importorskip("memory.backends.mirror.shadow")
    outbox = Outbox(SqliteStore(tmp_path / "memslot.db", [OUTBOX]), shadows.KIND)
    behind, deadlines = Picky(), Deadlines(close_s=1.0)
    shadow = shadows.Shadow("new", behind, outbox, None, deadlines=deadlines)
    adapter = mirror.MirrorAdapter("mirror", FakeBackend(), [shadow], 1.0, deadlines, outbox)
    async with MemorySlot(adapter, deadlines=deadlines, store=tmp_path) as slot:
        for person in [*map(str, range(len(THROWN))), "ada"]:
            scope = MemoryScope(run_id="r", persona_id=person)
            await slot.for_scope(scope).after_turn(session_id="s", user=f"Tea of {person}.")
        with anyio.fail_after(30):
            while "Tea of ada." not in [row.text for row in behind.store.rows.values()]:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        health = await slot.health()
        assert health.details["shadows"]["new"]["failed"] or "set aside" in str(health.warnings)


@pytest.mark.thorough
async def test_the_hooks_record_on_whatever_one_turn_throws(tmp_path):
    for number in range(len(THROWN)):
        put = {"host": "codex", "session_id": f"s{number}", "text": "Q", "turn": f"t{number}", "at": 1.7e9}
        for did in ("prompt", "end"):
            row = json.dumps({**put, "did": did})
            insert(tmp_path / "memslot.db", "hook", f"{number}{did}", row, scope=f"s{number}")
    failures = Failures("hooks", logging.getLogger("memslot.test"))
    with HookQueue(tmp_path) as queue:

        async def record(turn):
            raise THROWN[int(turn.rows[0].session_id.removeprefix("s"))]

        await queue.drain(record, failures.note)
        assert failures.count == len(THROWN)
        # What the backend may take later waits; everything else is set aside.
        assert 0 < await queue.left() < 2 * len(THROWN)


async def test_a_turn_whose_recorder_died_over_it_is_known_to_have_been_attempted(tmp_path):
    for did in ("prompt", "end"):
        row = {"host": "codex", "session_id": "s", "text": "Q", "turn": "t", "at": 1.7e9, "did": did}
        insert(tmp_path / "memslot.db", "hook", did, json.dumps(row), scope="s")
    attempted = []
    failures = Failures("hooks", logging.getLogger("memslot.test"))
    for _ in range(2):
        with HookQueue(tmp_path) as queue, anyio.CancelScope() as scope:

            async def killed(turn, scope=scope):
                attempted.append(turn.attempted)
                scope.cancel()
                await anyio.sleep_forever()
                return None

            await queue.drain(killed, failures.note)
    assert attempted == [False, True]


async def test_turns_are_delivered_on_whatever_the_memory_of_one_person_throws(tmp_path):
    class Picky(FakeBackend):
        async def record_event(self, event):
            if (persona := event.scope.persona_id).isdigit():
                raise THROWN[int(persona)]
            return await super().record_event(event)

    backend = Picky()
    async with MemorySlot(backend, store=tmp_path) as slot, TurnMemory(slot, TurnPolicy(drain_s=0)) as memory:
        for person in [*map(str, range(len(THROWN))), "ada"]:
            scope = MemoryScope(run_id="r", persona_id=person)
            assert await memory.record_turn(session_id="s", scope=scope, user=f"Tea of {person}.")
        with anyio.fail_after(30):
            while not (await slot.for_scope(scope).before_turn("tea", session_id="q")):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert memory.status()["recorded"] == len(THROWN) + 1
        assert slot.delivery.waiting() > 0, "the others are tried again later"


async def test_an_owner_answers_on_whatever_a_call_throws(tmp_path):
    given = {"memory": {"condition": "full_history", "scope": dict(BASE), "data_dir": str(tmp_path)}}
    async with open_shared(given) as first, open_shared(given) as second:
        await first.after_turn(user="My bike is red.", session_id="s")
        retrieve = FullHistory.retrieve
        try:
            for thrown in THROWN:

                async def throw(self, request, thrown=thrown):
                    raise thrown

                FullHistory.retrieve = throw
                with pytest.raises(errors.MemslotError):
                    await second.before_turn("bike", session_id="q")
        finally:
            FullHistory.retrieve = retrieve
        assert "red" in await second.before_turn("bike", session_id="q")
