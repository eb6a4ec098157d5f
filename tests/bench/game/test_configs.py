"""The experiments that are shipped can be read as they stand."""

from pathlib import Path

import pytest
from game_support import CONDITIONS

from memory.bench.engine.matrix import load_experiment
from memory.plugins.registry import MemoryAdapterRegistry

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.thorough
@pytest.mark.parametrize("file", sorted(CONFIGS.glob("preference_game*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_experiment_names_providers_that_exist(file):
    experiment = load_experiment(file)
    registry = MemoryAdapterRegistry()
    for variant in experiment.settings.providers:
        info = registry.selected(experiment.config(variant))
        assert info.name == variant.provider


def test_the_preference_game_has_six_controls_and_enough_personas_for_intervals():
    experiment = load_experiment(CONFIGS / "preference_game.yaml")
    settings = experiment.settings
    assert {each.provider for each in settings.providers} == set(CONDITIONS)
    assert {each.budget and each.budget.max_tokens for each in settings.providers} == {600}
    (sold,) = {each.options.get("max_tokens") for each in settings.providers} - {None}
    assert sold == 600, "a summary is as long as its budget"
    cells = experiment.cells()
    assert len({cell.persona_id for cell in cells}) == 5
    assert len({cell.cell_id for cell in cells}) == 5 * 7
