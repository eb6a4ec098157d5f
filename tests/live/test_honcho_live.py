"""The conformance kit and the adapter's own promises on a real Honcho server.

    HONCHO_SOURCE=~/honcho pytest tests/live/test_honcho_live.py             starts a server of our own
    HONCHO_URL=http://127.0.0.1:8000 pytest tests/live/test_honcho_live.py

``HONCHO_API_KEY`` is the admin key, where the server's auth is on. A server of yours needs models, its worker, and
``DERIVER_FLUSH_ENABLED=true``, or it holds short sessions back for half an hour. Scopes are reset; workspaces stay.
Tests that break the server run on one of our own alone.
"""

import json
import os
import urllib.request
from collections.abc import Callable
from typing import Any, ClassVar

import honcho_rig
import pytest

from memory import (
    AdapterMode,
    MemoryEvent,
    MemoryScope,
    Message,
    RetrieveRequest,
    SupportsReadiness,
    open_memory,
)
from memory.doctor.runner import Doctor
from memory.plugins.opening import build_slot
from memory.testing import MemoryContract

KEY = os.environ.get("HONCHO_API_KEY")
LACK = "" if os.environ.get("HONCHO_URL") else honcho_rig.missing()
Configure = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(bool(LACK), reason=LACK)
breaks_it = pytest.mark.skipif(bool(honcho_rig.missing()), reason=honcho_rig.missing())


@pytest.fixture
def config(honcho_url):
    return lambda **block: _config(honcho_url, **block)


def _config(url, **block):
    scope = {"run_id": "live", "persona_id": "ada"}
    block = {"base_url": url, **({"api_key": KEY} if KEY else {}), **block}
    return {"memory": {"backend": "honcho", "scope": scope, "backends": {"honcho": block}}}


class _Live(MemoryContract):
    block: ClassVar[dict[str, Any]] = {}
    anyio_backends = ("asyncio",)

    @pytest.fixture
    def configured(self, config):
        return config(**self.block)


class TestContext(_Live):
    """As it comes."""


class TestSearch(_Live):
    """Messages by filters."""

    block: ClassVar[dict[str, Any]] = {"retrieval": "search"}


@pytest.fixture
def scope():
    return MemoryScope(run_id=f"live-{os.urandom(6).hex()}", persona_id="ada")


async def test_the_doctor_is_content(config):
    report = await Doctor(config()).run()
    assert report.ok, report


async def test_a_fresh_read_only_slot_makes_no_workspace(config, honcho_url, scope):
    async with build_slot(config()) as memory:
        await memory.set_mode(AdapterMode(read_only=True))
        await memory.setup_scope(scope)
        assert (await _ask(memory, scope, "Who am I?")).entries == ()
        await memory.health()
        await _ready(memory, scope)
        assert _workspaces(honcho_url, memory.native_scope(scope)["workspace_id"]) == 0


async def test_a_session_can_be_used_again_at_once_after_a_reset(config, scope):
    async with open_memory(config(), scope=scope) as memory:
        for drink in ("oolong", "mate"):
            await memory.after_turn(session_id="1", user=f"I drink {drink}.", assistant="Noted.")
            await _ready(memory, scope)
            seen = await memory.before_turn("What do I drink?", session_id="1")
            assert drink in seen
            assert ("oolong" in seen) == (drink == "oolong")
            assert (await memory.reset_scope(scope)).verified


async def test_limits_are_met_without_loss(config, scope):
    texts = (
        "I like <|endoftext|> and <|fim_prefix|> alike.",
        "I count: " + "one two " * 7_000,
        "a\x00b I am.",
    )
    async with open_memory(config(retrieval="search"), scope=scope) as memory:
        for number, text in enumerate(texts):
            event = MemoryEvent(
                event_id=f"e\x00{number}",
                scope=scope,
                session_id="s: 1/ü",
                turn_id=str(number),
                timestamp="2024-05-01T09:00:00+02:00",
                messages=(Message(role="user", content=text),),
            )
            await memory.record_event(event)
            await _ready(memory, scope, "ready", "unknown")  # a piece may be no statement
            found = (await _ask(memory, scope, text[:40], f"e{number}")).entries
            assert "".join(entry.text for entry in sorted(found, key=_part)) == text.replace("\x00", "")
            assert {str(entry.timestamp) for entry in found} == {"2024-05-01 07:00:00+00:00"}
        await memory.reset_scope(scope)


@breaks_it
@pytest.mark.parametrize("kind", ["500", "401", "empty"])
async def test_turns_that_the_model_lost_are_never_ready(honcho_rig_process, scope, kind):
    """Five turns while the model fails, then a good one; asked by the writer, and afresh after a restart."""
    config = _config(honcho_rig_process.url)
    async with open_memory(config, scope=scope) as memory:
        await memory.after_turn(session_id="1", user="I own 0 boats.", assistant="Noted.")
        await _ready(memory, scope)
        with honcho_rig_process.llm_fault(kind, endpoint="chat/completions"):
            for number in range(1, 6):
                await memory.after_turn(session_id="1", user=f"I own {number} boats.", assistant="Noted.")
            await _ready(memory, scope, "unknown", timeout_s=300.0)
        await memory.after_turn(session_id="1", user="I own 6 boats.", assistant="Noted.")
        await _ready(memory, scope, "unknown")
        answer = await _readiness(memory, scope)
        assert "from 5 of 7 messages" in answer.detail
    honcho_rig_process.restart()
    async with open_memory(config, scope=scope) as fresh:
        # Honcho takes a killed worker's task for under way, for five minutes.
        await _ready(fresh, scope, "unknown", timeout_s=420.0)
        await fresh.after_turn(session_id="2", user="I own 7 boats.", assistant="Noted.")
        await _ready(fresh, scope, "unknown")
        assert (await fresh.reset_scope(scope)).verified


async def test_many_turns_are_ready_also_to_a_fresh_process(config, scope):
    async with open_memory(config(), scope=scope) as memory:
        for number in range(12):
            session = f"s{number // 6}"
            await memory.after_turn(session_id=session, user=f"I own {number} boats.", assistant="Noted.")
            await _ready(memory, scope)  # a slow worker would give its model several messages at once
    async with open_memory(config(), scope=scope) as fresh:
        await _ready(fresh, scope)
        await fresh.reset_scope(scope)


def _part(entry):
    return int(dict(entry.labels).get("part", "1/1").partition("/")[0])


async def _ask(memory, scope, query, event_id=None):
    result = await memory.retrieve(RetrieveRequest(query=query, scope=scope, session_id="s"))
    if event_id is None:
        return result
    kept = tuple(entry for entry in result.entries if entry.event_ids == (event_id,))
    return result.model_copy(update={"entries": kept})


async def _readiness(memory, scope, timeout_s=60.0):
    readiness = memory.capability(SupportsReadiness)
    return await readiness.wait_until_ready(scope, timeout_s)


async def _ready(memory, scope, *states, timeout_s=60.0):
    answer = await _readiness(memory, scope, timeout_s)
    assert answer.state in (states or ("ready",)), answer.detail


def _workspaces(url, workspace_id):
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {KEY}"} if KEY else {})}
    body = json.dumps({"filters": {"id": workspace_id}}).encode()
    request = urllib.request.Request(f"{url}/v3/workspaces/list", body, headers, method="POST")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return int(json.load(answer)["total"])
