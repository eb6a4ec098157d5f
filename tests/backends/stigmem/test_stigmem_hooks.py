"""What a hook must survive: wrong usage, and a node that drips."""

import socket
import threading
import time
from contextlib import contextmanager

import pytest
from abi_support import OTHER, USER
from test_abi_cli import ALL, every, run

WRONG = {
    "an empty variable": (["done"], "Missing argument 'TASK'"),
    "an empty string": (["done", ""], "task: must not be blank"),
    "an option for an argument": (["done", "-t"], "No such option"),
    "a misspelt command": (["dnoe", "t-1"], "No such command 'dnoe'"),
    "a misspelt option": (["--bogus"], "No such option"),
    "no number": (["done", "t-1", "--wait", "soon"], "Invalid value for '--wait'"),
    "a missing option": (["handoff", "--to", OTHER], "Missing option '--summary'"),
    "no time": (["boot", USER, "--wait", "0"], "Invalid value for '--wait'"),
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
def test_no_command_outlives_its_wait(command):
    with dripping() as url:
        began = time.monotonic()
        result = run(*ALL[command], "--wait", "0.3", url=url)
        failed = run(*ALL[command], "--wait", "0.3", "--process", url=url)
        assert time.monotonic() - began < 120, "the node drips for longer"
    assert (result.exit_code, result.stdout) == (0, "")
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert "not finished within 0.3 s" in failed.stderr


def test_a_slow_node_is_waited_for_and_each_wait_is_told(double):
    for command in ("done", "boot", "ping"):
        help_text = run(command, "--help", url=None).stdout
        assert "--wait" in help_text, command
