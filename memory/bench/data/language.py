"""A language of the game: attributes, worlds, sentence forms, and the meaning of each wording.

A user states a setting outright, or implies it by a complaint, praise, an example or a correction. All
wordings of a setting mean the same. No provider sees which wordings belong together, because only sentences
reach it.

``words_<language>.yaml`` holds the wordings, ``worlds_...`` the names, ``forms_...`` the sentence forms, and
``synonyms_...`` the surface forms of words. A user's own file can replace the wordings and their synonyms.
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
    """Sentence templates for ``str.format``; mappings are by context.

    ``{lead}`` names the context or is empty. ``{marker}`` is an explicit wording.
    """

    stated: tuple[str, ...]  # a preference, told for the first time
    announced: tuple[str, ...]  # a preference, told as a change
    reverted: tuple[str, ...]  # a preference, told as a return to an earlier value
    corrected: tuple[str, ...]  # a preference, told after a behaviour that did not suit
    complaint: tuple[str, ...]  # an objection that does not name what would suit
    hearsay: tuple[str, ...]  # another person's habit
    exception: tuple[str, ...]  # a single case
    disowned: tuple[str, ...]  # phrases that mark a wish as another person's or as not lasting
    filler: tuple[str, ...]  # talk without a preference
    named: tuple[str, ...]  # a request that names its attribute; {request} and {topic}
    not_mine: tuple[str, ...]  # an objection to a preference shown where it does not belong
    leads: Mapping[str, tuple[str, ...]]  # phrases that name the context
    life: Mapping[str, tuple[str, ...]]  # situations in which a session begins, for model simulators
    scenarios: Mapping[str, tuple[str, ...]]
    passing: tuple[str, ...]  # talk that names a topic but requests nothing; {topic}
    neutral_reply: str  # a reply in no particular way
    replies: tuple[str, ...]  # the assistant's replies to statements and talk
    lead_in: str  # the beginning of a reply


@dataclass(frozen=True, eq=False)
class Language:
    """Everything that is said in one language."""

    name: LanguageName
    attributes: tuple[Attribute, ...]
    worlds: tuple[World, ...]
    forms: Forms
    context_words: Mapping[str, Sequence[str]]  # words by which a line names a context
    grammar: Grammar = Grammar()
    # Request -> the attribute of its beat, in data read from a file; None: found by the words of the request.
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
        """Lower-case wording -> attribute, and marker of its setting."""
        return {
            wording.casefold(): (attribute.name, setting.marker)
            for attribute in self.attributes
            for setting in attribute.settings
            for wording in setting.wordings
        }

    @cached_property
    def any_wording(self) -> re.Pattern[str]:
        """Finds wordings in lower-case text, also across line breaks."""

        def over_lines(text: str) -> str:
            return r"\s+".join(map(re.escape, text.split(" ")))

        begins: dict[str, list[str]] = {}
        for wording in sorted(self.settings, key=len, reverse=True):
            begins.setdefault(wording[:2], []).append(wording[2:])
        # Grouped by their first two letters, so that each position is compared with few wordings.
        groups = (
            rf"{over_lines(begin)}(?:{'|'.join(map(over_lines, rests))})" for begin, rests in begins.items()
        )
        return re.compile("|".join(groups) or r"(?!)")

    @cached_property
    def _by_marker(self) -> dict[str, Setting]:
        return {setting.marker: setting for attribute in self.attributes for setting in attribute.settings}

    def wordings(self, marker: str) -> tuple[str, ...]:
        """All wordings of a setting, by its marker. An unknown marker is its only wording."""
        known = self._by_marker.get(marker)
        return known.wordings if known else (marker,)

    def in_play(self, marker: str, seed: int) -> Setting:
        """A setting with the half of its wordings that a seed's game uses. The others are held out."""
        whole = self._by_marker[marker]
        dice = Dice(f"wordings/{seed}/{marker}")
        asked = max(1, len(whole.wordings) // 4)
        explicit, implied = dice.shuffled(whole.explicit), dice.shuffled(whole.implied)
        return replace(whole, explicit=tuple(islice(explicit, asked)), implied=tuple(islice(implied, asked)))

    def forms_of(self, marker: str) -> Iterator[str]:
        """Every surface form of a setting."""
        return (form for wording in self.wordings(marker) for form in self.grammar.forms(wording))

    def speaking(self, said: Mapping[str, Sequence[str]]) -> Language:
        """The language with a game's surface forms in place of its wordings. Markers stay."""
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
        """The words with which a reply shows a setting."""
        known = self.by_name[attribute]
        return known.settings[known.markers.index(marker)].acted

    def shown(self, attribute: str, reply: str) -> str | None:
        """The marker of the attribute's first setting in a reply; None without one."""
        text, settings = reply.casefold(), self.by_name[attribute].settings
        places = [(text.find(setting.acted.casefold()), setting.marker) for setting in settings]
        return min(((at, marker) for at, marker in places if at >= 0), default=(0, None))[1]

    @cached_property
    def _requests(self) -> list[tuple[re.Pattern[str], str]]:
        """Patterns of all requests, with their attributes. Placeholders match any text."""
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
        """The context that a text names; None if it names none or both."""
        named = [
            context
            for context, words in self.context_words.items()
            if any(self.word(word).search(text) for word in words)
        ]
        return named[0] if len(named) == 1 else None

    @staticmethod
    @cache
    def word(word: str) -> re.Pattern[str]:
        """Finds a whole word. Scripts without spaces have no word boundaries to check."""
        return re.compile(rf"\b{re.escape(word)}\b" if word.isascii() else re.escape(word), re.IGNORECASE)


def load_language(name: str, words: Path | None = None) -> Language:
    """A language by its short name. ``words`` is a file that replaces memslot's own wordings.

    Raises:
        ConfigError: the language is unknown, or the file is not a valid file of wordings.
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
    """The language of deterministic roles for data read from a file.

    Users tell a setting by the exact words of its truth. Replies show it by an artificial sign.
    """
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
