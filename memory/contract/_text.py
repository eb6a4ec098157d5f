"""Text on its way to and from a store: Unicode's normal forms in linear time, no NUL, times read back."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, cast

T = TypeVar("T")

# Text that may hold a run of combining marks; the two halfwidth ones pass for letters.
_MARKS = re.compile(r"(?:[^\w\s]|[\uff9e\uff9f]){32,}+")
_MAX_MARKS = 30  # as Unicode's Stream-Safe Text Format (UAX 15) allows; no script needs more than a few


def normalise(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """``unicodedata.normalize``, of text whose runs of combining marks are cut to the first thirty.

    Normalising sorts such a run by insertion: 40,000 marks would hold the interpreter's lock for 20 s.
    """
    return unicodedata.normalize(form, text if text.isascii() else _MARKS.sub(_bounded, text))


def _bounded(found: re.Match[str]) -> str:
    kept: list[str] = []
    marks = 0
    for char in found.group():
        marks = marks + 1 if unicodedata.category(char)[0] == "M" or char in "\uff9e\uff9f" else 0
        if marks <= _MAX_MARKS:
            kept.append(char)
    return "".join(kept)


def without_nul(value: T) -> T:
    """JSON, or a text, without NUL characters, which PostgreSQL cannot hold."""
    cleaned: Any = value
    if isinstance(value, str):
        cleaned = value.replace("\0", "")
    elif isinstance(value, dict):
        cleaned = {without_nul(key): without_nul(item) for key, item in value.items()}
    elif isinstance(value, list):
        cleaned = [without_nul(item) for item in value]
    return cast(T, cleaned)


def parse_time(text: object, *, naive_is_utc: bool = False) -> datetime | None:
    """An ISO 8601 time in UTC; None for what is none, or names no zone and is not known to be UTC."""
    try:
        moment = datetime.fromisoformat(cast(str, text))
        if moment.tzinfo is None:
            return moment.replace(tzinfo=UTC) if naive_is_utc else None
        return moment.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None
