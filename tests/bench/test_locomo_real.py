"""The real conversations, where a path to them is given: ``MEMSLOT_LOCOMO=locomo10.json pytest tests/bench``.

The data is CC BY-NC and not part of this repository.
"""

import json
import os
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

import pytest
from bench_support import figure

from memory.bench.engine.experiment import begin
from memory.bench.engine.files import each_line
from memory.bench.engine.matrix import load_experiment
from memory.bench.engine.verify import verify

DATA = os.environ.get("MEMSLOT_LOCOMO")
CONFIGS = Path(__file__).parents[2] / "configs"
# Pooled recall at 20 items of signed hashing of character 2-4-grams in 1,024 dimensions.
PLAIN_HASHING = {"conv-26": 0.40, "conv-30": 0.55}

pytestmark = [pytest.mark.skipif(not DATA, reason="MEMSLOT_LOCOMO names no LoCoMo file")]


def run(name, tmp_path, data):
    outcome = begin(load_experiment(CONFIGS / name, block="run", selected=True, data=data, output=tmp_path))
    assert outcome.manifest.status == "completed"
    return outcome


@pytest.fixture
def fewer(tmp_path):
    """The whole conversations, and some of their questions: each shows the whole history."""
    talks = json.loads(Path(DATA).read_text("utf-8"))[:2]
    file = tmp_path / "fewer.json"
    file.write_text(json.dumps([{**talk, "qa": talk["qa"][::6]} for talk in talks]), "utf-8")
    return file


def test_an_unlimited_history_holds_all_evidence_that_can_be_resolved(tmp_path, fewer):
    found = run("locomo_full_history.yaml", tmp_path / "out", fewer)
    assert figure(found, "evidence recall").value == 1.0
    assert figure(found, "recall@10").value < 1.0, "ranks are places in the section"


@pytest.mark.skipif(find_spec("mem0") is None, reason="mem0ai is not installed")
def test_lexical_retrieval_is_no_worse_than_plain_hashing(tmp_path):
    found = run("locomo_simple_rag.yaml", tmp_path, Path(DATA))
    shares = {}
    for row in (row for file in found.directory.glob("cells/*/results.jsonl") for row in each_line(file)):
        if row["gold"]:
            shares.setdefault(row["persona_id"], []).append((row["found"] or 0) / row["gold"])
    for persona, own in shares.items():
        assert fmean(own) >= PLAIN_HASHING.get(persona, 0.3), persona


@pytest.mark.skipif(find_spec("mem0") is None, reason="mem0ai is not installed")
def test_the_matrix_plays_every_provider_and_verifies(tmp_path, fewer):
    matrix = load_experiment(CONFIGS / "locomo.yaml", data=fewer, output=tmp_path / "out", keep_texts=True)
    done = begin(matrix)
    assert done.manifest.status == "completed"
    recall = {
        variant.label: measure.estimate.value
        for variant in done.metrics.providers
        for measure in variant.measures
        if measure.name == "evidence recall"
    }
    assert recall["no_memory"] == 0.0
    assert recall["simple_rag"] > 0.5 > recall["full_history"] > 0.0
    found = verify(done.directory, fewer)
    assert found.deviations == ()
    assert "verdicts: from the sections shown" in found.checked
