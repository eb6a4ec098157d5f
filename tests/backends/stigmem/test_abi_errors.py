"""The error table of Spec-19 12.6, row by row, for both archetypes."""

import logging
import time

import pytest
from abi_support import AGENT, USER, FaultyNode, agent, closed_port, surfaces

from memory import BackendError, BackendUnavailable, ConfigError
from memory.stigmem.abi import BootContext, StigmemAbi

BOTH = pytest.mark.parametrize("archetype", ["middleware", "process"])


def levels(caplog):
    return [record.levelno for record in caplog.records if record.name == "memslot.stigmem"]


async def test_url_absent(caplog):
    with pytest.raises(ConfigError, match="STIGMEM_URL"):
        StigmemAbi.from_env("process", {})
    abi = StigmemAbi.from_env("middleware", {})
    assert await abi.boot(USER) == BootContext()
    assert await abi.fire(lambda build: build.checkout("t")) == ()
    assert levels(caplog) == []
    for call in (abi.probe, lambda: abi.perform(surfaces.done("t"))):
        with pytest.raises(ConfigError, match="STIGMEM_URL: is not set"):
            await call()


@pytest.mark.parametrize(
    ("archetype", "level"), [("process", logging.ERROR), ("middleware", logging.WARNING)]
)
async def test_node_unreachable_at_boot(archetype, level, caplog):
    abi = agent(None, archetype=archetype)
    context = await abi.boot(USER)
    assert (context.facts, context.summary) == ([], "")
    assert levels(caplog) == [level]
    with pytest.raises(BackendUnavailable):
        await abi.perform(surfaces.done("t"))


@BOTH
async def test_node_unreachable_on_write(archetype, caplog):
    assert await agent(None, archetype=archetype).fire(lambda build: build.done("t")) == ()
    assert levels(caplog) == [logging.WARNING]


@BOTH
@pytest.mark.parametrize(("fault", "requests"), [("422", 1), ("429", 1), ("503", 2), ("500", 2)])
async def test_node_refuses_or_fails_a_write(fault, requests, archetype, caplog):
    """4xx is not sent again, 5xx once more; both are an error of the log alone."""
    with FaultyNode({1: fault, 2: fault}) as node:
        assert await agent(node, archetype=archetype).fire(lambda build: build.done("t")) == ()
        assert len(node.requests) == requests
    assert levels(caplog)[-1] == logging.ERROR


async def test_node_answers_5xx_once():
    with FaultyNode({1: "500"}) as node:
        before = time.monotonic()
        assert len(await agent(node, retry_pause_s=0.2).fire(lambda build: build.done("t"))) == 1
        assert time.monotonic() - before >= 0.2
        assert node.connections == 2  # the connection of a plain-text 500 is reset


@pytest.mark.parametrize("fault", ["422", "429"])
async def test_a_boot_query_answered_with_4xx_is_empty(fault, caplog):
    with FaultyNode({2: fault}) as node:
        context = await agent(node).boot(USER)
        assert (context.facts, context.summary, len(context.problems)) == ([], "", 1)
        assert len(node.requests) == 4
    assert levels(caplog) == []


@pytest.mark.parametrize("fault", ["503", "500"])
async def test_a_boot_query_answered_with_5xx_is_empty_and_logged(fault, caplog):
    with FaultyNode({2: fault, 3: fault}) as node:
        context = await agent(node, retry_pause_s=30.0).boot(
            USER
        )  # a boot does not wait two seconds for a retry
        assert (context.facts, context.summary, len(context.problems)) == ([], "", 1)
        assert [sent.path for sent in node.requests][-2:] == ["/v1/facts"] * 2
    assert levels(caplog) == [logging.WARNING]


async def test_node_unreachable_in_a_tool_call_of_a_process():
    abi = StigmemAbi(closed_port(), None, AGENT, archetype="process")
    with pytest.raises(BackendError, match="POST /v1/facts failed"):
        await abi.perform(surfaces.done("t"))


@BOTH
async def test_whatever_the_node_does_nothing_is_raised_and_nothing_leaks(archetype, caplog):
    caplog.set_level(logging.DEBUG, "memslot.stigmem")
    for fault in ("500", "503", "reset", "unreadable", "redirect", "429", "422"):
        with FaultyNode(dict.fromkeys(range(1, 99), fault)) as node:
            abi = StigmemAbi(node.url, "hunter2hunter2", AGENT, archetype=archetype, retry_pause_s=0)
            context = await abi.boot(USER)
            assert context.problems if fault != "422" else True
            assert await abi.fire(lambda build: build.handoff(AGENT, "the secret plan", ["f"])) == ()
            assert await abi.fire(lambda build: build.escalation(AGENT, "the secret plan", "low")) == ()
            assert await abi.fire(lambda build: build.handoff(AGENT, 17)) == ()
    assert "secret" not in caplog.text
    assert "hunter2" not in caplog.text
