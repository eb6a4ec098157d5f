"""mem0 with extraction, against a scripted OpenAI-compatible endpoint on the loopback."""

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mem0_support import ALICE, BOB, NEEDS_MEM0, START, ask, event, found, native, opened, stored
from variants import plain
from wrapping_llm import WRAPS, WrappingLLM

from memory import BackendError, BackendTimeout, BackendUnavailable, Deadlines, Message, SupportsBulkIngest
from memory.adapter import BackendAuthError, BackendProtocolError, BackendRateLimited
from memory.testing import FAKE_KEY, ScriptedLLM

pytestmark = NEEDS_MEM0


OOLONG = "I bought oolong tea yesterday."


@asynccontextmanager
async def inferring(data_dir, server, /, *scopes, **options):
    """mem0 whose model and embedder are the scripted endpoint."""
    block = {
        "llm": {"base_url": server.base_url},
        "embedder": {"base_url": server.base_url},
        "threshold": 0.0,
        "dimensions": 1536,
        **options,
    }
    async with opened(data_dir, *scopes, **block) as slot:
        yield slot


async def test_memories_are_extracted_and_dated_by_the_event(tmp_path, llm):
    """mem0's own Observation Date is always today; the event's goes in with the prompt."""
    async with inferring(tmp_path, llm, custom_instructions="Mind the tea.") as slot:
        oolong_event = event(OOLONG, timestamp=START)
        receipt = await slot.record_event(oolong_event)
        (row,) = await stored(slot)
    assert receipt.native_ids == (row["id"],)
    assert row["memory"] == "I bought oolong tea yesterday (2023-05-07)."
    assert row["created_at"] == START.isoformat()
    assert row["metadata"]["event_id"] == oolong_event.event_id
    assert row["attributed_to"] == "user"
    prompts = [body["messages"][-1]["content"] for body in llm.bodies("chat/completions")]
    assert len(prompts) == 1, "one call of the model per event"
    assert "Observation date: 2023-05-08 (Monday, 13:56 UTC)" in prompts[0]
    assert "Mind the tea." in prompts[0]


@pytest.mark.parametrize("how", WRAPS)
async def test_json_is_read_however_the_model_wraps_it(tmp_path, how):
    with WrappingLLM() as model:
        model.wrap = WRAPS[how]
        async with inferring(tmp_path, model) as slot:
            await slot.record_event(event(OOLONG, timestamp=START))
            assert [row["memory"] for row in await stored(slot)] == [
                "I bought oolong tea yesterday (2023-05-07)."
            ]


async def test_a_cut_answer_in_prose_is_not_taken_for_an_extraction_of_nothing(tmp_path):
    with WrappingLLM() as model:
        model.wrap = lambda _: 'Here {it} is: {"memory": [{"text": "I bought", "linked_memory_ids": [], "x'
        async with inferring(tmp_path, model) as slot:
            with pytest.raises(
                BackendProtocolError, match="nothing was stored: it holds JSON that is incomplete"
            ):
                await slot.record_event(event(OOLONG, timestamp=START))
            assert await stored(slot) == []


async def test_extracting_nothing_is_committed_with_a_warning(tmp_path, llm):
    async with inferring(tmp_path, llm) as slot:
        receipt = await slot.record_event(event("Hi!"))
        assert (receipt.status, receipt.native_ids) == ("committed", ())
        assert receipt.warnings == ("mem0 extracted nothing from this event",)


async def test_duplicates_mem0_drops_are_warned_of(tmp_path, llm):
    async with inferring(tmp_path, llm) as slot:
        receipt = await slot.record_event(event("I have a cat.", "I have a cat."))
        assert len(receipt.native_ids) == 1
        assert receipt.warnings == ("mem0 stored 1 of 2 extracted memories; it drops exact duplicates",)


async def test_tool_messages_are_warned_of(tmp_path, llm):
    async with inferring(tmp_path, llm) as slot:
        said = (Message(role="user", content="I have a cat."), Message(role="tool", content="cat: 1"))
        receipt = await slot.record_event(event(messages=said))
        assert "role tool are not remembered by mem0 with infer: true" in receipt.warnings[0]
        receipt = await slot.record_event(event(messages=said[1:]))
        assert receipt.native_ids == ()
        assert "mem0 remembers nothing" in receipt.warnings[-1]
    assert len(llm.bodies("chat/completions")) == 1


@pytest.mark.parametrize("endpoint", plain("chat/completions", of=["chat/completions", "embeddings"]))
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("401", BackendAuthError),
        ("403", BackendAuthError),
        ("429", BackendRateLimited),
        ("500", BackendUnavailable),
        ("late", BackendTimeout),
        ("reset", BackendUnavailable),
        ("truncated", BackendUnavailable),
        ("bad_content", BackendProtocolError),
        ("empty", BackendProtocolError),
        ("unreadable", BackendProtocolError),
    ],
)
async def test_a_failing_model_is_an_error_by_its_cause_and_nothing_is_stored(
    tmp_path: Path, llm: ScriptedLLM, endpoint: str, fault: Any, error: type[BackendError]
) -> None:
    # The model's client gives up within the deadline that was configured; here nothing else is in a hurry.
    short = {"deadlines": {"write_s": 3.0, "retrieve_s": 2.0}} if fault == "late" else {}
    async with inferring(tmp_path, llm, **short) as slot:
        slot.delivery.deadlines = slot._calls.deadlines = Deadlines()
        llm.faults.add(fault, endpoint=endpoint, times=None, delay_s=20.0)
        with pytest.raises(error) as raised:
            await slot.record_event(event(OOLONG))
        assert llm.faults.fired
        sent = [request for request in llm.requests if request.path == endpoint]
        assert len(sent) == 1, "mem0's client would retry twice, for up to 600 s each"
        llm.faults.clear()
        assert type(raised.value) is error
        assert not raised.value.sent
        shown = str(raised.value) + str(raised.value.diagnostics)
        assert "oolong" not in shown
        assert FAKE_KEY not in shown
        assert await stored(slot) == []
        assert len((await slot.record_event(event(OOLONG))).native_ids) == 1, "and it works again"


async def test_a_write_given_up_before_its_first_insert_stores_nothing_and_says_so(tmp_path, llm):
    """Each answer comes in time, and all of them together do not."""
    async with inferring(tmp_path, llm, deadlines={"write_s": 2.0}) as slot:
        await slot.record_event(event("I keep bees."))
        llm.faults.add("late", times=None, delay_s=0.9)
        with pytest.raises(BackendTimeout, match="nothing was stored") as raised:
            await slot.record_event(event(OOLONG))
        assert not raised.value.ambiguous
        llm.faults.clear()
        await slot._adapter.worker.idle()
        assert len(await stored(slot)) == 1
        slot._calls.deadlines = Deadlines()
        assert (await slot.record_event(event(OOLONG))).status == "committed"
        assert len(await stored(slot)) == 2


async def test_rate_limits_say_when_to_come_back(tmp_path, llm):
    async with inferring(tmp_path, llm) as slot:
        llm.faults.add("429", endpoint="chat/completions", retry_after_s=7)
        with pytest.raises(BackendRateLimited) as raised:
            await slot.record_event(event(OOLONG))
    assert raised.value.retry_after_s == 7
    assert raised.value.__cause__ is not None


async def test_retries_of_the_client_are_configurable(tmp_path, llm):
    async with inferring(tmp_path, llm, llm={"base_url": llm.base_url, "max_retries": 1}) as slot:
        llm.faults.add("500", endpoint="chat/completions")
        assert (await slot.record_event(event(OOLONG))).native_ids


async def test_a_failing_search_never_looks_empty(tmp_path, llm):
    async with inferring(tmp_path, llm) as slot:
        await slot.record_event(event(OOLONG))
        llm.faults.add("429", endpoint="embeddings")
        with pytest.raises(BackendRateLimited):
            await found(slot, "tea")
        assert await found(slot, "oolong tea")


async def test_an_event_is_stored_whole_or_not_at_all(tmp_path, llm):
    """Verbatim, mem0 asks for one vector after the other; here an event is one batch, and one insert."""
    async with inferring(tmp_path, llm, infer=False) as slot:
        await slot.record_event(event("an older one"))
        with llm_failing_at(llm, 1), pytest.raises(BackendUnavailable) as raised:
            await slot.record_event(event("first half", "second half"))
        assert not raised.value.sent
        assert [row["memory"] for row in await stored(slot)] == ["an older one"]
        asked = len(llm.bodies("embeddings"))
        await slot.record_event(event("first half", "second half"))
        assert [body["input"] for body in llm.bodies("embeddings")[asked:]] == [["first half", "second half"]]


class llm_failing_at:
    """Let the ``count``-th embedding from now on fail."""

    def __init__(self, llm, count):
        self._llm = llm
        self._at = len(llm.requests) + count
        self._native = llm.faults.take

    def __enter__(self):
        def take(endpoint):
            if len(self._llm.requests) + 1 == self._at:
                self._llm.faults.add("500", endpoint=endpoint)
            return self._native(endpoint)

        self._llm.faults.take = take

    def __exit__(self, *_):
        self._llm.faults.take = self._native


async def test_an_embedding_mem0_gives_up_on_is_an_error(tmp_path, llm):
    """mem0 itself would skip the memory and report the rest as success."""
    async with inferring(tmp_path, llm) as slot:
        await slot.record_event(event("I have a cat."))
        seen = len(llm.requests)
        native = llm.faults.take

        def take(endpoint: str) -> Any:
            # Searching embeds once; what follows is the batch, then one by one.
            if endpoint == "embeddings" and len(llm.requests) - seen >= 2:
                llm.faults.add("500", endpoint="embeddings")
            return native(endpoint)

        llm.faults.take = take
        with pytest.raises(BackendUnavailable) as raised:
            await slot.record_event(event("I have a dog. I have a fish."))
        llm.faults.take = native
        assert not raised.value.sent
        assert [row["memory"] for row in await stored(slot)] == ["I have a cat."]


async def test_a_batch_of_embeddings_that_fails_is_asked_for_event_by_event(tmp_path, llm):
    async with inferring(tmp_path, llm, infer=False) as slot:
        bulk = slot.capability(SupportsBulkIngest)
        assert bulk is not None
        with llm_failing_at(llm, 1):
            receipts = await bulk.record_events([event(f"tea {number}") for number in range(3)])
        assert [receipt.status for receipt in receipts] == ["committed"] * 3


async def test_reset_forgets_the_recent_messages_too(tmp_path, llm):
    """They would feed the next extraction of the scope."""
    async with inferring(tmp_path, llm, BOB) as slot:
        for scope in (ALICE, BOB):
            await slot.record_event(event("My code word is zanzibar.", scope=scope))
        assert (await slot.reset_scope(ALICE)).verified
        for scope in (ALICE, BOB):
            await slot.record_event(event("I have a cat.", scope=scope))
    alice, bob = (body["messages"][-1]["content"] for body in llm.bodies("chat/completions")[-2:])
    assert "zanzibar" not in alice
    assert "zanzibar" in bob


async def test_the_configured_endpoint_wins_over_openrouter(tmp_path, llm, monkeypatch):
    """With that variable set, mem0 would send every message to openrouter.ai."""
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-unused")
    async with inferring(tmp_path, llm) as slot:
        assert (await slot.record_event(event(OOLONG))).native_ids
    assert llm.bodies("chat/completions")


async def test_a_reranker_that_fails_is_warned_of(tmp_path, llm):
    """mem0 falls back to its own order without a word."""
    reranker = {
        "provider": "llm_reranker",
        "config": {
            "llm": {"provider": "openai", "config": {"api_key": "x", "openai_base_url": llm.base_url}}
        },
    }
    async with inferring(tmp_path, llm, infer=False, rerank=True, reranker=reranker) as slot:
        await slot.record_event(event("I drink oolong."))
        native(slot).reranker._native.rerank = lambda *_: 1 / 0
        result = await slot.retrieve(ask("oolong"))
        assert result.entries
        assert "reranking failed; the order is mem0's own" in result.trace.warnings


async def test_health_names_the_models_and_what_is_off(tmp_path, llm):
    async with inferring(tmp_path, llm, llm={"base_url": llm.base_url, "model": "tiny"}) as slot:
        health = await slot.health()
    assert health.details["llm"] == "openai:tiny"
    assert health.details["embedder"].startswith("openai:")
    assert (health.native_ingest_modes, health.details["ingest"]) == (("infer", "verbatim"), "infer")
    assert llm.requests == [], "a health check costs nothing"


async def test_an_extraction_nested_too_deep_is_none_that_can_be_read():
    from memory.backends.mem0.models import _count_memories

    with pytest.raises(BackendProtocolError, match="nothing was stored"):
        _count_memories("[" * 100_000)
