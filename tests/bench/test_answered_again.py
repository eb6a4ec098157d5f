"""A run is answered and judged again from its record: no memory is asked, and everything else stays as it was."""

from pathlib import Path

import pytest
from bench_support import registry_with, write_locomo
from typer.testing import CliRunner

from memory import ConfigError
from memory.bench.engine.again import answer_again
from memory.bench.engine.experiment import Listeners, begin
from memory.bench.engine.matrix import load_experiment
from memory.bench.engine.verify import verify
from memory.bench.report.report import rendered, write_page
from memory.cli.app import app
from memory.runtime import CompletionResult, Usage
from memory.runtime.providers.scripted import ScriptedProvider
from memory.testing import FakeBackend

GAME = {"timeline": "game", "game": {"users": 1, "sessions": 10, "tests": 4, "attributes": 5}}


def matrix(out, **bench):
    content = {
        "memory": {"backend": "fake", "budget": {"max_tokens": 400, "max_items": None}},
        "bench": {"providers": ["fake", "full_history"], "doctor": False, "keep_texts": True, **bench},
    }
    return load_experiment(content, output=out, registry=registry_with())


def asked(model):
    def said(messages, options):
        return CompletionResult(content=model, usage=Usage(input_tokens=9, output_tokens=1))

    return ScriptedProvider(script=said)


def share(outcome, figure):
    measures = outcome.metrics.providers[0].measures
    return next(measure.estimate.value for measure in measures if measure.name == figure)


@pytest.mark.thorough
def test_a_reader_answers_again_without_a_memory(tmp_path):
    data = str(write_locomo(tmp_path / "talks.json"))
    store = FakeBackend()
    given = {"timeline": "locomo", "data": data}
    first = begin(matrix(tmp_path, **given), registry=registry_with(store))
    assert share(first, "answer F1") is None
    calls = len(store.store.operations)
    roles = {"reader": {"provider": "scripted"}, "answer_judge": {"provider": "scripted"}}
    models = {"reader": asked("A kiln."), "answer_judge": asked('{"right": true}')}
    again = answer_again(
        matrix(tmp_path, roles=roles, **given),
        first.directory,
        models=models,
        listeners=Listeners(write_page=write_page),
    )
    assert len(store.store.operations) == calls
    assert share(again, "right answers") == 1.0
    assert (share(again, "answer F1") or 0) > 0
    assert share(again, "evidence recall") == share(first, "evidence recall")
    assert again.manifest.status == "completed"
    assert "No memory was asked." in again.report.read_text("utf-8")
    assert again.manifest.cells[0].models["reader"]["calls"] > 0
    assert verify(again.directory, Path(data), render=rendered).deviations == ()


@pytest.mark.thorough
def test_a_game_that_rules_play_again_is_the_same_game(tmp_path):
    first = begin(matrix(tmp_path, **GAME), registry=registry_with())
    again = answer_again(matrix(tmp_path, **GAME), first.directory)
    assert [each.measures for each in again.metrics.providers] == [
        each.measures for each in first.metrics.providers
    ]


@pytest.mark.thorough
def test_a_run_without_texts_or_of_other_data_is_refused(tmp_path):
    first = begin(matrix(tmp_path / "a", **GAME, keep_texts=False), registry=registry_with())
    with pytest.raises(ConfigError, match="kept no texts, so nobody can answer again"):
        answer_again(matrix(tmp_path / "b", **GAME), first.directory)
    other = {**GAME, "game": {**GAME["game"], "sessions": 11}}
    with pytest.raises(ConfigError, match="was made of other data than the file names"):
        answer_again(matrix(tmp_path / "b", **other), first.directory)
    assert not (tmp_path / "b").exists()


def test_the_command_takes_the_directory_of_a_run(tmp_path):
    file = tmp_path / "memory.yaml"
    file.write_text(
        "memory: {backend: full_history}\nrun: {game: {users: 1, sessions: 10, tests: 4}, keep_texts: true}\n",
        "utf-8",
    )
    out = tmp_path / "out"
    for more in ((), ("--from",)):
        source = [str(path) for path in out.iterdir()] if more else []
        result = CliRunner().invoke(app, ["run", str(file), "--out", str(out), "--no-doctor", *more, *source])
        assert result.exit_code == 0, result.output
    assert "Answered and judged again from" in result.output
