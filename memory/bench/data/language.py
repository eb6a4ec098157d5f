"""What a language of the game consists of: attributes, worlds, sentence forms, and the meaning of each wording.

A user lets a setting be known in many ways: outright, or to be understood from a complaint, praise, an example or
a correction. All wordings of a setting mean the same here; no provider sees which belong together, because nothing
but the sentences reaches it. What is said stands in ``words_<language>.yaml``, ``worlds_...`` and ``forms_...``;
``synonyms_...`` gives each wording its surface forms. A file of the user's own may stand for the words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

from pydantic import TypeAdapter

from memory.bench.data.dice import Dice
from memory.bench.data.grammar import Grammar
from memory.bench.data.own_wordings import own_wordings
from memory.bench.data.timeline import TimelineSet
from memory.bench.data.words import IMPLIED, Attribute, Setting
from memory.bench.data.worlds import World, read_part, worlds
from memory.contract.errors import ConfigError

LanguageName = Literal["en", "zh"]


@dataclass(frozen=True, slots=True)
class Forms:
    """Sentences, filled with ``str.format``. ``{lead}`` names the context, or is empty; ``{marker}`` is an explicit
    wording. Forms of each context are mappings."""

    stated: tuple[str, ...]  # a preference becomes known: at first
    announced: tuple[str, ...]  # the same, as a change
    reverted: tuple[str, ...]  # the same, as a return to how it was
    corrected: tuple[str, ...]  # after a behaviour that did not suit
    complaint: tuple[str, ...]  # the same without saying what would
    hearsay: tuple[str, ...]  # somebody else's habit
    exception: tuple[str, ...]  # a single case
    disowned: tuple[str, ...]  # what in a sentence says that it is not the user's own lasting wish
    filler: tuple[str, ...]  # talk without any preference
    named: tuple[str, ...]  # a request that names what matters to it; {request} and {topic}
    not_mine: tuple[str, ...]  # the complaint after the user's own way was shown where it does not belong
    leads: Mapping[str, tuple[str, ...]]  # how a sentence names the context
    life: Mapping[str, tuple[str, ...]]  # the situation a session begins in, for simulators that are models
    scenarios: Mapping[str, tuple[str, ...]]
    passing: tuple[str, ...]  # talk that names a topic and wants nothing of the assistant; {topic}
    neutral_reply: str  # in no particular way
    replies: tuple[str, ...]  # what the assistant says to statements and talk
    lead_in: str  # how a reply begins


@dataclass(frozen=True, eq=False)
class Language:
    """Everything said in one language."""

    name: LanguageName
    attributes: tuple[Attribute, ...]
    worlds: tuple[World, ...]
    forms: Forms
    context_words: Mapping[str, Sequence[str]]  # by which a line names a context
    grammar: Grammar = Grammar()
    # Request -> the attribute its beat names, in data that is read; None: found by the words of the request.
    named_requests: Mapping[str, str] | None = None

    @property
    def sentence_gap(self) -> str:
        """The space between two sentences, if any."""
        return "" if self.name == "zh" else " "

    @cached_property
    def by_name(self) -> dict[str, Attribute]:
        return {attribute.name: attribute for attribute in self.attributes}

    @cached_property
    def settings(self) -> dict[str, tuple[str, str]]:
        """Wording in lower case -> attribute, and the name of the setting that it means."""
        return {
            wording.casefold(): (attribute.name, setting.marker)
            for attribute in self.attributes
            for setting in attribute.settings
            for wording in setting.wordings
        }

    @cached_property
    def any_wording(self) -> re.Pattern[str]:
        """Finds the wordings in a text in lower case, also where they are broken over lines."""

        def over_lines(text: str) -> str:
            return r"\s+".join(map(re.escape, text.split(" ")))

        begins: dict[str, list[str]] = {}
        for wording in sorted(self.settings, key=len, reverse=True):
            begins.setdefault(wording[:2], []).append(wording[2:])
        # By their first letters, so that a position of the text is compared with few of them.
        groups = (
            rf"{over_lines(begin)}(?:{'|'.join(map(over_lines, rests))})" for begin, rests in begins.items()
        )
        return re.compile("|".join(groups) or r"(?!)")

    @cached_property
    def _by_marker(self) -> dict[str, Setting]:
        return {setting.marker: setting for attribute in self.attributes for setting in attribute.settings}

    def wordings(self, marker: str) -> tuple[str, ...]:
        """Every wording of a setting by its name; of a name nobody knows, the name."""
        known = self._by_marker.get(marker)
        return known.wordings if known else (marker,)

    def in_play(self, marker: str, seed: int) -> Setting:
        """A setting with the half of its wordings that a seed's game uses; the others are held out."""
        whole = self._by_marker[marker]
        dice = Dice(f"wordings/{seed}/{marker}")
        asked = max(1, len(whole.wordings) // 4)
        explicit, implied = dice.shuffled(whole.explicit), dice.shuffled(whole.implied)
        return replace(whole, explicit=tuple(islice(explicit, asked)), implied=tuple(islice(implied, asked)))

    def forms_of(self, marker: str) -> Iterator[str]:
        """Every surface form in which the files let a setting be said."""
        return (form for wording in self.wordings(marker) for form in self.grammar.forms(wording))

    def speaking(self, said: Mapping[str, Sequence[str]]) -> Language:
        """The language with the surface forms of a game in place of its wordings; names of settings stay."""
        attributes = (
            replace(
                attribute,
                settings=tuple(
                    replace(setting, explicit=(setting.marker,), implied=tuple(said.get(setting.marker, ())))
                    for setting in attribute.settings
                ),
            )
            for attribute in self.attributes
        )
        return replace(self, attributes=tuple(attributes))

    def acted(self, attribute: str, marker: str) -> str:
        """The words of a reply that follows a setting."""
        known = self.by_name[attribute]
        return known.settings[known.markers.index(marker)].acted

    def shown(self, attribute: str, reply: str) -> str | None:
        """The first setting of an attribute that a reply shows, as its marker; None where it shows none."""
        text, settings = reply.casefold(), self.by_name[attribute].settings
        places = [(text.find(setting.acted.casefold()), setting.marker) for setting in settings]
        return min(((at, marker) for at, marker in places if at >= 0), default=(0, None))[1]

    @cached_property
    def _requests(self) -> list[tuple[re.Pattern[str], str]]:
        """Of each attribute its requests, with anything in the places that are filled in."""
        found = []
        for attribute in self.attributes:
            for request in attribute.requests:
                pattern = ".+?".join(map(re.escape, re.split(r"\{\w+\}", request)))
                found.append((re.compile(pattern, re.IGNORECASE), attribute.name))
        return found

    def matters_to(self, request: str) -> str | None:
        """The attribute that a request calls for, or None."""
        if self.named_requests is not None:
            return self.named_requests.get(request)
        return next((name for form, name in self._requests if form.search(request)), None)

    def says_context(self, text: str) -> str | None:
        """The context that a text names, or None where it names none or both."""
        named = [
            context
            for context, words in self.context_words.items()
            if any(self.word(word).search(text) for word in words)
        ]
        return named[0] if len(named) == 1 else None

    @staticmethod
    @cache
    def word(word: str) -> re.Pattern[str]:
        """Finds a word; one of a script without spaces has no edges to look for."""
        return re.compile(rf"\b{re.escape(word)}\b" if word.isascii() else re.escape(word), re.IGNORECASE)


def load_language(name: str, words: Path | None = None) -> Language:
    """A language by its short name; ``words`` is a file of wordings in place of those that ship with memslot.

    Raises:
        ConfigError: no such language, or the file is no file of wordings.
    """
    return _loaded(name, words)


@cache
def _loaded(name: str, words: Path | None) -> Language:
    for known in get_args(LanguageName):
        if name == known:
            given = read_part(f"forms_{name}")
            context_words = given.pop("context_words")
            forms = TypeAdapter(Forms).validate_python(given)
            attributes, groups = _attributes(name), read_part(f"synonyms_{name}")
            if words is not None:
                attributes, groups = own_wordings(words, attributes)
            return Language(known, attributes, worlds(name), forms, context_words, Grammar(groups))
    raise ConfigError(f"language: is {name!r}; the game speaks en and zh")


def language_of(data: TimelineSet) -> Language:
    """What deterministic roles make of data that is read: settings are told by the exact words of its truth, and
    replies show a setting by a sign that is no word of it."""
    values: dict[str, dict[str, None]] = {}
    requests: dict[str, str] = {}
    for timeline in data.timelines:
        for known in timeline.preferences:
            values.setdefault(known.attribute, {})[known.value] = None
        scripts = [
            *(session.script for session in timeline.sessions),
            *(test.script for test in timeline.tests),
        ]
        for beat in (beat for script in scripts if script is not None for beat in script.beats):
            if beat.attribute is not None:
                requests[beat.goal] = beat.attribute
    attributes = []
    for name, markers in values.items():
        signs = (f"(acts by setting {number} of {name})" for number in range(1, len(markers) + 1))
        settings = (Setting(sign, (marker,)) for sign, marker in zip(signs, markers, strict=True))
        attributes.append(Attribute(name, name, tuple(settings)))
    return replace(load_language("en"), attributes=tuple(attributes), worlds=(), named_requests=requests)


def _attributes(language: str) -> tuple[Attribute, ...]:
    found = []
    for name, given in read_part(f"words_{language}").items():
        settings = []
        for entry in given["settings"]:
            implied = tuple(said for kind in IMPLIED for said in entry[kind])
            settings.append(Setting(entry["acted"], tuple(entry["explicit"]), implied))
        requests, talk = tuple(given["requests"]), tuple(given["talk"])
        found.append(Attribute(name, given["topic"], tuple(settings), requests, talk))
    return tuple(found)
