"""What extracting costs, counted against what the scripted endpoint was asked: on the real libraries."""

import json
from importlib.util import find_spec

import pytest
from bench_support import rows, run

from memory.testing import FAKE_KEY, ScriptedLLM

pytestmark = pytest.mark.thorough


def talk():
    turns = [
        {"dia_id": f"D1:{at}", "speaker": "Ann", "text": text}
        for at, text in enumerate(("I bought oolong tea yesterday.", "I have a cat named Miso."), 1)
    ]
    return {
        "sample_id": "one",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bo",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": turns,
        },
        "qa": [{"question": "Which tea?", "answer": "oolong", "evidence": ["D1:1"], "category": 4}],
    }


@pytest.mark.parametrize(
    ("backend", "modules"), [("mem0", ("mem0", "openai")), ("graphiti", ("graphiti_core", "kuzu"))]
)
async def test_calls_and_tokens_of_extraction_stand_in_the_manifest(tmp_path, backend, modules):
    if not all(map(find_spec, modules)):
        pytest.skip(f"needs {' and '.join(modules)}")
    data = tmp_path / "talk.json"
    data.write_text(json.dumps([talk()]), encoding="utf-8")
    with ScriptedLLM() as llm:
        model = {"model": "scripted", "base_url": llm.base_url, "api_key": FAKE_KEY}
        config = {
            "memory": {"backend": backend, "backends": {backend: {"llm": model}}},
            "run": {
                "timeline": "locomo",
                "data": str(data),
                "output": str(tmp_path / "out"),
                "doctor": False,
            },
        }
        outcome = await run(config)
        asked = len(llm.bodies("chat/completions"))
    assert outcome.manifest.status == "completed"
    (cell,) = outcome.manifest.cells
    ingest, retrieve = cell.usage["ingest"], cell.usage["retrieve"]
    assert ingest["calls"] == asked >= 2
    assert ingest["tokens"] > 10 * asked
    assert (retrieve["calls"], retrieve["tokens"]) == (0, 0)
    traces = rows(outcome, "traces.jsonl")
    writes = [trace for trace in traces if trace["operation"] == "record_event"]
    assert sum(trace["llm_calls"] for trace in writes) == asked
