"""The HTTP part of the kit can fail: every adapter that is wrong is caught, and the honest one passes."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

import pytest
from http_notes import HTTP_MUTANTS

SUITE = Path(__file__).with_name("http_suite.py")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], set[str]]:
    """(class, test) -> outcomes over all faults, from one run."""
    report = tmp_path_factory.mktemp("mutants") / "report.xml"
    wanted = [f"{SUITE}::TestHealthy"]
    wanted += [
        f"{SUITE}::Test_{mutant.__name__}::{test}" for mutant, tests in HTTP_MUTANTS.items() for test in tests
    ]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *wanted],
        cwd=SUITE.parents[2],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    seen = defaultdict(set)
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.attrib["classname"].rpartition(".")[2], case.attrib["name"].partition("[")[0]
        ended = (child.tag for child in case if child.tag in ("failure", "error", "skipped"))
        seen[name].add(next(ended, "passed"))
    return seen


@pytest.mark.thorough
def test_an_honest_adapter_passes(outcomes: dict[tuple[str, str], set[str]]) -> None:
    healthy = {test: found for (owner, test), found in outcomes.items() if owner == "TestHealthy"}
    assert len(healthy) >= 8
    assert set().union(*healthy.values()) == {"passed"}


@pytest.mark.parametrize(
    ("mutant", "test"), [(m.__name__, t) for m, tests in HTTP_MUTANTS.items() for t in tests]
)
@pytest.mark.thorough
def test_a_wrong_adapter_is_caught(outcomes: dict[tuple[str, str], set[str]], mutant: str, test: str) -> None:
    assert "failure" in outcomes[f"Test_{mutant}", test]
