"""Native queries when a run is over: in a file of their own, in no score, never the run's failure (spec 10.3)."""

import json

import pytest
from bench_support import SENTINEL, config_of, locomo_sample, registry_with, write_locomo

from memory import ConfigError
from memory.adapter import BackendRejected
from memory.bench import run_benchmark, run_settings
from memory.bench.engine.diagnostics import shape_of
from memory.bench.engine.run_verify import verify
from memory.bench.scores.llm_use import Phased
from memory.contract.receipts import Trace
from memory.plugins.config import load_config
from memory.testing._fake_backend import FakeBackend

ASKED = {"count": {}, "list": {}, "census": {}}


@pytest.fixture
def run(tmp_path):
    async def go(adapter=None, provider="fake", **given):
        talks = write_locomo(tmp_path / "talks.json", locomo_sample("one"), locomo_sample("two"))
        block = {"timeline": "locomo", "data": str(talks), "output": str(tmp_path / "out"), **given}
        return await run_benchmark(config_of(provider, run=block), registry=registry_with(adapter))

    return go


def told(outcome):
    lines = (outcome.directory / "diagnostics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


async def test_every_persona_is_asked_and_shapes_alone_are_kept(run):
    outcome = await run(diagnostics=ASKED)
    rows = told(outcome)
    assert [row["operation"] for row in rows] == [*ASKED, *ASKED]
    assert len({row["persona_id"] for row in rows}) == 2
    assert [row["status"] for row in rows[:3]] == ["answered", "answered", "not_supported"]
    assert [row.get("shape") for row in rows[:3]] == [{"count": 5}, {"rows": {"items": 5}}, None]
    assert not [row for row in rows if row.keys() & {"raw", "arguments"}]
    assert SENTINEL not in (outcome.directory / "diagnostics.jsonl").read_text(encoding="utf-8")
    assert outcome.manifest.status == "completed"
    assert "diagnostics.jsonl" in outcome.manifest.files
    assert not verify(outcome.directory).deviations


async def test_the_answer_is_kept_where_texts_are(run):
    rows = told(await run(diagnostics={"list": {}}, keep_texts=True))
    assert SENTINEL in json.dumps(rows[0]["raw"])
    assert rows[0]["arguments"] == {}


async def test_without_any_asked_there_is_no_file_and_the_hash_is_the_same(run):
    plain, asked = await run(), await run(diagnostics=ASKED)
    assert not (plain.directory / "diagnostics.jsonl").exists()
    assert plain.manifest.config_hash == asked.manifest.config_hash


async def test_a_provider_that_answers_no_native_query_says_so(run):
    outcome = await run(provider="no_memory", diagnostics={"count": {}})
    assert {row["status"] for row in told(outcome)} == {"not_supported"}
    assert outcome.manifest.status == "completed"


class Refusing(FakeBackend):
    """Refuses every native query."""

    async def native_query(self, request):
        raise BackendRejected("fake: 422", operation="list_rows")


class Broken(FakeBackend):
    """Has a defect that repeats what users said."""

    async def native_query(self, request):
        raise RuntimeError(SENTINEL)


@pytest.mark.parametrize("kind", [Refusing, Broken])
async def test_a_query_that_fails_is_told_and_fails_no_run(run, kind):
    outcome = await run(kind(), diagnostics={"count": {}, "list": {"surprise": 1}})
    assert {row["status"] for row in told(outcome)} == {"failed"}
    assert SENTINEL not in (outcome.directory / "diagnostics.jsonl").read_text(encoding="utf-8")
    assert outcome.manifest.status == "completed"


@pytest.mark.parametrize("wrong", [["count"], {"count": None}, {"count": [1]}])
def test_operations_have_arguments_by_name(wrong):
    with pytest.raises(ConfigError, match=r"run\.diagnostics"):
        run_settings(load_config(config_of("no_memory", run={"diagnostics": wrong})))


def test_a_shape_holds_no_text():
    raw = {"rows": [SENTINEL], "note": SENTINEL, "by": {SENTINEL: 1}, "n": 2, "full": True, "none": None}
    assert shape_of(raw) == {
        "rows": {"items": 1}, "note": {"characters": 15}, "by": {"fields": 1}, "n": 2, "full": True, "none": None
    }  # fmt: skip
    assert shape_of([SENTINEL]) == {"items": 1}


def test_what_a_query_asks_of_models_is_no_cost_of_the_memory():
    sums = Phased()
    sums.add(
        Trace(
            operation="native_query",
            native_operation="chat",
            backend_name="fake",
            scope=None,
            latency_ms=1.0,
            llm_calls=3,
            llm_tokens=50,
        )
    )
    assert (sums.ingest.calls, sums.ingest.tokens, sums.retrieve.calls) == (0, 0, 0)
