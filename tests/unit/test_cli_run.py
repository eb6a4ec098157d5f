"""``memslot run``, ``demo`` and ``report``: what they print, leave behind and exit with."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from cli_support import FULL_HISTORY, error_line, fake_plugin, invoke, small_demo

from memory.bench.engine.manifest import read_manifest

SMALL = "run: {game: {users: 1, sessions: 10, tests: 4}}"


def write(path, *parts):
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


def only(directory, pattern="*"):
    (found,) = directory.glob(pattern)
    return found


@pytest.fixture
def small(tmp_path):
    return write(tmp_path / "small.yaml", FULL_HISTORY, SMALL)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "runs"


@pytest.mark.thorough
def test_a_run_prints_its_scores_and_leaves_its_files(small, out):
    result = invoke("run", small, "--out", out)
    assert result.exit_code == 0, result.output
    for word in ("read right", "shown alone", "At "):
        assert word in result.stdout
    run = only(out)
    assert result.stdout.splitlines()[-1] == f"report: {run / 'report.html'}"
    assert {path.name for path in run.iterdir()} >= {"manifest.json", "metrics.json", "report.html", "cells"}
    assert re.search(r"steps: \d+ of \d+, full_history", result.stderr), "progress goes to stderr"
    assert "\x1b" not in result.output


def test_json_is_all_that_stdout_holds(small, out):
    result = invoke("run", small, "--out", out, "--json")
    about = json.loads(result.stdout)
    assert about["status"] == "completed"
    assert about["problems"] == []
    assert about["metrics"] == json.loads((only(out) / "metrics.json").read_text(encoding="utf-8"))
    assert Path(about["report"]).is_file()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("not json", "is neither JSON nor JSON lines"),
        ("[]", "holds no conversation"),
        ('[{"sample_id": "x"}]', "is of no known kind"),
        (
            '[{"conversation": {"speaker_a": "A", "speaker_b": "B"}, "sample_id": "x", "qa": 1}]',
            "[0].qa: Input should be a valid list",
        ),
        (None, "does not exist"),
    ],
)
def test_bad_data_is_one_line_and_leaves_nothing(tmp_path, out, content, said):
    config = write(tmp_path / "config.yaml", FULL_HISTORY)
    data = tmp_path / "data.json"
    if content is not None:
        write(data, content)
    assert said in error_line(invoke("run", config, "--data", data, "--out", out), 2)
    assert not out.exists()


@pytest.mark.thorough
def test_a_backend_that_fails_on_the_way_exits_with_1(add_plugin, tmp_path, out):
    fault = "store.faults.add('500', times=None, endpoint='search')"
    add_plugin("dying", fake_plugin("dying", then=fault))
    config = write(tmp_path / "config.yaml", "memory: {backend: dying, backends: {dying: {}}}", SMALL)
    result = invoke("run", config, "--out", out)
    assert result.exit_code == 1
    assert "failed: dying" in result.stdout
    assert "HTTP 500" in result.stdout
    assert read_manifest(only(out)).status == "failed"
    assert json.loads(invoke("run", config, "--out", out, "--json").stdout)["problems"]


def test_report_shows_a_run_again(small, out):
    shown = invoke("run", small, "--out", out).stdout.splitlines()
    page = only(out) / "report.html"
    page.unlink()
    result = invoke("report", only(out))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == shown[1:], "but where it is written to"
    assert page.is_file()


def test_report_of_nothing_is_one_line(tmp_path):
    assert "give the directory of a run" in error_line(invoke("report", tmp_path), 2)
    write(tmp_path / "manifest.json", "{")
    assert "damaged" in error_line(invoke("report", tmp_path), 2)


COMPARED = """
memory:
  condition: full_history
  backends: {ruined: {}}
  conditions: {full_history: {}, no_memory: {}}
run: {game: {users: 1, sessions: 10, tests: 4}, providers: [no_memory, full_history]}
"""


@pytest.mark.thorough
def test_one_that_cannot_begin_stops_no_other(add_plugin, tmp_path, out):
    add_plugin("ruined", "raise RuntimeError('out of order')")
    config = write(tmp_path / "config.yaml", COMPARED)
    result = invoke("run", config, "ruined", "full_history", "--out", out)
    assert result.exit_code == 1
    assert "failed: ruined: not run. ruined (memslot-ruined)" in result.stdout
    about = json.loads(invoke("run", config, "ruined", "no_memory", "--out", out, "--json").stdout)
    assert [provider["label"] for provider in about["metrics"]["providers"]] == ["no_memory"]
    assert list(about["left_out"]) == ["ruined"]


@pytest.mark.thorough
def test_what_is_refused_is_not_said_to_go_on(small, out):
    invoke("run", small, "--out", out, "--no-doctor")
    write(small, FULL_HISTORY, SMALL.replace("tests: 4", "tests: 3"))
    result = invoke("run", small, "--resume", only(out))
    assert "cannot be resumed: data, settings changed" in result.stderr
    assert "goes on" not in result.stderr


def test_comparing_what_nobody_offers_is_one_line(tmp_path, out):
    config = write(tmp_path / "config.yaml", COMPARED)
    line = error_line(invoke("run", config, "no_memory", "static_profil", "--out", out), 2)
    assert (
        f"{config}:6: run.providers: no plugin is named 'static_profil'; did you mean static_profile" in line
    )
    assert not out.exists()


@pytest.mark.thorough
def test_the_demo_plays_mem0_against_the_controls(out, tmp_path, monkeypatch):
    if find_spec("mem0") is None:
        pytest.skip("needs mem0")
    small_demo(tmp_path, monkeypatch)
    result = invoke("run", "demo", "--out", out)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    first = next(line for line in lines if line.startswith("mem0"))
    assert first.startswith("mem0 (scripted extractor, ")
    assert lines[-2].startswith("At 600 tokens, ")
    assert "mem0 (scripted extractor, lexical embedder) reaches " in lines[-2]
    assert any(line.startswith("A script stands in for the language model of mem0") for line in lines)
    assert lines[-1] == f"report: {only(out) / 'report.html'}"


@pytest.mark.thorough
def test_what_lost_is_listed_worst_first(small, out):
    config = write(small, "memory: {condition: no_memory}", SMALL)
    assert invoke("run", config, "--out", out).exit_code == 0
    lines = invoke("report", out, "--failures", "--max", "3").stdout.splitlines()
    assert len(lines) == 4
    assert all(line.split()[:4] == ["no_memory", "read", "as", "none"] for line in lines[1:])
    rows = json.loads(invoke("report", out, "--failures", "--json").stdout)
    assert {row["verdict"] for row in rows} == {"read as none"}
