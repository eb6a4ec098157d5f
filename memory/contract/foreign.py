"""Reads the messages of other libraries: dicts and objects of OpenAI, Anthropic, LangChain and the agents' SDKs.

A part without words, such as a picture or a thought, is counted by its kind and never kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memory.contract.errors import InputError

_ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "aimessagechunk": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "function": "tool",
}
# The type of an item of OpenAI's Responses API stands for its role.
_ROLE_OF_TYPE = {"function_call": "assistant", "function_call_output": "tool"}
_TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "TextContent": "content",  # pydantic-ai
}
_CALL_PARTS = ("tool_use", "tool_call", "function_call")


def parts_of(content: object) -> Iterator[tuple[str, str | None, object]]:
    """Yield the kind, the words and the part itself, for each part of a message's content.

    A part is text, a mapping or an object. Its kind is its ``type``, its ``block_type`` (LlamaIndex) or its first
    key (Strands). The words are None if the kind has none. Content that is neither text nor a list has no parts.
    """
    if isinstance(content, str):
        content = [content]
    elif not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        return
    for part in content:
        if isinstance(part, str):
            yield "text", part, part
            continue
        kind = _field(part, "type") or _field(part, "block_type")
        if kind is None:
            kind = next(iter(part), "empty") if isinstance(part, Mapping) else type(part).__name__
        field = _TEXT_PARTS.get(str(kind))
        text = _field(part, field) if field else None
        yield str(kind)[:40], (text if isinstance(text, str) else "") if field else None, part


def fields_of(value: object) -> tuple[dict[str, Any] | None, Counter[str]]:
    """The fields of a message from any supported library, and its parts without words, by kind.

    The fields are None if the message has neither words nor tool calls.

    Raises:
        InputError: the role is unknown, or the content is neither text nor a list of parts.
    """
    left_out: Counter[str] = Counter()
    role = _role(value)
    content = _field(value, "content")
    if content is None:
        content = _field(value, "output")  # a function_call_output of the Responses API
    texts, calls, results = _parts_of(content, left_out)
    refusal = _field(value, "refusal")
    if isinstance(refusal, str) and refusal.strip():
        texts.append(refusal)
    calls += [_plain(call) for call in _field(value, "tool_calls") or ()]
    if old_call := _field(value, "function_call"):
        calls.append(_plain(old_call))
    if _field(value, "type") == "function_call":
        calls.append({name: _field(value, name) for name in ("call_id", "name", "arguments")})
    call_id = _field(value, "tool_call_id") or _field(value, "call_id")
    if results and not texts:  # Anthropic sends tool results as a user message
        role, texts, call_id = "tool", [text for _, text in results], results[0][0]
    elif results:
        left_out["tool_result"] += len(results)
    words = "\n".join(text for text in texts if text.strip())
    if not words.strip() and not calls:
        return None, left_out
    name = _field(value, "name")
    fields = {
        "role": role,
        "content": words,
        "name": name if isinstance(name, str) and role != "assistant" else None,
        "tool_call_id": call_id if role == "tool" and isinstance(call_id, str) else None,
        "tool_calls": tuple(calls) or None,
    }
    return fields, left_out


def _role(value: object) -> str:
    kind = _field(value, "type")
    said = _field(value, "role") or _ROLE_OF_TYPE.get(str(kind)) or kind
    if not isinstance(said, str):
        raise InputError(
            f"a message must be a Message, a dict with role and content, or an object with them; "
            f"this is {type(value).__name__}"
        )
    role = _ROLES.get(said.lower())
    if role is None:
        raise InputError(f"role {said[:40]!r} is not known; it is one of {', '.join(_ROLES)}")
    return role


def _parts_of(
    content: object, left_out: Counter[str]
) -> tuple[list[str], list[dict[str, Any]], list[tuple[str, str]]]:
    """Texts, tool calls, and tool results as (id of the call, text)."""
    if content is None:
        return [""], [], []
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        raise InputError(f"content must be text or a list of parts, not {type(content).__name__}")
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    results: list[tuple[str, str]] = []
    for kind, text, part in parts_of(content):
        if text is not None:
            texts.append(text)
        elif kind in _CALL_PARTS:
            calls.append(_plain(part))
        elif kind == "tool_result":
            inner, _, _ = _parts_of(_field(part, "content"), left_out)
            results.append((str(_field(part, "tool_use_id") or ""), "\n".join(inner)))
        else:
            left_out[kind] += 1
    return texts, calls, results


def _field(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _plain(value: Any) -> dict[str, Any]:
    """A tool call as a plain dict."""
    dump = getattr(value, "model_dump", None)
    found = dump(exclude_none=True) if callable(dump) else value
    if not isinstance(found, Mapping):
        raise InputError(f"a call of a tool must be an object, not {type(value).__name__}")
    return dict(found)
