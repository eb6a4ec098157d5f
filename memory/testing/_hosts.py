"""What every binding of an agent framework promises, as tests to subclass; played on its real SDK.

    class TestMine(HostContract):
        cannot = {"stream": "the SDK does not stream"}

        def turn_memory(self, slot, **options):
            return TurnMemory(slot, **options)

        def host(self, memory, model):
            return MyAgent(memory, model)        # a HostUnderTest

A promise that the SDK makes impossible is named in ``cannot`` with the reason; its test is left out with that
reason, and the level of the class says so.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import anyio
import pytest

from memory import AdapterMode, MemoryScope, MemorySlot, open_memory
from memory.testing._conformance import KEY, not_declared, register
from memory.testing._fake_backend import FakeBackend
from memory.testing._fake_store import FakeNativeStore

FENCE = "<memory-context"
LIKES, ASKS = "I like oolong tea.", "Which tea do I like?"
THOUGHT, TOOL_RESULT, PICTURE = "Private reasoning zqthought.", "It is noon zqtool.", "cXpwaWN0dXJl"


def person(name: str) -> MemoryScope:
    """The scope of a person of the suite."""
    return MemoryScope(run_id="app", persona_id=name)


class ModelDown(Exception):
    """What the scripted model raises where a test wants a model that fails."""


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """What the model says: a thought, and then text, or a call of the tool ``clock``."""

    text: str
    thought: str = THOUGHT
    calls_tool: bool = False


class HostModel:
    """The language model of a host under test. The host's real model class asks it at every call.

    Attributes:
        shown: the prompt of each call, as text.
        uses_tool: whether it calls the tool ``clock`` once in every turn.
        fails: how many of the next calls fail.
        holds: whether calls wait until the test cancels them.
        held: set when a call waits.
    """

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.uses_tool = False
        self.fails = 0
        self.holds = False
        self.held = threading.Event()
        self._lock = threading.Lock()
        self._said = 0

    def call(self, prompt: str, *, after_tool: bool = False) -> ModelTurn:
        """One call of the model.

        Args:
            prompt: everything the SDK sends, as text.
            after_tool: the last message is the tool's result.

        Raises:
            ModelDown: a test wants it.
        """
        with self._lock:
            self.shown.append(prompt)
            if self.fails:
                self.fails -= 1
                raise ModelDown("the model is down")
            if self.uses_tool and not after_tool:
                return ModelTurn("", calls_tool=True)
            self._said += 1
            return ModelTurn(f"Answer {self._said}.")

    async def acall(self, prompt: str, *, after_tool: bool = False) -> ModelTurn:
        """As :meth:`call`; waits for ever where ``holds``."""
        if self.holds:
            self.held.set()
            await anyio.sleep_forever()
        return self.call(prompt, after_tool=after_tool)


class HostUnderTest(ABC):
    """An agent of the host, bound to a memory, with a tool ``clock`` that answers :data:`TOOL_RESULT`."""

    @abstractmethod
    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        """One turn, awaited; the answer. ``picture`` adds :data:`PICTURE` to what is said."""

    async def stream(self, said: str, *, conversation: str = "one") -> str:
        """As :meth:`ask`, streamed to its end."""
        raise NotImplementedError

    def ask_blocking(self, said: str, *, conversation: str = "one") -> str:
        """As :meth:`ask`, by the SDK's call that is not awaited."""
        raise NotImplementedError

    async def kept(self, conversation: str) -> str:
        """Everything the host itself keeps of a conversation, as text."""
        raise NotImplementedError

    async def flush(self) -> None:  # noqa: B027 - most do nothing behind it
        """Wait for what the SDK does behind the answer."""

    async def bind_again(self) -> None:
        """Give an agent a second memory, and use it where only that shows; must raise."""
        raise NotImplementedError

    async def aclose(self) -> None:  # noqa: B027
        """Let the agent go."""


class Stage:
    """A memory over a fake backend, the host on it, and what came of it.

    Attributes:
        store: the backend's, whose faults may be set.
        troubles: what ``on_trouble`` was told.
    """

    def __init__(self, store: FakeNativeStore, slot: MemorySlot, memory: Any, host: HostUnderTest) -> None:
        self.store = store
        self.slot = slot
        self.memory = memory
        self.host = host
        self.troubles: list[tuple[str, str]] = []

    async def recorded(self) -> list[str]:
        """The texts that are stored, in order, after everything on its way has arrived."""
        await self.host.flush()
        assert await self.memory.drain(20)
        return [row.text for row in self.store.rows.values()]


class HostContract(ABC):
    """The promises of a binding.

    Class attributes:
        cannot: names of promises that the SDK makes impossible, each with the reason.
        after_failure: what is recorded of a turn that failed or was cancelled: ``nothing`` or ``question``.
    """

    pytestmark = pytest.mark.anyio
    cannot: ClassVar[Mapping[str, str]] = {}
    after_failure: ClassVar[str] = "nothing"

    @abstractmethod
    def turn_memory(self, slot: MemorySlot, **options: Any) -> Any:
        """A ``TurnMemory`` over the slot; ``options`` are those of ``TurnPolicy``, and ``on_trouble``."""

    @abstractmethod
    def host(self, memory: Any, model: HostModel) -> HostUnderTest:
        """An agent of the SDK, bound to ``memory``, which asks ``model``; it serves every conversation."""

    # -- what the tests work with -------------------------------------------------------------------------

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture(autouse=True)
    def _promise(self, request: pytest.FixtureRequest) -> None:
        register(request.config)
        name = request.node.originalname.removeprefix("test_")
        promises = [name for name in dir(type(self)) if name.startswith("test_")]
        request.node.user_properties.append((KEY, f"{type(self).__name__}|host|{name}|{len(promises)}"))
        if name in self.cannot:
            not_declared(self.cannot[name])

    @asynccontextmanager
    async def on_stage(
        self, model: HostModel, store: FakeNativeStore | None = None, **policy: Any
    ) -> AsyncIterator[Stage]:
        store = store or FakeNativeStore()
        troubles: list[tuple[str, str]] = []
        async with MemorySlot(FakeBackend(store), scope=person("ada")) as slot:
            given = {"recall_s": 20.0, **policy}
            async with self.turn_memory(
                slot, on_trouble=lambda *words: troubles.append(words), **given
            ) as memory:
                stage = Stage(store, slot, memory, self.host(memory, model))
                stage.troubles = troubles
                try:
                    yield stage
                finally:
                    await stage.host.aclose()
                    store.faults.clear()

    # -- recall -------------------------------------------------------------------------------------------

    async def test_remembers_across_conversations(self) -> None:
        """Recalled before the model, shown to it, and kept in no history of the host."""
        model = HostModel()
        async with self.on_stage(model) as stage:
            await stage.host.ask(LIKES, conversation="one")
            assert await stage.recorded() == [LIKES, "Answer 1."]
            await stage.host.ask(ASKS, conversation="two")
            assert LIKES in model.shown[-1]
            await stage.host.ask("Thanks.", conversation="two")
            assert model.shown[-1].count(LIKES) <= 1

    async def test_keeps_no_section(self) -> None:
        """What was recalled stays out of the host's history, state and files, and out of the memory itself."""
        async with self.on_stage(HostModel()) as stage:
            await stage.host.ask(LIKES, conversation="one")
            await stage.recorded()
            await stage.host.ask(ASKS, conversation="two")
            texts = await stage.recorded()
            assert texts.count(LIKES) == 1
            assert not [text for text in texts if FENCE in text]
            kept = await stage.host.kept("two")
            assert ASKS in kept
            assert FENCE not in kept
            assert LIKES not in kept

    async def test_recalls_once_a_turn(self) -> None:
        """However often the model is called in it."""
        model = HostModel()
        model.uses_tool = True
        async with self.on_stage(model) as stage:
            await stage.host.ask(LIKES)
            await stage.recorded()
            before = stage.store.operations.count("search")
            await stage.host.ask(ASKS, conversation="two")
            assert stage.store.operations.count("search") == before + 1
            assert len(model.shown) == 4
            assert LIKES in model.shown[2]

    # -- recording ----------------------------------------------------------------------------------------

    async def test_records_turns_once_and_in_order(self) -> None:
        async with self.on_stage(HostModel()) as stage:
            for at in range(1, 4):
                await stage.host.ask(f"Sentence {at}.")
            wanted = [text for at in range(1, 4) for text in (f"Sentence {at}.", f"Answer {at}.")]
            assert await stage.recorded() == wanted
            roles = [row.labels["role"] for row in stage.store.rows.values()]
            assert roles == ["user", "assistant"] * 3
            assert len({row.labels["event_id"] for row in stage.store.rows.values()}) == 3

    async def test_records_the_same_words_twice_where_they_are_said_twice(self) -> None:
        async with self.on_stage(HostModel()) as stage:
            await stage.host.ask("ok")
            await stage.host.ask("ok")
            assert await stage.recorded() == ["ok", "Answer 1.", "ok", "Answer 2."]

    async def test_records_no_tools_thoughts_and_pictures(self) -> None:
        model = HostModel()
        model.uses_tool = True
        async with self.on_stage(model) as stage:
            await stage.host.ask(LIKES, picture="picture" not in self.cannot)
            assert await stage.recorded() == [LIKES, "Answer 1."]

    async def test_names_the_conversation(self) -> None:
        async with self.on_stage(HostModel()) as stage:
            await stage.host.ask("One.", conversation="one")
            await stage.host.ask("Two.", conversation="two")
            await stage.recorded()
            sessions = {row.text: row.labels["session_id"] for row in stage.store.rows.values()}
            assert sessions["One."] == sessions["Answer 1."]
            assert sessions["Two."] == sessions["Answer 2."]
            assert sessions["One."] != sessions["Two."]

    async def test_streams(self) -> None:
        """A streamed turn is recalled for and recorded once, whole."""
        model = HostModel()
        async with self.on_stage(model) as stage:
            await stage.host.stream(LIKES)
            assert await stage.recorded() == [LIKES, "Answer 1."]
            await stage.host.stream(ASKS, conversation="two")
            assert LIKES in model.shown[-1]

    async def test_a_failed_turn_that_is_asked_again_is_recorded_once(self) -> None:
        """By the user, or by the host itself."""
        model = HostModel()
        async with self.on_stage(model) as stage:
            model.fails, left = 1, []
            try:
                await stage.host.ask(LIKES)
            except Exception:  # the SDK's own
                left = [LIKES] if self.after_failure == "question" else []
                assert await stage.recorded() == left
                await stage.host.ask(LIKES)
            assert await stage.recorded() == [*left, LIKES, "Answer 1."]
            assert not model.fails

    async def test_a_cancelled_turn_leaves_no_answer(self) -> None:
        model = HostModel()
        async with self.on_stage(model) as stage:
            model.holds = True
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(stage.host.ask, LIKES))
                assert await anyio.to_thread.run_sync(model.held.wait, 20)
                tasks.cancel_scope.cancel()
            model.holds = False
            await stage.host.ask("Thanks.", conversation="two")
            left = [LIKES] if self.after_failure == "question" else []
            assert await stage.recorded() == [*left, "Thanks.", "Answer 1."]

    # -- people -------------------------------------------------------------------------------------------

    async def test_people_never_mix(self) -> None:
        """Neither one after the other, nor at once."""
        model = HostModel()
        async with self.on_stage(model) as stage:
            await stage.host.ask(LIKES, who="ada", conversation="one")
            await stage.recorded()
            async with anyio.create_task_group() as tasks:
                for at in range(3):
                    for who in ("ada", "bob"):
                        asks = f"I am {who}. {ASKS}"
                        tasks.start_soon(partial(stage.host.ask, asks, who=who, conversation=f"{who}{at}"))
            await stage.recorded()
            shown = {who: [text for text in model.shown if f"I am {who}." in text] for who in ("ada", "bob")}
            assert all(LIKES in text for text in shown["ada"])
            assert not [text for text in shown["bob"] if LIKES in text]
            of_bob = {row.space for row in stage.store.rows.values() if "I am bob." in row.text}
            of_ada = {row.space for row in stage.store.rows.values() if "I am ada." in row.text}
            assert len(of_bob) == len(of_ada) == 1
            assert of_bob != of_ada

    # -- a memory that is slow, down, closed or elsewhere ------------------------------------------------

    @pytest.mark.parametrize("fault", ["500", "refused", "late"])
    async def test_a_memory_that_fails_costs_no_turn_and_is_reported(
        self, fault: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        model = HostModel()
        policy: dict[str, Any] = {"recall_s": 0.2, "drain_s": 0.0, "queue_wait_s": 0.0}
        async with self.on_stage(model, **policy) as stage:
            stage.store.faults.add(fault, times=None, delay_s=60.0)
            assert "Answer 1." in await stage.host.ask(LIKES)
            assert len(model.shown) == 1
            assert stage.memory.status()["recalls_failed"] == 1
            assert [what for what, _ in stage.troubles][:1] == ["recall"]
            assert [
                record
                for record in caplog.records
                if record.levelno >= logging.WARNING and "recall" in record.message
            ]

    async def test_a_closed_memory_costs_no_turn_and_is_reported(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with self.on_stage(HostModel()) as stage:
            await stage.memory.aclose()
            await stage.slot.aclose()
            assert "Answer 1." in await stage.host.ask(LIKES)
            await stage.host.flush()
            assert [record for record in caplog.records if "closed" in record.message]
            assert not stage.store.rows

    async def test_works_from_another_event_loop(self) -> None:
        """Such as that of a web server's thread."""
        model = HostModel()
        async with self.on_stage(model) as stage:

            async def elsewhere(said: str, conversation: str) -> None:
                await stage.host.ask(said, conversation=conversation)
                await stage.host.flush()

            for said, conversation in ((LIKES, "one"), (ASKS, "two")):
                await anyio.to_thread.run_sync(anyio.run, elsewhere, said, conversation)
                assert await stage.memory.drain(20)
            assert LIKES in model.shown[-1]
            assert (await stage.recorded())[:2] == [LIKES, "Answer 1."]

    async def test_works_without_await(self) -> None:
        """In a thread of a program whose event loop the memory lives in."""
        model = HostModel()
        async with self.on_stage(model) as stage:
            for said, conversation in ((LIKES, "one"), (ASKS, "two")):
                ask = partial(stage.host.ask_blocking, said, conversation=conversation)
                await anyio.to_thread.run_sync(ask)
                assert await stage.memory.drain(20)
            assert LIKES in model.shown[-1]
            assert (await stage.recorded())[:2] == [LIKES, "Answer 1."]

    async def test_a_call_that_blocks_the_loop_of_the_memory_is_refused_in_words(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The turn goes on without recall, or the SDK refuses the call; it is never silent."""
        async with self.on_stage(HostModel()) as stage:
            refused = ""
            try:
                stage.host.ask_blocking(LIKES)
            except RuntimeError as error:
                refused = str(error)
            if refused:
                assert "loop" in refused
            else:
                assert [record for record in caplog.records if "await" in record.message]
                assert await stage.recorded() == [LIKES, "Answer 1."]

    async def test_a_second_memory_on_an_agent_is_refused(self) -> None:
        async with self.on_stage(HostModel()) as stage:
            with pytest.raises(Exception, match=r"already|duplicate|multiple|unique"):
                await stage.host.bind_again()

    # -- the slot's modes, restart, swap -----------------------------------------------------------------

    async def test_writes_nothing_while_read_only(self) -> None:
        model = HostModel()
        async with self.on_stage(model) as stage:
            await stage.host.ask(LIKES)
            await stage.recorded()
            await stage.slot.set_mode(AdapterMode(read_only=True, reason="test"))
            before = stage.store.fingerprint()
            await stage.host.ask(ASKS, conversation="two")
            await stage.recorded()
            assert LIKES in model.shown[-1]
            assert stage.store.fingerprint() == before

    async def test_remembers_after_a_restart(self) -> None:
        store, model = FakeNativeStore(), HostModel()
        async with self.on_stage(model, store) as stage:
            await stage.host.ask(LIKES, conversation="one")
        async with self.on_stage(model, store) as stage:
            await stage.host.ask(ASKS, conversation="one")
            assert LIKES in model.shown[-1]
            assert await stage.recorded() == [LIKES, "Answer 1.", ASKS, "Answer 2."]

    @pytest.mark.parametrize(("backend", "remembers"), [("full_history", True), ("no_memory", False)])
    async def test_another_backend_is_one_word(self, backend: str, remembers: bool, tmp_path: Any) -> None:
        model = HostModel()
        memory = {"backend": backend, "scope": {"run_id": "app", "persona_id": "ada"}}
        async with (
            open_memory({"memory": memory}, data_dir=tmp_path) as slot,
            self.turn_memory(slot, recall_s=20.0) as turns,
        ):
            host = self.host(turns, model)
            await host.ask(LIKES, conversation="one")
            await host.flush()
            assert await turns.drain(20)
            await host.ask(ASKS, conversation="two")
            assert (LIKES in model.shown[-1]) is remembers
            await host.aclose()
