"""``memslot tools stigmem`` as hooks use it: 0 whatever the node does, unless ``--process`` is asked for."""

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from abi_support import AGENT, OTHER, USER, FaultyNode, closed_port
from cli_support import invoke

from memory.stigmem import commands

WRITES = {
    "checkout": ["checkout", "t-1"],
    "done": ["done", "t-1"],
    "ping": ["ping", "t-1"],
    "blocked": ["blocked", "t-1", "--by", "t-2"],
    "handoff": ["handoff", "--to", OTHER, "--summary", "s", "--ref", "f1", "--continuation", "c"],
    "decide": ["decide", "use-sqlite", "--summary", "s"],
    "escalate": ["escalate", "--to", OTHER, "--goal", "g", "--priority", "high"],
}
ALL = {**WRITES, "boot": ["boot", USER]}
every = pytest.mark.parametrize("command", ALL)


def run(*arguments, url, source=AGENT):
    env = {"STIGMEM_URL": url, "STIGMEM_SOURCE_ENTITY": source, "STIGMEM_API_KEY": None}
    return invoke("tools", "stigmem", *arguments, env=env)


def relations(node):
    return [fact["relation"] for fact in node.node.facts]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("checkout", ["paperclip:checkout"]),
        ("done", ["paperclip:issue_status"]),
        ("ping", ["paperclip:last_active"]),
        ("blocked", ["paperclip:issue_status", "paperclip:blocked_by"]),
        (
            "handoff",
            ["intent:handoff_summary", "intent:context_ref", "intent:continuation", "intent:handoff_to"],
        ),
        ("decide", ["roadmap:decision"]),
        ("escalate", ["intent:goal", "intent:escalate_to", "intent:escalation"]),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--process"]])
def test_each_write_stores_its_facts_and_prints_its_uri(double, command, expected, flags):
    result = run(*WRITES[command], *flags, url=double.url)
    assert (result.exit_code, result.stderr) == (0, "")
    assert relations(double) == expected
    assert {fact["entity"] for fact in double.node.facts} == {result.stdout.strip()}
    assert {fact["source"] for fact in double.node.facts} == {AGENT}


def test_boot_prints_what_goes_into_the_prompt_and_nothing_else(double):
    assert run("boot", USER, url=double.url).output == ""
    run("handoff", "--to", AGENT, "--summary", "half done", url=double.url)
    result = run("boot", USER, url=double.url)
    assert result.stdout.startswith(f"## Stigmem context — {USER}\n\n### intent\n- **intent:handoff_")
    assert result.stderr == ""
    assert run("boot", USER, "--process", url=double.url).stdout == result.stdout


@every
def test_without_a_url_middleware_is_silent_and_a_process_fails(command):
    result = run(*ALL[command], url=None)
    assert (result.exit_code, result.output) == (0, "")
    failed = run(*ALL[command], "--process", url=None)
    assert failed.exit_code == 2
    assert failed.stdout == ""
    assert failed.stderr.startswith("error: STIGMEM_URL: is not set; set it to the node")
    assert failed.stderr.count("\n") == 1


@every
@pytest.mark.parametrize("fault", ["refused", "500", "unreadable"])
def test_whatever_the_node_does_middleware_exits_with_0_and_a_process_with_1(
    command, fault, monkeypatch, caplog
):
    monkeypatch.setattr("anyio.sleep", _no_pause)
    faults = dict.fromkeys(range(1, 99), fault) if fault != "refused" else {}
    with FaultyNode(faults) as node:
        url = node.url if faults else closed_port()
        result = run(*ALL[command], url=url)
        assert (result.exit_code, result.stdout) == (0, ""), result.output
        assert result.stderr + caplog.text != ""
        failed = run(*ALL[command], "--process", url=url)
    assert failed.exit_code == 1, failed.output
    assert failed.stdout == ""
    assert failed.stderr.startswith("error: stigmem: ")


async def _no_pause(seconds):
    return None


def python(code, **env):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_command_line_imports_no_http_client():
    loaded = "{'httpx', 'memory.stigmem.client', 'memory.backends.stigmem'} & set(sys.modules)"
    assert python(f"import sys, memory.cli.app; sys.exit(bool({loaded}))").returncode == 0


@pytest.mark.thorough
@pytest.mark.parametrize(("flags", "code"), [("", 0), (", '--process'", 2)])
def test_without_the_extra_the_line_to_install_it_is_said(flags, code):
    result = python(
        "import sys; sys.modules['httpx'] = None; from memory.cli import main; "
        f"sys.argv = ['memslot', 'tools', 'stigmem', 'boot', '{USER}'{flags}]; main()",
        STIGMEM_URL="http://127.0.0.1:1",
    )
    assert (result.returncode, result.stdout) == (code, "")
    assert "pip install 'memslot[stigmem]'" in result.stderr


WRONG = {
    "an empty variable": (["done"], "Missing argument 'TASK'"),
    "an empty string": (["done", ""], "task: must not be blank"),
    "an option for an argument": (["done", "-t"], "No such option"),
    "a misspelt command": (["dnoe", "t-1"], "No such command 'dnoe'"),
    "a misspelt option": (["--bogus"], "No such option"),
    "a missing option": (["handoff", "--to", OTHER], "Missing option '--summary'"),
    "no URI": (["escalate", "--to", "reviewer", "--goal", "g"], "to: is not a URI with '://'"),
    "no priority": (
        ["escalate", "--to", OTHER, "--goal", "g", "--priority", "urgent"],
        "priority: must be one of",
    ),
    "too long": (["handoff", "--to", OTHER, "--summary", "x" * 5000], "summary: is 5000 bytes of UTF-8"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_usage_breaks_no_hook_and_fails_a_process(double, wrong):
    arguments, message = WRONG[wrong]
    result = run(*arguments, url=double.url)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("warning: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    silent = run(*arguments, url=None)
    assert (silent.exit_code, silent.output) == (0, "")
    failed = run(*arguments, "--process", url=double.url)
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert message in failed.stderr
    assert double.node.facts == []


@contextmanager
def dripping():
    """A node that answers every request with a byte now and then, for ever."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        over = threading.Event()

        def drip(connection):
            with connection:
                connection.recv(4096)
                for byte in b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + b"x" * 10_000:
                    if over.wait(0.05):
                        return
                    try:
                        connection.send(bytes([byte]))
                    except OSError:
                        return

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=drip, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        over.set()
        listener.shutdown(socket.SHUT_RDWR)


@every
def test_no_command_outlives_its_wait(command, monkeypatch):
    monkeypatch.setattr(commands, "_WAIT_S", 0.3)
    with dripping() as url:
        began = time.monotonic()
        result = run(*ALL[command], url=url)
        failed = run(*ALL[command], "--process", url=url)
        assert time.monotonic() - began < 120, "the node drips for longer"
    assert (result.exit_code, result.stdout) == (0, "")
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert "not finished within 0.3 s" in failed.stderr
