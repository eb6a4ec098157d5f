"""Calls of a provider's own language models, counted where its adapter and its endpoint say."""

import threading
from dataclasses import asdict, replace

import anyio
from openai import AsyncOpenAI, OpenAI
from slot_support import ALICE, event

from memory import RetrieveRequest
from memory.adapter import NativeWorker, count_llm_call
from memory.adapter.models import counted_openai
from memory.contract.admission import LlmUse
from memory.slot.slot import MemorySlot
from memory.testing import FakeBackend, ScriptedLLM


class Sink:
    def __init__(self):
        self.traces = []

    def emit(self, trace):
        self.traces.append(trace)

    def of(self, operation):
        return [(trace.llm_calls, trace.llm_tokens) for trace in self.traces if trace.operation == operation]


class Asking(FakeBackend):
    """Asks a model in the call itself, in a task and on a worker's thread."""

    tokens = 10

    def __init__(self):
        super().__init__()
        self.traits = replace(self.traits, counts_llm_calls=True)

    async def record_event(self, event):
        count_llm_call(self.tokens)

        async def ask():
            count_llm_call(self.tokens)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
        worker = NativeWorker()
        await worker.run(lambda: count_llm_call(self.tokens))
        await worker.aclose()
        return await super().record_event(event)


async def use(adapter):
    sink = Sink()
    async with MemorySlot(adapter, scope=ALICE, trace_sink=sink) as slot:
        await slot.record_event(event(1))
        await slot.record_event(event(2))
        await slot.retrieve(RetrieveRequest(query="tea", scope=ALICE, session_id="s"))
    return sink


async def test_what_is_told_within_a_call_stands_in_its_trace_and_in_no_other():
    sink = await use(Asking())
    assert sink.of("record_event") == [(3, 30), (3, 30)]
    assert sink.of("retrieve") == [(0, 0)], "none told is none made"


async def test_an_endpoint_that_does_not_say_leaves_the_tokens_unknown():
    adapter = Asking()
    adapter.tokens = None
    assert (await use(adapter)).of("record_event") == [(3, None), (3, None)]


async def test_an_adapter_that_does_not_count_leaves_both_unknown():
    sink = await use(FakeBackend())
    assert {*sink.of("record_event"), *sink.of("retrieve")} == {(None, None)}


async def test_counting_outside_of_any_call_is_nobody_s():
    count_llm_call(5)
    thread = threading.Thread(target=count_llm_call, args=(5,))
    thread.start()
    thread.join()
    assert (await use(Asking())).of("record_event") == [(3, 30), (3, 30)]


async def test_an_sdk_s_answers_are_counted_once_and_embeddings_are_not():
    """Counted not at all, a provider would seem to cost nothing; twice, double."""
    asked = {"model": "m", "messages": [{"role": "user", "content": "tea?"}]}
    with ScriptedLLM() as model:
        options = {"api_key": "k", "base_url": model.base_url}
        use = LlmUse()
        with use.counting(), OpenAI(**options) as bare, counted_openai(bare) as client:
            reported = client.chat.completions.create(**asked).usage.total_tokens
            client.embeddings.create(model="m", input="tea")
        assert asdict(use) == {"calls": 1, "tokens": reported}
        use = LlmUse()
        with use.counting():
            async with AsyncOpenAI(**options) as bare, counted_openai(bare) as client:
                reported = (await client.chat.completions.create(**asked)).usage.total_tokens
                await client.embeddings.create(model="m", input="tea")
        assert asdict(use) == {"calls": 1, "tokens": reported}
        assert reported > 0
