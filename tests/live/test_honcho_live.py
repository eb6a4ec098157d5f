"""The conformance kit and the adapter's own promises on a real Honcho server.

    HONCHO_URL=http://127.0.0.1:8000 pytest tests/live/test_honcho_live.py

``HONCHO_API_KEY`` is the admin key, where the server's auth is on. The server needs models, its worker, and
``DERIVER_FLUSH_ENABLED=true``, or it holds short sessions back for half an hour. Scopes are reset; workspaces stay.

What breaks it, :mod:`live_control` names.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from live_control import model_fails, needs_control, restart

from memory import (
    AdapterMode,
    BackendReadiness,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    Message,
    RetrieveRequest,
    SupportsReadiness,
    open_memory,
)
from memory.doctor.runner import run_doctor
from memory.plugins.opening import build_slot
from memory.testing import MemoryContract

URL = os.environ.get("HONCHO_URL")
KEY = os.environ.get("HONCHO_API_KEY")

pytestmark = pytest.mark.skipif(not URL, reason="HONCHO_URL names no live Honcho server")


DERIVED: Mapping[str, str] = {"event_ids": "a conclusion does not say what it was drawn from"}
REWRITES = "a model derives conclusions from what is said"


def _config(**block: Any) -> dict[str, Any]:
    scope = {"run_id": "live", "persona_id": "ada"}
    block = {"base_url": URL, **({"api_key": KEY} if KEY else {}), **block}
    return {"memory": {"backend": "honcho", "scope": scope, "backends": {"honcho": block}}}


class _Live(MemoryContract):
    """What a fault would need, the tests on the model server show."""

    native_query = ("conclusions", {})
    native_mutations: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    concurrent_scopes = 8
    ready_timeout_s = 60.0
    clean_up = True


class TestContext(_Live):
    """As it comes."""

    without_ids = DERIVED
    rewrites = REWRITES  # of other sessions, nothing else is shown
    limits_natively = False  # a session's own messages are bounded by tokens alone
    config: ClassVar[Mapping[str, Any]] = _config()


class TestConclusions(_Live):
    """Single conclusions."""

    without_ids = DERIVED
    rewrites = REWRITES
    limits_natively = False
    config: ClassVar[Mapping[str, Any]] = _config(supplement="conclusions")
    native_mutations: ClassVar[Mapping[str, Mapping[str, Any]]] = {"delete": {}}


class TestSearch(_Live):
    """Messages by filters."""

    config: ClassVar[Mapping[str, Any]] = _config(retrieval="search")


@pytest.fixture
def scope() -> MemoryScope:
    return MemoryScope(run_id=f"live-{os.urandom(6).hex()}", persona_id="ada")


async def test_the_doctor_is_content() -> None:
    report = await run_doctor(_config())
    assert report.ok, report


async def test_a_fresh_read_only_slot_makes_no_workspace(scope: MemoryScope) -> None:
    async with build_slot(_config()) as memory:
        await memory.set_mode(AdapterMode(read_only=True))
        await memory.setup_scope(scope)
        assert (await _ask(memory, scope, "Who am I?")).entries == ()
        await memory.health()
        await _ready(memory, scope)
        assert _workspaces(memory.native_scope(scope)["workspace_id"]) == 0


async def test_a_session_can_be_used_again_at_once_after_a_reset(scope: MemoryScope) -> None:
    async with open_memory(_config(), scope=scope) as memory:
        for drink in ("oolong", "mate"):
            await memory.after_turn(session_id="1", user=f"I drink {drink}.", assistant="Noted.")
            await _ready(memory, scope)
            seen = await memory.before_turn("What do I drink?", session_id="1")
            assert drink in seen
            assert ("oolong" in seen) == (drink == "oolong")
            assert (await memory.reset_scope(scope)).verified


async def test_limits_are_met_without_loss(scope: MemoryScope) -> None:
    texts = (
        "I like <|endoftext|> and <|fim_prefix|> alike.",
        "I count: " + "one two " * 7_000,
        "a\x00b I am.",
    )
    async with open_memory(_config(retrieval="search"), scope=scope) as memory:
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


@needs_control
@pytest.mark.parametrize("kind", ["500", "401", "empty"])
async def test_turns_that_the_model_lost_are_never_ready(scope: MemoryScope, kind: str) -> None:
    """Five turns while the model fails, then a good one; asked by the writer, and afresh after a restart."""
    async with open_memory(_config(), scope=scope) as memory:
        await memory.after_turn(session_id="1", user="I own 0 boats.", assistant="Noted.")
        await _ready(memory, scope)
        with model_fails(kind):
            for number in range(1, 6):
                await memory.after_turn(session_id="1", user=f"I own {number} boats.", assistant="Noted.")
            await _ready(memory, scope, "unknown", timeout_s=300.0)
        await memory.after_turn(session_id="1", user="I own 6 boats.", assistant="Noted.")
        await _ready(memory, scope, "unknown")
        answer = await _readiness(memory, scope)
        assert "from 5 of 7 messages" in answer.detail
    await restart()
    async with open_memory(_config(), scope=scope) as fresh:
        await _ready(fresh, scope, "unknown")
        await fresh.after_turn(session_id="2", user="I own 7 boats.", assistant="Noted.")
        await _ready(fresh, scope, "unknown")
        assert (await fresh.reset_scope(scope)).verified


async def test_many_turns_are_ready_also_to_a_fresh_process(scope: MemoryScope) -> None:
    async with open_memory(_config(), scope=scope) as memory:
        for number in range(24):
            session = f"s{number // 12}"
            await memory.after_turn(session_id=session, user=f"I own {number} boats.", assistant="Noted.")
        await _ready(memory, scope)
    async with open_memory(_config(), scope=scope) as fresh:
        await _ready(fresh, scope)
        await fresh.reset_scope(scope)


def _part(entry: Any) -> int:
    return int(dict(entry.labels).get("part", "1/1").partition("/")[0])


async def _ask(memory: MemorySlot, scope: MemoryScope, query: str, event_id: str | None = None) -> Any:
    result = await memory.retrieve(RetrieveRequest(query=query, scope=scope, session_id="s"))
    if event_id is None:
        return result
    kept = tuple(entry for entry in result.entries if entry.event_ids == (event_id,))
    return result.model_copy(update={"entries": kept})


async def _readiness(memory: MemorySlot, scope: MemoryScope, timeout_s: float = 60.0) -> BackendReadiness:
    readiness = memory.capability(SupportsReadiness)
    assert readiness is not None
    return await readiness.wait_until_ready(scope, timeout_s)


async def _ready(memory: MemorySlot, scope: MemoryScope, *states: str, timeout_s: float = 60.0) -> None:
    answer = await _readiness(memory, scope, timeout_s)
    assert answer.state in (states or ("ready",)), answer.detail


def _workspaces(workspace_id: str) -> int:
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {KEY}"} if KEY else {})}
    body = json.dumps({"filters": {"id": workspace_id}}).encode()
    request = urllib.request.Request(f"{URL}/v3/workspaces/list", body, headers, method="POST")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return int(json.load(answer)["total"])
