"""Errors of a model say why it failed, and never what a user said."""

import contextvars
import json

import httpx
import openai
import pytest

from memory import BackendTimeout
from memory.adapter import (
    OPENAI_ERRORS,
    BackendProtocolError,
    BackendRateLimited,
    BackendRejected,
    normalise_error,
)
from memory.adapter.models import counted_openai, json_of_answer

SECRET = "my dog is called Biscuit"


def answering(status, body, **request):
    """What the SDK does with such an answer; raises what it raises."""

    def answer(asked):
        if isinstance(body, Exception):
            raise body
        if isinstance(body, str):
            return httpx.Response(status, text=body, headers={"content-type": "text/html"})
        return httpx.Response(status, json=body)

    client = openai.OpenAI(api_key="unused", base_url="http://model.test/v1", max_retries=0)
    with counted_openai(client, timeout=54.0) as counted:
        counted._client._transport = httpx.MockTransport(answer)
        counted._client._mounts = {}
        return counted.chat.completions.create(
            model="m", messages=[{"role": "user", "content": SECRET}], **request
        )


def error_of(status, error):
    with pytest.raises(openai.OpenAIError) as caught:
        answering(status, error if isinstance(error, Exception) else {"error": error})
    return normalise_error(caught.value, backend_name="mem0", operation="record_event", table=OPENAI_ERRORS)


@pytest.mark.parametrize(
    ("status", "error", "why"),
    [
        (
            400,
            {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 8734, "n_ctx": 8192},
            "the prompt has 8,734 tokens, the model accepts 8,192",
        ),
        (
            400,
            {
                "message": "This model's maximum context length is 8192 tokens, however you requested 12000 tokens"
            },
            "the prompt has 12,000 tokens, the model accepts 8,192",
        ),
        (
            400,
            {
                "message": f"maximum context length is 4096 tokens: {SECRET}",
                "code": "context_length_exceeded",
            },
            "the prompt is longer than the model's context, which is 4,096 tokens",
        ),
        (429, {"code": "insufficient_quota", "type": "insufficient_quota"}, "the quota is used up"),
        (429, {"code": "rate_limit_exceeded", "type": "requests"}, "rate limited"),
        (400, {"code": "unsupported_value", "param": "temperature"}, "does not take this temperature"),
        (400, {"code": "content_filter", "param": "prompt"}, "content filter refused the prompt"),
        (404, {"code": "model_not_found"}, "the endpoint has no model of this name"),
        (400, {"code": "odd_code", "type": SECRET, "param": SECRET}, ": odd_code"),
    ],
)
def test_the_reason_is_in_the_message_and_the_users_words_are_not(status, error, why):
    failure = error_of(status, {"message": SECRET, **error})
    assert why in str(failure)
    assert "Biscuit" not in f"{failure} {failure.diagnostics}"
    assert type(failure) is (BackendRateLimited if status == 429 else BackendRejected)


def test_a_timeout_says_how_long_and_what_to_raise():
    failure = error_of(0, httpx.ReadTimeout("slow"))
    limits = "deadlines.write_s and retrieve_s (or timeout_s, if its block has it)"
    assert f"timed out after 54 s; raise {limits}, or use a faster model" in str(failure)
    assert type(failure) is BackendTimeout


def completion(content, finish):
    message = {"role": "assistant", "content": content}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


TOOL = {"type": "function", "function": {"name": "save", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("body", "request_options", "why"),
    [
        (completion('{"memory": [{"te', "length"), {}, "the answer was cut at max_tokens"),
        (completion("Sure!", "stop"), {"tools": [TOOL]}, "the model did not call the tool"),
        ("<html>hello</html>", {}, "the endpoint did not answer with JSON; check base_url"),
    ],
)
def test_an_answer_that_nobody_can_read_says_what_was_wrong_with_it(body, request_options, why):
    def read():
        answer = answering(200, body, **request_options)
        with pytest.raises((ValueError, AttributeError, TypeError)) as caught:
            json.loads(answer.choices[0].message.content)
        return normalise_error(caught.value, backend_name="mem0", operation="record_event")

    assert why in str(contextvars.copy_context().run(read))


def test_an_answer_explains_no_error_of_another_call():
    def read():
        answering(200, completion("{", "length"))
        return error_of(401, {"code": "invalid_api_key"})

    assert "invalid_api_key" in str(contextvars.copy_context().run(read))


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
