"""The published figures, recomputed by a script that shares no code with the engine."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from game_support import SIZE, play

SCRIPT = Path(__file__).parents[2] / "recompute_figures.py"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    return play(
        tmp_path_factory.mktemp("again"),
        "no_memory", "full_history", "rolling_summary", "oracle_ipas", "static_profile",
        game={**SIZE, "users": 2, "tests": 21}, replicates=2,
    )  # fmt: skip


def recompute(directory):
    return subprocess.run([sys.executable, SCRIPT, directory], capture_output=True, text=True, check=False)


@pytest.mark.thorough
def test_every_figure_is_the_one_that_is_recomputed(outcome):
    done = recompute(outcome.directory)
    assert (done.returncode, done.stdout) == (0, "80 figures recomputed, none differs\n"), done.stderr


@pytest.mark.thorough
def test_a_figure_that_was_touched_differs(outcome, tmp_path):
    file = outcome.directory / "metrics.json"
    whole = file.read_text("utf-8")
    metrics = json.loads(whole)
    metrics["providers"][1]["measures"][0]["estimate"]["value"] = 0.5123
    file.write_text(json.dumps(metrics), "utf-8")
    try:
        done = recompute(outcome.directory)
    finally:
        file.write_text(whole, "utf-8")
    assert done.returncode == 1
    assert "full_history: style fit is 0.5123" in done.stdout


def test_the_script_imports_nothing_of_memslot():
    tree = ast.parse(SCRIPT.read_text("utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names == {"json", "sys", "collections", "pathlib"}
