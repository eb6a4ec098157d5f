"""Graphiti on embedded Kuzu, when the model or the graph fails, hangs, or is abandoned."""

import asyncio
import gc
import json
import logging
import warnings
from contextlib import suppress

import anyio
import pytest
from graphiti_support import ALICE, NEEDS_GRAPHITI, ask, event, found, graph_faults, listed, opened
from wrapping_llm import WRAPS, WrappingLLM

from memory import (
    BackendError,
    BackendTimeout,
    BackendUnavailable,
    Deadlines,
    SupportsBulkIngest,
    SupportsReadiness,
)
from memory.adapter import BackendAuthError, BackendProtocolError, BackendRateLimited, BackendRejected
from memory.testing import FAKE_KEY, LoopbackAnswer, ScriptedLLM

pytestmark = NEEDS_GRAPHITI


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("401", BackendAuthError),
        ("403", BackendAuthError),
        ("404", BackendRejected),
        ("409", BackendRejected),
        ("422", BackendRejected),
        ("reset", BackendUnavailable),
        ("truncated", BackendError),
        ("unreadable", BackendError),
        ("429", BackendRateLimited),
        ("500", BackendUnavailable),
        ("bad_content", BackendProtocolError),
        ("empty", BackendProtocolError),
    ],
)
async def test_a_failing_model_is_one_clear_error_and_stores_nothing(tmp_path, llm, caplog, fault, error):
    caplog.set_level(logging.DEBUG)
    async with opened(llm, tmp_path) as slot:
        llm.faults.add(fault, times=None)
        with anyio.fail_after(60), pytest.raises(error) as raised:
            await slot.record_event(event("I keep my zqsecret passport in the drawer."))
        assert set((await listed(slot, "count")).values()) == {0}
        state = await slot.capability(SupportsReadiness).readiness(ALICE)
        assert state.state == "failed"
        assert str(raised.value) in state.detail
        assert any(str(raised.value) in warning for warning in (await slot.health()).warnings)
    ours = [record for record in caplog.records if record.name.split(".")[0] in ("graphiti_core", "memslot")]
    reported = (
        str(raised.value) + str(raised.value.diagnostics) + "".join(record.getMessage() for record in ours)
    )
    assert "zqsecret" not in reported
    assert FAKE_KEY not in reported
    assert not raised.value.ambiguous
    if fault == "429":
        assert raised.value.diagnostics["status"] == 429


@pytest.mark.thorough
async def test_a_batch_that_failed_is_unknown_and_a_repeat_stores_it_once(tmp_path, llm):
    """Graphiti saves a batch's episodes before it asks a model."""
    async with opened(llm, tmp_path, bulk="native") as slot:
        bulk = slot.capability(SupportsBulkIngest)
        assert bulk is not None
        first, second = event("I live in Paris."), event("I ride my green bicycle.")
        llm.faults.add("500", times=None)
        with pytest.raises(BackendUnavailable):
            await slot.record_event(event("I keep bees."))
        assert (await slot.capability(SupportsReadiness).readiness(ALICE)).state == "failed"
        with pytest.raises(BackendUnavailable) as raised:
            await bulk.record_events([first, second])
        assert raised.value.ambiguous
        llm.faults.clear()
        assert [receipt.status for receipt in await bulk.record_events([first, second])] == ["committed"] * 2
        assert (await slot.capability(SupportsReadiness).readiness(ALICE)).state == "ready"
        assert (await listed(slot, "count"))["Episodic"] == 2


@pytest.mark.thorough
async def test_a_write_given_up_before_its_last_model_call_stores_nothing_and_says_so(tmp_path, llm):
    async with opened(llm, tmp_path, deadlines={"write_s": 2.0}) as slot:
        llm.faults.add("late", times=None, delay_s=1.1)  # two such answers take longer than the deadline
        with pytest.raises(BackendTimeout) as raised:
            await slot.record_event(event("I keep my passport in the drawer."))
        assert not raised.value.ambiguous
        llm.faults.clear()
        await anyio.sleep(1.5)
        assert set((await listed(slot, "count")).values()) == {0}
        assert len(llm.bodies("chat/completions")) <= 2, "no further call of the model is paid for"
        assert (await slot.capability(SupportsReadiness).readiness(ALICE)).state == "failed"
        health = await slot.health()
        assert health.status == "degraded"
        slot._calls.deadlines = Deadlines()
        await slot.record_event(event("I ride my green bicycle."))
        assert (await slot.capability(SupportsReadiness).readiness(ALICE)).state == "ready"
        assert (await slot.health()).status == "ok"


@pytest.mark.parametrize("how", WRAPS)
async def test_json_is_read_however_the_model_wraps_it(tmp_path, how):
    with WrappingLLM() as llm:
        llm.wrap = WRAPS[how]
        async with opened(llm, tmp_path) as slot:
            await slot.record_event(event("I keep my passport in the drawer."))
            assert await found(slot, "passport") == ["I keep my passport in the drawer."]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ('{"facts": ["I keep it"]}', "has another shape: extracted_entities: is required"),
        ('{"extracted_entities": [', "holds JSON that is incomplete or malformed"),
        ("[1, 2]", "has another shape: extracted_entities.0: "),
        ('"text"', "is JSON, but neither an object nor a list"),
        ("I am sorry.", "holds no JSON"),
        ("<think>hm", "ends before its <think> part does"),
        (" ", "is empty"),
    ],
)
async def test_an_error_says_what_is_wrong_with_the_answer(tmp_path, answer, why):
    with WrappingLLM() as llm:
        llm.wrap = lambda _: answer
        async with opened(llm, tmp_path) as slot:
            with pytest.raises(BackendProtocolError) as raised:
                await slot.record_event(event("I keep my passport in the drawer."))
    assert why in str(raised.value)
    assert not raised.value.ambiguous
    assert len(llm.bodies("chat/completions")) == 1, "the same prompt would get the same answer"


@pytest.mark.thorough
async def test_a_search_given_up_at_any_moment_leaves_nothing_unawaited(tmp_path, llm):
    given_up = 0
    async with opened(llm, tmp_path, recipe="combined") as slot:
        await slot.record_event(event("I keep my passport in the drawer."))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for steps in range(30):
                search = asyncio.ensure_future(slot.retrieve(ask("passport")))
                for _ in range(steps):
                    await asyncio.sleep(0)
                given_up += search.cancel()
                with suppress(asyncio.CancelledError):
                    await search
            gc.collect()
        assert given_up > 10, "or this test proves nothing"
        assert [str(warning.message) for warning in warned] == []
        assert await found(slot, "passport")


@pytest.mark.thorough
async def test_writes_at_once_share_their_entities(tmp_path, llm):
    """Past the slot, which orders them anyway: Graphiti itself would make an entity of each."""
    async with opened(llm, tmp_path) as slot:
        adapter = slot._adapter
        async with anyio.create_task_group() as tasks:
            for thing in ("passport", "bicycle", "umbrella"):
                tasks.start_soon(adapter.record_event, event(f"I own my {thing} gladly."))
        names = [row["name"] for row in (await listed(slot, "nodes"))["nodes"]]
    assert names.count("user") == 1


async def test_a_failing_graph_is_not_healthy(tmp_path, llm):
    async with opened(llm, tmp_path) as slot:
        with graph_faults("500"):
            health = await slot.health()
        assert health.status == "unavailable"
        assert (await slot.health()).versions.keys() == {"graphiti-core", "kuzu"}


class ShorterVectors(ScriptedLLM):
    """An embedder that answers with vectors of a length of its own."""

    length = 768

    def respond(self, request):
        answer = super().respond(request)
        if answer is None or not request.path.endswith("embeddings"):
            return answer
        data = json.loads(answer.data)
        for row in data["data"]:
            row["embedding"] = row["embedding"][: self.length]
        return LoopbackAnswer(200, data)


@pytest.mark.thorough
async def test_an_embedder_that_answers_with_another_length_is_named_and_stores_nothing(tmp_path):
    with ShorterVectors() as llm:
        options = {"embedder": {"model": "scripted", "base_url": llm.base_url}, "sim_min_score": 0.0}
        async with opened(llm, tmp_path, **options) as slot:
            await slot.record_event(event("I keep my passport in the drawer."))
        llm.length = 512
        async with opened(llm, tmp_path, **options) as slot:
            with pytest.raises(BackendRejected, match=r"answers with \d+ dimensions where the graph has \d+"):
                await slot.record_event(event("I ride my green bicycle."))
            with pytest.raises(BackendRejected, match=r"answers with \d+ dimensions where the graph has \d+"):
                await found(slot, "passport")
            assert (await listed(slot, "count"))["Episodic"] == 1
            assert (await slot.health()).status == "degraded"


async def test_questions_and_documents_have_the_prefixes_that_are_configured(tmp_path, llm):
    embedder = {"model": "m", "base_url": llm.base_url, "query_prefix": "q: ", "document_prefix": "d: "}
    async with opened(llm, tmp_path, embedder=embedder, sim_min_score=0.0) as slot:
        await slot.record_event(event("I keep my passport in the drawer."))
        written = [text for body in llm.bodies("embeddings")[1:] for text in body["input"]]
        assert await found(slot, "passport") == ["I keep my passport in the drawer."]
    assert written
    assert all(text.startswith("d: ") for text in written)
    assert llm.bodies("embeddings")[-1]["input"] == ["q: passport"]
