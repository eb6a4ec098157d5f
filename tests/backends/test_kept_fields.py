"""Which fields of an event each backend keeps. A field that is added later is decided on here, for each of them."""

import ast
from pathlib import Path

import pytest

import memory
from memory import MemoryEvent, Message

ROOM = Path(memory.__file__).parent / "backends"
EVERY = set(MemoryEvent.model_fields) | {f"message.{name}" for name in Message.model_fields}
LABELS = {"scenario", "context", "attribute"}  # read together, as ``event.cs_fields``
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
        name = "cs_fields" if field in LABELS else field.removeprefix("message.")
        assert name in read, f"{backend} reads {field} nowhere: keep it, or say here why not"
    for field in left_out:
        assert field.removeprefix("message.") not in read, f"{backend} reads {field} by now"


def test_a_field_nobody_has_decided_on_is_noticed():
    assert "mood" not in read_by("mem0") | read_by("graphiti")
    assert {
        "event_id", "scope", "agent_id", "session_id", "turn_id", "timestamp", "messages", "metadata", *LABELS,
        "message.role", "message.content", "message.name", "message.tool_call_id", "message.tool_calls",
    } == EVERY  # fmt: skip
