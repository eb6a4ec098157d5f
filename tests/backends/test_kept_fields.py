"""Which fields of an event each backend keeps. A field that is added later is decided on here, for each of them."""

import json
from datetime import UTC, datetime

import pytest
from backends import of_backend

from memory import MemoryEvent, MemoryScope, Message
from memory.contract._model import words_of

EVENT = MemoryEvent(
    event_id="the-event_id", scope=MemoryScope(run_id="r", persona_id="p"), session_id="the-session_id",
    turn_id="the-turn_id", agent_id="the-agent_id", timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    messages=(
        Message(role="user", content="the-message.content", name="the-message.name"),
        Message(role="assistant", content="Wait.", tool_calls=({"id": "the-message.tool_calls"},)),
        Message(role="tool", content="Done.", tool_call_id="the-message.tool_call_id"),
    ),
    metadata={"key": "the-metadata"},
    **{name: f"the-{name}" for name in words_of(MemoryEvent) if name != "metadata"},
)  # fmt: skip
ELSEWHERE = {
    "scope": "becomes native ids, which the kit compares",
    "timestamp": "becomes the native time, which the kit reads",
    "messages": "are the fields below",
    "message.role": "becomes a native role, or a word of the text",
}
FIELDS = [*MemoryEvent.model_fields, *(f"message.{name}" for name in Message.model_fields)]


def mem0(event):
    translate = of_backend("mem0.translate")
    return translate.native_messages(event, infer=False), translate.event_metadata(event)


def graphiti(event):
    translate = of_backend("graphiti.translate")
    return translate.episode_body(event, "message", cs_in_body=False), translate.description(event)


def honcho(event):
    return [(part.content, part.metadata) for part in of_backend("honcho.translate").event_parts(event)]


def memos(event):
    options = of_backend("memos.options:MemosOptions")(graph_db="postgres")
    return of_backend("memos.translate:Requests")(options).add(event, "cube")


def stigmem(event):
    ids = of_backend("stigmem.client:ScopeIds")("s", 0, marked=True)
    return [
        fact.model_dump(mode="json") for fact in of_backend("stigmem.translate").message_facts(event, ids)
    ]


SENT = {"mem0": mem0, "graphiti": graphiti, "honcho": honcho, "memos": memos, "stigmem": stigmem}


@pytest.mark.parametrize("backend", SENT)
def test_every_field_is_kept(backend):
    """Spec 1: an adapter keeps every field as traceable metadata."""
    sent = json.dumps(SENT[backend](EVENT))
    assert not [field for field in set(FIELDS) - ELSEWHERE.keys() if f"the-{field}" not in sent]


def test_a_field_nobody_has_decided_on_is_noticed():
    assert not any("the-mood" in json.dumps(translate(EVENT)) for translate in SENT.values())
    assert {"scenario", "metadata", "message.tool_calls"} <= set(FIELDS)
    assert set(EVENT.labels) <= set(FIELDS)
