"""Filters for the messages between a client and a server.

They prevent three faults of a server of the SDK: a cancellation that arrives while its request is answered
ends it (modelcontextprotocol/python-sdk#2416), text that UTF-8 cannot encode blocks it, and arguments in a
JSON string are refused without a reason.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio

_MAX_CANCELLED = 1000
_AS_TEXT = re.compile(r'"arguments"\s*:\s*"')


class Cancelled:
    """The ids of cancelled requests. Their answers are not sent."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, request_id: object) -> None:
        self._ids[json.dumps(request_id)] = None
        if len(self._ids) > _MAX_CANCELLED:
            self._ids.popitem(last=False)

    def take(self, request_id: object) -> bool:
        """Return whether a request was cancelled, and forget its id."""
        return bool(self._ids) and self._ids.pop(json.dumps(request_id), self) is None


class Incoming:
    """The client's lines without cancellations. The call is finished, but its answer is not sent."""

    def __init__(self, file: anyio.AsyncFile[bytes], cancelled: Cancelled) -> None:
        self._file = file
        self._cancelled = cancelled

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in self._file:
            text = readable(line)
            if not text.strip() or ('"notifications/cancelled"' in text and self._is_cancellation(text)):
                continue
            yield text

    def _is_cancellation(self, text: str) -> bool:
        try:
            message = json.loads(text)
            if message["method"] != "notifications/cancelled":
                return False
            self._cancelled.add(message["params"]["requestId"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return False  # the SDK refuses the malformed message
        return True


class Outgoing:
    """The server's lines, without answers to cancelled requests."""

    def __init__(self, file: anyio.AsyncFile[str], cancelled: Cancelled) -> None:
        self._file = file
        self._cancelled = cancelled

    async def write(self, line: str) -> int:
        if self._cancelled.take(json.loads(line).get("id")):
            return len(line)
        return await self._file.write(line)

    async def flush(self) -> None:
        await self._file.flush()


def readable(line: bytes) -> str:
    """Decode a message, without a byte order mark and with U+FFFD in place of unpaired surrogates.

    Arguments of a tool in a JSON string become an object, which is empty if they are none.
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
        return {}
    return given if isinstance(given, dict) else {}


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
