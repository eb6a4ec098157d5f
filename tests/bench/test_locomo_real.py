"""The real conversations, where a path to them is given: ``MEMSLOT_LOCOMO=locomo10.json pytest tests/bench``.

The data is CC BY-NC and not part of this repository.
"""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from memory.bench import run_benchmark, run_settings
from memory.bench.engine.experiment import begin
from memory.bench.engine.matrix import load_experiment
from memory.bench.engine.run_verify import verify
from memory.plugins.config import load_config

DATA = os.environ.get("MEMSLOT_LOCOMO")
CONFIGS = Path(__file__).parents[2] / "configs"
# Pooled recall at 20 items of signed hashing of character 2-4-grams in 1,024 dimensions.
PLAIN_HASHING = {"conv-26": 0.40, "conv-30": 0.55}

pytestmark = [pytest.mark.skipif(not DATA, reason="MEMSLOT_LOCOMO names no LoCoMo file")]


async def scores(name, tmp_path):
    config = load_config(CONFIGS / name)
    settings = run_settings(config, data=DATA, output=tmp_path)
    outcome = await run_benchmark(config, settings=settings)
    assert outcome.manifest.status == "completed"
    return outcome.metrics.evidence


async def test_an_unlimited_history_holds_all_evidence_that_can_be_resolved(tmp_path):
    found = await scores("locomo_full_history.yaml", tmp_path)
    assert (found.overall.pooled, found.overall.verbatim) == (1.0, 1.0)


@pytest.mark.skipif(find_spec("mem0") is None, reason="mem0ai is not installed")
async def test_lexical_retrieval_is_no_worse_than_plain_hashing(tmp_path):
    found = await scores("locomo_simple_rag.yaml", tmp_path)
    for row in found.personas:
        assert row.pooled >= PLAIN_HASHING.get(row.label, 0.3), row.label


@pytest.mark.skipif(find_spec("mem0") is None, reason="mem0ai is not installed")
def test_the_matrix_plays_every_provider_and_verifies(tmp_path):
    done = begin(load_experiment(CONFIGS / "locomo.yaml", data=Path(DATA), output=tmp_path, keep_texts=True))
    assert done.manifest.status == "completed"
    recall = {
        variant.label: measure.estimate.value
        for variant in done.metrics.variants
        for measure in variant.measures
        if measure.name == "evidence recall"
    }
    assert recall["no_memory"] == 0.0
    assert recall["simple_rag"] > 0.5 > recall["full_history"] > 0.0
    found = verify(done.directory, Path(DATA))
    assert found.deviations == ()
    assert "verdicts: from the sections shown" in found.checked
