"""A turn waits for no extraction: where a backend extracts with a model, the journal keeps turns for later."""

import anyio
import pytest
from installed import installed
from waits import held

from memory import BackendError, JsonlTraceSink, MemoryScope, RetrieveRequest, SupportsReadiness, open_memory

ALICE = MemoryScope(run_id="run", persona_id="alice")
SAID = "I live in Porto."


@pytest.fixture(params=["mem0", "graphiti"])
def provider(request, anyio_backend_name):
    """A backend that extracts with a model."""
    name = str(request.param)
    if not installed({"mem0": "mem0", "graphiti": "graphiti_core"}[name]):
        pytest.skip(f"{name} is not installed")
    if name == "graphiti" and anyio_backend_name == "trio":
        pytest.skip("Graphiti runs on asyncio only")
    return name


def config(tmp_path, provider, llm, **memory):
    block = {"llm": {"model": "scripted", "base_url": llm.base_url, "api_key": "unused"}}
    kind = "backend"
    if provider == "rolling_summary":
        block["summariser"], kind = "llm", "condition"
    chosen = {kind: provider, f"{kind}s": {provider: block}, "data_dir": str(tmp_path), **memory}
    return {"memory": chosen}


async def ready(slot):
    readiness = slot.capability(SupportsReadiness)
    return (await readiness.wait_until_ready(ALICE, 30)).state


async def recalled(slot):
    request = RetrieveRequest(query="Where do I live?", scope=ALICE, session_id="later")
    return (await slot.retrieve(request)).formatted_context


async def test_a_turn_is_queued_while_the_model_thinks(tmp_path, provider, llm):
    traces = tmp_path / "traces.jsonl"
    with JsonlTraceSink(traces) as sink:
        settings = config(tmp_path, provider, llm)
        async with open_memory(settings, scope=ALICE, trace_sink=sink) as slot:
            await queued_turn(slot, llm)
    assert '"operation":"keep"' in traces.read_text()


async def queued_turn(slot, llm):
    with held(llm, "chat/completions") as go_on:
        receipt = await slot.after_turn(session_id="s", user=SAID, event_id="first")
        again = await slot.after_turn(session_id="s", user=SAID, event_id="first")
        assert (receipt.status, again.status) == ("queued", "queued")
        assert not receipt.warnings
        assert "Porto" not in await recalled(slot)
        assert (await slot.health()).details["slot"]["waiting_writes"] == 1
        go_on.set()
        assert await ready(slot) == "ready"
    assert "Porto" in await recalled(slot)
    after = await slot.after_turn(session_id="s", user=SAID, event_id="first")
    assert after.status == "committed"


async def test_what_waits_is_delivered_when_the_memory_is_left_or_opened_again(tmp_path, llm):
    brief = config(tmp_path, "rolling_summary", llm, deadlines={"write_s": 0.2, "close_s": 5.0})
    brief["memory"]["conditions"]["rolling_summary"]["llm"]["base_url"] = "http://127.0.0.1:1/v1"
    async with open_memory(brief, scope=ALICE) as slot:
        assert (await slot.after_turn(session_id="s", user=SAID)).status == "queued"
    async with open_memory(config(tmp_path, "rolling_summary", llm), scope=ALICE) as slot:
        assert await ready(slot) == "ready"
        assert "Porto" in await recalled(slot)


async def test_leaving_lets_turns_be_delivered(tmp_path, llm):
    settings = config(tmp_path, "rolling_summary", llm)
    async with open_memory(settings, scope=ALICE) as slot:
        for session in ("one", "two"):
            await slot.after_turn(session_id=session, user=SAID)
    assert len(llm.bodies("chat/completions")) == 1, "the first session, over when the second begins"
    async with open_memory(settings, scope=ALICE) as slot:
        assert not (await slot.health()).details["slot"]["waiting_writes"]


async def test_without_the_journal_a_turn_waits_and_a_failure_is_raised(tmp_path, provider, llm):
    async with open_memory(config(tmp_path, provider, llm, journal=False), scope=ALICE) as slot:
        assert (await slot.after_turn(session_id="s", user=SAID)).status == "committed"
        llm.faults.add("401", times=None)
        with pytest.raises(BackendError):
            await slot.after_turn(session_id="s", user=SAID)


async def test_a_model_that_fails_is_told_by_health_and_loses_no_turn(tmp_path, llm):
    pytest.importorskip("mem0")
    llm.faults.add("401", endpoint="chat/completions")
    async with open_memory(config(tmp_path, "mem0", llm), scope=ALICE) as slot:
        await slot.after_turn(session_id="s", user=SAID)
        with anyio.fail_after(30):
            while "HTTP 401" not in str((health := await slot.health()).warnings):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert health.status == "degraded"
        await anyio.sleep(0.6)  # the pause after a first failure
        assert await ready(slot) == "ready"
        assert "Porto" in await recalled(slot)
