"""Transcripts that clients send, or name where the server may read them."""

from __future__ import annotations

import re
from pathlib import Path

from memory.contract.events import Message

_TURN = re.compile(r"^(?P<role>User|Assistant): ", re.M)
_MAX_TRANSCRIPT_BYTES = 5_000_000


def turns_of(transcript: str) -> list[Message]:
    """``User: ...`` and ``Assistant: ...`` paragraphs as messages."""
    parts = _TURN.split(transcript.encode("utf-8", "replace").decode())[1:]
    return [
        Message(role="user" if role == "User" else "assistant", content=text.strip())
        for role, text in zip(parts[::2], parts[1::2], strict=True)
        if text.strip()
    ]


def transcript_in(directory: Path | None, path: str) -> str | None:
    """A file below a directory; None where it is no file there, or no directory is given."""
    if directory is None:
        return None
    try:
        file = Path(path).resolve(strict=True)
        if not file.is_relative_to(directory.resolve()) or not file.is_file():
            return None
        with file.open("rb") as opened:
            return opened.read(_MAX_TRANSCRIPT_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
