"""Repairs of a client's messages.

They prevent three faults of a server of the SDK: a cancellation that arrives while its request is answered
ends it (modelcontextprotocol/python-sdk#2416), text that UTF-8 cannot encode blocks it, and arguments in a
JSON string are refused without a reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio

NOT_READ = "arguments that are no JSON object"
"""The one argument of a tool call whose arguments are a string without a JSON object."""
_AS_TEXT = re.compile(r'"arguments"\s*:\s*"')


async def incoming(file: anyio.AsyncFile[bytes]) -> AsyncIterator[str]:
    """Yield a client's lines without cancellations. A cancelled call is finished and answered all the same."""
    async for line in file:
        text = readable(line)
        if text.strip() and not ('"notifications/cancelled"' in text and _is_cancellation(text)):
            yield text


def _is_cancellation(text: str) -> bool:
    try:
        return bool(json.loads(text)["method"] == "notifications/cancelled")
    except (ValueError, KeyError, TypeError, RecursionError):
        return False  # the SDK refuses the malformed message


def readable(line: bytes) -> str:
    """Decode a message, without a byte order mark and with U+FFFD in place of unpaired surrogates.

    Arguments of a tool in a JSON string become an object, with :data:`NOT_READ` if the string holds none.
    """
    text = line.decode("utf-8", "replace").removeprefix("\ufeff")
    as_text = _AS_TEXT.search(text) is not None
    if not as_text and "\\ud" not in text.lower():
        return text
    try:
        message: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    params = message.get("params") if as_text and isinstance(message, dict) else None
    if isinstance(params, dict) and isinstance(params.get("arguments"), str):
        params["arguments"] = _object(params["arguments"])
    whole = json.dumps(message, ensure_ascii=False).encode("utf-16", "surrogatepass")
    return whole.decode("utf-16", "replace") + "\n"


def _object(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    return given if isinstance(given, dict) else {NOT_READ: True}


def readable_body(receive: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """Wrap an ASGI ``receive``, so that a request's body is one :func:`readable` message."""

    async def receive_whole() -> Any:
        body = b""
        while (part := await receive())["type"] == "http.request":
            body += part.get("body", b"")
            if not part.get("more_body"):
                return {**part, "body": readable(body).encode()}
        return part

    return receive_whole
