"""The kit can fail: every broken adapter is caught by the test named for it, and the healthy one passes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants import MUTANTS
from suite_runs import Outcomes, outcomes_of

SUITE = Path(__file__).with_name("mutant_suite.py")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    report = tmp_path_factory.mktemp("mutants") / "report.xml"
    wanted = {
        f"{SUITE}::{suite}::{test}"
        for name, mutant in MUTANTS.items()
        for test in mutant.caught_by
        for suite in (mutant.control_class, f"Test_{name}")
    }
    return outcomes_of(sorted(wanted), report)


@pytest.mark.parametrize(("name", "test"), [(n, t) for n, m in MUTANTS.items() for t in m.caught_by])
@pytest.mark.thorough
def test_a_mutant_is_caught_by_the_test_named_for_it(outcomes: Outcomes, name: str, test: str) -> None:
    assert outcomes[MUTANTS[name].control_class, test] == {"passed"}
    assert outcomes[f"Test_{name}", test] == {"failure"}


def test_the_mutants_that_every_kit_must_catch_are_there() -> None:
    required = {
        "leaky_filter", "prefix_scope", "writes_while_reading", "writes_later", "swallows_errors",
        "resets_everything", "ignores_budget", "false_ready", "forged_fence", "no_event_ids", "no_native_ids",
        "drops_rows", "blocks_the_loop_by_retrieve", "lacks_a_capability", "ignores_soft_fields", "ignores_ranges",
        "unlimited_in_its_session", "hides_what_it_reset", "resets_nothing", "leaks_while_pending",
        "sends_the_last_first", "breaks_its_limit_by_record_events", "breaks_its_limit_by_health",
            }  # fmt: skip
    assert required <= MUTANTS.keys()
