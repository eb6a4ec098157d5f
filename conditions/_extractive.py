"""A summariser without a language model. It keeps sentences: preferences first, the newest at the top.

A sentence that is said again replaces the older one. Sentences that do not fit ``max_tokens`` are dropped,
the oldest statements first, then the oldest preferences. Small talk is never kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import anyio.to_thread

from conditions._control import leading_lines
from conditions._notebook import Draft, Line, Sources
from memory import TokenCounter

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_KEPT = re.compile(r"\A- (?P<date>\d{4}-\d\d-\d\d) (?P<speaker>[^:\n]+): (?P<text>.+)")
_WORD = re.compile(r"[^\W_]+")
_PREFERENCE = re.compile(
    r"\b(?:prefer|like|love|enjoy|hate|dislike|rather|favou?rite|please|always|never|instead|anymore)\b"
    r"|\b(?:from now on|no longer|i want|i need|i['’]d like|stop|keep (?:it|your|the|things)|don['’]t|do not)\b"
    r"|\b(?:brief|concise|short(?:er)?|detail(?:s|ed)?|verbose|formal|casual|step by step)\b"
    r"|\bask (?:me )?(?:first|before)\b"
    r"|喜欢|偏好|更愿意|希望|讨厌|不要|请|以后|从不|总是|习惯",
    re.I,
)
_SMALL_TALK = frozenset(
    re.findall(r"\S+", "hello hi hey thanks thank you ok okay yes no sure great good welcome bye")
)
_PIECE_LENGTH = 240
_HEADINGS = ("## Preferences, newest first", "## Statements, newest first")
_OTHERS = frozenset({"assistant", "tool", "system", "developer"})


@dataclass(frozen=True, slots=True)
class _Statement:
    date: str
    speaker: str
    text: str
    event_ids: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"- {self.date} {self.speaker}: {self.text}"

    @property
    def is_preference(self) -> bool:
        return self.speaker not in _OTHERS and _has_preference(self.text)

    @property
    def is_kept(self) -> bool:
        """Whether a user says more than small talk, and asks nothing."""
        words = {word.casefold() for word in _WORD.findall(self.text)}
        asks = self.text.endswith(("?", "？")) and not self.is_preference
        return self.speaker not in _OTHERS and not asks and not words <= _SMALL_TALK


@lru_cache(4096)
def _has_preference(text: str) -> bool:
    return _PREFERENCE.search(text) is not None


class ExtractiveSummariser:
    """Keeps the user's sentences, newest first, in at most ``max_tokens``."""

    label = "extractive, not an LLM"

    def __init__(self, max_tokens: int, counter: TokenCounter) -> None:
        self._max_tokens = max_tokens
        self._counter = counter

    async def summarise(self, memory: str, sources: Sources, lines: list[Line]) -> Draft:
        """Draft a summary off the event loop. Lines of other origin stay at the top of the memory."""
        return await anyio.to_thread.run_sync(self._draft, memory, sources, lines)

    def _draft(self, memory: str, sources: Sources, lines: list[Line]) -> Draft:
        others, known = _parsed(memory, sources)
        said = [statement for line in lines for statement in _statements(line)]
        fresh = [statement for statement in said if statement.is_kept]
        newest: dict[tuple[str, str], _Statement] = {}
        for statement in sorted([*known, *fresh], key=lambda statement: statement.date):
            key = (statement.speaker, statement.text.casefold())
            newest.pop(key, None)  # a sentence that is said again moves to the top
            newest[key] = statement
        others = others[: leading_lines(others, self._max_tokens, self._counter)]
        kept = self._fitting("\n".join(others), list(newest.values())[::-1])
        first, last = lines[0].timestamp, lines[-1].timestamp
        count = sum(statement in fresh for statements in kept for statement in statements)
        parts = ["\n".join(others)]
        for heading, statements in zip(_HEADINGS, kept, strict=True):
            if statements:
                parts.append("\n".join((heading, *(statement.line for statement in statements))))
        return Draft(
            memory="\n\n".join(filter(None, parts)),
            history_entry=(
                f"[{first:%Y-%m-%d %H:%M}] {len(lines)} messages until {last:%Y-%m-%d %H:%M}; "
                f"{count} of {len(said)} statements kept"
            ),
            sources={statement.line: statement.event_ids for part in kept for statement in part},
        )

    async def problem(self) -> str | None:
        return None

    async def aclose(self) -> None:
        """Nothing to release."""

    def _fitting(self, others: str, newest_first: list[_Statement]) -> list[list[_Statement]]:
        """The preferences and the other statements that fit, each newest first."""
        room = self._max_tokens - self._counter.count("\n".join((others, *_HEADINGS, "", "", "")))
        kept: list[list[_Statement]] = [[], []]
        for part, wanted in zip(kept, (True, False), strict=True):
            for statement in newest_first:
                cost = self._counter.count(statement.line + "\n")
                if statement.is_preference is wanted and cost <= room:
                    room -= cost
                    part.append(statement)
        return kept


def _parsed(memory: str, sources: Sources) -> tuple[list[str], list[_Statement]]:
    """The memory's lines of other origin, and the summariser's statements, oldest first."""
    others: list[str] = []
    ours: list[_Statement] = []
    for line in memory.splitlines():
        if match := _KEPT.fullmatch(line):
            date, speaker, text = match.group("date", "speaker", "text")
            ours.append(_Statement(date, speaker, text, sources.get(line, ())))
        elif line.strip() and line not in _HEADINGS:
            others.append(line)
    return others, ours[::-1]


def _statements(line: Line) -> Iterator[_Statement]:
    speaker = " ".join((line.name or line.role).replace(":", " ").split()) or line.role
    for text in _pieces(line.text):
        yield _Statement(f"{line.timestamp:%Y-%m-%d}", speaker, text, (line.event_id,))


def _pieces(text: str) -> Iterator[str]:
    """Join neighbouring sentences into short pieces, because they often explain each other."""
    piece = ""
    for sentence in _SENTENCE_END.split(text):
        plain = " ".join(sentence.split())
        if piece and len(piece) + len(plain) >= _PIECE_LENGTH:
            yield piece
            piece = ""
        piece = f"{piece} {plain}".strip()
    if piece:
        yield piece
