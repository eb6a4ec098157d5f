"""Reads the answers of language models that were asked for JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice

from pydantic import JsonValue

from memory.contract.errors import BackendProtocolError

_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_MOST_PLACES = 100  # limit of places to look for JSON in prose; bounds the time for hostile text


def json_of_answer(
    content: object, *, finish_reason: object = None
) -> dict[str, JsonValue] | list[JsonValue]:
    """The JSON object or list in a model's answer, after ``<think>…</think>``, in a code fence or in prose.

    Raises:
        BackendProtocolError: there is none. The message describes the answer, but never quotes it.
    """
    if not isinstance(content, str) or not content.strip("\ufeff \t\r\n"):
        raise _unreadable("is empty", finish_reason)
    _, thought, after = content.rpartition("</think>")
    text = (after if thought else content).strip("\ufeff \t\r\n")
    if text.startswith("<think>"):
        raise _unreadable("ends before its <think> part does", finish_reason)
    for candidate in (text, *_FENCE.findall(text)):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, (dict, list)):
            return found
        raise _unreadable("is JSON, but neither an object nor a list", finish_reason)
    # If the outer value was cut, a value inside it is not the answer. An empty value in prose may be such a part.
    whole = not text.startswith(("{", "[")) and finish_reason != "length"
    if values := [pair for pair in _values_in(text) if pair[1]] if whole else []:
        return max(values, key=lambda pair: pair[0])[1]
    if _OPENING.search(text):
        raise _unreadable("holds JSON that is incomplete or malformed", finish_reason)
    raise _unreadable("holds no JSON", finish_reason)


def _values_in(text: str) -> Iterator[tuple[int, dict[str, JsonValue] | list[JsonValue]]]:
    """Objects and lists in a text, each with its length in characters."""
    decoder, end = json.JSONDecoder(), 0
    for opening in islice(_OPENING.finditer(text), _MOST_PLACES):
        if opening.start() < end:
            continue
        try:
            found, end = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            continue
        yield end - opening.start(), found


def _unreadable(what: str, finish_reason: object) -> BackendProtocolError:
    why = {
        "length": "; it was cut at max_tokens",
        "content_filter": "; the provider's content filter ended it",
    }.get(str(finish_reason), "")
    return BackendProtocolError(f"the model's answer {what}{why}")
