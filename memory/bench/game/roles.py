"""The three roles of the game, behind seams, and the deterministic ones, which need no model.

The assistant gets what any agent loop gives a model: the memory's section, the conversation so far, and what the
user says. Nothing tells it whether it is tested.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from memory.bench.game.language import Language
from memory.bench.game.reading import Reader
from memory.bench.timeline import Beat, Script

__all__ = [
    "ROLES",
    "Assistant",
    "Exchange",
    "Judge",
    "RoleName",
    "Roles",
    "RuleAssistant",
    "RuleJudge",
    "RuleSimulator",
    "Simulator",
    "Situation",
    "Verdict",
]

_OPTION = re.compile(r"^\(([a-z])\) (.*)$", re.MULTILINE)
_WORD = re.compile(r"\w+")
RoleName = Literal["assistant", "simulator", "judge"]
ROLES: tuple[RoleName, ...] = ("assistant", "simulator", "judge")


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the user said and the assistant replied."""

    user: str
    reply: str


@dataclass(frozen=True, slots=True)
class Situation:
    """Where the assistant is addressed: through which channel, ``work`` or ``personal``, and when."""

    context: str | None
    now: datetime


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge says of one reply.

    Attributes:
        fit: whether the behaviour suits the preference in force; None where the judge's answer could not be read.
        shown: the setting that the reply shows, as its marker; None where it shows none or the judge cannot say.
        votes: how many judgements it rests on.
        agreement: share of them that say the same.
    """

    fit: bool | None
    shown: str | None = None
    votes: int = 1
    agreement: float = 1.0


class Assistant(Protocol):
    """Who is tested, with the memory it is given."""

    async def reply(self, section: str, earlier: Sequence[Exchange], user: str, situation: Situation) -> str:
        """What it says.

        Args:
            section: the memory's context section, or empty.
            earlier: the conversation of this session so far.
            user: what the user says now.
            situation: where and when.
        """
        ...


class Simulator(Protocol):
    """Stands in for the user, in the first person."""

    async def say(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> str | None:
        """What the user says next within a beat that is not done, or None where there is nothing left to say.

        Args:
            script: the session.
            beat: what the user wants just now.
            exchanges: of this beat so far; empty when it begins.
        """
        ...


class Judge(Protocol):
    """Decides whether a reply did what the user wanted."""

    async def judge(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> Verdict:
        """Judge the last of ``exchanges``; only asked of beats that have a truth."""
        ...


@dataclass(frozen=True, slots=True)
class Roles:
    """Who plays."""

    assistant: Assistant
    simulator: Simulator
    judge: Judge
    answers: bool = False
    """Whether the assistant answers questions in words of its own, and the judge reads them."""


class RuleAssistant:
    """Picks, for what the request calls for, the setting it can read, and acts by it.

    What the user said in this session counts most, then the memory's section. It does nothing in particular where
    it reads nothing, or where the request says that the user's own ways do not belong.
    """

    def __init__(self, language: Language) -> None:
        self._language = language
        self._reader = Reader(language)

    async def reply(self, section: str, earlier: Sequence[Exchange], user: str, situation: Situation) -> str:
        """What it says: no model, no chance."""
        if options := _OPTION.findall(user):
            return _likeliest(section, options)
        forms, reader = self._language.forms, self._reader
        attribute, request = self._called_for([*(one.user for one in earlier), user])
        if attribute is None:
            return forms.replies[zlib.crc32(user.encode()) % len(forms.replies)]
        setting: str | None = None
        if not reader.for_others(request):
            said = [one.user for one in earlier] + [user]
            setting = reader.own_words(said, attribute, situation.context) or reader.choose(
                reader.read(section), attribute, situation.context
            )
        shown = self._language.acted(attribute, setting) if setting else forms.neutral_reply
        return f"{forms.lead_in} {shown}"

    def _called_for(self, said: Sequence[str]) -> tuple[str | None, str]:
        """The attribute that the newest thing said calls for, and the request it stands in."""
        request = said[-1]
        if attribute := self._language.matters_to(request):
            return attribute, request
        # A complaint or a correction goes back to the request before it.
        if len(said) > 1 and self._reader.objects(request):
            return self._called_for(said[:-1])
        return None, request


def _likeliest(section: str, options: Sequence[tuple[str, str]]) -> str:
    """Of given answers, the one that shares most of its own words with the section; the first of equals."""
    words = [set(_WORD.findall(text.casefold())) for _, text in options]
    common = set.intersection(*words)
    shown = set(_WORD.findall(section.casefold()))
    shares = [len((own - common) & shown) / max(1, len(own - common)) for own in words]
    return f"({options[shares.index(max(shares))][0]})"


class RuleSimulator:
    """Says the goal; where the reply does not suit, the beat's complaint, then what is wanted; then gives up."""

    async def say(self, script: Script, beat: Beat, exchanges: Sequence[Exchange]) -> str | None:
        """The next of the lines that the beat holds."""
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
