"""The page of results is made from runs by a script, and each row says which model works in it."""

import gzip
import json
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from statistics import fmean

import pytest
from bench_support import locomo_sample, write_locomo

from memory.bench.engine.experiment import begin
from memory.bench.engine.matrix import load_experiment

pytestmark = pytest.mark.thorough


@pytest.mark.skipif(find_spec("mem0") is None, reason="mem0ai is not installed")
def test_each_row_of_the_results_names_its_model(tmp_path):
    spec = spec_from_file_location("_results", Path(__file__).parents[2] / "docs" / "_results.py")
    assert spec
    assert spec.loader
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    data = write_locomo(tmp_path / "talks.json", locomo_sample("one"))
    content = {
        "memory": {"condition": "no_memory", "budget": {"max_tokens": 400}},
        "bench": {
            "timeline": "locomo",
            "data": str(data),
            "providers": ["no_memory", "simple_rag"],
            "doctor": False,
        },
    }
    done = begin(load_experiment(content, output=tmp_path / "out"))
    script.HERE = tmp_path
    page = script.page([("my.yaml#A note", done.directory)])
    assert "`memslot example my.yaml && memslot run my.yaml --data talks.json`" in page
    assert " A note." in page
    assert "| simple_rag | lexical embedder | 400 |" in page
    assert "| no_memory | none | 400 |" in page
    # The record alone gives the figure of the row, by the page's formula.
    record = gzip.decompress((tmp_path / "records" / "my.jsonl.gz").read_bytes()).decode()
    assert "[Record](records/my.jsonl.gz)" in page
    rows = [row for row in map(json.loads, record.splitlines()) if row["memory"] == "simple_rag"]
    scored = [(row["found"] or 0) / row["gold"] for row in rows if row.get("gold")]
    assert f"| simple_rag | lexical embedder | 400 | {fmean(scored):.1%} |" in page
    assert sum(row["messages"] for row in rows if "ms" in row) > 0
