"""The same experiment in this process, in worker processes and on a dask cluster; workers that are lost."""

from collections import Counter
from pathlib import Path

import pytest
from bench_support import stored_events
from game_support import SIZE, begin, matrix, resume

from memory import ConfigError
from memory.bench.engine.executors import DaskExecutor

SMALL = {**SIZE, "sessions": 10, "tests": 3, "attributes": 4}
PROVIDERS = ("full_history", "no_memory", "oracle_ipas")
MEMORY = {"token_counter": "game_counter:count"}


def run(out, kind, **more):
    return begin(
        matrix(out, *PROVIDERS, game=SMALL, memory=MEMORY, executor={"kind": kind, "workers": 2}, **more)
    )


def metrics_without_id(outcome):
    return outcome.metrics.model_copy(update={"experiment_id": ""})


def statuses(outcome):
    return [cell.status for cell in outcome.manifest.cells]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return run(tmp_path_factory.mktemp("here"), "local")


@pytest.fixture
def killed_once(tmp_path, monkeypatch):
    """The first worker that has counted a while is killed, and no other."""
    flag = tmp_path / "killed"
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setenv("GAME_KILL_FILE", str(flag))
    monkeypatch.setenv("GAME_KILL_AT", "60")
    return flag


@pytest.mark.thorough
def test_worker_processes_play_the_same(here, tmp_path):
    heard = []
    experiment = matrix(
        tmp_path, *PROVIDERS, game=SMALL, memory=MEMORY, executor={"kind": "processes", "workers": 2}
    )
    there = begin(experiment, progress=heard.append)
    assert statuses(there) == ["completed"] * 3
    assert metrics_without_id(there) == metrics_without_id(here)
    assert there.manifest.settings["executor"] == {"kind": "processes", "workers": 2}
    assert heard[-1].done == heard[-1].total
    assert [at.done for at in heard] == sorted(at.done for at in heard)


@pytest.mark.thorough
def test_a_worker_that_is_killed_once_costs_nothing(here, tmp_path, killed_once):
    lost = run(tmp_path / "out", "processes")
    assert killed_once.exists()
    assert statuses(lost) == ["completed"] * 3
    assert metrics_without_id(lost) == metrics_without_id(here)


@pytest.mark.thorough
def test_a_cell_that_kills_its_workers_costs_itself_alone(here, tmp_path, killed_once, monkeypatch):
    monkeypatch.setenv("GAME_KILL_AT", "30")
    monkeypatch.setenv("GAME_KILL_TIMES", "2")
    out = tmp_path / "out"
    executor = {"kind": "processes", "workers": 1}
    lost = begin(matrix(out, *PROVIDERS, game=SMALL, memory=MEMORY, executor=executor))
    assert lost.manifest.status == "failed"
    assert sorted(statuses(lost)) == ["completed", "completed", "died"]
    (cell,) = (cell for cell in lost.manifest.cells if cell.status == "died")
    assert cell.error.message == "each worker process that played this cell was killed, or ended on its own"
    assert cell.label in lost.report.read_text("utf-8")
    again = resume(
        matrix(out, *PROVIDERS, game=SMALL, memory=MEMORY, executor={"kind": "processes", "workers": 2}),
        lost.directory,
    )
    assert statuses(again) == ["completed"] * 3
    assert metrics_without_id(again) == metrics_without_id(here)


@pytest.mark.thorough
def test_a_dask_cluster_plays_the_same_with_a_worker_killed_in_the_middle(here, tmp_path, killed_once):
    pytest.importorskip("distributed")
    there = run(tmp_path / "out", "dask")
    assert killed_once.exists()
    assert statuses(there) == ["completed"] * 3
    assert metrics_without_id(there) == metrics_without_id(here)
    resumed = [cell for cell in there.manifest.cells if cell.resumed]
    assert [cell.resumed for cell in resumed] == [1]
    stored = Counter(event["event_id"] for event in stored_events(there.directory))
    assert set(stored.values()) == {1}


@pytest.mark.thorough
def test_a_scheduler_that_does_not_answer_is_named(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("memory.bench.engine.executors._CONNECT_S", 0.2)
    executor = DaskExecutor(1, "tcp://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"bench\.executor\.address: no dask scheduler answers"):
        begin(matrix(tmp_path, "no_memory", game=SMALL), executor=executor)


@pytest.mark.parametrize("address", ["nonsense", "", "tcp://me:SECRET@127.0.0.1:1", "http://host:1"])
def test_an_address_that_is_none_is_refused_before_anything_is_written(tmp_path, address):
    pytest.importorskip("distributed")
    executor = {"kind": "dask", "address": address}
    with pytest.raises(ConfigError, match=r"bench\.executor\.address: is no address") as refused:
        begin(matrix(tmp_path, "no_memory", game=SMALL, executor=executor))
    assert "SECRET" not in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_a_display_that_fails_costs_no_cell(here, tmp_path):
    def broken(at):
        raise BrokenPipeError

    done = begin(matrix(tmp_path, *PROVIDERS, game=SMALL, memory=MEMORY), progress=broken)
    assert metrics_without_id(done) == metrics_without_id(here)
