"""What people expect of any command: completion, --json, colour on terminals alone, and a word on what was left."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import PackagePath
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from cli_support import error_line, invoke, small_demo

from memory.cli.app import app
from memory.plugins.console import progress

MEMSLOT = (sys.executable, "-c", "from memory.cli import main; main()")
SMALL = "memory: {backend: full_history}\nrun: {doctor: false, game: {users: 1, sessions: 10, tests: 3}}\n"
NO_RESULT = {
    "chat",
    "example",  # files, and nothing else
    "serve",  # a server
    "view",  # a server
    "tools mcp",  # a server
    "tools new-plugin",  # files, and nothing else
    "tools scripted-llm",  # a server, or another command beside it
}


def commands(command, path=""):
    """Every command by the words that call it."""
    if not hasattr(command, "list_commands"):
        return {path: command}
    found = {}
    for name in command.list_commands(None):
        found |= commands(command.get_command(None, name), f"{path} {name}".strip())
    return found


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "memory.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def shell(instruction, words=""):
    """What the command answers the shell's completion."""
    typed = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    return invoke(env={"_MEMSLOT_COMPLETE": instruction, **typed}, prog_name="memslot")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("memslot jo", ["journal"]),
        ("memslot tools config ", ["show"]),
        ("memslot tools stig", ["stigmem"]),
        ("memslot run --no", ["--no-doctor"]),
    ],
)
def test_the_shell_completes(words, expected):
    assert shell("complete_bash", words).stdout.split() == expected


def test_every_command_that_prints_a_result_prints_it_as_json():
    every = commands(typer.main.get_command(app))
    assert {"run", "report", "tools conform", "setup", "doctor", "tools config show"} <= every.keys()
    for name, command in every.items():
        offered = any("--json" in parameter.opts for parameter in command.params)
        assert offered != (name in NO_RESULT or name.startswith("tools stigmem ")), name


@pytest.mark.thorough
def test_a_report_as_json_is_what_the_run_said(config, tmp_path):
    said = json.loads(invoke("run", config, "--out", tmp_path / "out", "--json").stdout)
    assert json.loads(invoke("report", tmp_path / "out", "--json").stdout) == said
    compared = invoke("run", config, "no_memory", "full_history", "--out", tmp_path / "two", "--json")
    assert json.loads(invoke("report", tmp_path / "two", "--json").stdout) == json.loads(compared.stdout)


def test_setup_as_json_says_what_is_next(tmp_path):
    printed = json.loads(invoke("setup", tmp_path / "new.yaml", "--json").stdout)
    assert printed == {"wrote": str(tmp_path / "new.yaml"), "next": f"memslot doctor {tmp_path / 'new.yaml'}"}


def without(monkeypatch, module):
    """As if a module was not installed."""
    real = __import__("importlib.util").util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == module else real(name, *rest)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_the_demo_plays_what_is_there(tmp_path, monkeypatch, as_json):
    without(monkeypatch, "mem0")
    small_demo(tmp_path, monkeypatch)
    result = invoke("run", "demo", "--out", tmp_path, *(["--json"] if as_json else []))
    assert result.exit_code == 0, result.output
    needs = "needs pip install 'memslot[mem0]'"
    if as_json:
        about = json.loads(result.stdout)
        assert about["left_out"] == {"mem0": needs, "simple_rag": needs}
        assert about["status"] == "completed"
    else:
        assert f"left out: simple_rag, which {needs}" in result.stdout
        *_, verdict, left_out, report = result.stdout.splitlines()
        assert verdict.endswith("No memory architecture was played.")
        assert left_out.startswith("Left out: mem0")
        assert report.startswith("report: ")


def test_help_shows_twelve_commands_in_four_groups():
    _, *groups = re.split(r"^(Use|Check|Measure|Extend):\n", invoke("--help").stdout, flags=re.MULTILINE)
    found = {
        title: re.findall(r"^  (\S+)", rows, re.MULTILINE)
        for title, rows in zip(groups[::2], groups[1::2], strict=True)
    }
    assert found == {
        "Use": ["setup", "example", "chat", "import", "export", "serve", "journal"],
        "Check": ["doctor", "view"],
        "Measure": ["run", "report"],
        "Extend": ["tools"],
    }


def test_progress_is_a_line_now_and_then(monkeypatch, capsys):
    clock = iter([0.0, 10.0, 16.0, 17.0, 18.0, 19.0, 20.0, 21.0])
    # Threads of other tests read the real clock.
    monkeypatch.setattr("memory.plugins.console.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress() as report:
        for done in (0, 6, 207, 212):
            report("steps", done, 212, "mem0")
    assert capsys.readouterr().err.splitlines() == ["steps: 0 of 212, mem0", "steps: 212 of 212, mem0"]


@pytest.mark.thorough
@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_an_interrupted_run_says_where_its_files_are(tmp_path):
    path = tmp_path / "memory.yaml"
    game = "{users: 6, sessions: 200, tests: 60}"
    run = f"run: {{doctor: false, game: {game}, providers: [no_memory, full_history]}}\n"
    path.write_text(f"memory: {{backend: full_history}}\n{run}", encoding="utf-8")
    out = tmp_path / "runs"
    running = subprocess.Popen(
        [*MEMSLOT, "run", str(path), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while not list(out.glob("*/cells/*/journal.jsonl")):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    running.send_signal(signal.SIGINT)
    shown, complaints = running.communicate(timeout=300)
    assert running.returncode == 130, (shown, complaints)
    assert "Traceback" not in complaints
    (place,) = re.findall(r"^incomplete: (.*); --resume \1 goes on$", complaints, re.M)
    assert json.loads((Path(place) / "manifest.json").read_text(encoding="utf-8"))["status"] == "incomplete"


def on_a_terminal(*arguments, **environment):
    """What a command shows on a terminal."""
    leader, follower = pty.openpty()
    given = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    running = subprocess.Popen(
        [*MEMSLOT, *map(str, arguments)],
        stdin=follower, stdout=follower, stderr=follower,
        env={**given, "TERM": "xterm-256color", **environment},
    )  # fmt: skip
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(leader)
    running.wait(timeout=300)
    return shown.decode()


@pytest.mark.thorough
@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo terminal")
def test_colours_are_for_terminals(config, tmp_path):
    warned = ("run", config, "--out", tmp_path / "out")
    assert re.search(r"\x1b\[\d*;?33mwarning: ", on_a_terminal(*warned))
    assert "\x1b[31merror: " in on_a_terminal("run", tmp_path / "nowhere.yaml")
    assert "\x1b[31m" not in on_a_terminal("run", tmp_path / "nowhere.yaml", NO_COLOR="1")
    piped = invoke(*warned)
    assert "warning: " in piped.stdout
    assert "\x1b" not in piped.output
    assert "\x1b" not in invoke("run", tmp_path / "nowhere.yaml").output


def test_what_pip_compiles_is_no_example(monkeypatch):
    names = ["../share/memslot/__pycache__/a.cpython-311.pyc", "../share/memslot/a.py"]
    monkeypatch.setattr("importlib.metadata.files", lambda _: [PackagePath(name) for name in names])
    monkeypatch.setattr(PackagePath, "locate", lambda self: Path("/env/lib") / self, raising=False)
    assert invoke("example").stdout.split() == ["a.py"]


def test_an_example_is_written_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert {"sync_script.py", "quickstart.yaml"} <= {*invoke("example").stdout.split()}
    assert invoke("example", "quickstart.yaml").exit_code == 0
    ours = Path(__file__).parents[2] / "configs" / "quickstart.yaml"
    assert Path("quickstart.yaml").read_text("utf-8") == ours.read_text("utf-8")
    assert "quickstart.yaml exists" in error_line(invoke("example", "quickstart.yaml"), 2)
    assert "there are: " in error_line(invoke("example", "nothing.yaml"), 2)
