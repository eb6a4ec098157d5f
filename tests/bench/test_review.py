"""The findings of a review of the benchmark, and the tests that fail if one comes back."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from bench_support import config_of, registry_with, write_locomo

from memory.bench.engine.experiment import Listeners, begin
from memory.bench.engine.matrix import load_experiment
from memory.bench.report.report import write_page
from memory.bench.report.results import results_of
from memory.bench.report.tables import summary
from memory.bench.report.verdict import resumption
from memory.testing import FakeBackend, FakeNativeStore

FINDINGS = {
    "1 questions go to a style judge": "test_an_answer_goes_to_a_judge_of_its_kind_and_never_to_the_style_judge "
    "test_a_prompt_of_the_user_s_is_taken_as_it_stands test_without_a_judge_answers_are_scored_by_their_words "
    "test_a_reader_answers_again_without_a_memory",
    "2 test sessions teach": "test_who_keeps_only_the_questions_of_tests_gains_nothing "
    "test_what_a_memory_writes_into_its_files_in_a_test_is_gone_after_it "
    "test_a_memory_with_rows_in_the_store_of_memslot_is_copied_for_each_test",
    "3 interval and p contradict each other": "test_an_interval_and_its_p_come_from_one_t_statistic "
    "test_paired_differences_are_those_of_the_figure_in_the_table "
    "test_floors_and_ceilings_are_compared_with_nobody_and_have_no_interval",
    "4 printing everything wins": "test_a_memory_that_only_pretends_leads_no_headline_and_no_verdict",
    "5 frequent words win": "test_frequent_words_show_little_of_an_answer test_a_claim_is_no_evidence",
    "6 labels and seeds reach the memory": "test_neither_seed_nor_change_can_be_read_in_a_name "
    "test_labels_reach_a_memory_only_where_the_file_says_so_and_the_page_tells",
    "7 a mediocre memory gains by lies": "test_no_figure_that_ranks_improves_for_a_lie_from_a_mediocre_start "
    "test_a_change_is_forgotten_by_whoever_does_not_show_it_noticed_or_not",
    "8 a list of public phrases wins": "test_a_list_of_the_package_s_phrases_finds_little "
    "test_a_phrase_list_is_a_control_of_the_matrix test_the_grammar_has_ten_thousand_surface_forms "
    "test_a_file_of_wordings_is_played_and_its_hash_is_kept",
    "9 intervals claim too much": "test_an_interval_holds_the_truth_about_95_times_of_100 "
    "test_rare_people_are_missed_and_the_page_says_so "
    "test_among_equals_a_difference_is_claimed_on_one_page_of_twenty_at_most "
    "test_a_difference_turns_with_its_sides_and_never_collapses",
    "10 a scripted model hides behind a name": "test_a_stand_in_is_named_wherever_its_figures_stand "
    "test_each_row_of_the_results_names_its_model",
    "11 few users, middle cells, changing colours": "test_there_are_as_many_users_as_the_file_says "
    "test_times_are_those_of_all_calls_and_not_of_a_middle_cell test_a_provider_has_one_colour_on_every_page",
    "12 budgets decide unseen": "test_several_providers_without_a_budget_get_one_and_the_run_says_so "
    "test_providers_with_equal_options_share_one_row test_a_failed_write_is_named_with_the_way_to_go_on",
    "13 shares without numbers": "test_a_share_stands_beside_the_number_it_is_over",
    "14 histories are too short": "test_a_life_is_long_and_budgets_tell_memories_apart "
    "test_distractors_tell_no_preference",
    "15 the figures of the field": "test_evidence_is_words_and_ranks_are_those_of_the_field "
    "test_costs_are_summed_by_provider_and_what_was_not_said_is_unknown "
    "test_all_errors_of_a_file_stand_in_one_list test_every_figure_is_the_one_that_is_recomputed",
}
CONDITIONS = {"full_history": {}, "simple_rag": {}, "no_memory": {}}
GAME = {"users": 1, "sessions": 10, "tests": 2, "attributes": 4}


@pytest.mark.parametrize("finding", FINDINGS)
def test_every_finding_has_its_tests(finding):
    written = "".join(file.read_text("utf-8") for file in Path(__file__).parent.rglob("test_*.py"))
    for name in FINDINGS[finding].split():
        assert f"def {name}(" in written


def compared(folder, *providers, **memory):
    content = {
        "memory": {"condition": "full_history", "conditions": CONDITIONS, **memory},
        "run": {"game": GAME, "providers": list(providers)},
    }
    return load_experiment(content, block="run", output=folder, fair_tokens=2000, doctor=False)


def test_several_providers_without_a_budget_get_one_and_the_run_says_so(tmp_path):
    fair = compared(tmp_path, "no_memory", "full_history")
    assert {fair.config(each).memory.budget.max_tokens for each in fair.settings.providers} == {2000}
    assert "so each provider may show 2,000 tokens" in fair.notes[0]
    own = compared(tmp_path, "no_memory", "full_history", budget={"max_tokens": 300})
    assert {own.config(each).memory.budget.max_tokens for each in own.settings.providers} == {300}
    assert own.notes == ()


@pytest.mark.skipif(find_spec("mem0") is None, reason="needs mem0")
@pytest.mark.thorough
def test_providers_with_equal_options_share_one_row(tmp_path):
    fair = compared(tmp_path, "mem0", "simple_rag", backends={"mem0": {}})
    done = begin(fair, listeners=Listeners(write_page=write_page))
    (row,) = summary(results_of(done.directory, done.manifest, done.metrics))[1]
    assert row[0] == "mem0 = simple_rag (lexical embedder), control"
    assert done.manifest.notes[-1].endswith("have equal options: one row stands for all of them.")


def test_a_failed_write_is_named_with_the_way_to_go_on(tmp_path):
    store = FakeNativeStore()
    store.faults.add("422", endpoint="insert")
    talks = write_locomo(tmp_path / "talks.json")
    config = config_of(run={"timeline": "locomo", "data": str(talks)})
    registry = registry_with(FakeBackend(store))
    experiment = load_experiment(config, block="run", selected=True, registry=registry, output=tmp_path)
    done = begin(experiment, registry=registry)
    (line,) = resumption(results_of(done.directory, done.manifest, done.metrics), done.directory)
    assert line.startswith("fake, talk-1 ended after 0 sessions: ")
    assert line.endswith(f"--resume {done.directory} goes on with cell 01-s1-r1-p1")


def test_a_share_stands_beside_the_number_it_is_over(tmp_path):
    done = begin(compared(tmp_path, "full_history"), listeners=Listeners(write_page=write_page))
    results = results_of(done.directory, done.manifest, done.metrics)
    (entry,) = results.entries
    columns, (row,) = summary(results)
    for name, cell in zip(columns[1:-2], row[1:-2], strict=True):
        assert cell.endswith(f" of {entry.estimate(name).n:,}")
