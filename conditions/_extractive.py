"""A summariser without a language model: it keeps sentences, it does not write any.

Short messages are kept whole, longer ones in pieces of a few sentences, scored by plain signs of substance. What
states a preference comes first, the newest at the top; a preference said again in much the same words replaces
the older one of the same context. Whatever does not fit ``max_tokens`` goes, least substance first. It
understands nothing, and says so by its label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from conditions._notebook import Draft, Line, Source, Sources
from memory import TokenCounter

__all__ = ["ExtractiveSummariser"]

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]|[^\W_]+(?:['’][^\W\d_]+)?")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_KEPT = re.compile(r"\A- (?P<date>\d{4}-\d\d-\d\d) (?P<speaker>[^:\n]+): (?P<text>.+)")
_PREFERENCE = re.compile(
    r"\b(?:prefer|like|love|enjoy|hate|dislike|rather|favou?rite|please|always|never|instead|anymore)\b"
    r"|\b(?:from now on|no longer|i want|i need|i['’]d like|stop|keep (?:it|your|the|things)|don['’]t|do not)\b"
    r"|\b(?:brief|concise|short(?:er)?|detail(?:s|ed)?|verbose|formal|casual|step by step)\b"
    r"|\bask (?:me )?(?:first|before)\b"
    r"|喜欢|偏好|更愿意|希望|讨厌|不要|请|以后|从不|总是|习惯",
    re.I,
)
_STOP = frozenset(
    re.findall(
        r"\S+",
        "a an and are as at be but by do does for from had has have how i if i'm i've in is it its me my of on or "
        "our so than that the their them then there they this to us was we were what when where which who why "
        "will with would you your please ok okay yes no thanks thank hi hello hey well really just sure great "
        "good 的 了 我 你 吗 呢 是 在 请",
    )
)
_ALIKE = 0.6
_PIECE_LENGTH = 240
_HEADINGS = ("## Preferences, newest first", "## Statements, newest first")


_OTHERS = frozenset({"assistant", "tool", "system", "developer"})
_NAME = re.compile(r"(?<=\s)[A-Z][a-z]+|\d+")


def _content_words(text: str) -> frozenset[str]:
    words = _WORD.findall(text.casefold().replace("’", "'"))
    return frozenset(word for word in words if word not in _STOP)


@dataclass(frozen=True, slots=True)
class _Statement:
    """Something that was said, and what is worth knowing about it."""

    date: str
    speaker: str
    text: str
    source: Source | None
    words: frozenset[str]
    is_preference: bool

    @classmethod
    def of(cls, date: str, speaker: str, text: str, source: Source | None) -> _Statement:
        words = _content_words(text)
        wish = bool(words) and speaker not in _OTHERS and _PREFERENCE.search(text) is not None
        return cls(date, speaker, text, source, words, wish)

    @property
    def line(self) -> str:
        return f"- {self.date} {self.speaker}: {self.text}"

    @property
    def context(self) -> str | None:
        return self.source.context if self.source else None

    @property
    def substance(self) -> float:
        """How much there seems to be in it: words, names, numbers; little in questions and in others' talk."""
        if len(self.words) < 2 and not self.is_preference:
            return 0.0
        names = len(_NAME.findall(self.text))
        score = min(len(self.words), 12) / 4 + min(names, 4) / 2 + 3 * self.is_preference
        score -= 1.5 * self.text.endswith(("?", "？"))
        return score - (self.speaker in _OTHERS)


class ExtractiveSummariser:
    """Keeps the most substantial statements, newest first.

    Args:
        max_tokens: upper bound of the memory.
        counter: measures it.
    """

    label = "extractive, not an LLM"

    def __init__(self, max_tokens: int, counter: TokenCounter) -> None:
        self._max_tokens = max_tokens
        self._counter = counter

    async def summarise(self, memory: str, sources: Sources, lines: list[Line]) -> Draft:
        """The kept statements of the memory and of ``lines`` together. Lines of other origin stay at the top."""
        others, known = _parse(memory, sources)
        said = [statement for line in lines for statement in _statements(line)]
        new = [statement for statement in said if statement.substance > 0.5]
        while others and self._counter.count("\n".join(others)) > self._max_tokens:
            others.pop()
        kept = self._fitting("\n".join(others), _without_repeats([*known, *new]))
        text = _render(others, kept)
        first, last = lines[0].timestamp, lines[-1].timestamp
        fresh = {statement.line for statement in new}
        return Draft(
            memory=text,
            history_entry=(
                f"[{first:%Y-%m-%d %H:%M}] {len(lines)} messages until {last:%Y-%m-%d %H:%M}; "
                f"{sum(statement.line in fresh for statement in kept)} of {len(said)} statements kept"
            ),
            sources=_sources(kept),
        )

    async def problem(self) -> str | None:
        """None: it needs nothing."""
        return None

    async def aclose(self) -> None:
        """Nothing to release."""

    def _fitting(self, others: str, statements: list[_Statement]) -> list[_Statement]:
        """Those with most substance that fit, in their order."""
        room = self._max_tokens - self._counter.count("\n".join((others, *_HEADINGS, "", "", "")))
        ranked = sorted(range(len(statements)), key=lambda at: (statements[at].substance, at), reverse=True)
        chosen = set()
        for index in ranked:
            cost = self._counter.count(statements[index].line + "\n")
            if cost <= room:
                room -= cost
                chosen.add(index)
        return [statement for index, statement in enumerate(statements) if index in chosen]


def _parse(memory: str, sources: Sources) -> tuple[list[str], list[_Statement]]:
    """What someone else wrote into the memory, and our own statements, oldest first."""
    others: list[str] = []
    ours: list[_Statement] = []
    for line in memory.splitlines():
        if match := _KEPT.fullmatch(line):
            said = (match["date"], match["speaker"], match["text"])
            ours.extend(_Statement.of(*said, source) for source in sources.get(line, (None,)))
        elif line.strip() and line not in _HEADINGS:
            others.append(line)
    return others, ours[::-1]


def _sources(statements: list[_Statement]) -> dict[str, tuple[Source, ...]]:
    found: dict[str, tuple[Source, ...]] = {}
    for statement in statements:
        if statement.source:
            found[statement.line] = (*found.get(statement.line, ()), statement.source)
    return found


def _statements(line: Line) -> Iterator[_Statement]:
    speaker = " ".join((line.name or line.role).replace(":", " ").split()) or line.role
    for text in _pieces(line.text):
        source = Source(line.event_id, line.context)
        yield _Statement.of(f"{line.timestamp:%Y-%m-%d}", speaker, text, source)


def _pieces(text: str) -> Iterator[str]:
    """Neighbouring sentences together, as long as the piece stays short: they often explain each other."""
    piece = ""
    for sentence in _SENTENCE_END.split(text):
        joined = " ".join(f"{piece} {sentence}".split())
        if piece and len(joined) > _PIECE_LENGTH:
            yield piece
            joined = " ".join(sentence.split())
        piece = joined
    if piece:
        yield piece


def _without_repeats(statements: Iterable[_Statement]) -> list[_Statement]:
    """Oldest first, without what was said again later: word for word, or, of preferences, much the same."""
    kept: list[_Statement] = []
    heard: set[tuple[str, str | None, frozenset[str]]] = set()
    wishes: dict[tuple[str, str | None], list[frozenset[str]]] = {}
    for statement in sorted(statements, key=lambda one: one.date)[::-1]:
        exactly = (statement.speaker, statement.context, statement.words)
        later = wishes.setdefault(exactly[:2], [])
        if exactly in heard:
            continue
        if statement.is_preference:
            if any(_alike(statement.words, words) for words in later):
                continue
            later.append(statement.words)
        heard.add(exactly)
        kept.append(statement)
    return kept[::-1]


def _alike(some: frozenset[str], others: frozenset[str]) -> bool:
    return len(some & others) >= _ALIKE * len(some | others)


def _render(others: list[str], statements: list[_Statement]) -> str:
    newest_first = statements[::-1]
    parts = ["\n".join(others)]
    for heading, is_preference in zip(_HEADINGS, (True, False), strict=True):
        lines = dict.fromkeys(one.line for one in newest_first if one.is_preference is is_preference)
        if lines:
            parts.append("\n".join((heading, *lines)))
    return "\n\n".join(part for part in parts if part)
