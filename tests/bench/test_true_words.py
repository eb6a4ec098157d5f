"""Whatever a run leaves or prints: a dead model, an unready memory, a stand-in pass for no healthy memory."""

import io
import json
from contextlib import redirect_stdout
from dataclasses import replace

import pytest
from bench_support import config_of, locomo_sample, registry_with, write_locomo

from memory import BackendReadiness
from memory.bench import comparison_configs, run_benchmark, run_many, run_settings, write_report
from memory.cli._results import comparison_json, run_json, show_comparison, show_run
from memory.testing._fake_backend import FakeBackend
from memory.testing._fake_store import FakeNativeStore


def healthy():
    return FakeBackend()


def dead_model():
    store = FakeNativeStore()
    store.derivation_fails = True
    return FakeBackend(store)


def silent_model():
    class Silent(FakeBackend):
        """Found out nothing: what a model that died is like where the backend does not say."""

        async def wait_until_ready(self, scope, timeout_s):
            return BackendReadiness(state="unknown", detail="nothing was derived")

    return Silent()


def unready():
    return FakeBackend(FakeNativeStore(derivation_s=60.0))


def stand_in():
    adapter = FakeBackend()
    adapter.traits = replace(
        adapter.traits,
        kind="control",
        equivalent_control="simple_rag",
        fallback_components=("lexical embedder",),
    )
    return adapter


ILL = {
    dead_model: ("failed to process what was written", "rows were never derived"),
    silent_model: ("not known to be ready", "nothing was derived"),
    unready: ("not known to be ready", "pending"),
    stand_in: ("simple_rag", "lexical embedder"),
}


def printed(show, *given):
    text = io.StringIO()
    with redirect_stdout(text):
        show(*given)
    return text.getvalue()


async def artefacts(tmp_path, adapter):
    """Name -> text, of everything a run and a comparison leave and print."""
    data = write_locomo(tmp_path / "talks.json", locomo_sample("one"), locomo_sample("two"))
    block = {"timeline": "locomo", "data": str(data), "output": str(tmp_path / "out"), "wait_timeout_s": 0.05}
    registry = registry_with(adapter)
    outcome = await run_benchmark(config_of("fake", run=block), registry=registry)
    found = {path.name: path.read_text(encoding="utf-8") for path in outcome.directory.iterdir()}
    found["report again"] = write_report(outcome.directory).read_text(encoding="utf-8")
    found["terminal"] = printed(show_run, outcome.manifest, outcome.metrics)
    found["json"] = json.dumps(run_json(outcome))
    content = config_of("fake", run={**block, "output": str(tmp_path / "all")})
    content["memory"]["conditions"] = {"no_memory": {}}
    configs = comparison_configs(content, ["no_memory", "fake"])
    compared = await run_many(configs, settings=run_settings(configs[0]), registry=registry)
    found["comparison"] = compared.report.read_text(encoding="utf-8")
    found["comparison terminal"] = printed(show_comparison, compared.outcomes, compared.not_run)
    found["comparison json"] = json.dumps(
        comparison_json(compared.report, compared.outcomes, compared.not_run)
    )
    return found, outcome, compared


@pytest.mark.parametrize("illness", ILL, ids=lambda illness: illness.__name__)
async def test_no_artefact_is_the_one_of_a_healthy_memory(tmp_path, illness):
    (tmp_path / "ill").mkdir()
    (tmp_path / "well").mkdir()
    ill, outcome, compared = await artefacts(tmp_path / "ill", illness)
    well, _, _ = await artefacts(tmp_path / "well", healthy)
    first, second = ILL[illness]
    for name, text in ill.items():
        if name.endswith(".jsonl"):
            continue
        text = text.replace("&#39;", "'")
        told = all if illness is stand_in else any
        assert told(word in text for word in (first, second)), f"{name} tells nothing of a {illness.__name__}"
        assert first not in well[name], f"{name} tells of it in a healthy one too"
    if illness is stand_in:
        for name in ("results.jsonl", "traces.jsonl"):
            for line in ill[name].splitlines():
                assert "lexical embedder" in line, f"{name}: every line says what stood in"
        assert outcome.manifest.status == "completed"
        assert outcome.manifest.provider.kind == "control"
        return
    scores = outcome.metrics.evidence
    assert scores is None, "no figure of it can be mistaken for one of a memory"
    assert outcome.manifest.status == "failed"
    columns, rows = compared.table
    row = dict(zip(columns, rows[1], strict=True))
    assert (row["evidence recall"], row["not scored"]) == ("–", "10 of 10")
    assert not compared.differences, "and it is compared with nobody"
    for line in ill["results.jsonl"].splitlines():
        assert json.loads(line)["status"] == "not_ready"
        assert json.loads(line)["readiness"] in ("pending", "unknown")


async def test_model_calls_that_nobody_counts_are_unknown_and_not_none(tmp_path):
    found, outcome, _ = await artefacts(tmp_path, healthy)
    told = outcome.manifest.tokens
    assert (told.ingest_calls, told.ingest_model, told.retrieve_calls, told.retrieve_model) == (None,) * 4
    assert (outcome.metrics.cost.llm_calls, outcome.metrics.cost.llm_tokens) == (None, None)
    assert "while writing unknown: the provider does not say" in found["report.html"]
    assert "<td>unknown</td><td>unknown</td>" in found["comparison"]


async def test_a_memory_that_fails_half_way_is_compared_on_what_it_was_asked_alone(tmp_path):
    class Dying(FakeBackend):
        asked = 0

        async def wait_until_ready(self, scope, timeout_s):
            self.asked += 1
            return BackendReadiness(state="ready" if self.asked < 4 else "failed", detail="the model is gone")

    block = {"users": 1, "sessions": 8, "output": str(tmp_path)}
    outcome = await run_benchmark(config_of("fake", run=block), registry=registry_with(Dying()))
    planned = outcome.manifest.data.probes
    asked = outcome.metrics.preferences.overall.fit.n
    assert 0 < asked < planned
    text = printed(show_run, outcome.manifest, outcome.metrics)
    assert f"{planned - asked} of {planned} probes are not scored" in text
    assert f"{planned - asked} of {planned} probes are not scored" in outcome.report.read_text(
        encoding="utf-8"
    )
