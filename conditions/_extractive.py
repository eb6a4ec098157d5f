"""A summariser without a language model. It keeps sentences: preferences first, the newest at the top.

A preference that is repeated in similar words replaces the older one of the same context. Sentences that do
not fit ``max_tokens`` are dropped, the least substantial first. Substance is estimated from words, names and
numbers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from conditions._control import leading_lines
from conditions._notebook import Draft, Line, Source, Sources
from memory import TokenCounter
from memory.adapter import NativeWorker

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
_PIECE_LENGTH = 240
_AT_ONCE = 100_000  # characters that block the event loop for some tens of milliseconds
_OFTEN = 1000  # characters; longer lines are not worth their place in the cache
_MAX_WORDS = 64
_MAX_COMPARED = 1000
_HEADINGS = ("## Preferences, newest first", "## Statements, newest first")
_OTHERS = frozenset({"assistant", "tool", "system", "developer"})
_NAME = re.compile(r"(?<=\s)[A-Z][a-z]+|\d+")


@dataclass(frozen=True, slots=True)
class _Statement:
    date: str
    speaker: str
    text: str
    words: frozenset[str]
    is_preference: bool
    substance: float  # counts words, names and numbers; lower for questions and for other speakers
    line: str

    @classmethod
    def of(cls, date: str, speaker: str, text: str) -> _Statement:
        words = frozenset(_WORD.findall(text.casefold().replace("’", "'"))) - _STOP
        wish = bool(words) and speaker not in _OTHERS and _PREFERENCE.search(text) is not None
        substance = 0.0
        if len(words) > 1 or wish:
            substance = min(len(words), 12) / 4 + min(len(_NAME.findall(text)), 4) / 2 + 3 * wish
            substance -= 1.5 * text.endswith(("?", "？")) + (speaker in _OTHERS)
        return cls(date, speaker, text, words, wish, substance, f"- {date} {speaker}: {text}")


_Sourced = tuple[_Statement, Source | None]


class ExtractiveSummariser:
    """Keeps the most substantial statements, newest first, in at most ``max_tokens``."""

    label = "extractive, not an LLM"

    def __init__(self, max_tokens: int, counter: TokenCounter) -> None:
        self._max_tokens = max_tokens
        self._counter = counter
        self._worker = NativeWorker(name="memslot-extract")
        # The memory is read again at the end of every session, and most of its lines have not changed.
        self._read = lru_cache(4096)(_read)

    async def summarise(self, memory: str, sources: Sources, lines: list[Line]) -> Draft:
        """Draft a summary. Lines of other origin stay at the top of the memory."""
        if len(memory) + sum(len(line.text) for line in lines) <= _AT_ONCE:
            return self.draft(memory, sources, lines)
        return await self._worker.run(lambda: self.draft(memory, sources, lines))

    async def problem(self) -> str | None:
        return None

    async def aclose(self) -> None:
        await self._worker.aclose()
        self._read.cache_clear()

    def draft(self, memory: str, sources: Sources, lines: list[Line]) -> Draft:
        others, known = self._parse(memory, sources)
        said = [sourced for line in lines for sourced in _statements(line)]
        new = [sourced for sourced in said if sourced[0].substance > 0.5]
        others = others[: leading_lines(others, self._max_tokens, self._counter)]
        kept = self._fitting("\n".join(others), _without_repeats(known, new))
        text = _render(others, [statement for statement, _ in kept])
        first, last = lines[0].of.timestamp, lines[-1].of.timestamp
        fresh = {statement.line for statement, _ in new}
        origins: dict[str, tuple[Source, ...]] = {}
        for statement, source in kept:
            if source:
                origins[statement.line] = (*origins.get(statement.line, ()), source)
        return Draft(
            memory=text,
            history_entry=(
                f"[{first:%Y-%m-%d %H:%M}] {len(lines)} messages until {last:%Y-%m-%d %H:%M}; "
                f"{sum(statement.line in fresh for statement, _ in kept)} of {len(said)} statements kept"
            ),
            sources=origins,
        )

    def _parse(self, memory: str, sources: Sources) -> tuple[list[str], list[_Sourced]]:
        """The memory's lines of other origin, and the summariser's statements, oldest first."""
        others: list[str] = []
        ours: list[_Sourced] = []
        for line in memory.splitlines():
            statement = (self._read if len(line) <= _OFTEN else _read)(line)
            if statement is not None:
                ours.extend((statement, source) for source in sources.get(line, (None,)))
            elif line.strip() and line not in _HEADINGS:
                others.append(line)
        return others, ours[::-1]

    def _fitting(self, others: str, sourced: list[_Sourced]) -> list[_Sourced]:
        room = self._max_tokens - self._counter.count("\n".join((others, *_HEADINGS, "", "", "")))
        ranked = sorted(range(len(sourced)), key=lambda at: (sourced[at][0].substance, at), reverse=True)
        chosen = set()
        for index in ranked:
            cost = self._counter.count(sourced[index][0].line + "\n")
            if cost <= room:
                room -= cost
                chosen.add(index)
        return [pair for index, pair in enumerate(sourced) if index in chosen]


def _read(line: str) -> _Statement | None:
    match = _KEPT.fullmatch(line)
    return _Statement.of(*match.group("date", "speaker", "text")) if match else None


def _statements(line: Line) -> Iterator[_Sourced]:
    speaker = " ".join((line.name or line.role).replace(":", " ").split()) or line.role
    source = Source(line.of.event_id, (line.of.cs_fields or {}).get("context"))
    for text in _pieces(line.text):
        yield _Statement.of(f"{line.of.timestamp:%Y-%m-%d}", speaker, text), source


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


def _has_alike(words: frozenset[str], heard: list[frozenset[str]]) -> bool:
    """Whether one of the latest preferences shares three fifths of all words that the two contain."""
    last = heard[-_MAX_COMPARED:]
    return any(8 * len(words & other) >= 3 * (len(words) + len(other)) for other in last)


def _without_repeats(known: list[_Sourced], new: list[_Sourced]) -> list[_Sourced]:
    """The statements, oldest first. A statement that is repeated later is dropped.

    A repetition has the same words, or similar words in a preference. No two preferences in ``known`` are
    similar, so they are compared only with ``new``.
    """
    kept: list[_Sourced] = []
    heard: set[tuple[str, str | None, frozenset[str]]] = set()
    wishes: dict[tuple[str, str | None, bool], list[frozenset[str]]] = defaultdict(list)
    dated = [(pair, False) for pair in known] + [(pair, True) for pair in new]
    for sourced, is_new in sorted(dated, key=lambda item: item[0][0].date)[::-1]:
        statement, source = sourced
        context = source.context if source else None
        exactly = (statement.speaker, context, statement.words)
        if exactly in heard:
            continue
        if statement.is_preference and len(statement.words) <= _MAX_WORDS:
            rivals = (True, False) if is_new else (True,)
            if any(_has_alike(statement.words, wishes[statement.speaker, context, new]) for new in rivals):
                continue
            wishes[statement.speaker, context, is_new].append(statement.words)
        heard.add(exactly)
        kept.append(sourced)
    return kept[::-1]


def _render(others: list[str], statements: list[_Statement]) -> str:
    newest_first = statements[::-1]
    parts = ["\n".join(others)]
    for heading, wish in zip(_HEADINGS, (True, False), strict=True):
        lines = dict.fromkeys(statement.line for statement in newest_first if statement.is_preference is wish)
        if lines:
            parts.append("\n".join((heading, *lines)))
    return "\n\n".join(part for part in parts if part)
