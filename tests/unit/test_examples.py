"""The examples a reader copies first: they run, and each user of the service sees their own memory."""

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from one_loop import anyio_backend as anyio_backend

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CONFIG = """
memory:
  condition: full_history
  scope: {{run_id: demo, persona_id: nobody}}
  data_dir: {data}
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "memory.yaml"
    path.write_text(CONFIG.format(data=tmp_path / "data"), encoding="utf-8")
    return path


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


async def test_each_user_of_the_service_sees_their_own(config, monkeypatch):
    monkeypatch.setenv("MEMSLOT_CONFIG", str(config))
    app = loaded("fastapi_app").app
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):

        async def say(user, text, session="s"):
            said = await client.post(
                "/chat", json={"session_id": session, "text": text}, headers={"X-User": user}
            )
            assert said.status_code == 200, said.text
            assert said.json()["recorded"] == "committed"
            return said.json()["answer"]

        for number in range(50):
            await say(f"user-{number}", f"I am number {number}.")
        for number in (0, 17, 49):
            answer = await say(f"user-{number}", "Who am I?", "later")
            assert f"I am number {number}." in answer
            assert answer.count("I am number") == 1
        assert (await client.delete("/memory", headers={"X-User": "user-17"})).json() == {"empty": True}
        assert "nothing yet" in await say("user-17", "Who am I?", "later")
        assert "I am number 49." in await say("user-49", "Who am I?", "latest")
        assert (await client.post("/chat", json={"session_id": "s", "text": "x"})).status_code == 422
        refused = await client.post("/chat", json={"session_id": "s", "text": "x"}, headers={"X-User": "*"})
        assert refused.status_code == 422, "a wildcard is nobody's name"


@pytest.mark.thorough
def test_the_script_remembers_from_run_to_run(config):
    def run(words):
        command = [
            sys.executable,
            "-W",
            "error",
            str(EXAMPLES / "sync_script.py"),
            "--config",
            str(config),
            words,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        return done.stdout

    assert "nothing is remembered yet" in run("I drink oolong.")
    assert "I drink oolong." in run("What do I drink?")


@pytest.mark.thorough
def test_the_notebook_runs():
    nbformat = pytest.importorskip(
        "nbformat", reason="nbclient is not installed; .ci/requirements.txt brings it"
    )
    nbclient = pytest.importorskip(
        "nbclient", reason="nbclient is not installed; .ci/requirements.txt brings it"
    )
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    nbclient.NotebookClient(notebook, timeout=120).execute(env=environment)
    shown = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert "I drink oolong." in shown


@dataclass
class Document:
    """What the benchmark hands over, by its public fields."""

    id: str
    content: str
    user_id: str | None = None
    messages: list[dict[str, str]] | None = None
    timestamp: str | None = None
    context: str | None = None


def test_the_provider_of_the_agent_memory_benchmark(tmp_path, config, monkeypatch):
    """Against its interface: ``MemoryProvider`` with prepare, ingest, retrieve and cleanup, and its registry."""
    registry = {}
    for name, held in {
        "memory_bench": {},
        "memory_bench.memory": {"REGISTRY": registry},
        "memory_bench.memory.base": {"MemoryProvider": type("MemoryProvider", (), {})},
        "memory_bench.models": {"Document": Document},
    }.items():
        module = ModuleType(name)
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, name, module)
    config.write_text("memory:\n  condition: full_history\n", encoding="utf-8")
    monkeypatch.setenv("MEMSLOT_CONFIG", str(config))
    loaded("agent_memory_benchmark")
    told = [
        Document("d2", "It is oolong now.", "ada", timestamp="2026-02-01T09:00:00"),
        Document(
            "d1", "", "ada", [{"role": "user", "content": "I like sencha."}], "2026-01-01T09:00:00+00:00"
        ),
        Document("d3", "I like coffee.", "bo"),
    ]
    for reset, expected in ((True, ["d1", "d2"]), (False, ["d1", "d2"])):
        provider = registry["memslot"]()
        provider.prepare(tmp_path / "store", {"ada", "bo"}, reset)
        if reset:
            provider.ingest(told)
        found, raw = provider.retrieve("Which tea?", 5, "ada")
        assert [document.id for document in found] == expected
        assert "oolong" in raw["section"]
        assert "coffee" not in raw["section"]
        assert len(provider.retrieve("Which tea?", 1, "ada")[0]) == 1
        provider.cleanup()
    provider = registry["memslot"]()
    provider.prepare(tmp_path / "store")
    assert provider.retrieve("Which tea?", 5, "ada")[0] == []
    provider.cleanup()
