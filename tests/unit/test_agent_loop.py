"""The example agent: the same code on any memory, and a turn survives a memory that fails."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from one_loop import anyio_backend as anyio_backend

from memory import MemoryScope, MemorySlot
from memory.testing import FakeBackend, FakeNativeStore, ScriptedLLM

PATH = Path(__file__).resolve().parents[2] / "examples" / "agent_loop.py"
SCOPE = MemoryScope(run_id="r", persona_id="p")

CONFIG = """
memory:
  {selected}
  scope: {{run_id: demo, persona_id: ann}}
  data_dir: {directory}
  backends: {{mem0: {{}}}}
  conditions: {{full_history: {{}}, no_memory: {{}}}}
"""


@pytest.fixture(scope="module")
def agent_loop():
    spec = importlib.util.spec_from_file_location("agent_loop", PATH)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def config(tmp_path, selected):
    """Configurations that differ in the one line that selects the memory."""
    content = yaml.safe_load(CONFIG.format(selected=selected, directory=tmp_path))
    return content


async def talk(agent_loop, content):
    async with agent_loop.open_model(None, "scripted") as model:
        return dict(await agent_loop.converse(content, model))


@pytest.mark.parametrize("selected", ["backend: mem0", "condition: full_history"])
async def test_an_earlier_session_is_recalled(agent_loop, tmp_path, selected):
    if "mem0" in selected and importlib.util.find_spec("mem0") is None:
        pytest.skip("needs mem0")
    answers = await talk(agent_loop, config(tmp_path, selected))
    assert "Biscuit" in answers["What is my dog called?"]
    assert "without sugar" in answers["How do I take my tea?"]


@pytest.fixture
async def store():
    return FakeNativeStore()


@pytest.fixture
async def slot(store):
    async with MemorySlot(FakeBackend(store), scope=SCOPE) as slot:
        yield slot


@pytest.fixture
async def agent(agent_loop, slot):
    with ScriptedLLM() as llm:
        async with agent_loop.open_model(llm.base_url, "scripted") as model:
            yield agent_loop.Agent(slot, model, "s1")


async def test_a_failing_memory_costs_no_turn(agent, store, capsys):
    store.faults.add("refused", times=None)
    assert await agent.turn("My dog is called Biscuit.") == "Understood."
    assert await agent.turn("I live in Oslo.") == "Understood."
    assert [turn["user"] for turn in agent.unsaved] == ["My dog is called Biscuit.", "I live in Oslo."]
    notes = capsys.readouterr().err
    assert "answering without memory" in notes
    assert "2 turns are not remembered yet" in notes
    assert "Biscuit" not in notes
    ids = [turn["event_id"] for turn in agent.unsaved]
    store.faults.clear()
    await agent.turn("I have a cat too.")
    assert not agent.unsaved
    written = [row.labels["event_id"] for row in store.rows.values() if row.labels["role"] == "user"]
    assert written[:2] == ids, "late, in order, and as the events they were"


async def test_a_write_without_an_answer_is_not_sent_again(
    agent: Any, store: FakeNativeStore, capsys
) -> None:
    # `lost` stores the rows and drops the connection; the look-up that could tell fails as well.
    store.faults.add("lost", endpoint="insert")
    store.faults.add("500", endpoint="list_rows")
    await agent.turn("My dog is called Biscuit.")
    notes = capsys.readouterr().err
    assert "[memory] unknown: " in notes
    assert "it may or may not be stored" in notes
    await agent.save()
    assert len([row for row in store.rows.values() if "Biscuit" in row.text]) == 1


async def test_a_model_that_fails_leaves_no_trace(agent, store, agent_loop):
    model, agent._model = agent._model, _Silent()
    with pytest.raises(agent_loop.httpx.ConnectError):
        await agent.turn("My dog is called Biscuit.")
    assert not agent.unsaved
    assert not store.rows
    agent._model = model
    assert await agent.turn("My dog is called Biscuit.") == "Understood."
    assert [message["role"] for message in agent._said] == ["user", "assistant"]


class _Silent:
    async def reply(self, messages):
        from httpx import ConnectError

        raise ConnectError("no route")


async def test_what_was_recalled_is_not_remembered(agent, store):
    await agent.turn("My dog is called Biscuit.")
    answer = await agent.turn("What is my dog called?")
    assert "Biscuit" in answer
    assert not [row for row in store.rows.values() if "memory-context" in row.text]


def test_the_command_line(agent_loop, tmp_path, monkeypatch, capsys):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(selected="condition: full_history", directory=tmp_path), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["agent_loop.py", "--config", str(path)])
    agent_loop.main()
    assert "you:   What is my dog called?\nagent: " in capsys.readouterr().out
    other = CONFIG.format(selected="condition: full_history", directory=tmp_path / "another")
    path.write_text(other, encoding="utf-8")
    said = iter(["My dog is called Rex.", "What is my dog called?", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(said))
    monkeypatch.setattr(sys, "argv", ["agent_loop.py", "--config", str(path), "--chat"])
    agent_loop.main()
    assert "Rex" in capsys.readouterr().out.splitlines()[1]
    monkeypatch.setattr(sys, "argv", ["agent_loop.py", "--config", str(tmp_path / "nowhere.yaml")])
    with pytest.raises(SystemExit, match="no such file"):
        agent_loop.main()
