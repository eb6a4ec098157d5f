"""Messages of other libraries: their words, their calls of tools, and what has no words."""

from types import SimpleNamespace

import pytest

from memory import InputError, Message
from memory.contract.events import read_message

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
