"""Types of the contract: events refuse what no backend could store; copies, prompts and messages of others."""

from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from pydantic import ConfigDict, PrivateAttr
from slot_support import ALICE, event

from memory import AdapterMode, InputError, MemoryEvent, MemoryScope, MemorySlot, Message, RetrieveRequest
from memory.adapter.fields import Frozen
from memory.contract.events import read_message
from memory.testing import FakeBackend

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
        ({"messages": []}, "MemoryEvent.messages is empty"),
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


class Loose(Frozen):
    model_config = ConfigDict(extra="allow")

    name: str
    _seen: list[str] = PrivateAttr(default_factory=list)


def test_a_copy_keeps_fields_that_are_not_declared_and_private_ones():
    made = Loose(name="a", more="b")
    made._seen.append("c")
    copied = made.model_copy(update={"name": "d"})
    assert (copied.name, copied.more, copied._seen) == ("d", "b", ["c"])
    assert (made.name, copied.model_fields_set) == ("a", {"name", "more"})


def test_a_copy_is_changed_alone():
    made = Loose(name="a", more="b")
    copied = made.model_copy(update={"more": "c"})
    assert (made.more, copied.more) == ("b", "c")


CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("value", "role", "content"),
    [
        ({"role": "user", "content": "Oolong."}, "user", "Oolong."),
        ({"role": "user", "content": [{"type": "text", "text": "Oolong."}]}, "user", "Oolong."),
        ({"role": "developer", "content": "Be brief."}, "developer", "Be brief."),
        ({"role": "function", "name": "find", "content": "3 teas"}, "tool", "3 teas"),
        ({"role": "assistant", "content": None, "refusal": "I cannot."}, "assistant", "I cannot."),
        ({"role": "assistant", "content": "Yes.", "annotations": [{"type": "url"}]}, "assistant", "Yes."),
        ({"type": "human", "content": "Oolong."}, "user", "Oolong."),
        ({"type": "function_call_output", "call_id": "c1", "output": "3 teas"}, "tool", "3 teas"),
        (SimpleNamespace(type="ai", content="Noted.", tool_calls=[]), "assistant", "Noted."),
    ],
)
def test_the_words_of_a_message_are_taken(value, role, content):
    message = Message.from_any(value)
    assert (message.role, message.content) == (role, content)


def test_the_words_of_an_openai_message_are_taken():
    from openai.types.chat import ChatCompletionMessage

    message = Message.from_any(ChatCompletionMessage(role="assistant", content="Noted."))
    assert (message.role, message.content) == ("assistant", "Noted.")


@pytest.mark.thorough
def test_the_words_of_an_anthropic_message_are_taken():
    from anthropic.types import Message as AnthropicMessage

    said = [SimpleNamespace(type="text", text="Noted.")]
    message = Message.from_any(
        AnthropicMessage.model_construct(role="assistant", type="message", content=said)
    )
    assert (message.role, message.content) == ("assistant", "Noted.")


def test_a_call_beside_an_empty_content_is_kept():
    message = Message.from_any({"role": "assistant", "content": None, "tool_calls": [CALL]})
    assert message.tool_calls == (CALL,)
    use = {"type": "tool_use", "id": "t1", "name": "find", "input": {}}
    assert Message.from_any({"role": "assistant", "content": [use]}).tool_calls == (use,)


def test_a_result_in_a_users_message_is_a_tools():
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "3 teas"}]}
    message = Message.from_any({"role": "user", "content": [result]})
    assert (message.role, message.content, message.tool_call_id) == ("tool", "3 teas", "t1")


def test_parts_without_words_are_counted_and_named():
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    message, left_out = read_message({"role": "user", "content": [image, {"type": "text", "text": "Which?"}]})
    assert (message.content, left_out) == ("Which?", {"image_url": 1})
    assert read_message({"role": "user", "content": [image, image]}) == (None, {"image_url": 2})
    with pytest.raises(InputError, match="no words \\(2 image_url\\)"):
        Message.from_any({"role": "user", "content": [image, image]})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (7, "must be a Message"),
        ({"content": "x"}, "must be a Message"),
        ({"role": "boss", "content": "x"}, "role 'boss' is not known"),
        ({"role": "user", "content": 7}, "content must be text or a list"),
        ({"role": "assistant", "content": "", "tool_calls": ["x"]}, "a call of a tool must be an object"),
    ],
)
def test_anything_else_is_refused_by_its_field(value, said):
    with pytest.raises(InputError, match=said):
        Message.from_any(value)


async def test_receipts_and_results_are_short_and_hold_nothing_that_was_said():
    slot = MemorySlot(FakeBackend())
    async with slot:
        await slot.setup_scope(ALICE)
        receipt = await slot.record_event(event(1, text="my secret tea"))
        found = await slot.retrieve(RetrieveRequest(query="secret tea", scope=ALICE, session_id="s"))
        answers = [receipt, found, found.trace, await slot.health()]
        assert (
            repr(slot), str(receipt)
        ) == (
            "<MemorySlot of fake>",
            f"WriteReceipt(event_id={receipt.event_id!r}, status='committed', native_ids={receipt.native_ids!r})",
        )  # fmt: skip
        await slot.set_mode(AdapterMode(read_only=True))
        assert repr(slot) == "<MemorySlot of fake, read-only>"
    assert found.entries, "there was something to show"
    for answer in answers:
        assert "secret" not in repr(answer) + str(answer)
        assert "=None" not in repr(answer).replace(repr(ALICE), "")
    assert len(repr(found)) < 100
