"""The conformance kit and the adapter's own promises on a real Stigmem node.

    STIGMEM_URL=http://127.0.0.1:8765 pytest tests/live/test_stigmem_live.py
    STIGMEM_URL=http://127.0.0.1:8766 STIGMEM_ADMIN_KEY=... pytest tests/live/test_stigmem_live.py

Without ``STIGMEM_ADMIN_KEY`` scopes share the node; with it each is a tenant (multi-tenant plugin). A node keeps
what it is told, so give it one that may be thrown away, and no quotas.
"""

import os
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from memory import MemoryScope, ProvenanceRequest, RetrieveRequest, SupportsProvenance, open_memory
from memory.doctor.runner import Doctor
from memory.testing import MemoryContract

URL = os.environ.get("STIGMEM_URL")
ADMIN_KEY = os.environ.get("STIGMEM_ADMIN_KEY")

pytestmark = pytest.mark.skipif(not URL, reason="STIGMEM_URL names no live Stigmem node")


def _config(**block):
    scope = {"run_id": "live", "persona_id": "ada"}
    return {"memory": {"backend": "stigmem", "scope": scope, "backends": {"stigmem": {"url": URL, **block}}}}


SHARED = {"isolation": "node", "allow_sharing": True}
CONFIG = _config(api_key=ADMIN_KEY) if ADMIN_KEY else _config(**SHARED)


class TestLive(MemoryContract):
    """What a fault would need, the tests on the model node show."""

    config: ClassVar[Mapping[str, Any]] = CONFIG
    native_query = ("facts", {})
    concurrent_scopes = 8
    clean_up = True


async def test_the_doctor_is_content():
    report = await Doctor(CONFIG).run()
    assert report.ok, report


async def test_memory_outlives_the_slot_and_a_reset_outlives_it_too():
    scope = MemoryScope(run_id=os.urandom(6).hex(), persona_id="ada")
    async with open_memory(CONFIG, scope=scope) as memory:
        await memory.after_turn(session_id="1", user="My parrot is called Kiwi.")
    async with open_memory(CONFIG, scope=scope) as memory:
        assert "Kiwi" in await memory.before_turn("What is the parrot called?", session_id="2")
        assert (await memory.reset_scope(scope)).verified
    async with open_memory(CONFIG, scope=scope) as memory:
        assert await memory.before_turn("What is the parrot called?", session_id="3") == ""
        await memory.after_turn(session_id="3", user="My next parrot is called Mango.")
        assert "Mango" in await memory.before_turn("What is the parrot called?", session_id="4")
        await memory.reset_scope(scope)


async def test_facts_come_back_as_themselves_and_not_as_cards():
    scope = MemoryScope(run_id=os.urandom(6).hex(), persona_id="ada")
    async with open_memory(CONFIG, scope=scope) as memory:
        receipt = await memory.after_turn(
            session_id="1", event_id="e1", user="I like oolong.", assistant="Noted."
        )
        again = await memory.after_turn(
            session_id="1", event_id="e1", user="I like oolong.", assistant="Noted."
        )
        assert again.native_ids == receipt.native_ids
        result = await _ask(memory, "oolong")
        assert [entry.native_id for entry in result.entries] == [receipt.native_ids[0]]
        assert result.entries[0].event_ids == ("e1",)
        assert not any(hit["from_card"] for hit in result.raw["facts"])
        provenance = memory.capability(SupportsProvenance)
        answer = await provenance.provenance(ProvenanceRequest(scope=scope))
        assert set(answer.native_ids) == set(receipt.native_ids)
        assert answer.event_ids == ("e1",)
        await memory.reset_scope(scope)


async def test_a_reset_by_another_host_is_noticed():
    scope = MemoryScope(run_id=os.urandom(6).hex(), persona_id="ada")
    async with open_memory(CONFIG, scope=scope) as here, open_memory(CONFIG, scope=scope) as there:
        await here.after_turn(session_id="1", user="I like oolong.")
        assert (await _ask(there, "oolong")).entries
        assert (await here.reset_scope(scope)).verified
        assert (await _ask(there, "oolong")).entries == ()
        await there.after_turn(session_id="2", user="I like coffee.")
        assert (await _ask(here, "coffee")).entries
        await here.reset_scope(scope)


async def _ask(memory, query):
    assert memory.scope is not None
    return await memory.retrieve(RetrieveRequest(query=query, scope=memory.scope, session_id="s"))
