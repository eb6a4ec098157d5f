"""What is sent and read, held against the installed MemOS: its own request models, its metadata, its routes."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest
from installed import installed
from memos_double import MemosDouble
from memos_support import ALICE, ask, event, opened, ready, verdict

from memory import ContextBudget, Message, NativeMutationRequest, SupportsFeedback, SupportsNativeMutation
from memory.backends.memos.adapter import MEMORY_TYPES
from memory.backends.memos.client import ROUTES
from memory.backends.memos.translate import EVENT_KEYS

_SPEC = find_spec("memos")
pytestmark = pytest.mark.skipif(not installed("memos"), reason="MemoryOS is not installed")
_MODEL_OF = {
    "/product/add": "APIADDRequest",
    "/product/search": "APISearchRequest",
    "/product/get_memory": "GetMemoryRequest",
    "/product/delete_memory": "DeleteMemoryRequest",
    "/product/feedback": "APIFeedbackRequest",
}
_DEPRECATED = {"mem_cube_id", "moscube", "operation", "source"}
_OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}


async def _everything(double, **block):
    """Every kind of request, with every kind of message."""
    async with opened(double, **block) as slot:
        messages = (
            Message(role="developer", content="Be brief."),
            Message(role="user", content="I like oolong tea.", name="Ada"),
            Message(role="assistant", tool_calls=(_OPENAI_CALL,)),
            Message(role="tool", content="found"),
        )
        await slot.record_event(event(messages=messages, context="home", metadata={"a": 1, "b": [1]}))
        await slot.record_event(event("I like sencha tea."))
        await ready(slot)
        filters = {"a": {"gte": 1}} if slot.traits.filter_operators else {}
        found = await ask(slot, budget=ContextBudget(max_items=3), scenario="trip", filters=filters)
        ids = tuple(entry.native_id for entry in (await ask(slot)).entries)
        assert ids, found
        feedback, mutate = slot.capability(SupportsFeedback), slot.capability(SupportsNativeMutation)
        await feedback.apply_feedback(verdict(native_ids=ids, metadata={"history": [_said("user")]}))
        await mutate.native_mutation(NativeMutationRequest(scope=ALICE, operation="delete", native_id=ids[0]))
        await slot.reset_scope(ALICE)


def _said(role):
    return {"role": role, "content": "Which tea do I like?"}


@pytest.fixture(scope="module")
def bodies():
    """Every body an adapter sends, by the name of its model, over all graph databases and ways of writing."""
    sent = []
    blocks = [
        ("postgres", {}),
        ("neo4j-community", {"async_mode": "sync"}),
        ("polardb", {"async_mode": "sync", "mode": "fast"}),
    ]
    for graph_db, block in blocks:
        with MemosDouble(graph_db=graph_db) as double:
            anyio.run(partial(_everything, double, **block))
        for request in double.requests:
            if request.path in _MODEL_OF:
                sent.append((_MODEL_OF[request.path], request.json))
    assert {model for model, _ in sent} == set(_MODEL_OF.values())
    return sent


@pytest.fixture(scope="module")
def native(bodies, tmp_path_factory):
    """What the installed MemOS says of them, asked once."""
    here = tmp_path_factory.mktemp("memos")
    (here / "asked").write_text(json.dumps({"bodies": bodies, "models": sorted(set(_MODEL_OF.values()))}))
    environment = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
    environment["MEMOS_BASE_PATH"] = str(here)
    script = Path(__file__).with_name("memos_models.py")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(here / "asked"), str(here / "told")],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    answer = json.loads((here / "told").read_text())
    return answer


@pytest.mark.thorough
def test_every_body_is_what_memos_itself_accepts(bodies, native):
    for (model, body), checked in zip(bodies, native["checked"], strict=True):
        assert "error" not in checked, (model, checked)
        unknown = body.keys() - set(native["fields"][model])
        assert not unknown, f"{model} would ignore {unknown}"


@pytest.mark.thorough
def test_nothing_is_changed_or_lost_on_the_way_in(bodies, native):
    for (model, body), checked in zip(bodies, native["checked"], strict=True):
        seen = {name: checked["seen"][name] for name in body}
        assert seen == body, model


@pytest.mark.thorough
def test_every_parameter_of_a_search_is_explicit(bodies, native):
    searched = next(body for model, body in bodies if model == "APISearchRequest")
    assert set(native["fields"]["APISearchRequest"]) - searched.keys() == _DEPRECATED


@pytest.mark.thorough
def test_no_key_of_info_is_a_field_of_memos_which_would_win(native):
    ours = {*EVENT_KEYS, "feedback_id", "metadata_json"}
    assert not ours & {*native["metadata"], "id", "memory"}
    assert not [name for name in native["metadata"] if name.startswith("meta_")]


@pytest.mark.thorough
def test_the_native_types_are_those_we_name(native):
    assert set(native["types"]) - {"Context"} == set(MEMORY_TYPES)


@pytest.mark.thorough
def test_the_cloud_still_has_no_cubes_and_says_nothing_of_its_answers(native):
    """Why the cloud is refused. Should this fail, it may be possible now."""
    assert not [name for name in native["cloud"] if "cube" in name]
    assert native["cloud_item"] == []


def test_the_routes_are_those_of_the_installed_server():
    assert _SPEC.origin is not None
    api = Path(_SPEC.origin).parent / "api"
    source = (api / "routers" / "server_router.py").read_text()
    router = set(re.findall(r'@router\.(get|post)\(\s*(?:#[^\n]*\n\s*)?"([^"]+)"', source))
    for method, path in ROUTES.values():
        if path == "/health":
            assert '@app.get("/health")' in (api / "server_api.py").read_text()
        else:
            assert (method.lower(), path.removeprefix("/product")) in router, path
