"""Hooks of one machine at once: none is charged for another's start-up, and what they hand over is sent."""

import json
import os
import stat
import subprocess
import sys
import time

import pytest
from abi_support import AGENT
from variants import plain

from memory.storage.insert import insert
from memory.testing import LoopbackAnswer

HOOK = "import sys; sys.argv = ['memslot', 'tools', 'stigmem', *sys.argv[1:]]; from memory.cli import main; main()"


@pytest.fixture
def base(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    return directory


def start(base, url, *arguments, **variables):
    """A hook in a process of its own."""
    env = {**os.environ, "STIGMEM_URL": url, "STIGMEM_SOURCE_ENTITY": AGENT, "XDG_RUNTIME_DIR": str(base)}
    return subprocess.Popen(
        [sys.executable, "-c", HOOK, *arguments],
        env={**env, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(base, url, *arguments, **variables):
    process = start(base, url, *arguments, **variables)
    stdout, stderr = process.communicate(timeout=200)
    return process.returncode, stdout, stderr


@pytest.mark.thorough
@pytest.mark.parametrize("count", [pytest.param(50, marks=pytest.mark.thorough), 12])
def test_hooks_at_once_are_all_stored(double, base, count):
    hooks = [start(base, double.url, "done", f"t-{number}") for number in range(count)]
    answers = [hook.communicate(timeout=250) for hook in hooks]
    assert [hook.returncode for hook in hooks] == [0] * count
    assert answers == [(f"issue:t-{number}\n", "") for number in range(count)]
    stored = {fact["entity"] for fact in double.node.facts}
    assert stored == {f"issue:t-{number}" for number in range(count)}


def test_what_a_hook_imports(double, base):
    code = f"{HOOK}\nprint(sorted(sys.modules), file=sys.stderr)"
    env = {**os.environ, "STIGMEM_URL": double.url, "XDG_RUNTIME_DIR": str(base)}
    command = [sys.executable, "-c", code, "done", "t-1"]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=True)
    imported = {name.partition(".")[0] for name in result.stderr.replace("'", "").strip("[]\n").split(", ")}
    assert imported.isdisjoint({"pydantic", "httpx", "typer", "click", "anyio", "asyncio"})
    assert result.stdout == "issue:t-1\n"


@pytest.mark.thorough
def test_a_hook_says_what_it_said_before(double, base):
    url = double.url
    code, stdout, stderr = run(base, url, "done", "t-1", "--json")
    assert (code, json.loads(stdout)["entity"], stderr) == (0, "issue:t-1", "")
    for arguments, words in (
        (("done", ""), "task: must not be blank"),
        (("done",), "Missing argument 'TASK'"),
        (("done", "t-1", "--wait", "nan"), "--wait: must be"),
        (("escalate", "--to", "x", "--goal", "g"), "to: "),
    ):
        code, stdout, stderr = run(base, url, *arguments)
        assert (code, stdout, stderr.startswith("warning: "), stderr.count("\n")) == (0, "", True, 1)
        assert words in stderr
    double.faults.add("500", endpoint="POST /v1/facts", times=None)
    code, stdout, stderr = run(base, url, "decide", "use-x", "--summary", "because", "--wait", "20")
    assert (code, stdout) == (0, "")
    assert "500" in stderr


def test_what_a_killed_sender_left_is_sent_by_the_next(double, base):
    run(base, double.url, "done", "t-1")
    (directory,) = (base / f"memslot-{os.getuid()}").iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    left = json.dumps({"arguments": ["handoff", "--to", AGENT, "--summary", "go on"]})
    insert(directory / "memslot.db", "stigmem", "left", left)
    run(base, double.url, "done", "t-2")
    until = time.monotonic() + 60
    while "intent:handoff_to" not in str(double.node.facts) and time.monotonic() < until:
        time.sleep(0.05)
    assert [fact["relation"] for fact in double.node.facts].count("intent:handoff_to") == 1
    assert stat.S_IMODE((directory / "memslot.db").stat().st_mode) == 0o600


def test_no_key_is_written_down(double, base):
    run(base, double.url, "done", "t-1", STIGMEM_API_KEY="sk-planted-0123456789")
    for path in base.rglob("*"):
        assert "planted" not in str(path)
        assert path.is_dir() or b"planted" not in path.read_bytes()


@pytest.mark.thorough
def test_a_directory_that_others_may_enter_is_not_used(double, base):
    (base / f"memslot-{os.getuid()}").mkdir(mode=0o777)
    (base / f"memslot-{os.getuid()}").chmod(0o777)
    assert run(base, double.url, "done", "t-1")[:2] == (0, "issue:t-1\n")
    assert list((base / f"memslot-{os.getuid()}").iterdir()) == []
    assert len(double.node.facts) == 1


@pytest.mark.parametrize("flags", plain(of=["", "--process"]))
def test_a_handoff_over_a_node_that_fails_every_other_time_is_whole(double, base, flags):
    """Each of its facts is retried once, which takes two seconds: the wait is for an answer, not for them all."""
    answered = double.handle
    posts = []

    def every_other(request):
        if (request.method, request.path) == ("POST", "/v1/facts"):
            posts.append(request)
            if len(posts) % 2:
                return LoopbackAnswer(500, "Internal Server Error")
        return answered(request)

    double.handle = every_other
    handoff = ("handoff", "--to", AGENT, "--summary", "x", "--ref", "f1", "--ref", "f2")
    code, stdout, stderr = run(base, double.url, *handoff, "--wait", "4", *flags.split())
    assert (code, bool(stdout)) == (0, True), stderr
    assert double.node.facts[-1]["relation"] == "intent:handoff_to"
    assert len(posts) == 8
