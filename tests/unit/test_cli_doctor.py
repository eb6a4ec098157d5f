"""``memslot doctor``: every check with its evidence, an honest ``pending``, and exit codes one can build on."""

import json

import pytest
from cli_support import FULL_HISTORY, LACKING, fake_plugin, invoke, lacking_plugin

from memory.doctor.report import CHECKS


def config_for(name, tmp_path, options="{}"):
    path = tmp_path / "config.yaml"
    path.write_text(f"memory: {{backend: {name}, backends: {{{name}: {options}}}}}", encoding="utf-8")
    return path


def test_a_good_configuration_is_green(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(FULL_HISTORY, encoding="utf-8")
    result = invoke("doctor", path)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    shown = {check: status for status, check in (line.split()[:2] for line in lines[: len(CHECKS)])}
    assert list(shown) == list(CHECKS)
    assert {check for check, status in shown.items() if status != "passed"} == {"models"}
    assert lines[len(CHECKS)] == f"{len(CHECKS) - 1} of {len(CHECKS)} checks passed; skipped: models"
    assert "\x1b" not in result.stdout


def test_json_has_every_check(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(FULL_HISTORY, encoding="utf-8")
    result = invoke("doctor", path, "--json")
    report = json.loads(result.stdout)
    assert report["ok"] is True
    assert report["provider"] == "full_history"
    assert [check["name"] for check in report["checks"]] == list(CHECKS)
    assert all(check["evidence"] and check["latency_ms"] is not None for check in report["checks"])


def test_a_backend_that_is_down_fails_its_check(add_plugin, tmp_path):
    add_plugin("down", fake_plugin("down", then="store.faults.add('500', times=None)"))
    result = invoke("doctor", config_for("down", tmp_path))
    assert result.exit_code == 1
    assert "failed   health" in result.stdout
    assert "fix: it was reached and failed" in result.stdout, "a server that answers 500 is not down"
    assert "3 of 13 checks passed; failed: health; skipped: setup, capabilities" in result.stdout


@pytest.mark.thorough
def test_what_cannot_be_settled_in_time_is_pending_and_said_so(add_plugin, tmp_path):
    add_plugin("slow", fake_plugin("slow", store="derivation_s=60.0"))
    result = invoke("doctor", config_for("slow", tmp_path), "--timeout", "0.05")
    assert result.exit_code == 0
    assert "pending  readiness" in result.stdout
    assert "pending  write_read" in result.stdout
    assert "pending  isolation" in result.stdout
    assert "8 of 13 checks passed; pending: readiness, write_read, isolation, reset; skipped" in result.stdout
    assert invoke("doctor", config_for("slow", tmp_path), "--timeout", "0.05", "--strict").exit_code == 1
    assert (
        json.loads(invoke("doctor", config_for("slow", tmp_path), "--timeout", "0.05", "--json").stdout)["ok"]
        is False
    )


def test_debug_shows_the_traceback_behind_a_failed_check(add_plugin, tmp_path):
    add_plugin("down", fake_plugin("down", then="store.faults.add('401', times=None, endpoint='insert')"))
    assert "Traceback" not in invoke("doctor", config_for("down", tmp_path)).output
    result = invoke("doctor", config_for("down", tmp_path), "--debug")
    assert "FakeNativeError" in result.stderr
    assert "failed   write" in result.stdout


def test_a_missing_sdk_says_the_pip_line(add_plugin, tmp_path):
    add_plugin("lacking", lacking_plugin("lacking"))
    result = invoke("doctor", config_for("lacking", tmp_path))
    assert result.exit_code == 2
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("failed"))
    assert LACKING in line
    assert "fix:" not in result.stdout, "the line says it already"


@pytest.mark.parametrize(
    ("text", "check", "said"),
    [
        ("memory: {backend: fullhistory, backends: {fullhistory: {}}}", "plugin", "no plugin is named"),
        ("memory: {condition: full_history, conditions: {full_history: {phrase: x}}}", "plugin", "mean phrases?"),
        ("memory: [", "config", "not valid YAML"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_exits_with_2(tmp_path, text, check, said):
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    result = invoke("doctor", path)
    assert result.exit_code == 2
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("failed"))
    assert line.split()[1] == check
    assert said in line


def test_someone_elses_broken_plugin_is_noted(add_plugin, tmp_path):
    add_plugin("ruined", "raise RuntimeError('out of order')")
    path = tmp_path / "config.yaml"
    path.write_text(FULL_HISTORY, encoding="utf-8")
    result = invoke("doctor", path)
    assert result.exit_code == 0
    assert "note: this plugin is broken, and has no part in this: ruined (memslot-ruined)" in result.stdout
    assert "out of order" in json.loads(invoke("doctor", path, "--json").stdout)["broken_plugins"]["ruined"]
