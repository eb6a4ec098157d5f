"""``make test`` leaves something out and says so; ``make test-all``, which CI calls, leaves nothing out."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from variants import plain

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import pytest

def test_quick(): pass

@pytest.mark.thorough
def test_long(): pass

@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
def test_loops(anyio_backend): pass

@pytest.mark.thorough
class TestVariant:
    def test_once_more(self): pass
"""


def run(folder, *arguments):
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = thorough: takes long\n")
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("processes", plain("0", of=["0", "2"]))
def test_the_fast_selection_says_what_it_leaves_out_and_how_to_run_it(tmp_path, processes):
    output = run(tmp_path, "--fast", "-n", processes)
    assert "2 passed" in output
    assert "these tests were left out: " in output
    assert "`make test-all` runs them too" in output
    assert output.splitlines()[-1].startswith("2 passed"), "the closing line comes last"


@pytest.mark.thorough
def test_without_it_everything_runs(tmp_path):
    output = run(tmp_path)
    assert "5 passed" in output
    assert "left out" not in output


@pytest.mark.thorough
def test_every_make_target_that_the_readme_names_is_there_and_ci_runs_all():
    def commands(target):
        return subprocess.run(
            ["make", "--dry-run", target, "JOBS=2"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    assert " --fast" in commands("test")
    assert " --fast" not in commands("test-all")
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("make "):
            assert commands(line.split()[1])
    steps = (ROOT / ".ci" / "run").read_text()
    assert steps.splitlines()[-1] == 'step tests "tests" tests'
    assert "tests() {\n  make --no-print-directory test-all\n}" in steps
