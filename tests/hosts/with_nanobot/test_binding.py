"""The bindings in one process: what is shown, what is kept, and what a slow or dead memory costs."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from loopback_model import Model
from nanobot import Nanobot
from nanobot.runtime_context import RuntimeContextBlock
from nanobot_support import files, memory_config, nanobot_config

from memory import ConfigError, LifecycleError, MemoryScope, MemorySlot
from memory.hosts.nanobot import tool
from memory.hosts.nanobot._turns import claim_workspace, said, without_section
from memory.runtime import TurnMemory, TurnPolicy, turns_of
from memory.testing import FakeBackend, FakeNativeStore

ADA = MemoryScope(run_id="nanobot", persona_id="ada")


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as model:
        yield model


@pytest.fixture
def store() -> FakeNativeStore:
    return FakeNativeStore()


@pytest.fixture(autouse=True)
def nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "_open", {})
    monkeypatch.delenv("MEMSLOT_CONFIG", raising=False)


@asynccontextmanager
async def opened(
    tmp_path: Path, model: Model, store: FakeNativeStore, policy: TurnPolicy | None = None
) -> AsyncIterator[tuple[Any, TurnMemory]]:
    async with MemorySlot(FakeBackend(store), scope=ADA) as slot:
        turns = turns_of(slot, policy or TurnPolicy(recall_s=20.0))
        workspace = tmp_path / "workspace"
        workspace.mkdir()
        (workspace / "memslot.yaml").touch()
        tool._open[workspace / "memslot.yaml"] = slot
        async with Nanobot.from_config(nanobot_config(tmp_path, model)) as bot:
            yield bot, turns


async def test_what_nanobot_says_to_itself_is_nobodys_words(tmp_path, model, store):
    async with opened(tmp_path, model, store) as (bot, memory):
        for sender, key in (
            ("cron", "cli:a"),
            ("subagent", "cli:a"),
            ("user", "heartbeat"),
            ("user", "dream:1"),
        ):
            await bot.run("Read HEARTBEAT.md.", sender_id=sender, session_key=key)
        await bot.run("I like oolong tea.", session_key="cli:a")
        assert await memory.drain(20)
    assert [row.text for row in store.rows.values()] == ["I like oolong tea.", "Noted, 5."]


async def test_a_dead_or_slow_memory_aborts_no_turn(tmp_path, model, store):
    policy = TurnPolicy(recall_s=0.05, drain_s=0.0)
    async with opened(tmp_path, model, store, policy) as (bot, memory):
        store.faults.add("500", times=None)
        assert (await bot.run("I like oolong tea.")).content == "Noted, 1."
        store.faults.clear()
        store.faults.add("late", times=None, delay_s=30)
        assert (await bot.run("Which tea?")).content == "Noted, 2."
        store.faults.clear()
        assert memory.status()["recalls_failed"] == 2


async def test_the_entry_point_cleans_what_a_killed_process_left_and_leaves_blocks_of_others(tmp_path, model):
    config = nanobot_config(tmp_path, model)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    memory_config(tmp_path, "full_history").rename(workspace / "memslot.yaml")
    async with Nanobot.from_config(config) as bot:

        async def other(_: Any) -> RuntimeContextBlock:
            return RuntimeContextBlock("other", "It is raining.")

        bot.runtime.add_context_provider(other)
        await bot.run("I like oolong tea.", session_key="sdk:one")
        (memory,) = tool._open.values()
        saved = bot.sessions.export("sdk:one")
        dirty = json.loads(json.dumps(saved.messages))
        dirty[0] |= {
            "content": 'I like oolong tea.\n\n<memory-context backend="x" scope="y">\nold\n</memory-context>',
            "_runtime_context": {
                "version": 1,
                "sources": ["memslot"],
                "suffix": '<memory-context backend="x" scope="y">\nold\n</memory-context>',
            },
        }
        session = bot._loop.sessions.get_or_create("sdk:one")
        session.messages[:] = dirty
        bot._loop.sessions.save(session)
        await bot.run("Which tea do I like?", session_key="sdk:one")
        assert "old" not in model.sections[-1]
        assert all("memory-context" not in str(message.get("content")) for message in model.asked[-1][1:-1])
        assert "It is raining." in files(tmp_path)
        assert "<memory-context" not in files(tmp_path)
        await bot.run("Which tea do I like?", session_key="sdk:two")
        assert "oolong" in model.sections[-1]
        assert model.sections[-1].count("raining") == 1  # shown by whose it is, and not remembered
        assert (await memory.health()).details["messages"] == 6
        await asyncio.get_running_loop().shutdown_asyncgens()  # as asyncio.run does
        with pytest.raises(LifecycleError):
            await memory.before_turn("Which tea?", session_id="s")
        assert not tool._open


async def test_a_second_scope_finds_no_place_in_a_workspace(tmp_path):
    claim_workspace(tmp_path / "w", ADA)
    claim_workspace(tmp_path / "w", ADA)
    with pytest.raises(ConfigError, match="workspace of another"):
        claim_workspace(tmp_path / "w", MemoryScope(run_id="nanobot", persona_id="bob"))


def test_a_turn_is_what_was_said_and_nothing_else():
    section = '<memory-context backend="b" scope="s">\nx\n</memory-context>'
    messages = [
        {"role": "user", "content": "before"},
        {"role": "user", "content": "/help", "_command": True},
        {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url"}]},
        {"role": "assistant", "content": "", "tool_calls": [{}]},
        {"role": "tool", "content": "10,000 lines"},
        {"role": "plugin", "content": "a plugin's words"},
        {"role": "assistant", "content": f"seen {section}"},
    ]
    for asked in ("look", "", "of another turn"):
        talk, parts = said(messages, asked)
        assert [message.content.split()[0] for message in talk] == ["look", "seen"]
        assert parts == ["image_url", "plugin message"]
    # What the user adds while the bot works belongs to the turn that was asked first.
    assert [message.content.split()[0] for message in said(messages, "before")[0]] == [
        "before",
        "look",
        "seen",
    ]
    assert said([], "") == ([], [])
    kept = {"role": "user", "content": f"said {section}"}  # by the user, who may
    assert without_section(kept) is None
    blocks = [{"type": "text", "text": section}, {"type": "text", "text": "other"}]
    listed = {
        "role": "user",
        "content": [{"type": "text", "text": "said"}, *blocks],
        "_runtime_context": {"version": 1, "sources": ["memslot", "other"], "blocks": blocks},
    }
    cleaned = without_section(listed)
    assert cleaned is not None
    assert [block["text"] for block in cleaned["content"]] == ["said", "other"]
    assert without_section(cleaned) is None
