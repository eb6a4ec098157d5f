"""The HTTP part of the kit can fail: every adapter that is wrong is caught, and the honest one passes."""

from pathlib import Path

import pytest
from http_contract import LoopbackContract
from http_notes import HTTP_MUTANTS
from suite_runs import outcomes_of

pytestmark = pytest.mark.thorough

SUITE = Path(__file__).with_name("http_suite.py")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    report = tmp_path_factory.mktemp("mutants") / "report.xml"
    wanted = [f"{SUITE}::TestHealthy::{test}" for test in vars(LoopbackContract) if test.startswith("test_")]
    wanted += [
        f"{SUITE}::Test_{mutant.__name__}::{test}" for mutant, tests in HTTP_MUTANTS.items() for test in tests
    ]
    return outcomes_of(wanted, report)


def test_an_honest_adapter_passes(outcomes):
    healthy = {test: found for (owner, test), found in outcomes.items() if owner == "TestHealthy"}
    assert len(healthy) >= 8
    assert set().union(*healthy.values()) == {"passed"}


@pytest.mark.parametrize(
    ("mutant", "test"), [(m.__name__, t) for m, tests in HTTP_MUTANTS.items() for t in tests]
)
def test_a_wrong_adapter_is_caught(outcomes, mutant, test):
    assert "failure" in outcomes[f"Test_{mutant}", test]
