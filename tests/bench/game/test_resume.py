"""A run that ends at any moment goes on to the same scores, the same record and no event twice."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from bench_support import stored_events
from game_support import SIZE, begin, lines, matrix, play, resume

from memory import ConfigError
from memory.bench.engine.cell import run_job
from memory.bench.engine.files import write_record
from memory.bench.engine.manifest import read_manifest

SMALL = {**SIZE, "sessions": 10, "tests": 3, "attributes": 4}


def results(outcome):
    return {
        path.parent.name: path.read_bytes()
        for path in sorted(outcome.directory.glob("cells/*/results.jsonl"))
    }


def stored_ids(outcome):
    return Counter(event["event_id"] for event in stored_events(outcome.directory))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return play(tmp_path_factory.mktemp("whole"), "full_history", "oracle_ipas", game=SMALL)


def not_completed(directory):
    """The manifest of a run that was killed before it noted the end of its last cell."""
    whole = read_manifest(directory)
    *others, last = whole.cells
    cells = (*others, last.model_copy(update={"status": "not_run"}))
    write_record(whole.model_copy(update={"cells": cells}), directory / "manifest.json")


SCRIPT = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from game_support import matrix

from game_support import begin
from memory.bench.engine.files import CellJournal

real, written = CellJournal.add, [0]
def add(self, kind, **row):
    real(self, kind, **row)
    written[0] += 1
    if written[0] == {line}:
        os.kill(os.getpid(), signal.SIGKILL)
CellJournal.add = add
begin(matrix(Path({out!r}), "full_history", game={game!r}))
"""


@pytest.mark.thorough
def test_a_process_that_was_killed_repeats_less_than_a_session(whole, tmp_path):
    journal = lines(whole.directory / "cells" / "01-s1-r1-p1" / "journal.jsonl")
    # In the middle of a session: over a turn that is noted and not yet written.
    turn = next(
        number
        for number, row in enumerate(journal, start=1)
        if number > len(journal) // 2 and row["kind"] == "turn" and journal[number - 2]["kind"] == "written"
    )
    code = SCRIPT.format(here=str(Path(__file__).parent), line=turn, out=str(tmp_path), game=SMALL)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    (directory,) = tmp_path.iterdir()
    cell = directory / "cells" / "01-s1-r1-p1"
    before = lines(cell / "journal.jsonl")
    done = resume(matrix(tmp_path, "full_history", game=SMALL), directory)
    assert results(done)["01-s1-r1-p1"] == results(whole)["01-s1-r1-p1"]
    after = [row for row in lines(cell / "journal.jsonl") if row["kind"] != "resumed"]
    assert after == journal
    assert after[: len(before)] == before  # nothing that was done is done again
    assert set(stored_ids(done).values()) == {1}


@pytest.mark.thorough
def test_a_journal_whose_last_line_is_torn_goes_on(whole, tmp_path):
    experiment = matrix(tmp_path, "full_history", game=SMALL)
    done = begin(experiment)
    cell = done.directory / "cells" / "01-s1-r1-p1"
    journal = (cell / "journal.jsonl").read_bytes()
    not_completed(done.directory)
    (cell / "journal.jsonl").write_bytes(journal[:-20])
    again = resume(experiment, done.directory)
    assert results(again)["01-s1-r1-p1"] == results(whole)["01-s1-r1-p1"]
    torn = journal[: len(journal) // 2] + b"\n{broken\n" + journal[len(journal) // 2 :]
    not_completed(done.directory)
    (cell / "journal.jsonl").write_bytes(torn)
    failed = resume(experiment, done.directory)
    (record,) = failed.manifest.cells
    assert record.status == "failed"
    assert "is damaged" in record.error.message


@pytest.mark.thorough
def test_only_what_did_not_end_well_is_played_again(tmp_path, monkeypatch):
    experiment = matrix(tmp_path, "no_memory", "full_history", game=SMALL)
    done = begin(experiment)
    played = []

    def noted(job, *more):
        played.append(job.spec.label)
        return run_job(job, *more)

    monkeypatch.setattr("memory.bench.engine.executors.run_job", noted)
    resume(experiment, done.directory)
    assert played == []
    not_completed(done.directory)
    again = resume(experiment, done.directory)
    assert played == ["full_history"]
    assert again.metrics == done.metrics


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"game": {**SMALL, "tests": 4}}, "data, settings"),
        ({"cs": []}, "settings"),
        ({"seeds": [8]}, "data, settings"),
        ({"memory": {"budget": {"max_tokens": 500}}}, "provider full_history"),
        (
            {"memory": {"conditions": {"full_history": {}}, "token_counter": "builtins:len"}},
            "provider full_history",
        ),
    ],
)
def test_a_matrix_that_changed_is_not_resumed(tmp_path, change, part):
    done = begin(matrix(tmp_path, "full_history", game=SMALL))
    before = read_manifest(done.directory)
    with pytest.raises(ConfigError, match=f"cannot be resumed: {part}"):
        resume(matrix(tmp_path, "full_history", **{"game": SMALL, **change}), done.directory)
    assert read_manifest(done.directory) == before


def test_where_it_runs_may_change(tmp_path):
    done = begin(matrix(tmp_path, "full_history", game=SMALL))
    other = matrix(
        tmp_path,
        "full_history",
        game=SMALL,
        doctor=True,
        executor={"kind": "processes", "workers": 1},
    )
    assert resume(other, done.directory).metrics == done.metrics


def test_a_directory_that_is_none_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist; give the directory of a run"):
        resume(matrix(tmp_path, "no_memory"), tmp_path)
