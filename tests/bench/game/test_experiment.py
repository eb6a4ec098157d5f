"""A whole experiment over the zero-key controls: what everyone scores, what is kept, what is refused."""

import re
from html import unescape

import pytest
from game_support import CONDITIONS, SIZE, lines, matrix, play, scores, verify

from memory import ConfigError
from memory.bench.data.generate import GameSize, make_game
from memory.bench.engine.manifest import read_manifest
from memory.bench.engine.matrix import load_experiment
from memory.bench.report import verdict
from memory.bench.report.results import results_of


def unequal(outcome):
    return verdict.unequal(results_of(outcome.directory, outcome.manifest, outcome.metrics))


# mem0's store waits for the disk at every write; one small game is enough for it, below.
QUICK = [name for name in CONDITIONS if name != "simple_rag"]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    return play(tmp_path_factory.mktemp("game"), *QUICK, game={**SIZE, "users": 2})


@pytest.mark.thorough
def test_the_truth_scores_all_and_nothing_scores_nothing(outcome):
    assert outcome.manifest.status == "completed"
    shares = scores(outcome)
    assert set(shares) == set(QUICK)
    oracle, nothing = shares["oracle_ipas"], shares["no_memory"]
    for name in ("style fit", "discrimination", "detection", "coherence", "overall", "shown"):
        assert oracle[name] == 1.0, name
    none = ("stale reversion", "forgetting", "felt effort", "over-personalisation")
    for name in none:
        assert oracle[name] == 0.0, name
    assert nothing["style fit"] == nothing["overall"] == nothing["detection"] == nothing["shown"] == 0.0
    assert nothing["over-personalisation"] == 0.0
    assert nothing["coherence"] == 0.0, "what only the user's hints brought about is no memory's merit"
    assert (nothing["felt effort"] or 0) > 0.5
    # What is written down once and never again is right until it changes.
    profile = shares["static_profile"]
    assert 0.4 < (profile["style fit"] or 0) < 1.0
    for learner in ("full_history", "rolling_summary"):
        assert 0.0 < (shares[learner]["style fit"] or 0) < 1.0


def test_every_figure_has_its_clusters_and_differences_are_paired(outcome):
    for variant in outcome.metrics.providers:
        fit = next(measure for measure in variant.measures if measure.name == "style fit").estimate
        assert fit.clusters == 2
        assert (fit.low, fit.high) == (None, None), "of two personas nothing can be said"
        assert (variant.failed, variant.unready, variant.missing) == (0, 0, 0)
    family = outcome.metrics.differences
    assert {difference.figure for difference in family} == {"style fit"}
    compared = {label for difference in family for label in (difference.first, difference.second)}
    assert compared == {*QUICK} - {"no_memory", "oracle_ipas"}, "floor and ceiling belong to no family"
    assert len(family) == len(compared) * (len(compared) - 1) // 2


def test_every_turn_of_a_test_session_is_refused(outcome):
    game = make_game(GameSize(**{**SIZE, "users": 2}))
    for cell in outcome.manifest.cells:
        (timeline,) = (candidate for candidate in game.timelines if candidate.persona_id == cell.persona_id)
        directory = outcome.directory / "cells" / cell.cell_id
        beats = lines(directory / "results.jsonl")
        replies = sum(beat["turns"] for beat in beats)
        assert len(beats) == sum(len(test.script.beats) for test in timeline.tests)
        assert cell.counts["skipped"] == replies
        # The request alone is a question to the memory, once more in the end; a complaint is none.
        assert cell.counts["recalled"] == cell.counts["asked_again"] == len(beats) <= replies
        traces = lines(directory / "traces.jsonl")
        asked = {trace["probe_id"] for trace in traces if trace["operation"] == "retrieve"} - {None}
        assert asked == {beat["probe_id"] for beat in beats}
        refused = [trace for trace in traces if trace["operation"] == "record_event" and trace["read_only"]]
        assert len(refused) == cell.counts["skipped"]
        assert all(trace["attempts"] == 0 for trace in refused)


def test_what_was_said_in_test_sessions_is_in_no_store(outcome):
    """Complaints are said in test sessions alone."""
    complaints = {
        beat.branch
        for timeline in make_game(GameSize(**SIZE)).timelines
        for test in timeline.tests
        for beat in test.script.beats
    }
    kept = b"".join(
        path.read_bytes() for path in (outcome.directory / "cells").glob("*/store/**/*") if path.is_file()
    )
    assert b"acc_001" in kept
    assert not [text for text in complaints if text.encode() in kept]
    texts = lines(outcome.directory / "cells" / "01-s1-r1-p1" / "texts.jsonl")
    assert {text["user"] for text in texts} & complaints


def test_the_manifest_says_what_was_played(outcome):
    manifest = read_manifest(outcome.directory)
    assert manifest == outcome.manifest
    assert manifest.data["7"].sha256 == make_game(GameSize(**{**SIZE, "users": 2})).data_hash
    assert [role.kind for role in manifest.roles] == ["rules"] * 5
    assert {variant.label: variant.wired for variant in manifest.variants if variant.wired} == {
        "static_profile": ("profiles",),
        "oracle_ipas": ("matrix",),
    }
    assert len({cell.scope.run_id for cell in manifest.cells}) == len(manifest.cells) == 10
    by_label = {cell.label: cell for cell in manifest.cells}
    assert by_label["full_history"].pet_observability == "dated"
    assert by_label["rolling_summary"].pet_observability == "versioned"
    assert by_label["no_memory"].pet_observability == "weak"
    assert by_label["rolling_summary"].readiness == {"ready": SIZE["tests"]}
    for cell in manifest.cells:
        assert cell.timings["retrieve"] > 0
        state = "pending" if cell.label == "rolling_summary" else "committed"
        assert cell.writes == {state: cell.counts["events"]}


def test_the_report_shows_every_provider(outcome):
    """One budget is equal where as much of it was shown, within 10 %."""
    (sentence,) = unequal(outcome)
    assert re.fullmatch(
        r"tokens shown differ at a budget of 600: full_history: 4\d\d; .*static_profile: 1\d\d", sentence
    )
    page = outcome.report.read_text("utf-8")
    assert all(label in page for label in QUICK)
    assert "over-personalisation" in page


@pytest.mark.thorough
def test_any_request_can_be_opened_with_what_was_said_shown_and_judged(outcome):
    page = unescape(outcome.report.read_text("utf-8"))
    titles = re.findall(r"<details><summary>(.*?)</summary>", page)
    assert len(titles) == sum(provider.requests for provider in outcome.metrics.providers)
    cell = next(cell for cell in outcome.manifest.cells if cell.label == "full_history")
    for text in lines(outcome.directory / "cells" / cell.cell_id / "texts.jsonl"):
        assert text["user"] in page
        assert text["reply"] in page
    first = next(text for text in lines(outcome.directory / "cells" / cell.cell_id / "texts.jsonl"))
    assert first["context"] in page
    assert sum(title.startswith("suited: ") for title in titles) == sum(
        bool(row["fit_first"])
        for cell in outcome.manifest.cells
        for row in lines(outcome.directory / "cells" / cell.cell_id / "results.jsonl")
    )
    assert verify(outcome.directory).deviations == ()


def test_no_header_tells_the_assistant_which_provider_it_has(outcome):
    shown = {
        cell.label: [
            text["context"]
            for text in lines(outcome.directory / "cells" / cell.cell_id / "texts.jsonl")
            if text["context"]
        ]
        for cell in outcome.manifest.cells
    }
    assert {label for label, sections in shown.items() if sections} == {*QUICK} - {"no_memory"}
    headers = {section.splitlines()[0] for sections in shown.values() for section in sections}
    assert headers == {'<memory-context backend="memory" scope="current">'}


@pytest.mark.thorough
def test_an_embedded_store_is_played(tmp_path):
    done = play(tmp_path, "simple_rag", game={**SIZE, "sessions": 10, "tests": 3, "attributes": 4})
    (cell,) = done.manifest.cells
    assert cell.status == "completed"
    assert cell.readiness == {"ready": 3}
    assert (scores(done)["simple_rag"]["style fit"] or 0) > 0.0


@pytest.mark.thorough
def test_texts_are_kept_only_where_they_may_be(tmp_path):
    done = play(tmp_path, "full_history", keep_texts=False)
    page = done.report.read_text("utf-8")
    assert "Texts were not kept" in page
    assert "<details><summary>suited" not in page, "those that lost, by their ids alone"
    cell = done.directory / "cells" / "01-s1-r1-p1"
    assert not (cell / "texts.jsonl").exists()
    game = make_game(GameSize(**SIZE))
    said = next(beat.goal for test in game.timelines[0].tests for beat in test.script.beats)
    ingested = next(
        beat.goal for session in game.timelines[0].sessions if session.script for beat in session.script.beats
    )
    for file in (path for path in done.directory.rglob("*") if path.is_file() and "store" not in path.parts):
        content = file.read_text("utf-8")
        assert said not in content, file
        assert ingested not in content, file


@pytest.mark.thorough
def test_experiment_groups_are_not_compared_with_each_other(tmp_path):
    done = play(
        tmp_path,
        "static_profile",
        {"provider": "full_history", "group": "feedback"},
        "rolling_summary",
        game=SIZE,
    )
    pairs = {(difference.first, difference.second) for difference in done.metrics.differences}
    assert pairs == {("static_profile", "rolling_summary")}
    assert any(line.startswith("experiment groups differ: ") for line in unequal(done))


@pytest.mark.parametrize(
    ("bench", "message"),
    [
        ({"providers": []}, "providers"),
        ({"providers": ["no_memory", "no_memory"]}, "two entries called 'no_memory'"),
        ({"seeds": [1, 1]}, "names one twice"),
        ({"replicates": 0}, "replicates"),
        ({"game": {"users": 0}}, "users"),
        ({"timeline": "chess"}, "timeline"),
        ({"rounds": 3}, "rounds"),
    ],
)
def test_a_matrix_that_is_wrong_is_refused_by_name(tmp_path, bench, message):
    with pytest.raises(ConfigError, match=message):
        matrix(tmp_path, "no_memory", **bench)
    assert not list(tmp_path.iterdir())


def test_a_matrix_names_its_line_and_its_blocks(tmp_path):
    file = tmp_path / "matrix.yaml"
    file.write_text("memory:\n  condition: no_memory\nbench:\n  providers: [no_memory]\n  replicates: many\n")
    with pytest.raises(ConfigError, match=r"matrix\.yaml.*5.*replicates"):
        load_experiment(file)
    file.write_text("memory:\n  condition: no_memory\n")
    with pytest.raises(ConfigError, match="bench: is missing"):
        load_experiment(file)
    file.write_text("memory:\n  condition: no_memory\nbench: {providers: [no_memory]}\ngame: {}\n")
    with pytest.raises(ConfigError, match="game: is not a known section"):
        load_experiment(file)


def test_nothing_is_begun_where_a_provider_does_not_exist(tmp_path):
    from memory.contract.errors import PluginNotFound

    with pytest.raises(PluginNotFound, match="atlantis"):
        play(tmp_path, "no_memory", "atlantis")
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_budgets_are_a_factor_and_the_text_can_tell_the_context(tmp_path):
    own = {"provider": "no_memory", "budget": {"max_tokens": 50}}
    done = play(tmp_path, "full_history", own, budgets=[200, 600], event_context="text")
    assert {each.label: each.budget.max_tokens for each in done.manifest.variants} == {
        "full_history, 200 tokens": 200,
        "full_history, 600 tokens": 600,
        "no_memory": 50,
    }
    assert done.metrics.differences == (), "no two of them were given the same"
    tokens = {each.label: each.tokens or 0 for each in done.metrics.providers}
    assert tokens["full_history, 200 tokens"] <= 200 < tokens["full_history, 600 tokens"]
    for cell in done.manifest.cells:
        rows = lines(done.directory / "cells" / cell.cell_id / "texts.jsonl")
        assert any("[work] " in row["context"] for row in rows) == (cell.label != "no_memory")
    assert verify(done.directory).deviations == ()
    (alone,) = matrix(tmp_path, "full_history", budgets=[200]).settings.providers
    assert (alone.label, alone.budget and alone.budget.max_tokens) == ("full_history", 200)
