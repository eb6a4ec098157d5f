"""A run from its configuration to its files, over a provider whose native system is watched and broken."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from bench_support import (
    SENTINEL,
    config_of,
    figure,
    locomo_sample,
    registry_with,
    rows,
    run,
    verified,
    write_locomo,
)
from jsonschema import Draft202012Validator

from memory import BackendUnavailable, ConfigError
from memory.adapter import ContextEntry
from memory.bench.engine.manifest import Manifest, read_manifest
from memory.bench.engine.matrix import load_experiment
from memory.bench.report.report import write_report
from memory.bench.report.results import results_of
from memory.bench.scores.metrics import llm_use
from memory.contract.errors import PluginNotFound
from memory.doctor.report import CHECKS
from memory.testing import FAKE_KEY, FakeBackend, FakeNativeStore

GAME = {"game": {"users": 1, "sessions": 10, "tests": 4, "attributes": 5}}
FILES = {"manifest.json", "metrics.json", "report.html", "cells", ".lock"}
CELL_FILES = {"results.jsonl", "traces.jsonl", "journal.jsonl", "times.jsonl", ".lock"}


@pytest.fixture
def talks(tmp_path):
    return write_locomo(tmp_path / "talks.json", locomo_sample("one"), locomo_sample("two"))


@pytest.fixture
def run_provider(tmp_path, talks):
    """Runs a provider over two small conversations, or what ``block`` says, into ``tmp_path/out``."""

    async def run_provider(
        adapter=None, provider="fake", *, block=None, registry=None, on_error=None, progress=None, **memory
    ):
        given = {"timeline": "locomo", "data": str(talks)} if block is None else block
        config = config_of(provider, run={"output": str(tmp_path / "out"), **given}, **memory)
        registry = registry or registry_with(adapter)
        return await run(config, registry=registry, on_error=on_error, progress=progress)

    return run_provider


def written(directory):
    """Everything a run wrote, as one text."""
    files = [path for path in directory.rglob("*") if path.is_file() and "store" not in path.parts]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


async def test_the_whole_history_holds_all_evidence_that_can_be_resolved(run_provider):
    outcome = await run_provider(provider="full_history")
    assert figure(outcome, "evidence recall").value == 1.0
    assert figure(outcome, "evidence recall").n == 6
    assert 0 < figure(outcome, "recall@1").value <= figure(outcome, "recall@5").value <= 1.0
    assert sum(row["unresolved"] for row in rows(outcome)) == 4
    assert outcome.manifest.status == "completed"
    assert (await verified(outcome)).deviations == ()


async def test_a_run_leaves_whole_files_and_a_manifest_that_fits_its_schema(run_provider):
    outcome = await run_provider()
    assert {path.name for path in outcome.directory.iterdir()} == FILES
    for cell in outcome.manifest.cells:
        place = outcome.directory / "cells" / cell.cell_id
        assert {path.name for path in place.iterdir()} - {"store"} == CELL_FILES
    content = json.loads((outcome.directory / "manifest.json").read_text(encoding="utf-8"))
    wanted = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Manifest.model_json_schema()}
    Draft202012Validator(wanted).validate(content)
    assert read_manifest(outcome.directory) == outcome.manifest
    assert len(rows(outcome)) == outcome.manifest.data["7"].probes == 10
    operations = [trace["operation"] for trace in rows(outcome, "traces.jsonl")]
    assert operations.count("record_event") >= 10
    assert operations.count("retrieve") == 10
    schema = Path(__file__).parents[2] / "manifests" / "schema.json"
    assert json.loads(schema.read_text(encoding="utf-8")) == wanted


async def test_no_file_holds_user_text_or_a_secret_even_when_native_errors_repeat_both(run_provider, talks):
    store = FakeNativeStore()
    store.faults.add("500", endpoint="search")
    store.faults.add("401", endpoint="insert")
    outcome = await run_provider(FakeBackend(store), backends={"fake": {"api_key": "sk-secret-123456"}})
    assert [fault.kind for fault in store.faults.fired][:1] == ["401"]
    text = written(outcome.directory)
    said = json.loads(talks.read_text(encoding="utf-8"))[0]
    spoken = [turn["text"] for turn in said["conversation"]["session_2"] if turn["text"]]
    spoken += [question["question"] for question in said["qa"]]
    for secret in (SENTINEL, FAKE_KEY, "sk-secret-123456", str(talks.parent), *spoken):
        assert secret not in text


async def test_the_manifest_says_what_ran(run_provider):
    manifest = (await run_provider(backends={"fake": {"api_key": "x"}})).manifest
    (variant,) = manifest.variants
    assert (variant.provider.backend, variant.provider.condition) == ("fake", None)
    assert variant.config["memory"]["backends"]["fake"] == {"api_key": "***"}
    assert manifest.settings["mode"] == "probe"
    assert manifest.data["7"].name == "talks.json"
    assert set(variant.capabilities) == {
        "bulk_ingest", "feedback", "native_mutation", "native_query", "provenance", "readiness"
    }  # fmt: skip
    assert variant.cs_filtering == "hard"
    cell = manifest.cells[0]
    assert cell.health.status == "ok"
    assert (cell.status, cell.sessions, cell.counts["events"], cell.probes) == ("completed", 2, 5, 1)
    assert cell.writes == {"committed": 5}
    assert cell.native_scope["space"].startswith(cell.scope.run_id)  # that of this cell alone
    assert (cell.counts["native_records"], cell.readiness) == (5, {"ready": 1})
    assert cell.counts["written_tokens"] > 0
    assert cell.usage["ingest"]["tokens"] is None
    assert {"write", "wait", "retrieve", "open"} <= cell.timings.keys()
    assert {"memslot", "pydantic"} <= set(variant.distributions)


class Watched(FakeBackend):
    """Keeps a log of what the harness did, and of the store while read-only."""

    def __init__(self, **options):
        super().__init__(**options)
        self.log = []
        self.queries = []

    async def set_mode(self, mode):
        self.log.append((mode.read_only, mode.reason))
        self.fingerprint = self.store.fingerprint()
        return await super().set_mode(mode)

    async def record_event(self, event):
        self.log.append("write")
        return await super().record_event(event)

    async def retrieve(self, request):
        self.log.append("ask")
        self.queries.append(request)
        assert self.store.fingerprint() == self.fingerprint
        return await super().retrieve(request)


def folded(log):
    """The log with repetitions folded."""
    return [entry for index, entry in enumerate(log) if index == 0 or entry != log[index - 1]]


async def test_probes_are_read_only_and_accumulation_goes_on_after_them(run_provider):
    adapter = Watched()
    await run_provider(adapter, block=GAME)
    each = ["write", (True, "test_session"), "ask", (False, "accumulation")]
    begun, *rest = folded(adapter.log)
    assert begun == (False, "accumulation")
    assert len(rest) >= 3 * len(each), "one for each point at which something is asked"
    assert rest == each * (len(rest) // len(each))


async def test_read_only_can_be_switched_off_and_the_page_says_so(run_provider):
    adapter = Watched()
    adapter.fingerprint = None
    adapter.retrieve = super(Watched, adapter).retrieve
    outcome = await run_provider(adapter, read_only_test_sessions=False)
    assert not [entry for entry in adapter.log if entry != "write" and entry[0]]
    assert outcome.manifest.variants[0].read_only is False


async def test_a_probe_across_contexts_is_filtered_by_none_and_says_so(tmp_path, monkeypatch):
    config = config_of(run={**GAME, "output": str(tmp_path)})
    adapter = Watched()
    registry = registry_with(adapter)
    data = load_experiment(config, block="run", selected=True, registry=registry).timelines(7)
    (timeline,) = data.timelines
    first, *others = timeline.probes
    probes = (replace(first, cross_context=True), *others)
    given = replace(data, timelines=(replace(timeline, probes=probes),))
    monkeypatch.setattr("memory.bench.engine.matrix.load_timelines", lambda *_: given)
    outcome = await run(config, registry=registry)
    for request in adapter.queries:
        across = request.query == first.query
        assert (bool(request.filters), bool(request.cs_filters)) == (across, not across)
    assert [row["probe_id"] for row in rows(outcome) if row["cross_context"]] == [first.probe_id]


@pytest.mark.thorough
async def test_each_run_has_scopes_of_its_own_even_in_one_store(run_provider):
    store = FakeNativeStore()
    scope = {"run_id": "prod", "persona_id": "alice", "backend_namespace": "team"}
    first = await run_provider(FakeBackend(store), scope=scope)
    kept = len(store.rows)
    second = await run_provider(FakeBackend(store), scope=scope)
    assert figure(first, "evidence recall") == figure(second, "evidence recall")
    assert kept == 10  # the scopes of a run stay for later analysis
    assert len(store.rows) == 20
    scopes = [cell.scope for outcome in (first, second) for cell in outcome.manifest.cells]
    assert len(set(scopes)) == 4
    assert all(scope.backend_namespace == "team" for scope in scopes)
    assert first.manifest.hashes == second.manifest.hashes
    assert first.manifest.hashes["scope"] != (await run_provider()).manifest.hashes["scope"]


class Nameless(FakeBackend):
    """Does not say which events its rows come from."""

    async def retrieve(self, request):
        result = await super().retrieve(request)
        bare = tuple(ContextEntry(entry.text) for entry in result.entries)
        return result.model_copy(update={"entries": bare})


class Boasting(FakeBackend):
    """Shows two rows that name every event of the conversation."""

    async def retrieve(self, request):
        result = await super().retrieve(request)
        every = tuple(sorted({event for entry in result.entries for event in entry.event_ids}))
        claims = tuple(ContextEntry(text, event_ids=every) for text in ("I know.", "All of it."))
        return result.model_copy(update={"entries": claims})


async def test_evidence_is_what_was_shown_and_a_claim_is_a_claim(run_provider):
    named, nameless, boasting = (
        await run_provider(),
        await run_provider(Nameless()),
        await run_provider(Boasting()),
    )
    found = [figure(outcome, "evidence recall").value for outcome in (named, nameless, boasting)]
    assert found[0] == found[1] > 0
    assert found[2] == 0.0


async def test_a_provider_that_returns_nothing_scores_nothing(run_provider):
    outcome = await run_provider(provider="no_memory")
    assert figure(outcome, "evidence recall").value == 0.0
    assert figure(outcome, "nothing shown").value == 1.0
    assert outcome.metrics.providers[0].tokens == 0.0
    assert outcome.manifest.status == "completed"


async def test_it_waits_until_what_was_written_can_be_found(run_provider):
    outcome = await run_provider(FakeBackend(FakeNativeStore(derivation_s=0.05)))
    assert outcome.manifest.cells[0].readiness == {"ready": 1}
    assert outcome.manifest.cells[0].timings["wait"] > 0
    assert outcome.metrics.providers == (await run_provider()).metrics.providers


async def test_a_provider_that_cannot_say_when_is_marked(run_provider):
    adapter = FakeBackend()
    adapter.withheld_capabilities = frozenset({"readiness"})
    adapter.traits = replace(adapter.traits, consistency="eventual")
    outcome = await run_provider(adapter)
    assert {(row["status"], row["readiness"]) for row in rows(outcome)} == {("unready", "not_offered")}
    assert any("cannot say when" in text for text in outcome.manifest.cells[0].warnings)


async def test_a_failed_derivation_ends_its_cell_and_its_requests_are_misses(run_provider):
    store = FakeNativeStore()
    store.derivation_fails = True
    outcome = await run_provider(FakeBackend(store))
    assert outcome.manifest.status == "failed"
    assert {(cell.status, cell.fault) for cell in outcome.manifest.cells} == {("failed", "provider")}
    assert "rows were never derived" in outcome.manifest.cells[0].error.message, "why, as the backend says it"
    found = figure(outcome, "evidence recall")
    assert (found.value, found.n, found.failed) == (0.0, 6, 6)


async def test_a_failed_retrieval_is_a_miss_and_no_empty_one(run_provider):
    store = FakeNativeStore()
    store.faults.add("500", endpoint="search")
    outcome = await run_provider(FakeBackend(store))
    assert outcome.manifest.status == "failed", "and the command ends with 1"
    assert [cell.status for cell in outcome.manifest.cells] == ["completed", "completed"]
    assert sorted(row["status"] for row in rows(outcome)) == ["failed"] + ["scored"] * 9
    whole, found = figure(await run_provider(), "evidence recall"), figure(outcome, "evidence recall")
    assert (found.n, found.failed) == (whole.n, 1)
    assert found.value < whole.value
    assert [row["error"] for row in rows(outcome)].count("BackendUnavailable") == 1
    assert (await verified(outcome)).deviations == ()


async def test_a_backend_that_keeps_failing_ends_its_cell_and_every_request_is_there(run_provider):
    store = FakeNativeStore()
    store.faults.add("500", endpoint="search", times=5)
    outcome = await run_provider(FakeBackend(store))
    first, second = outcome.manifest.cells
    assert (first.status, first.error.type, first.fault) == ("failed", "BackendUnavailable", "provider")
    assert second.status == "completed"
    assert [row["status"] for row in rows(outcome)] == ["failed"] * 5 + ["scored"] * 5
    assert (await verified(outcome)).deviations == ()


async def test_failures_between_successes_do_not_add_up(run_provider):
    class Flaky(FakeBackend):
        calls = 0

        async def retrieve(self, request):
            self.calls += 1
            if self.calls % 3:
                raise BackendUnavailable("down for a moment")
            return await super().retrieve(request)

    outcome = await run_provider(Flaky(), block=GAME)
    (cell,) = outcome.manifest.cells
    assert (cell.status, cell.error) == ("completed", None)
    assert outcome.metrics.providers[0].failed > outcome.metrics.providers[0].requests / 2
    assert outcome.manifest.status == "failed"


async def test_a_refused_write_ends_the_cell_because_the_timeline_would_have_a_gap(run_provider, talks):
    store = FakeNativeStore()
    store.faults.add("422", endpoint="insert")
    block = {"timeline": "locomo", "data": str(talks)}
    outcome = await run_provider(FakeBackend(store), block=block)
    first, second = outcome.manifest.cells
    assert (first.status, first.error.type) == ("failed", "BackendRejected")
    assert second.status == "completed"
    assert [row["status"] for row in rows(outcome)] == ["failed"] * 5 + ["scored"] * 5


async def test_an_unanswered_write_is_counted_as_unknown(run_provider):
    class Blind(FakeBackend):
        """Cannot look an event up."""

        def __getattribute__(self, name):
            if name == "find_event":
                raise AttributeError(name)
            return super().__getattribute__(name)

    store = FakeNativeStore()
    store.faults.add("lost", endpoint="insert")
    outcome = await run_provider(Blind(store))
    assert outcome.manifest.cells[0].writes == {"unknown": 1, "committed": 4}
    assert any("may or may not be stored" in text for text in outcome.manifest.cells[0].warnings)


async def test_an_unavailable_backend_runs_nothing_and_says_why(run_provider):
    store = FakeNativeStore()
    store.faults.add("refused", endpoint="ping", times=None)
    outcome = await run_provider(FakeBackend(store))
    assert {(cell.status, cell.error.type) for cell in outcome.manifest.cells} == {("failed", "Stopped")}
    assert outcome.manifest.cells[0].health.status == "unavailable"
    assert set(store.operations) == {"ping"}
    assert outcome.metrics.providers[0].failed == 10


async def test_a_defect_in_a_provider_is_its_own_and_its_message_is_withheld(run_provider):
    class Defective(FakeBackend):
        async def setup_scope(self, scope):
            raise TypeError(SENTINEL)

    outcome = await run_provider(Defective())
    assert {(cell.status, cell.fault) for cell in outcome.manifest.cells} == {("failed", "provider")}
    assert SENTINEL not in written(outcome.directory)


@pytest.mark.thorough
async def test_a_leak_between_personas_is_seen(tmp_path):
    class Shared(FakeBackend):
        """Carries everybody's rows along."""

        async def retrieve(self, request):
            result = await super().retrieve(request)
            every = [
                row for space in self.store.spaces for row in await self.store.search(space, request.query)
            ]
            entries = (*result.entries, *(ContextEntry(str(row)) for row in every))
            return result.model_copy(update={"entries": entries})

    store = FakeNativeStore()
    block = {"game": {**GAME["game"], "users": 2}, "output": str(tmp_path)}
    outcome = await run(config_of(run=block), registry=registry_with(lambda: Shared(store)))
    assert outcome.metrics.providers[0].leaks > 0
    assert "the isolation is broken" in outcome.report.read_text(encoding="utf-8")


@pytest.mark.thorough
async def test_a_condition_with_data_of_its_own_keeps_it(run_provider):
    own = {"static_profile": {"profiles": {"mara": "nothing"}}}
    outcome = await run_provider(provider="static_profile", block=GAME, conditions=own)
    assert outcome.manifest.variants[0].wired == ()
    assert figure(outcome, "shown").value == 0.0


async def test_contexts_are_kept_where_the_run_asks_for_it_and_nowhere_else(run_provider, talks):
    outcome = await run_provider(block={"timeline": "locomo", "data": str(talks), "keep_texts": True})
    kept = {row["probe_id"]: row for row in rows(outcome, "texts.jsonl") if row["persona_id"] == "one"}
    first = kept[rows(outcome)[0]["probe_id"]]
    assert first["user"] == "What did Ann order?"
    assert "I ordered a kiln" in first["context"]
    page = outcome.report.read_text(encoding="utf-8")
    assert page.index("0 of 1 turns found") < page.index("1 of 1 turns found"), "those that lost first"
    assert "it quotes questions and contexts" in page
    assert (await verified(outcome, talks)).deviations == ()
    without = await run_provider()
    assert not list(without.directory.rglob("texts.jsonl"))
    assert "holds nothing that a user said" in without.report.read_text(encoding="utf-8")


def test_what_a_query_asks_of_models_is_no_cost_of_the_memory():
    asked = {"operation": "native_query", "llm_calls": 3, "llm_tokens": 50}
    wrote = {"operation": "record_event", "llm_calls": 2, "llm_tokens": None}
    found = llm_use([asked, wrote, {**asked, "operation": "retrieve"}])
    assert found == {"ingest": {"calls": 2, "tokens": None}, "retrieve": {"calls": 3, "tokens": 50}}


@pytest.mark.thorough
async def test_the_doctor_s_checks_stand_in_the_manifest(run_provider):
    outcome = await run_provider(block={**GAME, "doctor": True}, registry=registry_with(FakeBackend))
    assert [check.name for check in outcome.manifest.variants[0].doctor] == list(CHECKS)
    assert (await run_provider(block=GAME)).manifest.variants[0].doctor is None


async def test_a_run_whose_backend_fails_a_check_ends_there(run_provider):
    class Leaky(FakeBackend):
        async def retrieve(self, request):
            every = [
                row for space in self.store.spaces for row in await self.store.search(space, request.query)
            ]
            return (await super().retrieve(request)).model_copy(update={"raw": every})

    store = FakeNativeStore()
    outcome = await run_provider(block={**GAME, "doctor": True}, registry=registry_with(lambda: Leaky(store)))
    (variant,) = outcome.manifest.variants
    assert variant.error.message == "doctor: isolation: doctor-a was shown what was written for doctor-b"
    assert outcome.manifest.status == "failed"
    assert {cell.status for cell in outcome.manifest.cells} == {"not_run"}
    assert not store.rows
    assert outcome.metrics.providers[0].failed == outcome.metrics.providers[0].requests > 0


@pytest.fixture
def compared(tmp_path):
    async def run_all(*names, registry=None, **block):
        content = {
            "memory": {"condition": "no_memory", "budget": {"max_tokens": 400, "max_items": None}},
            "run": {"doctor": False, "game": {**GAME["game"], "users": 2}, "output": str(tmp_path), **block},
        }
        return await run(content, registry=registry or registry_with(), providers=list(names))

    return run_all


@pytest.mark.thorough
async def test_providers_run_over_the_same_data_and_are_shown_side_by_side(compared):
    outcome = await compared("no_memory", "full_history", "oracle_ipas", "fake")
    shown = {
        provider.label: figure(outcome, "shown", provider.label).value
        for provider in outcome.metrics.providers
    }
    assert (shown["no_memory"], shown["oracle_ipas"]) == (0.0, 1.0)
    results = results_of(outcome.directory, outcome.manifest, outcome.metrics)
    assert results.entries[0].metrics.label == "fake", "architectures come first"
    assert [(each.first, each.second) for each in outcome.metrics.differences] == [("fake", "full_history")]
    page = outcome.report.read_text(encoding="utf-8")
    assert "Comparisons" in page
    outcome.report.unlink()
    assert write_report(outcome.directory)[0].read_text(encoding="utf-8") == page


async def test_one_that_lacks_its_sdk_is_left_out_and_said(compared):
    """One policy for every command: what was never installed fails nobody."""
    outcome = await compared("no_memory", "fake", registry=registry_with(sdk_modules=("no_such_sdk",)))
    assert [variant.label for variant in outcome.manifest.variants] == ["no_memory"]
    (left_out,) = outcome.manifest.left_out
    assert (left_out.label, left_out.broken) == ("fake", False)
    assert "no_such_sdk" in left_out.why
    assert outcome.manifest.status == "completed"
    with pytest.raises(ConfigError, match=r"leaves nobody: fake: needs .*no_such_sdk"):
        await compared("fake", registry=registry_with(sdk_modules=("no_such_sdk",)))


async def test_a_name_that_nobody_offers_is_said_before_anything_runs(compared, tmp_path):
    with pytest.raises(PluginNotFound, match="did you mean full_history"):
        await compared("no_memory", "full_histroy")
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
async def test_a_name_is_no_markup_of_the_table_it_stands_in(compared):
    name = r"<b>a|b*c & _d_ `\q [x](y)"
    outcome = await compared({"provider": "full_history", "name": name})
    page = outcome.report.read_text(encoding="utf-8")
    assert "<b>a" not in page
    script = page.split("<script>")[1].split("</script>")[0]
    forms = script[script.index("  const markdown") : script.index("  for (const [name, form]")]
    given = "forms.Markdown(JSON.parse(process.argv[1]))"
    asked = f"const heads = [1, 2];{forms}console.log({given})"
    if node := shutil.which("node"):
        table = json.dumps([["provider", "style fit"], [name, "1 – 2"]])
        copied = (await anyio.run_process([node, "-e", asked, table])).stdout.decode()
        assert copied.splitlines()[2] == r"| \<b\>a\|b\*c \& \_d\_ \`\\q \[x\](y) | 1 – 2 |"


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ({"timeline": "locomo"}, r"run: the timeline locomo needs data"),
        ({"timeline": "locomo", "data": "none.json"}, r"none\.json does not exist"),
        ({"data": "x.json"}, "is generated, and reads no data"),
        ({"timelin": "game"}, r"run\.timelin: is not a known field; did you mean timeline"),
        ({"game": {"users": 0}}, r"run\.game\.users: .*greater than or equal to"),
        ({"cs": ["mood"]}, r"run\.cs\.0: "),
        ({"seed": 3}, r"run\.seed: is not a known field; did you mean seeds"),
    ],
)
async def test_bad_settings_are_refused_before_anything_is_written(run_provider, tmp_path, block, complaint):
    with pytest.raises(ConfigError, match=complaint):
        await run_provider(block=block)
    assert not (tmp_path / "out").exists()


async def test_a_provider_that_cannot_be_built_leaves_nothing_behind(run_provider, tmp_path):
    with pytest.raises(ConfigError, match=r"memory\.backends\.fake\.api_kee: is not a known field"):
        await run_provider(backends={"fake": {"api_kee": "x"}})
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is damaged: "),
        ("[]", "is damaged: "),
        ("{}", "is damaged: experiment_id: is required"),
    ],
)
def test_a_damaged_manifest_says_so(tmp_path, content, complaint):
    (tmp_path / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=complaint):
        read_manifest(tmp_path)
    with pytest.raises(ConfigError, match="does not exist; give the directory of a run"):
        read_manifest(tmp_path / "nowhere")


async def test_a_scope_that_leaves_no_room_for_a_run_is_refused(run_provider):
    with pytest.raises(ConfigError, match=r"scope\.run_id: a run extends it; shorten it by \d+ characters"):
        await run_provider(FakeBackend(), scope={"run_id": "r" * 500, "persona_id": "p"})
