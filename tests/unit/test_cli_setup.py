"""The first hour: ``setup`` asks; ``setup --from`` changes the memory of a configuration and nothing else."""

import importlib.util
import re
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
import yaml
from backends import of_backend
from cli_support import LACKING, error_line, fake_plugin, invoke

from memory import ConfigError
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.slot.calls import Deadlines


@pytest.fixture
def terminal(monkeypatch):
    """Somebody answers: what is given as input is typed."""
    monkeypatch.setattr("memory.cli.setup.on_a_terminal", lambda: True)


@pytest.mark.thorough
@pytest.mark.usefixtures("terminal")
def test_setup_asks_writes_checks_and_ends_with_what_to_try(tmp_path):
    path = tmp_path / "memslot.yaml"
    result = invoke("setup", path, input="langchain\nmem0\nmine\nnone\nlexical\n")
    assert result.exit_code == 0, result.output
    config = load_config(path)
    assert config.provider == "mem0"
    assert config.data_dir == tmp_path / "mine"
    assert str(path) in (tmp_path / "langchain_agent.py").read_text("utf-8")
    assert "checks passed" in result.stdout
    assert result.stdout.index("I like oolong tea.") < result.stdout.index("Which tea do I like?")
    assert "exists" in error_line(invoke("setup", path), 2)


@pytest.mark.usefixtures("terminal")
def test_setup_times_the_model_and_writes_a_deadline_that_fits(tmp_path, llm, monkeypatch):
    pytest.importorskip("mem0")
    monkeypatch.setattr("memory.slot.calls.Deadlines", lambda: Deadlines(write_s=0.001))
    path = tmp_path / "memslot.yaml"
    result = invoke("setup", path, input=f"none\nmem0\nmine\nscripted\n{llm.base_url}\nlexical\n")
    assert result.exit_code == 0, result.output
    written = load_config(path).memory.deadlines.write_s
    assert f"wrote memory.deadlines.write_s: {written:g}, three times" in result.stdout
    assert written >= 1
    assert "and memory.deadlines.write_s allows 600 s" in result.stdout.replace("\n", "")


@pytest.mark.usefixtures("terminal")
def test_a_missing_sdk_a_missing_model_and_a_missing_key_are_named_together(
    add_plugin, tmp_path, monkeypatch
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == "fastembed" else real(name, *rest)
    )
    options = """
from typing import Any
from pydantic import Field
from memory.adapter import PluginOptions
class Options(PluginOptions):
    llm: dict[str, Any] = Field(examples=[{"model": "m"}])
    embedder: Any = "lexical"
"""
    about = f'summary="", options=Options, sdk_modules=("no_such_sdk",), install="{LACKING}"'
    add_plugin("lacking", fake_plugin("lacking", before=options, info=about))
    result = invoke("setup", tmp_path / "new.yaml", "--backend", "lacking", input="none\nd\nlocal\n\ngpt\n")
    assert result.exit_code == 0, result.output
    assert f"to be installed: {LACKING}; pip install 'memslot[local]'" in result.stdout
    assert "to be set: the variable OPENAI_API_KEY" in result.stdout
    assert result.stdout.endswith(f"next: memslot doctor {tmp_path / 'new.yaml'}\n")
    written = yaml.safe_load((tmp_path / "new.yaml").read_text("utf-8"))["memory"]["backends"]["lacking"]
    assert written == {"llm": {"model": "gpt"}, "embedder": {"provider": "local"}}


@pytest.mark.usefixtures("terminal")
def test_setup_asks_for_the_directory_of_a_model_in_this_process(tmp_path):
    of_backend("mem0")
    path, model = tmp_path / "memslot.yaml", tmp_path / "all-MiniLM-L6-v2"
    answers = f"none\nd\nnone\nlocal\n{model}\n"
    invoke("setup", path, "--backend", "mem0", input=answers)
    block = yaml.safe_load(path.read_text("utf-8"))["memory"]["backends"]["mem0"]
    assert block["embedder"] == {"provider": "local", "model": model.name, "path": str(model)}


@pytest.mark.usefixtures("terminal")
def test_setup_asks_for_what_a_memory_requires(tmp_path):
    of_backend("honcho")
    path = tmp_path / "memslot.yaml"
    result = invoke(
        "setup",
        path,
        "--host",
        "none",
        "--backend",
        "honcho",
        "--data-dir",
        "d",
        input="http://127.0.0.1:9\n",
    )
    assert (
        yaml.safe_load(path.read_text("utf-8"))["memory"]["backends"]["honcho"]["base_url"]
        == "http://127.0.0.1:9"
    )
    assert "health" in result.stdout  # the doctor says that nobody answers there
    assert result.exit_code == 1


def test_setup_names_a_host_it_does_not_know(tmp_path):
    line = error_line(invoke("setup", tmp_path / "memslot.yaml", "--host", "nope"), 2)
    assert "there are: nanobot" in line


@pytest.mark.parametrize("backend", ["graphiti", "full_history", "honcho", "memos", "stigmem"])
def test_another_memory_keeps_scope_budget_policy_and_variables(backend, tmp_path):
    if backend != "full_history":
        of_backend(backend)
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(
        """
memory:
  backend: mem0
  scope: {run_id: shop, persona_id: ada}
  budget: {max_tokens: 123}
  data_dir: kept
  journal: true
  backends: {mem0: {llm: {model: m, api_key: "${NOT_SET:-none}"}}}
agent: {provider: scripted, policy: {recall_s: 7.5}}
""",
        encoding="utf-8",
    )
    result = invoke("setup", new, "--from", old, "--backend", backend)
    assert result.exit_code == 0, result.output
    content = yaml.safe_load(new.read_text("utf-8"))
    assert content["memory"]["backend" if backend != "full_history" else "condition"] == backend
    assert content["memory"]["scope"] == {"run_id": "shop", "persona_id": "ada"}
    assert content["memory"]["budget"] == {"max_tokens": 123}
    assert content["memory"]["data_dir"] == "kept"
    assert content["agent"] == {"provider": "scripted", "policy": {"recall_s": 7.5}}
    assert "mem0" not in str(content)
    assert load_config(new).provider == backend


def test_a_configuration_that_does_not_load_is_carried_nowhere(tmp_path):
    of_backend("honcho")
    old = tmp_path / "old.yaml"
    old.write_text("memory: {backend: mem0, scop: {}}", encoding="utf-8")
    assert "scop" in error_line(
        invoke("setup", tmp_path / "new.yaml", "--from", old, "--backend", "honcho"), 2
    )
    assert not (tmp_path / "new.yaml").exists()


def test_the_readme_names_the_memories_that_need_no_block(tmp_path):
    registry, alone = MemoryAdapterRegistry(), set()
    for row in registry.rows():
        field = "backend" if row.kind == "architecture" else "condition"
        config = load_config({"memory": {field: row.name, "scope": {"run_id": "a", "persona_id": "b"}}})
        with suppress(ConfigError):
            adapter = registry.create(config, data_dir=tmp_path / row.name)
            anyio.run(adapter.aclose)
            alone.add(row.name)
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    (sentence,) = re.findall(r"^(.*) need no settings\.$", readme, re.M)
    assert set() < set(re.findall(r"`(\w+)`", sentence)) <= alone
