"""Finds the tags of a ``<memory-context>`` section in a text, in every spelling that a reader would accept.

A text is folded once into what a reader sees, and each position of the folded text maps back to the
original. Every function takes linear time.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple

# Characters that show nothing: controls, format characters, fillers, variation selectors.
_UNSEEN = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U0001d173-\U0001d17a\U000e0001-\U000e001f\U000e007f\U000e0100-\U000e01ef"
)
_ANGLES = "<\u02c2\u1438\u16b2\u2039\u2329\u276e\u2770\u27e8\u29fc\u3008\ufe3f\ufe64\uff1c\U000e003c"
_ESCAPE = (
    r"(?<!\\)\\++(?:(?-i:U)[0-9a-f]{8}|u[0-9a-f]{4}|u\{[0-9a-f]{1,6}\}|x[0-9a-f]{2})"
    r"|&#(?:x[0-9a-f]{1,6}|[0-9]{1,7});?|%[0-7][0-9a-f]"
)
_SPECIAL = re.compile(rf"[{_ANGLES}\\%]|&#")
_UNSEEN_ASCII = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
_BEGINS = re.compile(rf"[{_ANGLES}]|{_ESCAPE}", re.IGNORECASE)
# Case-sensitive: otherwise the range would match the Kelvin sign and others, and i, k and s would end a
# piece.
_PLAIN = r"(?-i:[^\\&%\x00-\x08\x0e-\x1f\x7f-\U0010ffff]++)"
_PIECE = re.compile(rf"({_PLAIN})|([{_UNSEEN}]++)|({_ESCAPE})|(.)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<\s*+(/?+)\s*+memory[-_\s]?+context(?![a-z0-9])([^<>]{0,1000}+)>")
_OPENING = re.compile(r"<(?=\s*+/?+\s*+memory[-_\s]?+context)")
_ALIKE = str.maketrans(
    {
        **dict.fromkeys(_ANGLES, "<"),
        **dict.fromkeys(
            "\u02c3\u1433\u16b3\u203a\u232a\u276f\u2771\u27e9\u29fd\u3009\ufe40\ufe65\uff1e", ">"
        ),
        **dict.fromkeys("\u2044\u2215\u29f8\u2571\uff0f", "/"),
        **dict.fromkeys(
            "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\u30fc\ufe58\ufe63\uff0d\u02d7", "-"
        ),
        **dict.fromkeys("\u043c\u028d\u1d0d", "m"),
        **dict.fromkeys("\u0435\u0454\u04bd\u1d07\u212e", "e"),
        **dict.fromkeys("\u043e\u03bf\u0585\u1d0f\u0ed0\u0c66", "o"),
        **dict.fromkeys("\u0433\u1d26\u0280", "r"),
        **dict.fromkeys("\u0443\u04af\u03b3\u028f", "y"),
        **dict.fromkeys("\u0441\u03f2\u1d04", "c"),
        **dict.fromkeys("\u043f\u0578\u03b7\u0274", "n"),
        **dict.fromkeys("\u0442\u03c4\u1d1b", "t"),
        **dict.fromkeys("\u0445\u03c7\u00d7", "x"),
    }
)


class Tag(NamedTuple):
    """A tag of a section and its position in the text; ``[start, end)`` counts characters."""

    start: int
    end: int
    is_end: bool
    has_attributes: bool


def find_tags(text: str) -> list[Tag]:
    """Every complete tag, in order."""
    if not _may_hold_fence(text):
        return []
    folded = _Folded(text)
    return [
        Tag(folded.start(tag.start()), folded.end(tag.end()), bool(tag[1]), "=" in tag[2])
        for tag in _TAG.finditer(folded.text)
    ]


def escape_tags(text: str) -> str:
    """The text with ``&lt;`` in place of each character that begins a tag."""
    if not _may_hold_fence(text):
        return text
    folded, kept, at = _Folded(text), [], 0
    for opening in _OPENING.finditer(folded.text):
        start, end = folded.start(opening.start()), folded.end(opening.end())
        kept += [text[at:start], "&lt;"]
        at = end
    return "".join((*kept, text[at:]))


def count_beginnings(text: str) -> int:
    """How many characters might begin a tag, in any spelling."""
    return len(_BEGINS.findall(text)) if _SPECIAL.search(text) else 0


def _may_hold_fence(text: str) -> bool:
    if _SPECIAL.search(text) is None or _BEGINS.search(text) is None:
        return False
    escaped = "\\" in text or "&#" in text or "%" in text
    if text.isascii() and not escaped and not _UNSEEN_ASCII.search(text):
        lowered = text.lower()
        return "memory" in lowered and "context" in lowered
    return True


class _Folded:
    """A text as a reader sees it, in lower-case ASCII; every other character becomes ``~``."""

    def __init__(self, text: str) -> None:
        pieces: list[str] = []
        self._folded: list[int] = []  # where each piece begins in the folded text
        self._places: list[tuple[int, int, bool]] = []  # where it lies in the text, and whether lengths agree
        length = 0
        for piece in _PIECE.finditer(text):
            plain, unseen, escape, other = piece.groups()
            if unseen:
                continue
            seen = plain.lower() if plain else _seen(other) if other else _decoded(escape)
            pieces.append(seen)
            self._folded.append(length)
            self._places.append((piece.start(), piece.end(), bool(plain)))
            length += len(seen)
        self.text = "".join(pieces)

    def start(self, place: int) -> int:
        """The start, in the original text, of a position in the folded text."""
        at = bisect_right(self._folded, place) - 1
        start, _, alike = self._places[at]
        return start + place - self._folded[at] if alike else start

    def end(self, place: int) -> int:
        """The end, in the original text, of what lies before a position in the folded text."""
        at = bisect_right(self._folded, place - 1) - 1
        start, end, alike = self._places[at]
        return start + place - self._folded[at] if alike else end


@lru_cache(4096)
def _seen(character: str) -> str:
    """The lower-case ASCII that a reader takes a character for."""
    if character.isspace():
        return " "
    code = ord(character)
    if 0xE0020 <= code <= 0xE007E:  # tag characters: invisible ASCII
        return chr(code - 0xE0000).lower()
    folded = unicodedata.normalize("NFKD", character.lower().translate(_ALIKE)).translate(_ALIKE).lower()
    letters = "".join(letter for letter in folded if not unicodedata.combining(letter))
    return "".join(letter if letter.isascii() else "~" for letter in letters)


def _decoded(escape: str) -> str:
    digits = escape.lstrip("\\&#%").rstrip(";}").lstrip("uUxX").lstrip("{")
    is_decimal = escape.startswith("&#") and escape[2:3] not in "xX"
    code = int(digits, 10 if is_decimal else 16)
    return _seen(chr(code)) if code <= 0x10FFFF else "~"
