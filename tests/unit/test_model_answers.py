"""JSON in the answers of language models."""

import json

import pytest

from memory.adapter import BackendProtocolError
from memory.adapter.models import json_of_answer

WANTED = {"facts": [{"text": 'I keep {it} in a "box" [1]'}]}
TEXT = json.dumps(WANTED)


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        "\ufeff" + TEXT,
        f" \n{TEXT}\n ",
        f'<think>\nthe user said {{"x": [1]}}\n</think>\n\n{TEXT}',
        f"Okay, let me see.\n</think>\n{TEXT}",
        f"```json\n{TEXT}\n```",
        f"Here you go:\n```\n{TEXT}\n```\nExplanation: {{one}} fact.",
        f"Here are [1] fact: {TEXT} I hope {{this}} helps!",
    ],
)
def test_an_object_is_found(content):
    assert json_of_answer(content) == WANTED


@pytest.mark.parametrize(
    ("content", "reason", "said"),
    [
        (None, "stop", "is empty"),
        ("\ufeff \n", "stop", "is empty"),
        (TEXT[:-5], "stop", "holds JSON that is incomplete or malformed"),
        (TEXT[:-5], "length", "incomplete or malformed; it was cut at max_tokens"),
        (f"Here: {TEXT[:-5]}", "length", "incomplete or malformed; it was cut at max_tokens"),
        ("zqsecret", "content_filter", "holds no JSON; the provider's content filter ended it"),
        ("17", "stop", "is JSON, but neither an object nor a list"),
        ("<think>zqsecret", "length", "ends before its <think> part does; it was cut at max_tokens"),
    ],
)
def test_an_error_says_what_is_wrong_and_not_what_was_said(content, reason, said):
    with pytest.raises(BackendProtocolError) as raised:
        json_of_answer(content, finish_reason=reason)
    assert said in str(raised.value)
    assert "zqsecret" not in str(raised.value)
