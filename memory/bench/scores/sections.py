"""Parses a context section into entries, each with its labels and its group.

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
    """An entry: its lines unchanged, its labels, and the group line above it. Missing parts are empty."""

    text: str
    labels: str = ""
    group: str = ""


def entries_of(section: str) -> Iterator[SectionEntry]:
    """The entries of a section. A line without indentation begins an entry, unless it is a group line."""
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
    """A text as a section shows it (without line breaks and indents), in lower case."""
    return " ".join(clean_text(text).split()).casefold()


def holds(text: str, phrases: Iterable[str]) -> bool:
    """Whether a :func:`plain` text contains any of the phrases."""
    return any(_plain_phrase(phrase) in text for phrase in phrases)


_plain_phrase = lru_cache(maxsize=4096)(plain)


def abstains(reply: str, trap: str | None = None) -> bool:
    """Whether a reply says that something was never mentioned, without claiming the trap."""
    text = plain(reply)
    return bool(_ABSTAINS.search(text)) and not (trap and len(trap) > 3 and holds(text, [trap]))


class WholeTurns:
    """Finds conversation turns in a section by their whole text.

    A turn may stand on its own line or in its own entry, after a label such as ``user:`` or a date in
    brackets. Its line breaks may have become spaces. A turn that only quotes another turn does not count as
    that turn.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:  # event id -> text
        self.plain = {turn: plain(text) for turn, text in texts.items()}
        self._known = {text for text in self.plain.values() if text}
        lines = {len([line for line in text.splitlines() if line.strip()]) for text in texts.values()}
        self._heights = sorted(lines - {0}, reverse=True)

    def shown(self, text: str) -> frozenset[str]:
        """Event ids of the turns whose whole text stands in a section or an entry."""
        found: set[str] = set()
        lines = [line for raw in text.splitlines() if (line := plain(raw))]
        at = 0
        while at < len(lines):
            # Tallest first: otherwise the first line of a turn could match a turn of one line.
            for height in (*self._heights, 1):
                if whole := self._whole(" ".join(lines[at : at + height]), len(lines[at])):
                    found.add(whole)
                    break
            at += height
        return frozenset(turn for turn, text in self.plain.items() if text in found)

    def _whole(self, text: str, first_line: int) -> str | None:
        """The known turn in a text, after any labels in its first ``first_line`` characters."""
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
    """Which settings of a cell a section holds: record fields that begin with ``shows``, and ``leaks``.

    Args:
        other_context: the context that was not asked for.
        foreign: phrases of other personas.
        wordings: marker of a setting -> all its wordings.
        settings: markers of all settings of the attribute.
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
    """Whether an entry names its context, in its group line, its labels or its text."""
    name = re.compile(rf"\b{re.escape(context)}\b", re.IGNORECASE)
    return any(name.search(text) for text in (entry.group, entry.text))
