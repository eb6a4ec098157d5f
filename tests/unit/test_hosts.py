"""What is said of hosts: on the command line and in the documentation, from the same declarations."""

import ast
import importlib
import json
import re
import shlex
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from cli_support import invoke
from host_contract import HostContract
from host_pages import block, table
from packaging.requirements import Requirement

from memory import PluginLoadError
from memory.hosts import _shared
from memory.hosts import table as _table
from memory.hosts.table import HOSTS

ROOT = Path(__file__).parents[2]
SCENES = re.findall(r"async def test_(\w+)", (ROOT / "tests/hosts/with_sdks/stage.py").read_text("utf-8"))
PROMISES = {name.removeprefix("test_") for name in dir(HostContract) if name.startswith("test_")} | {*SCENES}


def test_the_table_of_the_documentation_is_that_of_the_declarations():
    page = (ROOT / "docs" / "hosts.md").read_text("utf-8")
    assert table() in page, "run: python tests/support/host_pages.py"


@pytest.mark.parametrize("name", HOSTS)
def test_every_host_has_a_page_with_its_program(name):
    page = (ROOT / "docs" / "hosts" / f"{name}.md").read_text("utf-8")
    assert block(HOSTS[name]) in page
    for reason in HOSTS[name].cannot.values():
        assert reason in page


@pytest.mark.parametrize("name", HOSTS)
def test_a_program_takes_any_path(name):
    path = """/a b/it's "mine" \\ $HOME.yaml"""
    program = HOSTS[name].program(path)
    if program.startswith("#"):
        assert path in shlex.split(program, comments=True) or f"MEMSLOT_CONFIG={path}" in shlex.split(
            program, comments=True
        )
    elif program.startswith("{"):
        assert path in json.loads(program)["mcpServers"]["memory"]["args"]
    else:
        names = [node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)]
        assert path in names


@pytest.mark.parametrize("name", HOSTS)
def test_what_a_host_cannot_do_is_a_promise_of_the_suite(name):
    assert set(HOSTS[name].cannot) <= PROMISES | {"picture", "recall", "tools"}


def test_another_release_is_one_sentence_with_the_tested_range(monkeypatch):
    monkeypatch.setattr(_table.metadata, "version", lambda name: "9.1.0")
    with (
        pytest.raises(PluginLoadError, match=r"langchain 9.1.0 is installed; .* 1.4 and newer, below 2: pip"),
        _shared.tested("langchain"),
    ):
        raise AssertionError("its import was reached")
    monkeypatch.setattr(_table.metadata, "version", lambda name: "1.12.3rc1")
    assert HOSTS["langchain"].untested is None
    assert replace(HOSTS["langchain"], tested=("1.13", "2")).untested is not None


@pytest.mark.parametrize("name", [name for name, host in HOSTS.items() if host.tested])
def test_no_binding_is_used_with_a_release_that_was_not_tested(name, monkeypatch):
    module = {"nanobot": "nanobot.tool", "mcp": "mcp.server"}.get(name, HOSTS[name].module)
    monkeypatch.setattr(_table.metadata, "version", lambda distribution: "99.0.0")
    monkeypatch.delitem(sys.modules, f"memory.hosts.{module}", raising=False)
    with pytest.raises(PluginLoadError, match=rf"99.0.0 is installed; .* {HOSTS[name].tested[0]} and newer"):
        importlib.import_module(f"memory.hosts.{module}")


@pytest.mark.parametrize("name", [name for name, host in HOSTS.items() if host.tested])
def test_the_extra_installs_a_release_that_was_tested(name):
    host = HOSTS[name]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    wanted = [Requirement(line) for line in extras[name] if Requirement(line).name == host.distribution]
    bounds = {bound.operator: bound.version for requirement in wanted for bound in requirement.specifier}
    assert host.tested is not None
    assert (bounds[">="], bounds["<"]) == host.tested


def test_a_host_that_is_not_in_the_table_is_refused_by_what_to_do():
    with (
        pytest.raises(PluginLoadError, match=r"has no host 'nobody'; add it to memory/hosts/hosts\.toml"),
        _shared.tested("nobody"),
    ):
        pass


def test_a_missing_sdk_says_the_pip_line():
    with pytest.raises(PluginLoadError, match=r"pip install 'memslot\[strands\]'"), _shared.tested("strands"):
        raise ImportError("no", name="strands")


def test_the_command_lists_hosts_and_prints_lines_to_paste(tmp_path):
    rows = json.loads(invoke("tools", "hosts", "--json").stdout)
    assert [row["host"] for row in rows] == list(HOSTS)
    config = tmp_path / "my.yaml"
    printed = invoke("tools", "hosts", "langchain", "--config", str(config)).stdout
    assert f'open_memory("{config}")' in printed
    assert f"# {config} does not exist yet: memslot setup {config}" in printed
    assert "there are: nanobot" in invoke("tools", "hosts", "nope").stderr
    assert "takes no plugin folder" in invoke("tools", "hosts", "crewai", "install").stderr


def test_the_folder_of_hermes_comes_and_goes_whole(tmp_path):
    config, directory = tmp_path / "memslot.yaml", tmp_path / "hermes"
    asked = ("--config", str(config), "--directory", str(directory))
    assert "write it first" in invoke("tools", "hosts", "hermes", "install", *asked).stderr
    config.write_text("memory: {backend: full_history, scope: {run_id: a, persona_id: b}}")
    assert "start the host once" in invoke("tools", "hosts", "hermes", "install", *asked).stderr
    directory.mkdir()
    for _ in range(2):
        invoke("tools", "hosts", "hermes", "install", *asked)
    assert json.loads((directory / "memslot.json").read_text()) == {"config": str(config)}
    assert (directory / "plugins" / "memslot" / "plugin.yaml").exists()
    invoke("tools", "hosts", "hermes", "uninstall", *asked)
    assert [path for path in directory.rglob("*") if path.is_file()] == []
    assert "nothing of memslot" in invoke("tools", "hosts", "hermes", "uninstall", *asked).stdout


def test_the_words_of_a_message_are_neither_thoughts_nor_pictures():
    parts = [
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "hi"},
        {"type": "input_text", "text": "there"},
        {"type": "image", "url": "x"},
    ]
    assert _shared.words(parts) == "hi\nthere"
    assert _shared.words("plain") == "plain"
    assert _shared.words(None) == _shared.words({"text": "no list"}) == ""


def test_parts_without_words_are_named_by_their_kinds():
    class Block:
        block_type, text = "video", None

    parts = [
        {"type": "text", "text": "hi"},
        {"type": "text", "text": None},
        {"type": "tool_use", "id": "1"},
        {"type": "thinking", "thinking": "hm"},
        {"type": "image_url", "image_url": "x"},
        {"image": {"format": "png"}},
        {"type": "from_the_future"},
        {},
        Block(),
        7,
    ]
    assert _shared.words(parts) == "hi"
    assert _shared.left_out(parts) == ["image_url", "image", "from_the_future", "empty", "video", "int"]
    assert _shared.left_out("plain") == _shared.left_out(None) == []
