"""Fire and forget: the agent never waits, the queue never grows, and closing says what was lost."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from abi_support import OTHER, FaultyNode, agent, closed_port, silent_port, surfaces
from stigmem_double import StigmemDouble
from waits import MAX_WAIT_S, held

from memory import BackendError, InputError
from memory.stigmem.abi import StigmemAbi
from memory.stigmem.client import StigmemNode
from memory.stigmem.queue import QueueReport, WriteQueue


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "memslot-stigmem"]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


# -- hosts ------------------------------------------------------------------------------------------------


def events(abi: StigmemAbi) -> None:
    abi.checkout("t-1")
    abi.blocked("t-1", "t-2")
    abi.decide("d", "s")


SENT = ["paperclip:checkout", "paperclip:issue_status", "paperclip:blocked_by", "roadmap:decision"]


def test_a_host_without_an_event_loop(double: StigmemDouble) -> None:
    with agent(double) as abi:
        events(abi)
        report = abi.close()
    assert report == QueueReport(accepted=3, written=3)
    assert [fact["relation"] for fact in double.node.facts] == SENT
    assert threads() == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_host_on_either_event_loop_goes_on_while_the_queue_drains(
    double: StigmemDouble, backend: str
) -> None:
    async def host() -> int:
        ticks = 0
        async with anyio.create_task_group() as group:

            async def tick() -> None:
                nonlocal ticks
                while True:
                    ticks += 1
                    if ticks > 5:
                        go_on.set()
                    await anyio.sleep(0.005)

            with held(double, "*") as go_on:
                async with agent(double) as abi:
                    events(abi)
                    group.start_soon(tick)
                    assert (await abi.aclose(MAX_WAIT_S)).written == 3
            group.cancel_scope.cancel()
        return ticks

    assert anyio.run(host, backend=backend) > 5
    assert [fact["relation"] for fact in double.node.facts] == SENT
    assert threads() == []


def test_writes_arrive_in_order_also_from_many_threads() -> None:
    with FaultyNode() as node, agent(node) as abi:

        def work(name: str) -> None:
            for number in range(10):
                abi.decide(f"{name}-{number}", "s")

        workers = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert abi.close(30).written == 40
        for name in "abcd":
            sent = [row.json["entity"] for row in node.requests if f"/{name}-" in row.json["entity"]]
            assert sent == [f"stigmem://node/decision/{name}-{number}" for number in range(10)]


# -- the agent never waits --------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [None, "500", "503", "late", "refused"])
def test_a_write_returns_before_the_node_has_answered(fault: str | None) -> None:
    """Counted, not timed: while the node holds its answer back, the agent's calls have all returned."""
    faults = dict.fromkeys(range(1, 500), fault) if fault and fault != "refused" else {}
    with FaultyNode(faults) as node:  # type: ignore[arg-type]
        abi = agent(None if fault == "refused" else node, retry_pause_s=30.0)
        tickets = [abi.handoff(OTHER, "s", ["f"]) for _ in range(20)]
        assert len(tickets) == 20
        if fault in ("late", "500", "503"):
            assert {ticket.state for ticket in tickets} == {"queued"}
        report = abi.close(0.0 if fault else 30.0)
        assert report.accepted == 20
        assert report.waiting == 0
        assert threads() == []


def test_bad_input_is_refused_at_once_and_never_raised(
    double: StigmemDouble, caplog: pytest.LogCaptureFixture
) -> None:
    with agent(double) as abi:
        ticket = abi.handoff("reviewer", "the secret plan")
        assert (ticket.state, ticket.wait(0)) == ("refused", True)
        assert isinstance(ticket.error, InputError)
        assert "stigmem: handoff refused: to: is not a URI" in caplog.text
        assert abi.handoff(OTHER, 17).state == "refused"  # type: ignore[arg-type]
        assert abi.handoff(OTHER, "s", 17).state == "refused"  # type: ignore[arg-type]
        assert abi.write(surfaces.decision("d", "s").__class__("decision", "x", ())).state == "refused"
        assert abi.report() == QueueReport()
    assert double.requests == []
    assert "secret" not in caplog.text


def test_pings_are_sent_once_while_one_is_valid(
    double: StigmemDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(double) as abi:
        assert [abi.ping("t-1").state, abi.ping("t-1").state, abi.ping("t-2").state] == [
            "queued",
            "skipped",
            "queued",
        ]
        abi.close()
    assert [(fact["relation"], fact["scope"]) for fact in double.node.facts] == [
        ("paperclip:last_active", "local")
    ] * 2


@pytest.mark.parametrize(("fault", "again"), [("422", "queued"), ("reset", "skipped")])
def test_a_ping_that_is_surely_not_stored_does_not_keep_the_next_one_back(fault: str, again: str) -> None:
    """One that may be stored does: two valid pings contradict each other, and a query shows neither."""
    with FaultyNode({1: fault, 2: fault}) as node, agent(node) as abi:
        first = abi.ping("t-1")
        assert first.wait(60)
        assert (first.state, abi.ping("t-1").state) == ("failed", again)


def test_a_ping_that_found_no_room_does_not_keep_the_next_one_back() -> None:
    with FaultyNode() as node, agent(node, max_queued_facts=2) as abi:
        long = abi.handoff(OTHER, "s")
        assert abi.ping("t-1").state == "dropped"
        assert long.wait(60)
        assert abi.ping("t-1").state == "queued"


# -- the bound --------------------------------------------------------------------------------------------


def test_the_queue_never_grows_past_its_bound(caplog: pytest.LogCaptureFixture) -> None:
    with silent_port() as url:
        abi = StigmemAbi(url, None, None, max_queued_facts=10)
        states, max_queued = [], 0
        for _ in range(200):
            states.append(abi.handoff(OTHER, "s", ["f"]).state)  # three facts each
            max_queued = max(max_queued, abi.queued_facts)
        assert states == ["queued"] * 3 + ["dropped"] * 197
        assert max_queued == 9
        assert abi.decide("d", "s").state == "queued"
        assert abi.report().dropped == 197
        report = abi.close(0.0)
    assert report == QueueReport(accepted=4, abandoned=4, dropped=197)
    assert caplog.text.count("the write queue is full (10 facts)") == 1


def test_room_comes_back_as_writes_end() -> None:
    with FaultyNode({1: "500", 2: "500"}) as node, agent(node, max_queued_facts=1) as abi:
        first = abi.decide("a", "s")
        assert abi.decide("b", "s").state == "dropped"
        assert first.wait(60)
        assert abi.decide("c", "s").state == "queued"
        report = abi.close()
        assert (report.written, report.failed, report.dropped) == (1, 1, 1)


# -- closing ----------------------------------------------------------------------------------------------


def test_closing_sends_what_is_queued_and_leaves_nothing(double: StigmemDouble) -> None:
    abi = agent(double)
    tickets = [abi.decide(f"d-{number}", "s") for number in range(25)]
    assert abi.close(30).written == 25
    assert {ticket.state for ticket in tickets} == {"written"}
    assert all(len(ticket.facts) == 1 for ticket in tickets)
    assert abi.close() == abi.report()
    assert abi.decide("late", "s").state == "dropped"
    assert threads() == []


def test_closing_in_the_middle_of_a_handoff_counts_it_and_knows_what_exists(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FaultyNode({3: "late"}) as node:
        abi = agent(node)
        half = abi.handoff(OTHER, "s", ["f"], "c")
        never = [abi.decide(f"d-{number}", "s") for number in range(5)]
        until(lambda: len(node.requests) == 3)
        report = abi.close(0.05)
        assert report == QueueReport(accepted=6, abandoned=6)
        assert [fact.relation for fact in half.facts] == ["intent:handoff_summary", "intent:context_ref"]
        assert {ticket.state for ticket in (half, *never)} == {"abandoned"}
        assert all(ticket.wait(0) for ticket in (half, *never))
        assert "6 of 6 writes were abandoned" in caplog.text
        assert node.posted == ["intent:handoff_summary", "intent:context_ref", "intent:continuation"]
    assert threads() == []


@pytest.mark.thorough
def test_a_script_that_forgets_to_close_still_sends_its_last_writes(double: StigmemDouble) -> None:
    def script(url: str, grace_s: float) -> subprocess.CompletedProcess[str]:
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
    assert slow.stderr.endswith("stigmem: 2 of 2 writes were abandoned on close\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_a_thread_of_its_own(double: StigmemDouble) -> None:
    code = (
        "import os, sys; from memory.stigmem.abi import StigmemAbi; "
        f"abi = StigmemAbi({double.url!r}); assert abi.done('parent').wait(50); child = os.fork(); "
        "ticket = abi.done('child') if not child else None; "
        "sys.exit(0 if (ticket.wait(50) if ticket else os.waitpid(child, 0)[1] == 0) else 1)"
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


def test_a_thread_that_hangs_outside_the_event_loop_does_not_hold_up_closing_for_long() -> None:
    release = threading.Event()

    class Hanging(StigmemNode):
        async def assert_fact(self, fact: Any) -> Any:
            release.wait(30)  # as a name look-up may
            raise BackendError("released")

    queue = WriteQueue(lambda: Hanging(closed_port()))
    tickets = [queue.submit(surfaces.decision("d", "s")) for _ in range(3)]
    try:
        report = queue.close(0.05)
        assert report == QueueReport(accepted=3, abandoned=3)
        assert {ticket.state for ticket in tickets} == {"abandoned"}
    finally:
        release.set()
    until(lambda: not threads())
    assert queue.report() == QueueReport(accepted=3, abandoned=3)


def test_a_failed_write_keeps_what_exists_on_its_ticket(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with FaultyNode({2: "422"}) as node:
        with agent(node) as abi:
            ticket = abi.handoff(OTHER, "the secret plan", ["f"])
        assert ticket.state == "failed"
        assert [fact.relation for fact in ticket.facts] == ["intent:handoff_summary"]
        assert "these facts exist: intent:handoff_summary as" in str(ticket.error)
        assert "missing: intent:context_ref, intent:handoff_to" in caplog.text
        assert "secret" not in caplog.text + repr(ticket)
