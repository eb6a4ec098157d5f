"""Filters for the lines between a client and a server over stdio.

They prevent two faults that end or block a server of the SDK: a cancellation that arrives while its request
is answered (modelcontextprotocol/python-sdk#2416), and text that UTF-8 cannot encode.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any

import anyio

_MAX_CANCELLED = 1000


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
            if '"notifications/cancelled"' in text and self._is_cancellation(text):
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
    """Decode a line, without a byte order mark and with U+FFFD in place of unpaired surrogates."""
    text = line.decode("utf-8", "replace").removeprefix("\ufeff")
    if "\\ud" not in text.lower():
        return text
    try:
        message: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    whole = json.dumps(message, ensure_ascii=False).encode("utf-16", "surrogatepass")
    return whole.decode("utf-16", "replace") + "\n"
