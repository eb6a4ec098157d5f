"""Which repetition a run is: in its manifest and on the pages, in no scope and no hash (spec 4.3, step 1)."""

import pytest
from bench_support import config_of, registry_with

from memory import ConfigError
from memory.bench import comparison_configs, run_benchmark, run_many, run_settings
from memory.plugins.config import load_config

SMALL = {"users": 1, "sessions": 8}


async def test_repetitions_of_a_run_differ_in_their_replicate_alone(tmp_path):
    first, again = [
        await run_benchmark(
            config_of("no_memory", run={**SMALL, **given, "output": str(tmp_path)}), registry=registry_with()
        )
        for given in ({}, {"replicate": 3})
    ]
    assert (first.manifest.replicate, again.manifest.replicate) == (0, 3)
    assert first.manifest.config_hash == again.manifest.config_hash
    assert first.manifest.config == again.manifest.config
    assert "replicate" not in again.manifest.cells[0].scope.model_dump()
    assert "replicate" in again.report.read_text(encoding="utf-8")


async def test_a_comparison_says_which_repetition_it_compares(tmp_path):
    content = config_of("no_memory", run={**SMALL, "replicate": 2, "output": str(tmp_path)})
    configs = comparison_configs(content, ["no_memory"])
    comparison = await run_many(configs, registry=registry_with())
    assert "Replicate 2" in comparison.report.read_text(encoding="utf-8")


@pytest.mark.parametrize("wrong", [-1, 1.5, "first", None])
def test_a_replicate_is_a_whole_number_from_0(wrong):
    with pytest.raises(ConfigError, match=r"run\.replicate"):
        run_settings(load_config(config_of("no_memory", run={"replicate": wrong})))
