"""A context section as a reader sees it: entries, each with its labels and the group it stands under.

Only this text reaches the assistant, so only this text is judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from memory.bench.data.timeline import PreferenceTruth
from memory.contract.formatting import clean_text

LABELS = re.compile(r"- \(([^()]*)\) ")
GROUP = re.compile(r"\[([^\[\]]+)\]\Z")
_FENCE = re.compile(r"</?memory-context\b[^<>]*>")
_ABSTAINS = re.compile(
    r"\b(not|never|n't|nothing|no (information|mention|record|idea|answer)|unknown|unclear|cannot|unable)\b|n't\b"
    "|没有|没提|不知道|不清楚|未提|从未|无法"
)
_LONGEST_LABELS = 300
_LABEL_END = re.compile(r"[:)\]>-] ")


@dataclass(frozen=True, slots=True)
class SectionEntry:
    """An entry: its lines as they stand, what its labels say, and the group line above it; empty without."""

    text: str
    labels: str = ""
    group: str = ""


def entries_of(section: str) -> Iterator[SectionEntry]:
    """The entries of a section; a line that is not indented begins one, unless it is a group's."""
    group, labels, lines = "", "", list[str]()
    for line in section.splitlines():
        if _FENCE.fullmatch(line):
            continue
        if lines and line.startswith("  "):
            lines.append(line)
            continue
        if lines:
            yield SectionEntry("\n".join(lines), labels, group)
            lines = []
        if heading := GROUP.match(line):
            group = heading[1]
        elif line.strip():
            match = LABELS.match(line)
            labels, lines = match[1] if match else "", [line]
    if lines:
        yield SectionEntry("\n".join(lines), labels, group)


def plain(text: str) -> str:
    """As a section shows a text, without line breaks and indents, in lower case."""
    return " ".join(clean_text(text).split()).casefold()


def holds(text: str, phrases: Iterable[str]) -> bool:
    """Whether a text that is :func:`plain` holds any of the phrases."""
    return any(_plain_phrase(phrase) in text for phrase in phrases)


_plain_phrase = lru_cache(maxsize=4096)(plain)


def abstains(reply: str, trap: str | None = None) -> bool:
    """Whether a reply says that something was never mentioned, and does not claim the trap all the same."""
    text = plain(reply)
    return bool(_ABSTAINS.search(text)) and not (trap and len(trap) > 3 and holds(text, [trap]))


class WholeTurns:
    """Finds the turns of a conversation in a section by their whole text.

    A turn may stand on a line of its own or an entry of its own, after a label such as ``user:`` or a date in
    brackets, and its line breaks may have become blanks. A turn that quotes another turn is not that other turn.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:  # event id -> text
        self.plain = {turn: plain(text) for turn, text in texts.items()}
        self._known = {text for text in self.plain.values() if text}
        lines = {len([line for line in text.splitlines() if line.strip()]) for text in texts.values()}
        self._heights = sorted(lines - {0}, reverse=True)

    def shown(self, text: str) -> frozenset[str]:
        """Event ids of the turns whose whole text is in a section, or in one of its entries."""
        found: set[str] = set()
        lines = [line for raw in text.splitlines() if (line := plain(raw))]
        at = 0
        while at < len(lines):
            # The tallest first, so that the first line of a turn is not taken for a turn of one line.
            for height in (*self._heights, 1):
                if whole := self._whole(" ".join(lines[at : at + height]), len(lines[at])):
                    found.add(whole)
                    break
            at += height
        return frozenset(turn for turn, text in self.plain.items() if text in found)

    def _whole(self, text: str, first_line: int) -> str | None:
        """The turn that a text is, whatever labels precede it in its first line, which has so many characters."""
        within = min(first_line, _LONGEST_LABELS)
        begins = [0, *(label.end() for label in _LABEL_END.finditer(text, 0, within))]
        return next((text[at:] for at in begins if text[at:] in self._known), None)


def settings_shown(
    truth: PreferenceTruth,
    section: str,
    *,
    other_context: str | None,
    foreign: Sequence[str] = (),
    wordings: Callable[[str], Sequence[str]] = lambda marker: (marker,),
    settings: Sequence[str] = (),
) -> dict[str, bool | None]:
    """Which settings of a cell a section holds: the fields of a record that begin with ``shows``, and ``leaks``.

    ``other_context`` was not asked for, ``foreign`` are phrases of other personas, ``wordings`` gives every way in
    which a setting is said, and ``settings`` are all that the attribute has.
    """
    of_user = {truth.current, *truth.stale, *truth.other, *truth.decoys}
    text = plain(section)

    def said(*markers: str) -> list[str]:
        return [wording for marker in markers for wording in wordings(marker)]

    other = said(*truth.other)
    unlabelled = other_context is not None and any(
        holds(plain(entry.text), other) and not _names(entry, other_context)
        for entry in (entries_of(section) if holds(text, other) else ())
    )
    return {
        "shows_current": None if truth.current is None else holds(text, said(truth.current)),
        "shows_stale": holds(text, said(*truth.stale)),
        "shows_other": holds(text, other),
        "shows_unlabelled": unlabelled,
        "shows_unknown": holds(text, said(*(each for each in settings if each not in of_user))),
        "leaks": holds(text, foreign),
    }


def _names(entry: SectionEntry, context: str) -> bool:
    """Whether an entry says which context it belongs to: in its group's line, its labels or its words."""
    name = re.compile(rf"\b{re.escape(context)}\b", re.IGNORECASE)
    return any(name.search(text) for text in (entry.group, entry.text))
