"""Fire and forget: the agent never waits, the queue never grows, and closing says what was lost."""

import os
import subprocess
import sys
import threading
import time

import anyio
import pytest
from abi_support import OTHER, FaultyNode, agent, silent_port, surfaces
from waits import MAX_WAIT_S, held

from memory import BackendUnavailable, InputError
from memory.stigmem.abi import StigmemAbi


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name == "memslot-stigmem"]


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def error_of(written):
    return written.exception(60)


def is_full(written):
    return written.done() and isinstance(written.exception(), BackendUnavailable)


def events(abi):
    return [abi.checkout("t-1"), abi.blocked("t-1", "t-2"), abi.decide("d", "s")]


SENT = ["paperclip:checkout", "paperclip:issue_status", "paperclip:blocked_by", "roadmap:decision"]


@pytest.mark.parametrize("backend", ["asyncio", "trio", None])
def test_a_host_goes_on_while_the_queue_drains_and_closing_sends_the_rest(double, backend):
    async def host():
        async with agent(double) as abi:
            with held(double, "*"):
                written = events(abi)
                await anyio.sleep(0.01)
                assert not any(each.done() for each in written)
            assert await anyio.to_thread.run_sync(abi.close, MAX_WAIT_S) == 0

    if backend:
        anyio.run(host, backend=backend)
    else:
        with agent(double) as abi:
            written = events(abi)
            assert abi.close(MAX_WAIT_S) == abi.close() == 0
        assert [len(each.result(0)) for each in written] == [1, 2, 1]
        assert is_full(abi.decide("late", "s"))
    assert [fact["relation"] for fact in double.node.facts] == SENT
    assert threads() == []


def test_bad_input_is_refused_at_once_and_never_raised(double, caplog):
    with agent(double) as abi:
        assert isinstance(abi.handoff("reviewer", "the secret plan").exception(0), InputError)
        assert "stigmem: handoff refused: to: is not a URI" in caplog.text
        assert isinstance(abi.handoff(OTHER, 17).exception(0), InputError)  # type: ignore[arg-type]
        assert isinstance(abi.handoff(OTHER, "s", 17).exception(0), InputError)  # type: ignore[arg-type]
        empty = surfaces.decision("d", "s").__class__("decision", "x", ())
        assert isinstance(abi.write(empty).exception(0), InputError)
    assert double.requests == []
    assert "secret" not in caplog.text


def test_pings_are_sent_once_while_one_is_valid(double):
    with agent(double) as abi:
        pings = [abi.ping("t-1"), abi.ping("t-1"), abi.ping("t-2")]
        abi.close(60)
    assert [len(ping.result(0)) for ping in pings] == [1, 0, 1]
    assert [(fact["relation"], fact["scope"]) for fact in double.node.facts] == [
        ("paperclip:last_active", "local")
    ] * 2


def test_the_queue_never_grows_past_its_bound(caplog):
    with silent_port() as url:
        abi = StigmemAbi(url, None, None, max_queued_facts=10)
        full, max_queued = [], 0
        for _ in range(200):
            full.append(is_full(abi.handoff(OTHER, "s", ["f"])))  # three facts each
            max_queued = max(max_queued, abi.queued_facts)
        assert full == [False] * 3 + [True] * 197
        assert max_queued == 9
        assert not is_full(abi.decide("d", "s"))
        assert abi.close(0.0) == 4
    assert caplog.text.count("the write queue is full (10 facts)") == 1
    assert "4 writes were abandoned" in caplog.text


def test_room_comes_back_as_writes_end_and_a_ping_without_room_keeps_none_back():
    with FaultyNode({1: "500", 2: "500"}) as node, agent(node, max_queued_facts=1) as abi:
        first = abi.decide("a", "s")
        assert is_full(abi.ping("t-1"))
        assert error_of(first) is not None
        until(lambda: not abi.queued_facts)
        assert len(abi.ping("t-1").result(60)) == 1


def test_closing_in_the_middle_of_a_handoff_says_what_exists(caplog):
    with FaultyNode({3: "late"}) as node:
        abi = agent(node)
        half = abi.handoff(OTHER, "s", ["f"], "c")
        never = [abi.decide(f"d-{number}", "s") for number in range(5)]
        until(lambda: len(node.requests) == 3)
        assert abi.close(0.05) == 6
        assert all(written.cancelled() for written in (half, *never))
        assert "abandoned half-way; of the handoff" in caplog.text
        assert "intent:handoff_summary as" in caplog.text
        assert node.posted == ["intent:handoff_summary", "intent:context_ref", "intent:continuation"]
    assert threads() == []


@pytest.mark.thorough
def test_a_script_that_forgets_to_close_still_sends_its_last_writes(double):
    def script(url, grace_s):
        code = (
            "from memory.stigmem import queue; from memory.stigmem.abi import StigmemAbi; "
            f"queue._EXIT_GRACE_S = {grace_s}; "
            f"abi = StigmemAbi({url!r}); abi.done('t-1'); abi.checkout('t-2'); raise SystemExit(7)"
        )
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
        )

    good = script(double.url, 20.0)
    assert (good.returncode, good.stderr) == (7, "")
    assert [fact["relation"] for fact in double.node.facts] == [
        "paperclip:issue_status",
        "paperclip:checkout",
    ]
    with silent_port() as url:
        slow = script(url, 0.5)
    assert slow.returncode == 7
    assert "stigmem: 2 writes were abandoned on close\n" in slow.stderr


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_a_thread_of_its_own(double):
    code = (
        "import os, sys; from memory.stigmem.abi import StigmemAbi; "
        f"abi = StigmemAbi({double.url!r}); abi.done('parent').result(50); child = os.fork(); "
        "sys.exit(os.waitpid(child, 0)[1] != 0 if child else len(abi.done('child').result(50)) != 1)"
    )
    result = subprocess.run(
        # Newer Pythons warn of any fork beside threads, which is just what is tried here.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert [fact["entity"] for fact in double.node.facts] == ["issue:parent", "issue:child"]
