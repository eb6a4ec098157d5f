"""The faults that memslot showed with real models, and the tests that fail if one comes back."""

from pathlib import Path

import pytest

FAULTS = {
    "1 keyword search is claimed where its encoder cannot load": (
        "test_keywords_are_off_where_no_hub_brings_their_encoder "
        "test_health_is_degraded_while_the_encoder_of_keywords_is_dead"
    ),
    "2 vectors of another length are lost in silence": (
        "test_the_embedder_is_asked_once_for_its_length_and_the_answer_is_kept "
        "test_an_embedder_that_changes_its_length_is_refused_with_both_numbers_and_nothing_is_stored "
        "test_vectors_of_another_length_are_named"
    ),
    "3 a right summary in the content is thrown away": (
        "test_a_server_is_asked_in_the_way_it_accepts test_json_in_the_text_counts_where_the_tool_was_not_called "
        "test_a_failed_summary_is_tried_again_later test_a_summary_is_stored_and_every_call_is_counted"
    ),
    "4 a slow model is an error without a reason": (
        "test_a_timeout_says_how_long_and_what_to_raise test_a_model_that_is_too_slow_names_the_deadline "
        "test_a_write_given_up_before_its_last_model_call_stores_nothing_and_says_so"
    ),
    "5 a context that is too short is an error without a reason": (
        "test_a_prompt_that_is_longer_than_the_context_is_named "
        "test_the_reason_is_in_the_message_and_the_users_words_are_not"
    ),
    "6 no page tells of local models": "test_the_page_has_a_block_for_each_provider_that_users_ask_for",
    "7 prefixes cannot be given": (
        "test_known_prefixes test_prefixes_reach_the_embedder_and_no_memory "
        "test_questions_and_documents_have_the_prefixes_that_are_configured"
    ),
    "8 a server without a key is refused": "test_mistakes_of_the_configuration_name_the_fix",
    "9 a judge that loops or cannot be read ends the cell": (
        "test_a_judge_that_answers_nonsense_is_counted_and_not_guessed_at "
        "test_a_cell_of_the_benchmark_counts_its_models"
    ),
    "10 one lost connection fails a cell, and the loser leads": (
        "test_an_embedder_that_dies_in_a_run_is_named_with_the_way_to_go_on "
        "test_a_failed_write_is_named_with_the_way_to_go_on"
    ),
}


@pytest.fixture(scope="module")
def written():
    return "".join(file.read_text("utf-8") for file in Path(__file__).parents[1].rglob("test_*.py"))


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_has_its_tests(fault, written):
    for name in FAULTS[fault].split():
        assert f"def {name}(" in written
