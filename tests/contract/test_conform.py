"""``memslot tools conform``: without pytest, and honest about levels."""

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mutant_runs import FakeProfile, play

from memory.testing import FakeBackend, FakeNativeStore, Report, validate
from memory.testing.contract._run import CORE, DECLARED, FULL, Tally, catalogue
from memory.testing.contract._spec import RAISED, specs

LOOPS = ("asyncio", "trio")
LOOPS_FOREVER = """
from memory import BackendHealth, RetrieveResult, WriteReceipt
from memory.adapter import AdapterTraits, BaseAdapter, IdAlphabet, PluginInfo, ScopeEncoder, hookimpl

IDS = ScopeEncoder(IdAlphabet())


class Loops(BaseAdapter):
    traits = AdapterTraits(consistency="immediate")
    backend_name = "loops"

    def native_scope(self, scope):
        return IDS.encode(scope)

    async def record_event(self, event):
        while True:
            pass

    async def retrieve(self, request):
        return RetrieveResult(request=request, raw=[], entries=(), trace=self.trace(request.scope, "none"))

    async def reset_scope(self, scope):
        return ResetReceipt(scope=scope, verified=True, removed=0)

    async def health(self):
        return self.health_of()


@hookimpl
def memslot_describe():
    return PluginInfo(name="loops", kind="architecture", summary="never comes back")


@hookimpl
def memslot_create(settings):
    return Loops()
"""


@pytest.fixture
def conform(tmp_path):
    site = tmp_path / "site"
    (site / "loops-1.dist-info").mkdir(parents=True)
    (tmp_path / "tmp").mkdir()
    (site / "loops.py").write_text(LOOPS_FOREVER)
    (site / "loops-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: loops\nVersion: 1\n")
    (site / "loops-1.dist-info/entry_points.txt").write_text("[memslot.backends]\nloops = loops\n")
    for name, kind in (("loops", "backend"), ("full_history", "condition")):
        block = f"memory:\n  {kind}: {name}\n  {kind}s: {{{name}: {{}}}}\n"
        (tmp_path / f"{name}.yaml").write_text(block)

    def run(*arguments):
        code = f"import sys; sys.path.insert(0, {str(site)!r}); from memory.cli import main; main()"
        return subprocess.run(
            [sys.executable, "-c", code, "tools", "conform", *arguments],
            cwd=tmp_path, capture_output=True, text=True, timeout=120,
            env={"PYTHONPATH": str(site), "PATH": "", "TMPDIR": str(tmp_path / "tmp")},
        )  # fmt: skip

    return run


@pytest.mark.thorough
def test_a_plugin_that_blocks_its_loop_ends_the_command_with_its_stack(conform):
    name = "a_committed_write_is_retrievable_at_once"
    ended = conform("loops.yaml", "--limit", "0.5", "--loop", "asyncio", "--json", "--only", name)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "loops.py" in ended.stderr
    assert f"in {name}" in ended.stderr


@pytest.mark.thorough
def test_what_a_plugin_prints_is_no_part_of_the_json(conform, tmp_path):
    text = LOOPS_FOREVER.replace("while True:\n            pass", "import os; os.write(1, b'a banner')")
    (tmp_path / "site/loops.py").write_text(f"print('a banner')\n{text}")
    name = "a_committed_write_is_retrievable_at_once"
    ended = conform("loops.yaml", "--loop", "asyncio", "--json", "--only", name, "--only", "is_an_adapter")
    assert ended.returncode == 1, ended.stderr
    assert [row["outcome"] for row in json.loads(ended.stdout)["specs"]] == ["failed", "passed"]
    assert list((tmp_path / "tmp").iterdir()) == [], "a spec left its files"


@pytest.mark.thorough
def test_every_way_to_print_it(conform):
    few = ("full_history.yaml", "--only", "is_an_adapter", "--loop", "asyncio")
    assert "full_history: BELOW CORE" in conform(*few).stdout
    assert list(json.loads(conform(*few, "--json").stdout)["versions"]) == ["memslot"]
    assert conform("full_history.yaml", "--only", "nonsense").returncode == 2
    assert "no spec is called nonsense" in conform("full_history.yaml", "--only", "nonsense").stderr
    assert "name a configuration" in conform().stderr


@pytest.mark.thorough
def test_a_wrong_option_is_one_error_and_no_broken_promises(conform, tmp_path):
    (tmp_path / "wrong.yaml").write_text(
        "memory:\n  backend: stigmem\n  backends: {stigmem: {url: 'http://127.0.0.1:9'}}\n"
    )
    ended = conform("wrong.yaml", "--loop", "asyncio")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "memory.backends.stigmem.api_key: is missing" in ended.stderr
    assert "FAILED" not in ended.stderr


def test_a_level_is_reached_only_where_all_of_it_was_looked_at():
    tally = Tally({"core": True, "extra": False})
    assert tally.level == "BELOW CORE"
    tally.add("core", "passed")
    assert (tally.reached(CORE), tally.level) == (True, CORE)
    tally.add("extra", "not declared")
    assert (tally.level, tally.reached(FULL)) == (DECLARED, False)
    tally.add("extra", "passed")
    assert tally.level == FULL
    tally.add("core", "not tested")
    assert (tally.level, tally.reached(DECLARED)) == ("BELOW CORE", False)
    tally.add("extra", "failed")
    assert tally.level == "FAILED"


def test_what_is_excused_by_the_alternative_counts_nowhere():
    tally = Tally({"core": True, "other": True})
    tally.add("core", "passed")
    tally.add("other", "not applicable")
    assert tally.level == FULL


@pytest.mark.thorough
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_validate_in_code_says_full_of_the_reference(loop):
    store = FakeNativeStore(latency_s=0.001)

    async def run():
        from mutant_runs import DESCRIBED

        return await validate(lambda: FakeBackend(store), profile=FakeProfile, described=DESCRIBED)

    report = anyio.run(run, backend=loop)
    assert report.level == FULL, report.to_text()
    assert sum(result.outcome == "passed" for result in report.results) > 80


@pytest.mark.thorough
def test_one_open_adapter_is_not_closed_and_what_needs_two_is_not_tested():
    async def run():
        adapter = FakeBackend()
        report = await validate(adapter, level="core", profile=FakeProfile)
        await adapter.health()
        return report, adapter.store.clients == 1

    report, still_open = anyio.run(run)
    assert still_open
    assert report.level == "BELOW CORE"
    assert any("a function that makes adapters" in why for why in report.reasons())


def test_a_failure_says_what_was_done_expected_and_seen():
    from mutants import MUTANTS

    failure = play(
        "a_committed_write_is_retrievable_at_once",
        "asyncio",
        MUTANTS["false_committed"].adapter,
        derivation_s=1.0,
    ).failure
    text = str(failure)
    assert text.startswith("committed, and not retrievable")
    assert "record_event of 'ada': committed" in text
    assert "retrieve of 'ada': 0 entries" in text
    assert "remedies: answer committed only when the write can be found\n        or: answer pending" in text
    assert "docs/conformance-specs.md#a_committed_write_is_retrievable_at_once" in text


def test_a_write_that_raises_is_named_with_the_line_of_the_plugin():
    class Crashes(FakeBackend):
        async def record_event(self, event):
            return json.loads(f"{event.event_id} is no JSON")

    failure = play("writes_are_recalled_once_ready", "asyncio", Crashes).failure
    assert "a plain write was unknown: " in failure.problem
    assert "JSONDecodeError: Expecting value" in failure.problem
    (raised,) = failure.seen
    assert "decoder.py" in raised
    assert f", called at {__file__}:" in raised
    assert failure.remedies == (RAISED,)


def test_what_fails_alike_on_both_loops_is_printed_once():
    from mutants import MUTANTS

    spec = "a_committed_write_is_retrievable_at_once"
    report = Report(
        "x",
        results=[play(spec, loop, MUTANTS["false_committed"].adapter, derivation_s=1.0) for loop in LOOPS],
    )
    assert report.to_text().count("FAILED a_committed") == 1
    assert f"FAILED {spec} (asyncio, trio)" in report.to_text()
    assert "memslot tools conform --specs" in report.to_text()


def test_steps_that_repeat_are_one_line():
    class Forgets(FakeBackend):
        async def record_event(self, event):
            return self.receipt(event, "none")

    failure = play("max_items_reaches_the_native_call", "asyncio", Forgets).failure
    assert any(step.endswith("times)") for step in failure.done)
    assert len(set(failure.done)) > 1


def test_lookalike_names_are_shown_with_their_code_points():
    from mutants_reading import FoldsCase

    from memory.testing.contract._spec import shown

    failure = play("lookalike_scopes_never_meet", "asyncio", FoldsCase).failure
    assert failure is not None
    assert "User_A" in str(failure)
    assert shown("ren\u00e9e") == "'renée' (U+00E9 LATIN SMALL LETTER E WITH ACUTE)"
    assert "U+0065" not in shown("plain")
    assert "U+0020" in shown("pad ")
    assert "U+000A" not in shown("two\nlines")


@pytest.mark.thorough
def test_the_page_of_specs_is_the_one_that_is_published():
    page = Path(__file__).parents[2] / "docs/conformance-specs.md"
    assert page.read_text(encoding="utf-8") == catalogue(specs().values()), (
        "memslot tools conform --specs > docs/..."
    )
