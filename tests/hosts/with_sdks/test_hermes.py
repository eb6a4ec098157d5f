"""The memory provider of Hermes: in its own memory manager, and in real ``hermes`` processes."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from agent.memory_manager import MemoryManager
from host_model import PICTURE, HostModel, HostUnderTest
from host_support import Living
from loopback_model import Model
from setting_up import set_up

from memory.hosts import hermes
from memory.hosts.hermes import SlotProvider
from memory.hosts.table import HOSTS

PLUGIN = Path(hermes.__file__).parent / "_files" / "hermes"


class Managers(HostUnderTest):
    """A memory manager of Hermes for each conversation, called in the order in which Hermes calls it."""

    def __init__(self, memory: Any, model: HostModel) -> None:
        self._memory, self._model = memory, model
        self._managers: dict[str, MemoryManager] = {}
        self._hermes_home = Path("/nowhere")
        self._config = self._hermes_home / "memslot.yaml"
        if memory:
            hermes._open[self._config] = hermes._Shared(self._config, memory, ExitStack(), users=1)

    def manager(self, conversation: str, who: str = "ada") -> MemoryManager:
        if conversation not in self._managers:
            manager = MemoryManager()
            if self._memory:
                manager.add_provider(SlotProvider())
            given = {"platform": "cli"} if who == "ada" else {"platform": "telegram", "user_id": who}
            manager.initialize_all(conversation, hermes_home=str(self._hermes_home), **given)
            self._managers[conversation] = manager
        return self._managers[conversation]

    async def ask(
        self, said: str, *, conversation: str = "one", who: str = "ada", picture: bool = False
    ) -> str:
        manager = self.manager(conversation, who)
        shown = await anyio.to_thread.run_sync(manager.prefetch_all, said)
        prompt = f"{said}\n{shown}{PICTURE if picture else ''}"
        turn = await self._model.acall(prompt)
        if turn.calls_tool:
            turn = await self._model.acall(prompt, after_tool=True)
        manager.sync_all(
            said, turn.text, session_id=conversation, messages=[{"role": "user", "content": prompt}]
        )
        await anyio.to_thread.run_sync(manager.flush_pending)
        return turn.text

    def ask_blocking(self, said: str, *, conversation: str = "one") -> str:
        manager = self.manager(conversation)
        shown = manager.prefetch_all(said)
        text = self._model.call(f"{said}\n{shown}").text
        manager.sync_all(said, text, session_id=conversation)
        manager.flush_pending()
        return text

    async def aclose(self) -> None:
        for manager in self._managers.values():
            await anyio.to_thread.run_sync(manager.shutdown_all)
        hermes._open.pop(self._config, None)


class TestHermes(Living):
    name = "hermes"
    cannot = HOSTS["hermes"].cannot

    def host(self, memory: Any, model: HostModel) -> Managers:
        return Managers(memory, model)


async def test_tools_sessions_and_who_may_write():
    async with TestHermes().on_stage(HostModel()) as stage:
        provider = SlotProvider()
        assert {tool["name"] for tool in provider.get_tool_schemas()} == {"memory_search", "memory_store"}

        def play() -> Any:
            provider.initialize("one", hermes_home="/nowhere", platform="cron", agent_context="cron")
            provider.sync_turn("System: run the timer.", "Done.")
            stored = provider.handle_tool_call("memory_store", {"content": "Ada likes oolong."})
            found = json.loads(provider.handle_tool_call("memory_search", {"query": "oolong"}))
            blank = provider.handle_tool_call("memory_search", {"query": " "})
            provider.initialize("one", hermes_home="/nowhere", platform="cli", agent_context="primary")
            provider.on_session_switch("two", parent_session_id="one", reset=True)
            provider.sync_turn("I like tea.", "Noted.")
            provider.on_session_end([])
            provider.shutdown()
            return stored, found, blank

        stored, found, blank = await anyio.to_thread.run_sync(play)
        assert stored == "committed"
        assert found == ["Ada likes oolong."]
        assert "error" in blank
        assert await stage.recorded() == ["Ada likes oolong.", "I like tea.", "Noted."]
        sessions = {row.text: row.labels["session_id"] for row in stage.store.rows.values()}
        assert sessions["I like tea."] == "two"


async def test_the_model_keeps_facts_of_the_person_who_asks():
    async with TestHermes().on_stage(HostModel()) as stage:
        provider = SlotProvider()

        def play() -> None:
            provider.initialize("one", hermes_home="/nowhere", platform="telegram", user_id="bob")
            provider.handle_tool_call("memory_store", {"content": "Bob likes sencha."})
            provider.shutdown()

        await anyio.to_thread.run_sync(play)
        assert ["bob" in row.space for row in stage.store.rows.values()] == [True]


async def test_a_second_person_in_a_session_is_refused():
    async with TestHermes().on_stage(HostModel()) as stage:

        def play() -> str:
            manager = stage.host.manager("thread", "ada-2")
            for user, said in (
                ("ada-2", "My PIN is 1234."),
                ("bob", "What is the PIN?"),
                ("ada-2", "Thanks."),
            ):
                manager.on_turn_start(1, said, platform="telegram", user_id=user)
                shown = (
                    str(manager.prefetch_all(said)) if user == "bob" else manager.prefetch_all(said) and ""
                )
                manager.sync_all(said, f"To {user}.", session_id="thread")
                manager.flush_pending()
                if user == "bob":
                    refused = shown
            return refused

        assert "1234" not in await anyio.to_thread.run_sync(play)
        assert await stage.recorded() == ["My PIN is 1234.", "To ada-2.", "Thanks.", "To ada-2."]
        assert stage.turns.status()["not_recorded"] == 1
        assert "one person's" in stage.troubles[0][1]


@pytest.fixture
def hermes_home(tmp_path: Path) -> Path:
    hermes_home = tmp_path / "hermes"
    plugin = hermes_home / "plugins" / "memslot"
    plugin.mkdir(parents=True)
    shutil.copy(PLUGIN / "plugin.py.txt", plugin / "__init__.py")
    shutil.copy(PLUGIN / "plugin.yaml", plugin)
    return hermes_home


def chat(hermes_home: Path, model: Model, said: str) -> str:
    """One answer of a ``hermes`` process of its own, with what it printed."""
    settings = {
        "model": {
            "provider": "custom",
            "default": "scripted",
            "base_url": f"{model.url}/v1",
            "api_key": "unused",
        },
        "memory": {"memory_enabled": False, "user_profile_enabled": False, "provider": "memslot"},
    }
    (hermes_home / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
    environment = {**os.environ, "HOME": str(hermes_home.parent), "HERMES_HOME": str(hermes_home)}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("hermes")), "chat", "-Q", "-q", said],
        env=environment, cwd=hermes_home.parent, capture_output=True, text=True, timeout=300,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_real_process_remembers_across_sessions(tmp_path):
    hermes_home = tmp_path / ".hermes"
    hermes_home.mkdir()
    assert "hermes config set memory.provider memslot" in set_up(tmp_path, "hermes")  # as in chat's settings
    with Model() as model:
        chat(hermes_home, model, "I like oolong tea.")
        assert "You like oolong." in chat(hermes_home, model, "Which tea do I like?")


def test_a_memory_that_cannot_be_opened_is_told_to_the_user_and_to_the_model(hermes_home):
    with Model() as model:
        printed = chat(hermes_home, model, "I like oolong tea.")
        assert "long-term memory is NOT working" in printed
        assert "memslot setup" in printed
        assert "Long-term memory is NOT working" in model.prompts[0]


def test_a_folder_whose_memslot_is_gone_says_so_too(hermes_home, monkeypatch, capsys):
    from plugins.memory import _load_provider_from_dir  # Hermes' own loader

    monkeypatch.setitem(sys.modules, "memory.hosts.hermes", None)
    assert _load_provider_from_dir(hermes_home / "plugins" / "memslot") is None
    assert "long-term memory is NOT working" in capsys.readouterr().err
