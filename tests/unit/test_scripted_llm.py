"""The scripted LLM, through the clients that will use it: the openai SDK, mem0's prompts, plain HTTP."""

from __future__ import annotations

import json
from typing import Literal

import httpx
import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from memory.testing import FAKE_KEY, ScriptedLLM

SECRET_TEXT = "my diary says marmalade"


@pytest.fixture
def client(llm):
    with OpenAI(base_url=llm.base_url, api_key="unused", max_retries=0, timeout=60) as opened:
        yield opened


def ask(client, *messages, **more):
    reply = client.chat.completions.create(
        model="scripted", messages=[{"role": role, "content": text} for role, text in messages], **more
    )
    return reply.choices[0].message.content


def context(*entries):
    return '<memory-context backend="x" scope="s">\n' + "\n".join(entries) + "\n</memory-context>"


def test_answers_from_the_memory_context_and_from_nothing_else(client):
    memory = context("- (2024-01-01 10:00, #a1) I drink oolong tea.", "- I own a red bicycle.")
    assert ask(client, ("system", memory), ("user", "Which tea do I drink?")) == "I drink oolong tea."
    assert ask(client, ("user", f"{memory}\n\nWhat colour is my bicycle?")) == "I own a red bicycle."
    assert ask(client, ("user", "Which tea do I drink?")) == "I do not know."
    assert ask(client, ("system", memory), ("user", "Who won the match?")) == "I do not know."
    assert ask(client, ("user", "I moved to Berlin.")) == "Understood."


def test_the_newer_of_two_equally_fitting_memories_wins(client):
    old, new = "- (2024-01-01 10:00) I live in Paris.", "- (2024-03-01 09:00) I live in Berlin."
    for order in ((old, new), (new, old)):
        assert ask(client, ("system", context(*order)), ("user", "Where do I live?")) == "I live in Berlin."


def test_summaries_are_extractive_and_keep_to_max_tokens(client):
    order = "Summarize the conversation.\n\n"
    said = "- I like jazz.\n[10:00] USER: I play the oboe. Do you?\n[10:01] ASSISTANT: I do not."
    assert ask(client, ("user", order + said)) == "- I like jazz.\n- I play the oboe."
    assert ask(client, ("user", order + said), max_tokens=4) == "- I like jazz."


class Preference(BaseModel):
    strength: Literal["weak", "strong"]
    since: str | None
    examples: list[str]
    parent: Preference | None = None


def test_any_other_schema_gets_a_valid_instance(client):
    reply = client.chat.completions.parse(
        model="scripted", messages=[{"role": "user", "content": "go"}], response_format=Preference
    )
    assert reply.choices[0].message.parsed == Preference(strength="weak", since=None, examples=[])


def test_embeddings_are_lexical_unit_vectors_in_both_encodings(client, llm):
    texts = ["I drink oolong tea", "oolong tea is what I drink", "quarterly revenue report"]
    packed = client.embeddings.create(model="e", input=texts, dimensions=256)
    plain = client.embeddings.create(model="e", input=texts, dimensions=256, encoding_format="float")
    assert llm.bodies("embeddings")[0]["encoding_format"] == "base64"
    first, second, third = (item.embedding for item in plain.data)
    assert packed.data[0].embedding == pytest.approx(first, abs=1e-6)
    assert sum(x * x for x in first) == pytest.approx(1.0)

    def likeness(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert likeness(first, second) > 0.8 > 0.3 > likeness(first, third)
    assert len(client.embeddings.create(model="e", input="x").data[0].embedding) == 1536
    assert len(client.embeddings.create(model="e", input=[[1, 2], [3]]).data) == 2


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("401", openai.AuthenticationError),
        ("403", openai.PermissionDeniedError),
        ("429", openai.RateLimitError),
        ("500", openai.InternalServerError),
        ("reset", openai.APIConnectionError),
        ("truncated", openai.APIConnectionError),
        ("late", openai.APITimeoutError),
    ],
)
def test_faults_look_real_to_the_sdk_and_then_pass(llm, kind, error):
    with OpenAI(base_url=llm.base_url, api_key="unused", max_retries=0, timeout=30) as client:
        llm.faults.add(kind, endpoint="chat/completions", delay_s=60)
        assert client.embeddings.create(model="e", input="not this endpoint").data
        with pytest.raises(error) as raised:
            ask(client.with_options(timeout=0.3) if kind == "late" else client, ("user", SECRET_TEXT))
        if isinstance(raised.value, openai.APIStatusError):
            assert SECRET_TEXT in str(raised.value)
            assert FAKE_KEY in str(raised.value)
            assert raised.value.request_id
        if kind == "429":
            assert float(raised.value.response.headers["retry-after"]) > 0
        assert [fault.kind for fault in llm.faults.fired] == [kind]
        assert ask(client, ("user", "I am fine.")) == "Understood."


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("chat/completions", {"messages": []}, 400),
        ("chat/completions", {"messages": [{"role": "user", "content": "x"}], "stream": True}, 400),
        ("chat/completions", [1], 400),
        ("embeddings", {"input": []}, 400),
        ("embeddings", {"input": "x", "dimensions": 0}, 400),
        ("nowhere", {}, 404),
    ],
)
def test_malformed_requests_are_refused(llm, path, body, status):
    assert httpx.post(f"{llm.base_url}/{path}", json=body).status_code == status


def test_a_body_nested_too_deep_is_refused_like_one_that_is_no_json(llm):
    for body in ("{", "[" * 200_000):
        answer = httpx.post(f"{llm.base_url}/chat/completions", content=body, trust_env=False)
        assert answer.status_code == 400


def test_own_rules_come_first_and_broken_ones_are_reported():
    def mine(request):
        if request.last_user == "boom":
            raise KeyError("gone")
        return {"mine": True} if "mine" in request.last_user else None

    with (
        ScriptedLLM(rules=[mine]) as llm,
        OpenAI(base_url=llm.base_url, api_key="k", max_retries=0) as client,
    ):
        assert json.loads(ask(client, ("user", "mine"))) == {"mine": True}
        assert ask(client, ("user", "other")) == "Understood."
    server = ScriptedLLM(rules=[mine])
    server.__enter__()
    boom = {"messages": [{"role": "user", "content": "boom"}]}
    assert httpx.post(f"{server.base_url}/chat/completions", json=boom).status_code == 500
    with pytest.raises(RuntimeError, match="ScriptedLLM is broken") as raised:
        server.__exit__(None, None, None)
    assert isinstance(raised.value.__cause__, KeyError)
