"""The experiments that are shipped can be read as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from game_support import CONDITIONS

from memory.bench.engine.matrix import load_experiment
from memory.plugins.registry import MemoryAdapterRegistry

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("preference_game*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_experiment_names_providers_that_exist(file: Path) -> None:
    experiment = load_experiment(file)
    registry = MemoryAdapterRegistry()
    for variant in experiment.settings.providers:
        info = registry.selected(experiment.config(variant))
        assert info.name == variant.provider


def test_the_preference_game_is_mempabenchs_size_over_the_six_controls() -> None:
    experiment = load_experiment(CONFIGS / "preference_game.yaml")
    assert {variant.label for variant in experiment.settings.providers} == set(CONDITIONS)
    assert experiment.settings.executor.workers == 2
    cells = experiment.cells()
    assert len(cells) == 4 * 6
    assert len({cell.cell_id for cell in cells}) == 24
    timeline = experiment.timelines(7).timelines[0]
    assert (len(timeline.sessions), len(timeline.tests)) == (99, 36)
