"""The interfaces of the roles, and deterministic roles. Nothing tells the assistant whether it is tested.

The deterministic assistant reads any backend's section with :class:`Reader`. It knows settings by their
phrases, respects dates, group lines and labels, and ignores hearsay and exceptions.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from memory.bench.data.language import Language
from memory.bench.data.timeline import Beat, Script
from memory.bench.engine.prompts import Prompt, load_prompt
from memory.bench.scores.sections import SectionEntry, entries_of
from memory.contract.events import Message
from memory.runtime._provider import CompletionChunk, CompletionOptions, CompletionResult, Provider

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2})?")
_NEAR = 160  # characters around a phrase that are read with it


@dataclass(frozen=True, slots=True)
class SettingMention:
    """One mention of a setting in a section.

    If two mentions have the same moment, the one of higher rank counts. That is the later one if the section
    runs forward in time, otherwise the earlier one, because memories put the best first.
    """

    attribute: str
    marker: str
    context: str | None  # named by the line, its labels or its group
    moment: str  # the date, as sortable text; empty without a date
    rank: int


class Reader:
    """Reads sections and talk in one language."""

    def __init__(self, language: Language) -> None:
        self._language = language
        forms = language.forms
        self._words = language.context_words
        # The words between lead and setting identify a correction.
        corrections = [form.replace("{lead}", "").split("{")[0] for form in forms.corrected]
        self._objections = [line.casefold() for line in (*forms.complaint, *forms.not_mine, *corrections)]
        # Entries and sentences occur many times.
        self._entry = lru_cache(maxsize=4096)(self._read_entry)
        self._said = lru_cache(maxsize=4096)(lambda text: tuple(self._mentions(text, "", None, "")))
        self.matters_to = lru_cache(maxsize=4096)(language.matters_to)
        self._disowned = tuple(phrase.casefold() for phrase in forms.disowned)

    def read(self, section: str) -> list[SettingMention]:
        """Every setting that a section names as the user's own, in order."""
        found: list[SettingMention] = []
        dates: list[str] = []
        for entry in entries_of(section):
            date, mentions = self._entry(entry)
            found += mentions
            dates += [date] if date else []
        forward = bool(dates) and dates[0] < dates[-1]
        return [replace(mention, rank=rank if forward else -rank) for rank, mention in enumerate(found)]

    def _read_entry(self, entry: SectionEntry) -> tuple[str, tuple[SettingMention, ...]]:
        """An entry's date (empty without one) and its mentions."""
        match = _DATE.search(entry.labels) or _DATE.search(entry.text)
        date, group = match[0] if match else "", self._language.says_context(entry.group)
        return date, tuple(self._mentions(entry.text, entry.labels, group, date))

    def _mentions(self, text: str, labels: str, group: str | None, moment: str) -> Iterator[SettingMention]:
        text = text.casefold()
        for match in self._language.any_wording.finditer(text):
            # A marker may span lines. Everything that qualifies it stands on the same lines.
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
        """The setting to act by: the newest one not of the other context, then the one of highest rank."""
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
        """Whether the user objects to the last reply, by a complaint or a correction."""
        text = said.casefold()
        return any(line in text for line in self._objections)


reader_of = lru_cache(maxsize=4)(Reader)  # cells of one process share its caches
_WORD = re.compile(r"\w+")
_CHANNEL = re.compile(r"through the (\w+) channel")  # as prompts/assistant.md has it


@dataclass(frozen=True, slots=True)
class Exchange:
    """The user's words and the assistant's reply."""

    user: str
    reply: str

    def shown(self) -> Exchange:
        """The exchange as judges, simulators and readers see it: an empty reply becomes "(nothing)"."""
        return self if self.reply.strip() else Exchange(self.user, "(nothing)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's verdict on one reply."""

    # Whether the reply suits the preference in force; None if the judgement cannot be read.
    fit: bool | None
    shown: str | None = (
        None  # marker of the setting that it shows; "" if none; None if the judge names no setting
    )
    votes: int = 1
    agreement: float = 1.0  # share of the votes that agree


Simulator = Callable[[Script, Beat, Sequence[Exchange]], Awaitable[str | None]]
"""Speaks for the user: the next words within a beat, or None if nothing is left to say."""
Judge = Callable[[Script, Beat, Sequence[Exchange]], Awaitable[Verdict]]
"""Decides whether the last reply did what the user wanted. Only called for beats that have a truth."""
QuestionReader = Callable[[str, str, str, Sequence[str]], Awaitable[str]]
"""Answers a question from a section, asked at a time (ISO, to the minute), or names the letter of an option."""
AnswerJudge = Callable[[str, str, str, str], Awaitable[Verdict]]
"""Decides by a data set's category, the question and the right answer whether a reply is right."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Assistant, simulator and judge play sessions; reader and answer judge deal with questions.

    Attributes:
        language: in which sections are read.
        reader: None if rules choose among given answers and write none.
        answer_judge: None if answers are scored only by their words.
        identity: the assistant's prompt.
    """

    language: Language
    assistant: Provider
    simulator: Simulator
    judge: Judge
    reader: QuestionReader | None = None
    answer_judge: AnswerJudge | None = None
    identity: Prompt = load_prompt("assistant")

    def settings(self, attribute: str) -> tuple[str, ...]:
        """The markers of all settings of an attribute; empty if they are unknown."""
        known = self.language.by_name.get(attribute)
        return known.markers if known else ()

    def taken(self, section: str, attribute: str, context: str | None) -> str | None:
        """The marker of the setting that the fixed reader acts by."""
        reader = reader_of(self.language)
        return reader.choose(reader.read(section), attribute, context)


class WholeAnswers:
    """A base for providers that answer in one piece and hold no open resources."""

    complete: Callable[..., Awaitable[CompletionResult]]

    async def stream(
        self, messages: Sequence[Message], options: CompletionOptions | None = None
    ) -> AsyncIterator[CompletionChunk]:
        """The answer, as one chunk."""
        yield CompletionChunk(result=await self.complete(messages, options))

    async def available(self) -> bool:
        """Always true."""
        return True

    async def aclose(self) -> None:
        """Nothing to close."""


class RuleAssistant(WholeAnswers):
    """A provider that follows the setting it can read for the attribute that a request calls for.

    It looks first in the user's words in this session, then in the memory's section. Without a setting, its
    reply is neutral.
    """

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
        """The attribute that the user's newest words call for."""
        attribute = self._reader.matters_to(said[-1])
        # A complaint or a correction refers to the request before it.
        if attribute is None and len(said) > 1 and self._reader.objects(said[-1]):
            return self._called_for(said[:-1])
        return attribute


def lettered(options: Sequence[str]) -> str:
    """The given answers, each with a letter, and the instruction to choose one."""
    lines = [f"({chr(ord('a') + number)}) {' '.join(text.split())}" for number, text in enumerate(options)]
    return "\n".join([*lines, "Answer with the letter of the reply that suits me best."])


def _likeliest(section: str, options: Sequence[str]) -> str:
    """The letter of the answer whose distinctive words the section holds most; the first in a tie."""
    words = [set(_WORD.findall(text.casefold())) for text in options]
    common = set.intersection(*words)
    shown = set(_WORD.findall(section.casefold()))
    shares = [len((own - common) & shown) / max(1, len(own - common)) for own in words]
    return f"({chr(ord('a') + shares.index(max(shares)))})"


async def rule_simulator(script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> str | None:
    """The goal; while replies do not suit, the complaint, then what is wanted; then None."""
    lines = [beat.goal, *(line for line in (beat.branch, beat.hint) if line)]
    return lines[len(exchanges)] if len(exchanges) < len(lines) else None


async def rule_judge(
    language: Language, script: Script, beat: Beat, exchanges: Sequence[Exchange]
) -> Verdict:
    """A reply fits if it shows the setting in force, or shows none where the user has none."""
    assert beat.attribute is not None
    assert beat.truth is not None
    shown = language.shown(beat.attribute, exchanges[-1].reply)
    return Verdict(fit=shown == beat.truth.current, shown=shown or "")


async def rule_reader(question: str, section: str, now: str, options: Sequence[str]) -> str:
    """The letter of the option that shares most words with the section, in parentheses; empty without options."""
    return _likeliest(section, options) if options else ""
