"""Events refuse what no backend could store, in one line that never repeats what the user said."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from memory import InputError, MemoryEvent, MemoryScope, Message

SECRET = "sk-very-secret-sentence"


def fields(**changes):
    event = {
        "event_id": "e1",
        "run_id": "run1",
        "user_id": "alice",
        "session_id": "s1",
        "turn_id": "t1",
        "timestamp": datetime(2024, 1, 1, tzinfo=UTC),
        "messages": [{"role": "user", "content": "hello"}],
    }
    return {**event, **changes}


def test_the_flat_form_of_the_specification_names_a_scope():
    event = MemoryEvent(**fields())
    assert event.scope == MemoryScope(run_id="run1", persona_id="alice")
    assert (event.run_id, event.user_id) == ("run1", "alice")


def test_scope_and_flat_ids_may_not_contradict():
    scope = MemoryScope(run_id="run1", persona_id="alice", agent_id="planner")
    assert MemoryEvent(**fields(scope=scope)).scope.agent_id == "planner"
    with pytest.raises(InputError, match="contradict scope"):
        MemoryEvent(**fields(scope=scope, user_id="bob"))


def test_an_event_survives_json():
    event = MemoryEvent(**fields(metadata={"n": [1, None, {"deep": True}]}, context="work"))
    assert MemoryEvent.model_validate_json(event.model_dump_json()) == event


def test_time_is_kept_in_utc():
    there = timezone(timedelta(hours=8))
    event = MemoryEvent(**fields(timestamp=datetime(2024, 1, 1, 8, tzinfo=there)))
    assert event.timestamp == datetime(2024, 1, 1, tzinfo=UTC)
    assert event.timestamp.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"timestamp": datetime(2024, 1, 1)}, "MemoryEvent.timestamp: must be timezone-aware"),
        ({"messages": []}, "MemoryEvent.messages: is empty"),
        ({"messages": [{"role": "user", "content": "  "}]}, "MemoryEvent.messages.0: content is blank"),
        ({"messages": [{"role": "robot", "content": SECRET}]}, "MemoryEvent.messages.0.role: "),
        ({"messages": [{"role": "user", "content": f"{SECRET}\ud800"}]}, "messages.0.content: holds half"),
        ({"event_id": " "}, "MemoryEvent.event_id: must not be blank"),
        ({"turn_id": "t" * 600}, "MemoryEvent.turn_id: is 600 characters long"),
        ({"user_id": "*"}, "persona_id holds the wildcard"),
        ({"metadata": {"when": object(), "note": SECRET}}, "MemoryEvent.metadata.when"),
        ({"metadata": {"score": float("nan"), "note": SECRET}}, "MemoryEvent.metadata: must be JSON"),
        ({"metadata": {SECRET: "\ud800"}}, "MemoryEvent.metadata: must be JSON"),
        ({"metadata": {SECRET: object()}}, "MemoryEvent.metadata: "),
        ({"metadata": {"a": {SECRET: object()}}}, "MemoryEvent.metadata.a"),
        ({"mood": SECRET}, "MemoryEvent.mood: is not a known field"),
    ],
)
def test_bad_input_names_field_and_fix_and_nothing_else(change, complaint):
    with pytest.raises(InputError) as caught:
        MemoryEvent(**fields(**change))
    message = str(caught.value)
    assert complaint in message
    assert SECRET not in message
    assert "\n" not in message
    assert caught.value.__cause__ is None


def test_a_message_of_tool_calls_alone_is_fine():
    message = Message(role="assistant", tool_calls=({"name": "lookup", "arguments": {}},))
    assert message.content == ""


def test_events_are_immutable():
    event = MemoryEvent(**fields())
    with pytest.raises(ValueError, match="frozen"):
        event.session_id = "other"
