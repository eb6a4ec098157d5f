"""Which fields of an event each backend keeps. A field that is added later is decided on here, for each of them."""

import ast
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

import memory
from memory import MemoryEvent, MemoryScope, Message
from memory.adapter import AdapterSettings
from memory.backends.mcp.adapter import McpAdapter
from memory.backends.mcp.options import McpOptions
from memory.contract._model import words_of

ROOM = Path(memory.__file__).parent / "backends"
EVERY = set(MemoryEvent.model_fields) | {f"message.{name}" for name in Message.model_fields}
FULL = MemoryEvent(
    event_id="e", scope=MemoryScope(run_id="r", persona_id="p"), session_id="s", turn_id="t", metadata={"k": 1},
    timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    messages=(Message(role="tool", content="Done.", name="kettle", tool_call_id="c", tool_calls=({"id": "c"},)),),
    **{name: "x" for name in words_of(MemoryEvent) if name != "metadata"},
)  # fmt: skip
LEFT_OUT = {
    "mem0": {
        "message.tool_calls": "mem0's messages are role and content",
        "message.tool_call_id": "mem0's messages are role and content",
    },
    "graphiti": {
        "message.tool_calls": "an episode is a text",
        "message.tool_call_id": "an episode is a text",
    },
    "honcho": {},
    "memos": {},
    "stigmem": {},
}


def read_by(backend):
    """Names of attributes that a backend's modules read."""
    return {
        node.attr
        for path in (ROOM / backend).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }


@pytest.mark.parametrize("backend", LEFT_OUT)
def test_every_field_is_kept_or_left_out_with_a_reason(backend):
    read, left_out = read_by(backend), LEFT_OUT[backend]
    assert left_out.keys() <= EVERY
    for field in EVERY - left_out.keys():
        name = "labels" if field in FULL.labels else field.removeprefix("message.")
        assert name in read, f"{backend} reads {field} nowhere: keep it, or say here why not"
    for field in left_out:
        assert field.removeprefix("message.") not in read, f"{backend} reads {field} by now"


def test_an_mcp_server_is_handed_every_field(tmp_path):
    """Event and message as JSON, so that a field that is added later is among them."""
    options = McpOptions(preset="server-memory", command=["x"])
    adapter = McpAdapter(AdapterSettings(name="mcp", kind="architecture", options=options, data_dir=tmp_path))
    (values,) = adapter._values(FULL)
    handed = {field.removeprefix("message.") for field in EVERY} - {"scope", "messages", "content"}
    assert values["text"] == "Done."
    assert json.loads(values["fields"]).keys() >= handed


def test_a_field_nobody_has_decided_on_is_noticed():
    assert "mood" not in read_by("mem0") | read_by("graphiti")
    assert FULL.labels.keys() >= {"turn_id", "agent_id", *FULL.cs_fields}
    assert {"message.tool_calls", "metadata", "timestamp"} <= EVERY
