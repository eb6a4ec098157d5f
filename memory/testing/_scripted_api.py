"""The OpenAI-compatible endpoints of the scripted LLM as plain functions: parsed body in, JSON body out."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from memory.adapter._lexical import LexicalHashEmbedder
from memory.adapter._scripted_rules import ChatMessage, ChatRequest, Choice, Reply, Rule, ToolCall, answer
from memory.adapter._scripted_text import estimate_tokens

Body = Mapping[str, Any]
_embedder = lru_cache(maxsize=4)(LexicalHashEmbedder)
_DIMENSIONS = range(64, 8193)


class BadRequest(Exception):
    """The request is malformed; answered with 400 and this message."""


def chat_completions(body: Body, rules: Sequence[Rule]) -> dict[str, Any]:
    tools = [_nested(tool) for tool in body.get("tools") or ()]
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        raise BadRequest("top_logprobs needs logprobs=true")
    request = _chat_request(body, _messages(body.get("messages")), body.get("response_format"), tools)
    reply = answer(request, rules)
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    if isinstance(reply, ToolCall):
        choice["finish_reason"] = "tool_calls"
        message["tool_calls"] = [{"id": _id("call", body), "type": "function", "function": _function(reply)}]
    else:
        message["content"] = _text(reply)
    if body.get("logprobs"):
        choice["logprobs"] = _logprobs(reply, body.get("top_logprobs") or 0)
    usage = _usage(request.text, _text(reply))
    made = {"id": _id("chatcmpl", body), "object": "chat.completion", "created": int(time.time())}
    return {**made, "model": request.model, "choices": [choice], "usage": usage}


def embeddings(body: Body, rules: Sequence[Rule]) -> dict[str, Any]:
    """``POST /v1/embeddings``; text, tokens, or lists of either."""
    given = body.get("input")
    single = isinstance(given, str) or (isinstance(given, list) and bool(given) and isinstance(given[0], int))
    texts = [given] if single else given
    if not isinstance(texts, list) or not texts or any(item in ("", []) for item in texts):
        raise BadRequest("input must be a text or a non-empty list of texts")
    dimensions = body.get("dimensions", 3072 if "large" in str(body.get("model")) else 1536)
    if dimensions not in _DIMENSIONS:
        raise BadRequest(f"dimensions must be a number from {_DIMENSIONS[0]} to {_DIMENSIONS[-1]}")
    words = [item if isinstance(item, str) else " ".join(map(str, item)) for item in texts]
    vectors: list[Any] = list(map(_embedder(dimensions).embed, words))
    if body.get("encoding_format") == "base64":  # of little-endian float32
        vectors = [base64.b64encode(struct.pack(f"<{dimensions}f", *vector)).decode() for vector in vectors]
    data = [{"object": "embedding", "index": index, "embedding": each} for index, each in enumerate(vectors)]
    usage = _usage(" ".join(words), "")
    return {"object": "list", "model": body.get("model", "scripted"), "data": data, "usage": usage}


def models(body: Body, rules: Sequence[Rule]) -> dict[str, Any]:
    names = ("scripted", "scripted-embedding")
    same = {"object": "model", "created": 0, "owned_by": "memslot", "context_length": 32_768}
    data = [{"id": name, **same} for name in names]
    return {"object": "list", "data": data}


# Path below ``/v1/`` -> HTTP method and function.
ENDPOINTS: Mapping[str, tuple[str, Callable[[Body, Sequence[Rule]], dict[str, Any]]]] = {
    "chat/completions": ("POST", chat_completions),
    "embeddings": ("POST", embeddings),
    "models": ("GET", models),
}


def user_text(body: Any) -> str:
    """The words of the request. Error answers repeat them, as real endpoints do."""
    given = isinstance(body, Mapping) and (body.get("messages") or body.get("input"))
    last = given[-1] if isinstance(given, list) and given else given
    return _joined(last.get("content") if isinstance(last, Mapping) else last)


def _chat_request(
    body: Body, messages: tuple[ChatMessage, ...], wanted: Any, tools: list[Mapping[str, Any]]
) -> ChatRequest:
    if body.get("stream"):
        raise BadRequest("the scripted LLM does not stream; send stream=false")
    if not messages:
        raise BadRequest("there is no message to answer")
    schema, kind = (wanted or {}).get("json_schema") or {}, (wanted or {}).get("type")
    if kind == "json_object":
        # A schema that ends the prompt, as clients write it where only ``json_object`` is known.
        text, _, given = messages[-1].text.rpartition("\n\n{")
        with suppress(ValueError, RecursionError):
            found = json.loads("{" + given)
            if "properties" in found:
                schema = {"name": found.get("title"), "schema": found}
                messages = (*messages[:-1], ChatMessage(messages[-1].role, text))
    offered = {str(tool.get("name")): tool.get("parameters") or {} for tool in tools if tool.get("name")}
    return ChatRequest(
        messages=messages,
        model=str(body.get("model", "scripted")),
        schema_name=schema.get("name"),
        schema=schema.get("schema"),
        json_mode=kind in ("json_object", "json_schema"),
        tools=offered,
        forced_tool=_forced(body.get("tool_choice"), offered),
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
    )


def _logprobs(reply: Reply, top: int) -> dict[str, Any]:
    """The probabilities of a choice's words. All other answers are certain."""
    said = [reply.ranked] if isinstance(reply, Choice) else [[(word, 1.0)] for word in _text(reply).split()]
    ranked = [[_logprob(token, odds) for token, odds in choices] for choices in said]
    return {"content": [{**choices[0], "top_logprobs": choices[:top]} for choices in ranked]}


def _logprob(token: str, odds: float) -> dict[str, Any]:
    return {"token": token, "logprob": math.log(max(odds, 1e-9)), "bytes": list(token.encode())}


def _forced(choice: Any, offered: Mapping[str, Any]) -> str | None:
    if choice == "required":
        return next(iter(offered), None)
    if not isinstance(choice, Mapping):
        return None
    name = _nested(choice).get("name")
    if name not in offered:
        raise BadRequest("tool_choice names a function that tools does not offer")
    return str(name)


def _nested(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Chat completions nest a function under ``function``; responses do not."""
    inner = tool.get("function", tool)
    return inner if isinstance(inner, Mapping) else {}


def _messages(given: Any) -> tuple[ChatMessage, ...]:
    if not isinstance(given, list):
        raise BadRequest("messages must be a list")
    return tuple(
        ChatMessage(str(item.get("role", "")), _joined(item.get("content")))
        for item in given
        if isinstance(item, Mapping)
    )


def _joined(content: Any) -> str:
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    parts = (part.get("text") if isinstance(part, Mapping) else part for part in content)
    return "\n".join(part for part in parts if isinstance(part, str))


def _text(reply: Reply) -> str:
    if isinstance(reply, ToolCall):
        return _function(reply)["arguments"]
    if isinstance(reply, Choice):
        return reply.ranked[0][0]
    return reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False)


def _function(call: ToolCall) -> dict[str, str]:
    return {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}


def _usage(prompt: str, reply: str) -> dict[str, Any]:
    sent, said = estimate_tokens(prompt), estimate_tokens(reply)
    return {"prompt_tokens": sent, "completion_tokens": said, "total_tokens": sent + said}


def _id(prefix: str, body: Body) -> str:
    digest = hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=12).hexdigest()
    return f"{prefix}-{digest}"
