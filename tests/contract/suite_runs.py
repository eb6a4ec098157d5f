"""Runs a suite of the kit in a process of its own, and tells how each of its tests ended."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

Outcomes = dict[tuple[str, str], set[str]]
"""(class, test) -> how it ended, over all parameters: "passed", "failure", "error" or "skipped"."""


def outcomes_of(tests, report):
    """Some of these tests, named as pytest does, are to fail; ``report`` is written."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert run.returncode == 1, run.stdout + run.stderr
    seen = defaultdict(set)
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.attrib["classname"].rpartition(".")[2], case.attrib["name"].partition("[")[0]
        ended = (child.tag for child in case if child.tag in ("failure", "error", "skipped"))
        seen[name].add(next(ended, "passed"))
    return seen
