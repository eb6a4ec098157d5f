"""The double is held to a real server: what one was asked and answered, asked again here.

Each file of ``pairs/`` is a little history of recorded requests and answers; ``advance`` is where the worker had
time. Ids, times, tokens and wording differ from server to server; everything else is compared.
"""

import json
from pathlib import Path

import pytest
from honcho_double import HonchoDouble

from memory.testing import LoopbackRequest

PAIRS = sorted((Path(__file__).parent / "pairs").glob("*.json"))
NEVER = 1e9
OWN = frozenset({"created_at", "token_count", "message_id", "detail", "input", "ctx"})
_IDS_OF = frozenset({"workspace_id", "session_id", "peer_id", "metadata"})


def comparable(value, name=""):
    """The value without what is a server's own; of that, only whether it is there."""
    if name in OWN:
        return value is not None
    if name == "sessions" and isinstance(value, dict):
        return [comparable({**session, "session_id": "some id"}) for session in value.values()]
    if isinstance(value, dict):
        made_there = bool({"peer_id", "observer_id"} & value.keys())
        return {
            key: "some id" if key == "id" and made_there else comparable(part, key)
            for key, part in value.items()
        }
    return [comparable(part, name) for part in value] if isinstance(value, list) else value


def expanded(value):
    """``repeat`` and ``list`` stand for long texts and lists."""
    if isinstance(value, dict) and "times" in value:
        return value["repeat"] * value["times"] if "repeat" in value else [value["list"]] * value["times"]
    if isinstance(value, dict):
        return {name: expanded(part) for name, part in value.items()}
    return [expanded(part) for part in value] if isinstance(value, list) else value


def ask(double, step):
    body = json.dumps(expanded(step["json"])).encode() if "json" in step else b""
    params = step.get("params", {})
    return double.handle(LoopbackRequest(step["method"], step["path"], params=params, body=body))


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_the_double_answers_as_the_server_did(path):
    double = HonchoDouble(enqueue_s=NEVER, derive_s=NEVER, delete_s=NEVER)
    for step in json.loads(path.read_text(encoding="utf-8"))["steps"]:
        if "advance" in step:
            double.model.advance(to_the_end=True)
            continue
        answer = ask(double, step)
        assert answer.status == step["status"], step["name"]
        if "body" in step:
            body = json.loads(answer.data) if answer.data else None
            assert comparable(body) == comparable(step["body"]), step["name"]


def test_there_are_pairs():
    assert len(PAIRS) >= 4
