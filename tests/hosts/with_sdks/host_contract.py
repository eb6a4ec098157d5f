"""The promises of a binding to an agent framework, as tests to subclass. They run on the framework's real SDK.

``cannot`` names promises that the SDK makes impossible. Their tests are skipped with the reason given there, and
the level of the class says so.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar

import anyio
import pytest
from host_model import HostModel, HostUnderTest, Stage, person

from memory import AdapterMode, MemorySlot, open_memory
from memory.testing import FakeBackend, FakeNativeStore

LIKES, ASKS = "I like oolong tea.", "Which tea do I like?"


class HostContract(ABC):
    """The promises of a binding.

    Class attributes:
        cannot: promises that the SDK makes impossible -> the reason.
    """

    pytestmark = pytest.mark.anyio
    cannot: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def turns(self, memory: MemorySlot, **options: Any) -> Any:
        """What ``turns_of`` gives for a memory; ``options`` are those of ``TurnPolicy``, and ``on_trouble``."""

    @abstractmethod
    def host(self, memory: Any, model: HostModel) -> HostUnderTest:
        """An agent of the SDK that uses ``memory`` and ``model``. It serves every conversation."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture(autouse=True)
    def _promise(self, request: pytest.FixtureRequest) -> None:
        name = request.node.originalname.removeprefix("test_")
        if name in self.cannot:
            pytest.skip(f"not declared: {self.cannot[name]}")

    @asynccontextmanager
    async def on_stage(
        self, model: HostModel | None = None, store: FakeNativeStore | None = None, **policy: object
    ) -> AsyncIterator[Stage]:
        """A host over a memory of ``store``. ``policy`` replaces the kit's own policy."""
        model, store = model or HostModel(), store or FakeNativeStore()
        troubles: list[tuple[str, str]] = []
        given = {"recall_s": 20.0, "on_trouble": lambda *words: troubles.append(words), **policy}
        async with MemorySlot(FakeBackend(store), scope=person("ada")) as memory:
            turns = self.turns(memory, **given)
            stage = Stage(model, store, memory, turns, self.host(memory, model), troubles)
            try:
                yield stage
            finally:
                await stage.host.aclose()
                store.faults.clear()

    @pytest.fixture
    async def stage(self) -> AsyncIterator[Stage]:
        async with self.on_stage() as stage:
            yield stage

    async def test_remembers_across_conversations(self, stage):
        """The model sees the recalled text, and no history of the host keeps it."""
        await stage.host.ask(LIKES, conversation="one")
        assert await stage.recorded() == [LIKES, "Answer 1."]
        await stage.host.ask(ASKS, conversation="two")
        assert LIKES in stage.model.shown[-1]
        await stage.host.ask("Thanks.", conversation="two")
        assert stage.model.shown[-1].count(LIKES) <= 1

    async def test_keeps_no_section(self, stage):
        """Recalled text enters neither the host's history, state and files nor the memory itself."""
        await stage.host.ask(LIKES, conversation="one")
        await stage.recorded()
        await stage.host.ask(ASKS, conversation="two")
        texts = await stage.recorded()
        assert texts.count(LIKES) == 1
        assert not [text for text in texts if "<memory-context" in text]
        kept = await stage.host.kept("two")
        assert ASKS in kept
        assert "<memory-context" not in kept
        assert LIKES not in kept

    async def test_recalls_once_a_turn(self, stage):
        """One recall a turn, however often the host calls the model."""
        stage.model.uses_tool = True
        await stage.host.ask(LIKES)
        await stage.recorded()
        before = stage.store.operations.count("search")
        await stage.host.ask(ASKS, conversation="two")
        assert stage.store.operations.count("search") == before + 1
        assert len(stage.model.shown) == 4
        assert LIKES in stage.model.shown[2]

    async def test_records_turns_once_and_in_order(self, stage):
        for at in range(1, 4):
            await stage.host.ask(f"Sentence {at}.")
        wanted = [text for at in range(1, 4) for text in (f"Sentence {at}.", f"Answer {at}.")]
        assert await stage.recorded() == wanted
        roles = [row.labels["role"] for row in stage.store.rows.values()]
        assert roles == ["user", "assistant"] * 3
        assert len({row.labels["event_id"] for row in stage.store.rows.values()}) == 3

    async def test_records_the_same_words_twice_where_they_are_said_twice(self, stage):
        for _ in range(2):
            await stage.host.ask("ok")
        assert await stage.recorded() == ["ok", "Answer 1.", "ok", "Answer 2."]

    async def test_records_no_tools_thoughts_and_pictures(self, stage):
        stage.model.uses_tool = True
        await stage.host.ask(LIKES, picture="picture" not in self.cannot)
        assert await stage.recorded() == [LIKES, "Answer 1."]

    async def test_names_the_conversation(self, stage):
        await stage.host.ask("One.", conversation="one")
        await stage.host.ask("Two.", conversation="two")
        await stage.recorded()
        first, answer, second, other = (row.labels["session_id"] for row in stage.store.rows.values())
        assert first == answer != second == other

    async def test_streams(self, stage):
        """A streamed turn recalls once and is recorded once, as a whole."""
        await stage.host.stream(LIKES)
        assert await stage.recorded() == [LIKES, "Answer 1."]
        await stage.host.stream(ASKS, conversation="two")
        assert LIKES in stage.model.shown[-1]

    async def test_a_failed_turn_that_is_asked_again_is_recorded_once(self, stage):
        """The user or the host may ask again. The failed attempt is not recorded."""
        stage.model.fails = 1
        try:
            await stage.host.ask(LIKES)
        except Exception:  # an exception of the SDK
            assert await stage.recorded() == []
            await stage.host.ask(LIKES)
        assert await stage.recorded() == [LIKES, "Answer 1."]
        assert not stage.model.fails

    async def test_a_cancelled_turn_leaves_no_answer(self, stage):
        stage.model.holds = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(stage.host.ask, LIKES))
            assert await anyio.to_thread.run_sync(stage.model.held.wait, 20)
            tasks.cancel_scope.cancel()
        stage.model.holds = False
        await stage.host.ask("Thanks.", conversation="two")
        assert await stage.recorded() == ["Thanks.", "Answer 1."]

    async def test_people_never_mix(self, stage):
        """Neither in turn nor at the same time."""
        await stage.host.ask(LIKES, who="ada", conversation="one")
        await stage.recorded()
        async with anyio.create_task_group() as tasks:
            for at in range(3):
                for who in ("ada", "bob"):
                    asks = f"I am {who}. {ASKS}"
                    tasks.start_soon(partial(stage.host.ask, asks, who=who, conversation=f"{who}{at}"))
        await stage.recorded()
        spaces = set()
        for who, knows in (("ada", True), ("bob", False)):
            prompts = [text for text in stage.model.shown if f"I am {who}." in text]
            assert {LIKES in text for text in prompts} == {knows}
            rows = [row for row in stage.store.rows.values() if f"I am {who}." in row.text]
            (space,) = {row.space for row in rows}
            spaces.add(space)
        assert len(spaces) == 2

    @pytest.mark.parametrize("fault", ["500", "refused", "late"])
    async def test_a_memory_that_fails_costs_no_turn_and_is_reported(self, fault, caplog):
        policy: dict[str, Any] = {"recall_s": 0.2, "drain_s": 0.0}
        async with self.on_stage(**policy) as stage:
            stage.store.faults.add(fault, times=None, delay_s=60.0)
            assert "Answer 1." in await stage.host.ask(LIKES)
            assert len(stage.model.shown) == 1
            assert stage.turns.status()["recalls_failed"] == 1
            assert [what for what, _ in stage.troubles][:1] == ["recall"]
            warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
            assert any("recall" in message for message in warnings)

    async def test_a_closed_memory_costs_no_turn_and_is_reported(self, stage, caplog):
        await stage.memory.aclose()
        assert "Answer 1." in await stage.host.ask(LIKES)
        await stage.host.flush()
        assert [record for record in caplog.records if "closed" in record.message]
        assert not stage.store.rows

    async def test_works_from_another_event_loop(self):
        """For example the loop of a web server's thread."""

        async def elsewhere(host: HostUnderTest, said: str, conversation: str) -> None:
            await host.ask(said, conversation=conversation)
            await host.flush()

        await self._remembers_in_threads(lambda *turn: anyio.run(elsewhere, *turn))

    async def test_works_without_await(self):
        """From a thread of the program whose event loop holds the memory."""
        await self._remembers_in_threads(lambda host, said, name: host.ask_blocking(said, conversation=name))

    async def _remembers_in_threads(self, ask: Callable[[HostUnderTest, str, str], object]) -> None:
        async with self.on_stage() as stage:
            for said, conversation in ((LIKES, "one"), (ASKS, "two")):
                await anyio.to_thread.run_sync(ask, stage.host, said, conversation)
                assert await stage.turns.drain(20)
            assert LIKES in stage.model.shown[-1]
            assert (await stage.recorded())[:2] == [LIKES, "Answer 1."]

    async def test_a_call_that_blocks_the_loop_of_the_memory_is_refused_in_words(self, stage, caplog):
        """The turn continues without recall, or the SDK refuses the call. Neither is silent."""
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

    async def test_a_second_memory_on_an_agent_is_refused(self, stage):
        with pytest.raises(Exception, match=r"already|duplicate|multiple|unique"):
            await stage.host.bind_again()

    async def test_writes_nothing_while_read_only(self, stage):
        await stage.host.ask(LIKES)
        await stage.recorded()
        await stage.memory.set_mode(AdapterMode(read_only=True, reason="test"))
        before = stage.store.fingerprint()
        await stage.host.ask(ASKS, conversation="two")
        await stage.recorded()
        assert LIKES in stage.model.shown[-1]
        assert stage.store.fingerprint() == before

    async def test_remembers_after_a_restart(self):
        store, model = FakeNativeStore(), HostModel()
        async with self.on_stage(model, store) as stage:
            await stage.host.ask(LIKES, conversation="one")
        async with self.on_stage(model, store) as stage:
            await stage.host.ask(ASKS, conversation="one")
            assert LIKES in model.shown[-1]
            assert await stage.recorded() == [LIKES, "Answer 1.", ASKS, "Answer 2."]

    @pytest.mark.parametrize(("backend", "remembers"), [("full_history", True), ("no_memory", False)])
    async def test_another_backend_is_one_word(self, backend, remembers, tmp_path):
        model = HostModel()
        memory = {"backend": backend, "scope": {"run_id": "app", "persona_id": "ada"}}
        async with open_memory({"memory": memory}, data_dir=tmp_path) as opened:
            turns, host = self.turns(opened, recall_s=20.0), self.host(opened, model)
            await host.ask(LIKES, conversation="one")
            await host.flush()
            assert await turns.drain(20)
            await host.ask(ASKS, conversation="two")
            assert (LIKES in model.shown[-1]) is remembers
            await host.aclose()
