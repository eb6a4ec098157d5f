"""The Signet client against a real daemon: ``SIGNET_URL`` names one (0.58.1). It writes a few memories there."""

import os
import uuid

import pytest

from memory.runtime.signet.client import AdapterClient
from memory.runtime.signet.types import (
    CompactionCompleteParams,
    PreCompactionParams,
    PromptSubmitParams,
    SessionEndParams,
    SessionStartParams,
)

URL = os.environ.get("SIGNET_URL", "")
pytestmark = [pytest.mark.skipif(not URL, reason="SIGNET_URL names no Signet daemon")]


@pytest.fixture
async def client():
    async with AdapterClient(URL, harness="memslot") as opened:
        yield opened


async def test_a_session_from_start_to_end(client):
    key, word = uuid.uuid4().hex, f"zebra{uuid.uuid4().hex[:8]}"
    assert await client.health()
    start = await client.on_session_start(SessionStartParams(session_key=key, project="/memslot"))
    assert start.inject
    memory_id = await client.remember(f"[{word}]: the {word} lives in Lisbon", who="memslot")
    prompt = await client.on_user_prompt_submit(
        PromptSubmitParams(session_key=key, user_message=f"where does the {word} live?")
    )
    assert prompt.memory_count >= 1
    assert f"the {word} lives in Lisbon" in prompt.inject
    flush = await client.on_pre_compaction(PreCompactionParams(session_key=key, message_count=3))
    assert flush.guidelines
    kept = await client.on_compaction_complete(
        CompactionCompleteParams(session_key=key, summary=f"About a {word}.")
    )
    assert kept.success
    ended = await client.on_session_end(SessionEndParams(session_key=key, reason="exit"))
    assert ended.memories_saved == 0
    assert memory_id is not None
    await client.forget([memory_id], "test", force=True)


async def test_a_memory_from_storing_to_forgetting(client):
    word = f"yak{uuid.uuid4().hex[:8]}"
    memory_id = await client.remember(f"the {word} drinks oolong", idempotencyKey=word)
    assert memory_id is not None
    assert await client.remember(f"the {word} drinks oolong", idempotencyKey=word) == memory_id
    assert [row["id"] for row in await client.recall(word)] == [memory_id]
    patch = {"id": memory_id, "content": f"the {word} drinks sencha", "if_version": 1}
    assert (await client.modify([patch], "corrected"))[0]["status"] == "updated"
    assert (await client.modify([{"id": memory_id, "content": "x", "if_version": 1}], "r"))[0]["status"] == (
        "version_conflict"
    )
    row = await client.get(memory_id)
    assert row["content"] == f"the {word} drinks sencha"
    assert (await client.forget([memory_id], "done"))[0]["status"] == "deleted"
    assert await client.get(memory_id) is None
