"""The kit can fail: every broken adapter is caught by the test named for it, and the healthy one passes them."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from mutants import MUTANTS

SUITE = Path(__file__).with_name("mutant_suite.py")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """(class, test) -> "passed", "failure", "error" or "skipped", from one run of all named tests."""
    report = tmp_path_factory.mktemp("mutants") / "report.xml"
    named = {test for mutant in MUTANTS.values() for test in mutant.caught_by}
    wanted = [f"{SUITE}::TestHealthy::{test}" for test in sorted(named)]
    for name, mutant in MUTANTS.items():
        wanted += [f"{SUITE}::Test_{name}::{test}" for test in mutant.caught_by]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *wanted],
        cwd=SUITE.parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    return {
        (case.attrib["classname"].rpartition(".")[2], case.attrib["name"].partition("[")[0]): (
            case[0].tag if len(case) else "passed"
        )
        for case in ElementTree.parse(report).iter("testcase")
    }


@pytest.mark.parametrize(("name", "test"), [(n, t) for n, m in MUTANTS.items() for t in m.caught_by])
def test_a_mutant_is_caught_by_the_test_named_for_it(
    outcomes: dict[tuple[str, str], str], name: str, test: str
) -> None:
    assert outcomes["TestHealthy", test] == "passed"
    assert outcomes[f"Test_{name}", test] == "failure"


def test_the_mutants_that_every_kit_must_catch_are_there() -> None:
    required = {
        "leaky_filter", "prefix_scope", "writes_while_reading", "writes_later", "swallows_errors",
        "resets_everything", "ignores_budget", "false_ready", "forged_fence",
    }  # fmt: skip
    assert required <= MUTANTS.keys()
