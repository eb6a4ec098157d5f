"""The roles behind seams, and the deterministic ones. Nothing tells the assistant whether it is tested.

:class:`Reader`, which the deterministic assistant uses, takes any backend's section. It knows settings by their
phrases, sees dates, group lines and labels, and takes hearsay and exceptions for what they are.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from memory.bench.data.language import Language
from memory.bench.data.timeline import CONTEXTS, Beat, Script
from memory.bench.engine.prompts import Prompt, load_prompt
from memory.bench.scores.sections import SectionEntry, entries_of
from memory.contract.events import Message
from memory.runtime._provider import CompletionChunk, CompletionOptions, CompletionResult, Provider

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2})?")
_NEAR = 160  # letters around a phrase that are read for what else its entry says


@dataclass(frozen=True, slots=True)
class SettingMention:
    """One place of a section that names a setting. Of two of one moment, the higher rank counts: the later one
    where the section goes forward in time, the earlier one elsewhere, because what a memory ranks it ranks best
    first."""

    attribute: str
    marker: str
    context: str | None  # that the line names, or its labels
    moment: str  # the date on the line, as text that sorts; empty without a date
    rank: int


class Reader:
    """Reads sections and talk in one language."""

    def __init__(self, language: Language) -> None:
        self._language = language
        forms = language.forms
        self._words = [
            (context, language.word(word)) for context in CONTEXTS for word in language.context_words[context]
        ]
        # A correction begins with what stands between the lead and the setting.
        corrections = [form.replace("{lead}", "").split("{")[0] for form in forms.corrected]
        self._objections = [line.casefold() for line in (*forms.complaint, *forms.not_mine, *corrections)]
        # Sections show the same entries, and users say the same, again and again.
        self._entry = lru_cache(maxsize=4096)(self._read_entry)
        self._said = lru_cache(maxsize=4096)(lambda text: tuple(self._mentions(text, "", None, "")))
        self.matters_to = lru_cache(maxsize=4096)(language.matters_to)
        self._disowned = tuple(phrase.casefold() for phrase in forms.disowned)

    def read(self, section: str) -> list[SettingMention]:
        """Every setting that a section names as the user's own, in its order."""
        found: list[SettingMention] = []
        dates: list[str] = []
        for entry in entries_of(section):
            date, mentions = self._entry(entry)
            found += mentions
            dates += [date] if date else []
        forward = bool(dates) and dates[0] < dates[-1]
        return [replace(mention, rank=rank if forward else -rank) for rank, mention in enumerate(found)]

    def _read_entry(self, entry: SectionEntry) -> tuple[str, tuple[SettingMention, ...]]:
        """An entry's date, empty without one, and what it mentions."""
        match = _DATE.search(entry.labels) or _DATE.search(entry.text)
        date, group = match[0] if match else "", self._language.says_context(entry.group)
        return date, tuple(self._mentions(entry.text, entry.labels, group, date))

    def _mentions(self, text: str, labels: str, group: str | None, moment: str) -> Iterator[SettingMention]:
        text = text.casefold()
        for match in self._language.any_wording.finditer(text):
            # A marker may be broken over lines; what else is said of it stands on its own lines.
            begin, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
            line = slice(
                max(begin, match.start() - _NEAR), min(end if end >= 0 else len(text), match.end() + _NEAR)
            )
            if any(phrase in text[line] for phrase in self._disowned):
                continue
            attribute, marker = self._language.settings[" ".join(match[0].split())]
            said = text[line.start : match.start()]
            named = [(found.start(), name) for name, word in self._words for found in word.finditer(said)]
            context = max(named, default=(0, None))[1] or self._language.says_context(labels) or group
            yield SettingMention(attribute, marker, context, moment, 0)

    def choose(self, mentions: Sequence[SettingMention], attribute: str, context: str | None) -> str | None:
        """The setting to act by: the newest that is not said of the other context; of equals the highest rank."""
        fitting = [
            each for each in mentions if each.attribute == attribute and each.context in (None, context)
        ]
        return max(fitting, key=lambda mention: (mention.moment, mention.rank)).marker if fitting else None

    def own_words(self, said: Sequence[str], attribute: str, context: str | None) -> str | None:
        """The setting that the user named last in this conversation."""
        for text in reversed(said):
            for mention in self._said(text):
                if mention.attribute == attribute and mention.context in (None, context):
                    return mention.marker
        return None

    def objects(self, said: str) -> bool:
        """Whether the user objects to what was just done: by a complaint, or by a correction."""
        text = said.casefold()
        return any(line in text for line in self._objections)


reader_of = lru_cache(maxsize=4)(Reader)  # what one cell has read, those beside it need not read again
_WORD = re.compile(r"\w+")
_CHANNEL = re.compile(r"through the (\w+) channel")  # as prompts/assistant.md has it


@dataclass(frozen=True, slots=True)
class Exchange:
    """The user's words and the assistant's reply."""

    user: str
    reply: str

    def shown(self) -> Exchange:
        """As it is put before a judge, a simulator and a reader: no reply is a reply that says so."""
        return self if self.reply.strip() else Exchange(self.user, "(nothing)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's verdict on one reply."""

    # Whether it suits the preference in force; None where the judge's answer could not be read.
    fit: bool | None
    shown: str | None = None  # the setting that it shows, as its marker; None where the judge cannot say, too
    votes: int = 1
    agreement: float = 1.0  # share of the votes that say the same


class Simulator(Protocol):
    """Stands in for the user, in the first person."""

    async def say(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> str | None:
        """The user's next words within a beat, or None if nothing is left to say."""


class Judge(Protocol):
    """Decides whether a reply did what the user wanted."""

    async def judge(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> Verdict:
        """Judge the last of ``exchanges``; only asked of beats that have a truth."""


class QuestionReader(Protocol):
    """Answers questions from what a memory shows."""

    async def read(self, question: str, section: str, now: str, options: Sequence[str]) -> str:
        """The answer to a question, asked ``now`` (ISO, to the minute): one of ``options``, if there are any."""


class AnswerJudge(Protocol):
    """Decides whether an answer is right."""

    async def judge(self, category: str, question: str, answer: str, reply: str) -> Verdict:
        """Judge a reply to a question of a data set's ``category`` by the right ``answer``."""


class RuleReader:
    """Chooses the given answer that shares most words with the section. It writes no answer itself."""

    async def read(self, question: str, section: str, now: str, options: Sequence[str]) -> str:
        """The letter of the likeliest option in parentheses; empty without options."""
        return _likeliest(section, options) if options else ""


@dataclass(frozen=True, slots=True)
class Roles:
    """Assistant, simulator and judge play sessions; reader and answer judge deal with questions.

    Attributes:
        reads: whether the reader answers questions in its own words.
        answer_judge: None where answers are scored by their words alone.
        wordings: marker of a setting -> all ways to say it.
        settings: attribute -> the markers of all its settings; empty where nobody knows them.
        taken: section, attribute, context -> the marker of the setting that a fixed reader acts by.
        identity: the assistant's prompt.
    """

    assistant: Provider
    simulator: Simulator
    judge: Judge
    reader: QuestionReader = RuleReader()
    answer_judge: AnswerJudge | None = None
    reads: bool = False
    wordings: Callable[[str], Sequence[str]] = lambda marker: (marker,)
    settings: Callable[[str], Sequence[str]] = lambda attribute: ()
    taken: Callable[[str, str, str | None], str | None] = lambda section, attribute, context: None
    identity: Prompt = load_prompt("assistant")


class WholeAnswers:
    """A base for providers that answer in one piece and hold nothing open."""

    complete: Callable[..., Awaitable[CompletionResult]]

    async def stream(
        self, messages: Sequence[Message], options: CompletionOptions | None = None
    ) -> AsyncIterator[CompletionChunk]:
        """The answer."""
        yield CompletionChunk(result=await self.complete(messages, options))

    async def available(self) -> bool:
        """Always."""
        return True

    async def aclose(self) -> None:
        """Nothing to close here."""


class RuleAssistant(WholeAnswers):
    """A provider that picks, for what the request calls for, the setting it can read, first of what the user said
    in this session, then of the memory's section. It does nothing in particular where it reads nothing, or where
    the request says that the user's own ways do not belong."""

    id = "rules"

    def __init__(self, language: Language) -> None:
        self._language = language
        self._reader = reader_of(language)

    async def complete(
        self, messages: Sequence[Message], options: CompletionOptions | None = None
    ) -> CompletionResult:
        prompt = (options and options.system_prompt) or ""
        instructions, fence, section = prompt.partition("<memory-context")
        channel = _CHANNEL.search(instructions)
        said = [message.content for message in messages if message.role == "user"]
        return CompletionResult(content=self._reply(fence + section, said, channel[1] if channel else None))

    def _reply(self, section: str, said: Sequence[str], context: str | None) -> str:
        forms, reader = self._language.forms, self._reader
        attribute = self._called_for(said)
        if attribute is None:
            return forms.replies[zlib.crc32(said[-1].encode()) % len(forms.replies)]
        setting = reader.own_words(said, attribute, context) or reader.choose(
            reader.read(section), attribute, context
        )
        shown = self._language.acted(attribute, setting) if setting else forms.neutral_reply
        return f"{forms.lead_in} {shown}"

    def _called_for(self, said: Sequence[str]) -> str | None:
        """The attribute that the newest thing said calls for."""
        attribute = self._reader.matters_to(said[-1])
        # A complaint or a correction goes back to the request before it.
        if attribute is None and len(said) > 1 and self._reader.objects(said[-1]):
            return self._called_for(said[:-1])
        return attribute


def lettered(options: Sequence[str]) -> str:
    """Given answers, a letter before each, and what is to be replied."""
    lines = [f"({chr(ord('a') + number)}) {' '.join(text.split())}" for number, text in enumerate(options)]
    return "\n".join([*lines, "Answer with the letter of the reply that suits me best."])


def _likeliest(section: str, options: Sequence[str]) -> str:
    """The given answer that shares most of its own words with the section; the first of equals."""
    words = [set(_WORD.findall(text.casefold())) for text in options]
    common = set.intersection(*words)
    shown = set(_WORD.findall(section.casefold()))
    shares = [len((own - common) & shown) / max(1, len(own - common)) for own in words]
    return f"({chr(ord('a') + shares.index(max(shares)))})"


class RuleSimulator:
    """Says the goal; where the reply does not suit, the beat's complaint, then what is wanted; then gives up."""

    async def say(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> str | None:
        lines = [beat.goal, *(line for line in (beat.branch, beat.hint) if line)]
        return lines[len(exchanges)] if len(exchanges) < len(lines) else None


class RuleJudge:
    """Looks which setting a reply shows."""

    def __init__(self, language: Language) -> None:
        self._language = language

    async def judge(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> Verdict:
        """A fit is the setting in force; where the user has none here, a reply that shows none."""
        assert beat.attribute is not None
        assert beat.truth is not None
        shown = self._language.shown(beat.attribute, exchanges[-1].reply)
        return Verdict(fit=shown == beat.truth.current, shown=shown)
