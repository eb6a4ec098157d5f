"""The experiments that are shipped can be read as they stand."""

from __future__ import annotations

from itertools import product
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


def test_the_preference_game_is_mempabenchs_size_over_six_controls_and_four_budgets() -> None:
    """Played by eight personas, so that it can answer: below five there is no interval."""
    experiment = load_experiment(CONFIGS / "preference_game.yaml")
    played = {
        (each.provider, each.budget and each.budget.max_tokens) for each in experiment.settings.providers
    }
    assert played == set(product(CONDITIONS, (300, 600, 2000, 8000)))
    assert {each.series for each in experiment.settings.providers} == {*CONDITIONS, "phrase list"}
    assert experiment.settings.executor.workers == 2
    cells = experiment.cells()
    assert len({(cell.seed, cell.persona_id) for cell in cells}) == 8
    assert len(cells) == len({cell.cell_id for cell in cells}) == 8 * 7 * 4
    timeline = experiment.timelines(7).timelines[0]
    assert (len(timeline.sessions), len(timeline.tests)) == (99, 36)
    sold = {each.options.get("max_tokens") for each in experiment.settings.providers} - {None}
    assert sold == {300, 600, 2000, 8000}, "a summary is as long as its budget"
