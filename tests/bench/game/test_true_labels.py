"""In an experiment, too, what stands in for a model and what was not ready is said wherever a figure stands."""

import csv
import io
from contextlib import redirect_stderr, redirect_stdout

import pytest
from cli_support import invoke
from game_support import play

from memory import BackendReadiness
from memory.cli import _experiments

pytestmark = pytest.mark.thorough


def outputs(outcome):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        _experiments.conclude(outcome, as_json=False)
    return {
        "terminal": out.getvalue() + err.getvalue(),
        "report.html": outcome.report.read_text(encoding="utf-8"),
        "metrics.json": (outcome.directory / "metrics.json").read_text(encoding="utf-8"),
    }


def test_a_stand_in_is_named_wherever_its_figures_stand(tmp_path):
    outcome = play(tmp_path, "rolling_summary", "full_history")
    for name, text in outputs(outcome).items():
        assert "rolling_summary (extractive summariser)" in text, name
    assert [provider.label for provider in outcome.metrics.providers] == ["rolling_summary", "full_history"]


def test_requests_to_an_unready_memory_are_counted_and_said(tmp_path, monkeypatch):
    from conditions.rolling_summary import RollingSummary

    async def pending(*_):
        return BackendReadiness(state="pending", detail="still at it")

    monkeypatch.setattr(RollingSummary, "wait_until_ready", pending)
    outcome = play(tmp_path, "rolling_summary")
    (variant,) = outcome.metrics.providers
    assert variant.unready == variant.requests > 0
    for name, text in outputs(outcome).items():
        if name != "metrics.json":
            said = f"{variant.requests} of {variant.requests} requests were asked while nobody knew"
            assert said in text, name


def test_an_experiment_s_figures_are_printed_for_other_programs(tmp_path):
    outcome = play(tmp_path, "rolling_summary", "static_profile", "oracle_ipas")
    rows = list(csv.DictReader(io.StringIO(stdout_of("report", outcome.directory, "--csv"))))
    fits = {
        row["provider"]: row["value"] for row in rows if (row["group"], row["figure"]) == ("CS", "style fit")
    }
    assert fits["oracle_ipas"] == "1.0"
    assert set(fits) == {"rolling_summary (extractive summariser)", "static_profile", "oracle_ipas"}
    less = {(row["provider"], row["group"]) for row in rows if row["group"].startswith("less")}
    assert less == {("rolling_summary (extractive summariser)", "less static_profile")}
    assert "style fit" in stdout_of("report", outcome.directory)


def stdout_of(*arguments):
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout
