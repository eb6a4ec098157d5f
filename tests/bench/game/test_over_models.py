"""The shipped matrix over everything it names: controls, embedded memories with a scripted model, servers."""

from pathlib import Path

import pytest
from backends import double
from game_support import CONDITIONS, SIZE, begin, scores, verify

from memory import ConfigError
from memory.bench.engine.matrix import load_experiment
from memory.bench.report.results import results_of
from memory.bench.report.verdict import problems
from memory.testing import ScriptedLLM

pytestmark = pytest.mark.thorough

HonchoDouble = double("honcho_double", "HonchoDouble")
MemosDouble = double("memos_double", "MemosDouble")
StigmemDouble = double("stigmem_double", "StigmemDouble")
ADMIN_KEY = double("stigmem_node_model", "ADMIN_KEY")

CONFIG = Path(__file__).parents[3] / "configs" / "preference_game.yaml"
CONTROLS = CONDITIONS.keys()
BACKENDS = ("mem0 with extraction", "graphiti", "memos", "honcho", "stigmem")
VARIABLES = (
    "SCRIPTED_LLM_URL",
    "MEMOS_URL",
    "MEMOS_GRAPH_DB",
    "HONCHO_URL",
    "STIGMEM_URL",
    "STIGMEM_API_KEY",
)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    with (
        pytest.MonkeyPatch.context() as patch,
        HonchoDouble() as honcho,
        MemosDouble() as memos,
        StigmemDouble(auth=True, multi_tenant=True) as stigmem,
        ScriptedLLM() as llm,
    ):
        given = (llm.base_url, memos.url, memos.model.graph_db, honcho.url, stigmem.url, ADMIN_KEY)
        for name, value in zip(VARIABLES, given, strict=True):
            patch.setenv(name, value)
        experiment = load_experiment(
            CONFIG,
            output=tmp_path_factory.mktemp("all"),
            game={**SIZE, "tests": 3},
            executor={"kind": "local"},
            seeds=[7],
            budgets=[2000],
            doctor=False,
        )
        return begin(experiment)


def test_every_memory_plays_and_is_scored(outcome):
    assert not outcome.manifest.left_out
    labels = {variant.label for variant in outcome.manifest.variants}
    assert labels == {*CONTROLS, *BACKENDS, "phrase list"}
    assert outcome.manifest.status == "completed"
    # Honcho gives its model several messages at once, so nobody knows which of them a conclusion came from.
    said = problems(results_of(outcome.directory, outcome.manifest, outcome.metrics))
    assert [problem.partition(":")[0] for problem in said] in ([], ["honcho"]), said
    assert {(provider.failed, provider.missing) for provider in outcome.metrics.providers} == {(0, 0)}
    others = [cell for cell in outcome.manifest.cells if "honcho" not in cell.label]
    assert all(cell.readiness.keys() <= {"ready", "not_offered"} for cell in others)


def test_the_truth_scores_all_nothing_scores_nothing_and_memories_are_in_between(outcome):
    fits = {label: figures["style fit"] for label, figures in scores(outcome).items()}
    assert fits["oracle_ipas"] == 1.0
    assert fits["no_memory"] == 0.0
    for label in BACKENDS:
        assert 0.0 < (fits[label] or 0.0) <= 1.0, (label, fits)


def test_what_was_played_agrees_with_itself(outcome):
    assert verify(outcome.directory).deviations == ()


def test_what_the_environment_does_not_name_is_left_out_and_said(tmp_path, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HONCHO_URL", "http://127.0.0.1:1")
    experiment = load_experiment(CONFIG, output=tmp_path)
    assert {entry.provider for entry in experiment.settings.providers} == {*CONDITIONS, "honcho"}
    assert [(excluded.label, excluded.why) for excluded in experiment.left_out[-2:]] == [
        ("memos", "needs MEMOS_URL in the environment"),
        ("stigmem", "needs STIGMEM_URL, STIGMEM_API_KEY in the environment"),
    ]
    with pytest.raises(ConfigError, match=r"bench\.providers.*leaves nobody: memos: needs MEMOS_URL"):
        load_experiment(CONFIG, providers=[{"provider": "memos", "needs": "MEMOS_URL"}])
