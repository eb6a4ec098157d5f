"""Unicode normal forms in linear time."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

__all__ = ["normalise"]

# Text that may hold a run of combining marks; the two halfwidth ones pass for letters.
_MARKS = re.compile(r"(?:[^\w\s]|[\uff9e\uff9f]){32,}+")
_MOST_MARKS = 30  # as Unicode's Stream-Safe Text Format (UAX 15) allows; no script needs more than a few


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
        if marks <= _MOST_MARKS:
            kept.append(char)
    return "".join(kept)
