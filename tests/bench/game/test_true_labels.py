"""In an experiment, too, what stands in for a model and what was not ready is said wherever a figure stands."""

import io
from contextlib import redirect_stderr, redirect_stdout

import pytest
from game_support import play

from memory import BackendReadiness
from memory.cli.run import conclude

pytestmark = pytest.mark.thorough


def outputs(outcome):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        conclude(outcome, as_json=False)
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
