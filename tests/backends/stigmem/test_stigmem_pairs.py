"""The double is held to a real node: what one was asked and answered, asked again here.

Each file of ``pairs/`` is a little history: requests to begin with, then recorded requests with their recorded
answers. Ids, times and wording differ from node to node; everything else is compared, content ids included.
"""

import json
from pathlib import Path

import pytest
from stigmem_node_model import ADMIN_KEY, NodeModel

PAIRS = sorted((Path(__file__).parent / "pairs").glob("*.json"))
# What another node, another day or another wording changes. An id that is a card's is no such thing.
OWN = frozenset(
    {
        "timestamp", "hlc", "recall_id", "node_id", "node_url", "created_at", "expires_at", "source_trust",
        "effective_confidence", "msg", "ctx", "message", "sanitizer_warnings", "warnings",
    }
)  # fmt: skip


def comparable(value, own, name=""):
    """The value without what is a node's own; of that, only whether it is there."""
    if isinstance(value, dict):
        return {key: comparable(part, own, key) for key, part in value.items() if key != "ctx"}
    if name in own:
        return None
    if name == "id" and isinstance(value, str) and not value.startswith("card:"):
        return "some id"
    if name == "detail" and isinstance(value, str):
        return "some words"
    if name in ("loc", "namespaces"):
        return value
    if isinstance(value, list):
        return [comparable(part, own, name) for part in value]
    return value


def ask(node, request):
    headers = {name.lower(): value for name, value in request.get("headers", {}).items()}
    for stand_in in ("<key>", "<admin key>"):
        headers = {name: value.replace(stand_in, ADMIN_KEY) for name, value in headers.items()}
    params = {name: str(value) for name, value in (request.get("params") or {}).items()}
    body = {"params": params, "headers": headers, "json": request.get("json")}
    return node.handle(request["method"], request["path"], body)


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_the_double_answers_as_the_node_did(path):
    history = json.loads(path.read_text(encoding="utf-8"))
    tenants = history["node"] == "tenant"
    node = NodeModel(auth=tenants, multi_tenant=tenants)
    for request in history["given"]:
        assert ask(node, request).status < 300
    for step in history["steps"]:
        request = step["request"]
        if step["name"] == "error_401_bad_key":
            request["headers"] = {"Authorization": "Bearer wrong"}
        answer = ask(node, request)
        assert answer.status == step["status"], step["name"]
        if "body" in step:
            own = OWN | set(step.get("ignore", ()))
            assert comparable(answer.body, own) == comparable(step["body"], own), step["name"]


def test_there_are_pairs():
    assert len(PAIRS) >= 11
