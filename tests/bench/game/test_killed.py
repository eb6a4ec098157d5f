"""A run that is killed at any file it touches, and killed again as it goes on, ends with the same bytes."""

import errno
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from bench_support import stored_events
from game_killed import experiment_of
from game_support import begin, lines, resume, verify

from memory import ConfigError, MemslotError
from memory.bench.engine.manifest import read_manifest

pytestmark = pytest.mark.thorough

ROUNDS = max(2, int(os.environ.get("MEMSLOT_ROUNDS", "0")) // 10)


def left(directory):
    """What must be the same, whatever happened in between."""
    cells = sorted(directory.glob("cells/*"))
    found = {
        f"{cell.name}/{name}": (cell / name).read_bytes()
        for cell in cells
        for name in ("results.jsonl", "texts.jsonl")
        if (cell / name).exists()
    }
    found["metrics"] = json.loads((directory / "metrics.json").read_text("utf-8"))
    found["metrics"].pop("experiment_id")
    for cell in cells:
        # That an event was there already, because the kill fell between its writing and the note, is said.
        found[cell.name] = [
            {name: value for name, value in row.items() if name != "warnings"}
            for row in lines(cell / "journal.jsonl")
            if row["kind"] != "resumed"
        ]
    found["stored"] = Counter(event["event_id"] for event in stored_events(directory))
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return begin(experiment_of(tmp_path_factory.mktemp("whole")))


def script(*arguments):
    command = [sys.executable, str(Path(__file__).with_name("game_killed.py")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("texts", [True, False], ids=["texts", "no texts"])
def test_killed_at_any_file_it_goes_on_to_the_same_bytes(tmp_path, monkeypatch, texts):
    if not texts:
        monkeypatch.setenv("NO_TEXTS", "1")
    total = int(script(tmp_path / "all"))
    (whole,) = (tmp_path / "all").iterdir()
    assert total > 80
    # At the 4th file there is no manifest yet. At the end a cell has ended that it does not know of yet, then come
    # figures, page and last word.
    numbers = sorted(
        {
            4,
            *random.sample(range(1, total - 20), ROUNDS),
            *random.sample(range(total - 20, total), max(3, ROUNDS // 4)),
        }
    )
    sys.stdout.write(f"killed at files {numbers}\n")  # shown where this fails
    endings = script(tmp_path, *numbers).splitlines()
    assert all(" -9 " in line for line in endings), endings
    for number in numbers:
        left_by = sorted((tmp_path / str(number)).glob("*"))
        begun = [directory for directory in left_by if (directory / "manifest.json").exists()]
        if not begun:  # Killed twice before there was an experiment; what is left says so.
            for directory in left_by:
                with pytest.raises(ConfigError, match="does not exist; give the directory of a run"):
                    resume(experiment_of(tmp_path / str(number), texts=texts), directory)
            continue
        (directory,) = begun
        done = resume(experiment_of(tmp_path / str(number), texts=texts), directory)
        assert [cell.error for cell in done.manifest.cells if cell.error] == [], number
        assert done.manifest.status == "completed", number
        assert left(directory) == left(whole), number
        assert verify(directory).deviations == (), number


def test_of_two_that_take_it_up_at_once_one_is_refused(whole, tmp_path):
    script(tmp_path, 40)
    (directory,) = (tmp_path / "40").iterdir()
    outcomes = set[str]()

    def another(*_):
        try:
            outcomes.add(resume(experiment_of(tmp_path / "40"), directory).manifest.status)
        except ConfigError as error:
            outcomes.add(str(error))

    done = resume(experiment_of(tmp_path / "40"), directory, progress=another)
    assert done.manifest.status == "completed"
    (refused,) = outcomes
    assert "is open elsewhere" in refused
    assert left(directory) == left(whole.directory)


@pytest.mark.parametrize("place", range(6))
def test_a_disk_that_is_full_costs_no_more_than_time(whole, tmp_path, monkeypatch, place):
    """Whatever file it is that cannot be written: it is said, and with room again the run goes on to the same."""
    written, real = [0], os.fsync
    at = (2, 3, 4, 5, 6, 7)[place]

    def fsync(file):
        written[0] += 1
        if written[0] >= at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file)

    experiment = experiment_of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fsync)
        with pytest.raises(
            MemslotError, match=r"cannot be written \(No space left on device\); make room and resume"
        ):
            begin(experiment)
    (directory,) = tmp_path.iterdir()
    assert read_manifest(directory).status == "incomplete"
    done = resume(experiment, directory)
    assert done.manifest.status == "completed"
    assert left(directory) == left(whole.directory)
    assert verify(directory).deviations == ()
