"""What may go wrong with an experiment: the cell says why, the others finish, the exit code says so.

A judge that answers nonsense is in test_models, a dask worker that is lost in test_executors, data sets that are
malformed in test_loaders.
"""

import sys
from dataclasses import replace

import pytest
from game_support import SIZE, begin, matrix, play, resume

from memory import BackendUnavailable, ConfigError, InputError
from memory.bench.data.generate import GameSize, make_game
from memory.bench.data.timeline import ChoiceTruth, Probe, Timeline
from memory.plugins.registry import MemoryAdapterRegistry

SMALL = {**SIZE, "sessions": 10, "tests": 3, "attributes": 4}
THREE = ("no_memory", "full_history", "oracle_ipas")
(GOOD,) = make_game(GameSize(users=1, sessions=10, tests=3, attributes=4)).timelines


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return play(tmp_path_factory.mktemp("whole"), *THREE, game=SMALL)


def statuses(outcome):
    return {cell.label: cell.status for cell in outcome.manifest.cells}


def dying(after):
    """The installed plugins; full_history takes so many writes, and is gone."""
    registry = MemoryAdapterRegistry()
    real = registry.create

    def create(config, **more):
        adapter = real(config, **more)
        if config.provider == "full_history":
            record, written = adapter.record_event, [0]

            async def write(event):
                written[0] += 1
                if written[0] > after:
                    raise BackendUnavailable("gone", sent=False)
                return await record(event)

            adapter.record_event = write
        return adapter

    registry.create = create
    return registry


@pytest.mark.thorough
def test_a_provider_that_dies_half_way_costs_its_cell_and_goes_on_when_it_is_back(whole, tmp_path):
    experiment = matrix(tmp_path, *THREE, game=SMALL)
    done = begin(experiment, registry=dying(12))
    assert statuses(done) == {"no_memory": "completed", "full_history": "failed", "oracle_ipas": "completed"}
    cell = done.manifest.cells[1]
    assert cell.error.type == "BackendUnavailable"
    assert cell.counts["events"] == 12
    assert done.manifest.status == "failed"
    again = resume(experiment, done.directory)
    assert again.manifest.status == "completed"
    assert again.metrics.providers == whole.metrics.providers


FIRST, SECOND, *_ = GOOD.sessions
TEST, LATER, *_ = GOOD.tests
ASKED = Probe("q", 1, "What?", "k", ChoiceTruth(("a", "b"), 0), "s")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sessions": (SECOND, FIRST, *GOOD.sessions[2:])}, "sessions are not in time order"),
        ({"sessions": (FIRST, *GOOD.sessions)}, f"the session id {FIRST.session_id} occurs twice"),
        ({"tests": (LATER, TEST)}, "a test session is out of order"),
        ({"tests": (replace(TEST, after=99),)}, "past the last session"),
        ({"tests": (TEST, TEST)}, f"the session id {TEST.session_id} occurs twice"),
        ({"probes": (ASKED, ASKED)}, "the probe id q occurs twice"),
    ],
)
def test_a_timeline_that_is_broken_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        replace(GOOD, **change)
    assert isinstance(GOOD, Timeline)


@pytest.mark.parametrize("name", ["two\nlines", " ", "", "\u202eevil", "a\x00b"])
@pytest.mark.parametrize("field", ["name", "series", "group"])
def test_a_name_that_no_table_can_hold_is_refused(tmp_path, field, name):
    with pytest.raises(ConfigError, match=rf"providers\.0\.{field}: .*one line of printable text"):
        matrix(tmp_path, {"provider": "no_memory", field: name})


def test_a_name_that_another_one_gets_by_its_budget_is_refused(tmp_path):
    """Two of one name would each be shown the requests of both."""
    own = {"provider": "no_memory", "name": "full_history, 300 tokens", "budget": {"max_tokens": 300}}
    with pytest.raises(ConfigError, match=r"two entries called 'full_history, 300 tokens'; give one"):
        matrix(tmp_path, "full_history", own, budgets=[300, 600])


def test_an_executor_that_is_not_installed_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match="pip install"):
        begin(matrix(tmp_path, "no_memory", executor={"kind": "dask"}))
    assert not list(tmp_path.iterdir())
