"""What must not be taken for a bad memory, or a good one: an unready one, a failed switch, a short context."""

import json
from dataclasses import replace

import pytest
from bench_support import config_of, locomo_sample, registry_with, write_locomo

from memory import BackendReadiness, BackendUnavailable
from memory.bench import run_benchmark, summary_table, write_report
from memory.bench.engine.run_cell import Tally
from memory.cli._results import run_json
from memory.testing._fake_backend import FakeBackend
from memory.testing._fake_store import FakeNativeStore


@pytest.fixture
def run(tmp_path):
    """Runs a provider over two small conversations."""
    talks = write_locomo(tmp_path / "talks.json", locomo_sample("one"), locomo_sample("two"))

    async def go(adapter=None, *, provider="fake", budget=None, **block):
        given = {"timeline": "locomo", "data": str(talks), "output": str(tmp_path / "out"), **block}
        return await run_benchmark(
            config_of(provider, run=given, budget=budget), registry=registry_with(adapter)
        )

    return go


def rows(outcome, name="results.jsonl"):
    return [json.loads(line) for line in (outcome.directory / name).read_text(encoding="utf-8").splitlines()]


def always(state, detail="no worker runs"):
    class Answering(FakeBackend):
        async def wait_until_ready(self, scope, timeout_s):
            return BackendReadiness(state=state, detail=detail)

    return Answering()


@pytest.mark.parametrize("state", ["pending", "unknown"])
async def test_a_probe_of_an_unready_memory_has_a_status_of_its_own_and_is_in_no_score(run, state):
    outcome = await run(always(state))
    assert {(row["status"], row["readiness"]) for row in rows(outcome)} == {("not_ready", state)}
    assert all(row["evidence"] is None and row["error"] is None for row in rows(outcome))
    assert outcome.metrics.evidence is None
    assert (outcome.metrics.probes, outcome.metrics.not_ready) == (10, 10)
    assert [(cell.probes, cell.probes_not_ready) for cell in outcome.manifest.cells] == [(5, 5), (5, 5)]
    assert outcome.manifest.status == "failed"
    told = "5 of 5 probes were asked while memory was not known to be ready and are not scored"
    assert told in outcome.report.read_text(encoding="utf-8")
    (line,) = (line for line in run_json(outcome)["problems"] if told in line and ": one: " in line)
    assert line.endswith("run.score_unknown: true scores them") == (state == "unknown")


async def test_only_the_probes_of_an_unready_session_are_left_out(run):
    class Late(FakeBackend):
        asked = 0

        async def wait_until_ready(self, scope, timeout_s):
            self.asked += 1
            return BackendReadiness(state="ready" if self.asked == 2 else "pending")

    outcome = await run(Late())
    assert [row["status"] for row in rows(outcome)] == ["not_ready"] * 5 + ["scored"] * 5
    assert outcome.metrics.evidence.overall.questions == 3


async def test_probes_of_unknown_readiness_count_where_the_run_asks_for_it_and_it_says_so(run):
    outcome = await run(always("unknown"), score_unknown=True)
    assert {(row["status"], row["readiness"]) for row in rows(outcome)} == {("unconfirmed", "unknown")}
    assert (outcome.metrics.not_ready, outcome.metrics.unconfirmed) == (0, 10)
    assert "0 of 10, 10 unconfirmed" in summary_table([outcome.metrics])[1][0]
    assert outcome.manifest.status == "completed"
    told = "probes are scored although the provider could not say whether memory was ready"
    assert any(told in warning for warning in outcome.manifest.warnings)
    assert told in write_report(outcome.directory).read_text(encoding="utf-8")
    pending = await run(always("pending"), score_unknown=True)
    assert {row["status"] for row in rows(pending)} == {"not_ready"}


async def test_a_failed_retrieval_has_a_status_too(run):
    store = FakeNativeStore()
    store.faults.add("500", endpoint="search")
    statuses = [row["status"] for row in rows(await run(FakeBackend(store)))]
    assert sorted(statuses) == ["failed"] + ["scored"] * 9


async def test_a_switch_to_read_only_that_failed_costs_its_own_cell_alone(run):
    class Once(FakeBackend):
        failed = False

        async def set_mode(self, mode):
            if mode.read_only and not self.failed:
                self.failed = True
                raise BackendUnavailable("gone for a moment")
            return await super().set_mode(mode)

    first, second = (await run(Once())).manifest.cells
    assert (first.status, first.error.type, first.probes) == ("failed", "BackendUnavailable", 0)
    assert (second.status, second.probes, second.writes) == ("completed", 5, {"committed": 5})


async def test_how_far_contexts_stay_below_what_was_wanted_stands_in_results_and_report(run):
    budget = {"max_tokens": 400, "min_tokens": 300}
    outcome = await run(budget=budget)
    found = rows(outcome)
    assert all(row["shortfall"] == max(0, 300 - row["tokens"]) for row in found)
    short = [row["shortfall"] for row in found if row["shortfall"]]
    assert short
    cost = outcome.metrics.cost
    assert (cost.short, cost.shortfall.most) == (len(short), max(short))
    assert (cost.tokens.least, cost.tokens.most) == (
        min(row["tokens"] for row in found),
        max(row["tokens"] for row in found),
    )
    assert f"{len(short)} of 10 contexts stayed below the 300 tokens wanted" in outcome.report.read_text(
        "utf-8"
    )
    nothing_wanted = await run()
    assert nothing_wanted.metrics.cost.short is None
    assert {row["shortfall"] for row in rows(nothing_wanted)} == {None}


async def test_results_and_traces_join_by_probe(run):
    outcome = await run()
    asked = [trace for trace in rows(outcome, "traces.jsonl") if trace["operation"] == "retrieve"]
    key = [(row["persona_id"], row["probe_id"]) for row in rows(outcome)]
    assert [(trace["scope"]["persona_id"], trace["probe_id"]) for trace in asked] == key
    others = [trace for trace in rows(outcome, "traces.jsonl") if trace["operation"] != "retrieve"]
    assert {trace["probe_id"] for trace in others} == {None}


async def test_contexts_are_kept_where_the_run_asks_for_it_and_nowhere_else(run):
    outcome = await run(keep_texts=True)
    kept = {(row["persona_id"], row["probe_id"]): row for row in rows(outcome, "texts.jsonl")}
    assert set(kept) == {(row["persona_id"], row["probe_id"]) for row in rows(outcome)}
    first = kept["one", rows(outcome)[0]["probe_id"]]
    assert first["query"] == "What did Ann order?"
    assert "I ordered a kiln" in first["context"]
    for name in ("results.jsonl", "traces.jsonl", "manifest.json", "metrics.json"):
        assert "I ordered a kiln" not in (outcome.directory / name).read_text(encoding="utf-8")
    page = outcome.report.read_text(encoding="utf-8")
    assert "0 of 1 turns found: When does it arrive? (one, temporal, after 2 sessions)" in page
    assert page.index("0 of 1 turns found") < page.index("1 of 1 turns found"), "those that lost first"
    assert "I ordered a kiln" in page
    assert "it quotes questions and contexts" in page
    assert "holds nothing that a user said" not in page
    without = await run()
    assert not (without.directory / "texts.jsonl").exists()
    assert "I ordered a kiln" not in without.report.read_text(encoding="utf-8")
    assert "holds nothing that a user said" in without.report.read_text(encoding="utf-8")


async def test_a_switch_back_that_failed_costs_its_own_cell_alone(run):
    class Once(FakeBackend):
        failed = False

        async def set_mode(self, mode):
            if not mode.read_only and not self.failed:
                self.failed = True
                raise BackendUnavailable("gone for a moment")
            return await super().set_mode(mode)

    first, second = (await run(Once())).manifest.cells
    assert (first.status, first.error.type, first.probes) == ("failed", "BackendUnavailable", 5)
    assert (second.status, second.probes, second.writes) == ("completed", 5, {"committed": 5})


async def test_a_provider_that_is_retrieved_from_later_and_cannot_say_when_is_not_scored(run):
    adapter = FakeBackend()
    adapter.withheld_capabilities = frozenset({"readiness"})
    adapter.traits = replace(adapter.traits, consistency="eventual")
    assert {(row["status"], row["readiness"]) for row in rows(await run(adapter))} == {
        ("not_ready", "not_offered")
    }


def test_warnings_that_differ_in_a_number_alone_are_one_and_names_keep_theirs():
    tally = Tally()
    tally.warn(["mem0 2.2.1 left 3 entries out", "mem0 2.2.1 left 17 entries out", "MemoryOS2 took 1.5 s"])
    assert tally.warnings == {"mem0 2.2.1 left … entries out": 2, "MemoryOS2 took … s": 1}
