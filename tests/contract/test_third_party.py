"""Third-party plugins, really installed beside a broken one, with no change in ``memory/``.

They are installed into a directory that only subprocesses see, so this environment stays as it is.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough  # building and installing the plugins takes longest
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# Over libraries that others wrote, which are not installed here: name in YAML -> the modules that are missing.
STRANGERS = {
    "plugins/mcp": ("mcp", ["mcp"]),
    "plugins/mnemosyne": ("mnemosyne", ["mnemosyne"]),
    "plugins/hermes": ("hermes", ["plugins.memory", "agent.memory_provider"]),
}
Run = Callable[..., subprocess.CompletedProcess[str]]

CONFIG = """
memory:
  backend: sqlite_fts
  scope: {run_id: test, persona_id: ada}
  backends:
    sqlite_fts:
    mem0:
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs Python with both plugins installed, in a directory of its own."""
    root = tmp_path_factory.mktemp("third_party")
    sources = []
    for name in ("third_party_plugin", "condition_plugin", "broken_plugin", *STRANGERS):
        # Copied, because setuptools leaves its traces where it builds.
        shutil.copytree(EXAMPLES / name, root / name)
        sources.append(str(root / name))
    offline = ["--no-build-isolation", "--no-index"] if find_spec("setuptools") else []
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(root / "site")]
    subprocess.run([*command, *offline, *sources], check=True, timeout=300)
    environment = {**os.environ, "PYTHONPATH": str(root / "site"), "COLUMNS": "80"}

    def run(*arguments, cwd=root):
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            timeout=600,
        )

    return run


@pytest.fixture
def memslot(run, tmp_path):
    """Runs the command line in a directory with ``config.yaml``."""
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")

    def memslot(*arguments):
        return run("-c", "from memory.cli import main; main()", *arguments, cwd=tmp_path)

    return memslot


def test_it_is_listed_with_its_distribution(memslot):
    listed = memslot("doctor", "--json")
    assert listed.returncode == 0, listed.stderr
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert rows["sqlite_fts"] == {
        "name": "sqlite_fts",
        "kind": "architecture",
        "distribution": "memslot-sqlite-fts",
        "version": "0.1.0",
        "summary": "every message in one SQLite file, found by words (FTS5, bm25)",
        "capabilities": ["bulk_ingest"],
        "consistency": "immediate",
        "pet_observability": "dated",
        "installed": True,
        "install": None,
        "missing": [],
        "error": None,
    }


@pytest.mark.parametrize("plugin", STRANGERS)
def test_one_whose_library_is_missing_says_how_to_install_it(memslot, tmp_path, plugin):
    name, modules = STRANGERS[plugin]
    if find_spec(modules[0].partition(".")[0]) is not None:
        pytest.skip(f"{modules[0]} is installed")
    rows = {row["name"]: row for row in json.loads(memslot("doctor", "--json").stdout)}
    assert (rows[name]["distribution"], rows[name]["missing"]) == (f"memslot-{name}", modules)
    (tmp_path / "stranger.yaml").write_text(f"memory: {{backend: {name}}}", encoding="utf-8")
    refused = memslot("tools", "config", "show", "stranger.yaml")
    examined = memslot("doctor", "stranger.yaml")
    assert f"pip install memslot-{name}" in examined.stdout + refused.stderr


def test_the_broken_one_is_shown_and_breaks_nothing(memslot):
    rows = {row["name"]: row for row in json.loads(memslot("doctor", "--json").stdout)}
    assert "RuntimeError: broken on purpose" in rows["broken"]["error"]
    assert rows["broken"]["distribution"] == "memslot-broken"
    assert rows["full_history"]["installed"]
    shown = memslot("doctor").stdout
    line = next(line for line in shown.splitlines() if line.startswith("broken"))
    assert "memslot-broken" in line
    assert "broken on purpose" in " ".join(shown.split())
    assert "broken on purpose" in memslot("doctor", "config.yaml").stdout


def test_selecting_the_broken_one_is_one_clear_line(memslot, tmp_path):
    config = tmp_path / "broken.yaml"
    config.write_text("memory: {backend: broken, backends: {broken: {}}}", encoding="utf-8")
    result = memslot("tools", "config", "show", str(config))
    assert result.returncode == 2
    assert result.stderr.startswith(
        "error: broken (memslot-broken): memslot_broken failed to load (RuntimeError"
    )
    assert result.stderr.count("\n") == 1


def test_setup_writes_its_configuration(memslot, tmp_path):
    assert memslot("setup", "new.yaml", "--backend", "sqlite_fts", "--full").returncode == 0
    text = (tmp_path / "new.yaml").read_text(encoding="utf-8")
    assert "# FTS5's tokenizer; porter lets English words match whatever their ending." in text
    assert memslot("doctor", "new.yaml").returncode == 0


def test_doctor_is_green(memslot):
    report = json.loads(memslot("doctor", "config.yaml", "--json").stdout)
    assert report["ok"]
    assert {check["name"] for check in report["checks"] if check["status"] != "passed"} == {"models"}


def test_it_runs_the_quickstart(memslot, tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text(CONFIG + "run: {game: {users: 1, sessions: 10}}\n", encoding="utf-8")
    done = memslot("run", "run.yaml", "--out", "runs", "--json")
    assert done.returncode == 0, done.stderr
    (directory,) = (tmp_path / "runs").iterdir()
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    (variant,) = manifest["variants"]
    assert "memslot-sqlite-fts" in variant["distributions"]
    assert manifest["status"] == "completed"
    metrics = json.loads((directory / "metrics.json").read_text(encoding="utf-8"))
    (provider,) = metrics["providers"]
    assert (provider["failed"], provider["missing"], provider["leaks"]) == (0, 0, 0)
    shown = next(measure for measure in provider["measures"] if measure["name"] == metrics["headlines"][0])
    assert shown["estimate"]["value"] > 0.3


@pytest.mark.parametrize("plugin", ["third_party_plugin", "condition_plugin", "plugins/mcp"])
def test_it_keeps_the_contract(run, plugin):
    """Its own tests, run as its author would."""
    tests = run("-m", "pytest", "-q", "-p", "no:cacheprovider", plugin)
    assert tests.returncode == 0, tests.stdout[-3000:]
    assert " passed" in tests.stdout


def test_an_agent_changes_to_it_by_one_word(run, tmp_path):
    if find_spec("mem0") is None:  # not importorskip: importing mem0 as it is starts its telemetry
        pytest.skip("needs mem0")
    for name in ("mem0", "sqlite_fts"):
        config = tmp_path / f"{name}.yaml"
        config.write_text(CONFIG.replace("backend: sqlite_fts", f"backend: {name}"), encoding="utf-8")
        talk = run(str(EXAMPLES / "agent_loop.py"), "--config", str(config), cwd=tmp_path)
        assert talk.returncode == 0, talk.stderr
        asked, answered = "you:   What is my dog called?\n", "agent: My dog is called Biscuit.\n"
        assert asked + answered in talk.stdout
