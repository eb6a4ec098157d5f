"""What is said in the game: attributes, their settings, sentence forms, and the meaning of each wording.

A user states a setting outright, or implies it by a complaint, praise, an example or a correction. All
wordings of a setting mean the same. No provider sees which wordings belong together, because only sentences
reach it.

``words.yaml`` holds the wordings, ``forms.yaml`` the sentence forms, and ``synonyms.yaml`` the surface forms of
words. A file of the user can replace the wordings and their synonyms, so that no memory knows them beforehand::

    wordings:
      verbosity:                      # each attribute, with its four settings in order
        - explicit: [one line is plenty]          # asks for it outright; used in a sentence
          implied: [I fell asleep over page two.] # whole sentences; optional
    synonyms:                         # optional; each choice gives a surface form
      - [plenty, enough]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from memory.bench.data.dice import Dice
from memory.bench.data.timeline import TimelineSet
from memory.bench.data.worlds import read_part
from memory.plugins.blocks import Problems, load_yaml, parse_block

_IMPLIED = ("complaint", "praise", "example", "correction")


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of an attribute."""

    acted: str  # how a reply shows it; neither a wording nor part of one
    explicit: tuple[str, ...]  # phrases that ask for it outright, for use in a sentence
    implied: tuple[str, ...] = ()  # whole sentences that imply it
    name: str = ""  # empty: the first explicit wording

    @property
    def marker(self) -> str:
        """Its name, in which the truth is written."""
        return self.name or self.explicit[0]

    @property
    def wordings(self) -> tuple[str, ...]:
        return (*self.explicit, *self.implied)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One aspect of an assistant's communication."""

    name: str
    topic: str  # how users refer to it
    settings: tuple[Setting, ...]
    # Requests to which it matters without naming it, with placeholders for a matter or a person. Practice
    # uses the first half and tests the second, so that no test repeats an earlier request.
    requests: tuple[str, ...] = ()
    talk: tuple[str, ...] = ()  # sentences that share words with its wordings but mean none of them

    @property
    def markers(self) -> tuple[str, ...]:
        return tuple(setting.marker for setting in self.settings)

    def practised(self, *, tested: bool) -> tuple[str, ...]:
        """The requests for practice, or those for tests."""
        half = len(self.requests) // 2
        return self.requests[half:] if tested else self.requests[:half]


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
    context_words: Mapping[str, tuple[str, ...]]  # words by which a line names a context


class Grammar:
    """Surface forms of a wording, in which each synonym is exchanged or kept.

    Args:
        groups: of synonyms. The first word of a group is the word that wordings contain.
    """

    def __init__(self, groups: Iterable[Sequence[str]] = ()) -> None:
        self._options = {group[0].casefold(): tuple(group) for group in groups}
        longest = sorted(self._options, key=len, reverse=True)
        self._words = re.compile("|".join(map(whole_word, longest)) or r"(?!)", re.IGNORECASE)

    def forms(self, wording: str) -> Iterator[str]:
        """Every surface form of a wording, beginning with the wording itself."""
        parts, at = list[Sequence[str]](), 0
        for found in self._words.finditer(wording):
            parts += [(wording[at : found.start()],), self._exchanged(found[0])]
            at = found.end()
        for chosen in product(*parts, (wording[at:],)):
            yield "".join(chosen)

    def drawn(self, wording: str, dice: Dice) -> str:
        """A random surface form of a wording."""
        return self._words.sub(lambda found: dice.pick(self._exchanged(found[0])), wording)

    def _exchanged(self, found: str) -> Sequence[str]:
        options = self._options[found.casefold()]
        if not found[0].isupper():
            return options
        return [option[:1].upper() + option[1:] for option in options]


def whole_word(word: str) -> str:
    """A pattern for a whole word. Punctuation and scripts without spaces have no word boundaries."""
    begin = r"\b" if word[0].isascii() and word[0].isalnum() else ""
    end = r"\b" if word[-1].isascii() and word[-1].isalnum() else ""
    return f"{begin}{re.escape(word)}{end}"


@dataclass(frozen=True, eq=False)
class Language:
    """Everything that is said."""

    attributes: tuple[Attribute, ...]
    forms: Forms
    grammar: Grammar = Grammar()
    # Request -> the attribute of its beat, in data read from a file; None: found by the words of the request.
    named_requests: Mapping[str, str] | None = None

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

    @cached_property
    def context_words(self) -> list[tuple[str, re.Pattern[str]]]:
        """Patterns of the words that name a context, with their contexts."""
        return [
            (context, re.compile(whole_word(word), re.IGNORECASE))
            for context, words in self.forms.context_words.items()
            for word in words
        ]

    def says_context(self, text: str) -> str | None:
        """The context that a text names; None if it names none or both."""
        named = {context for context, word in self.context_words if word.search(text)}
        return named.pop() if len(named) == 1 else None


@cache
def load_language(words: Path | None = None) -> Language:
    """The language of the game. ``words`` is a file that replaces memslot's own wordings.

    Raises:
        ConfigError: has one line for each fault of the file.
    """
    forms = TypeAdapter(Forms).validate_python(read_part("forms"))
    attributes, groups = _attributes(), read_part("synonyms")
    if words is not None:
        attributes, groups = _own_wordings(words, attributes)
    return Language(attributes, forms, Grammar(groups))


def language_of(data: TimelineSet) -> Language:
    """The language of deterministic roles for data read from a file.

    Users tell a setting by the exact words of its truth. Replies show it by an artificial sign.
    """
    values: dict[str, dict[str, None]] = {}
    requests: dict[str, str] = {}
    for timeline in data.timelines:
        for known in timeline.preferences:
            values.setdefault(known.attribute, {})[known.value] = None
        scripts = [session.script for session in timeline.sessions] + [test.script for test in timeline.tests]
        for beat in (beat for script in scripts if script is not None for beat in script.beats):
            if beat.attribute is not None:
                requests[beat.goal] = beat.attribute
    attributes = []
    for name, markers in values.items():
        signs = (f"(acts by setting {number} of {name})" for number in range(1, len(markers) + 1))
        settings = (Setting(sign, (marker,)) for sign, marker in zip(signs, markers, strict=True))
        attributes.append(Attribute(name, name, tuple(settings)))
    return replace(load_language(), attributes=tuple(attributes), named_requests=requests)


def _attributes() -> tuple[Attribute, ...]:
    found = []
    for name, given in read_part("words").items():
        settings = []
        for entry in given["settings"]:
            implied = tuple(said for kind in _IMPLIED for said in entry[kind])
            settings.append(Setting(entry["acted"], tuple(entry["explicit"]), implied))
        requests, talk = tuple(given["requests"]), tuple(given["talk"])
        found.append(Attribute(name, given["topic"], tuple(settings), requests, talk))
    return tuple(found)


_Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _OwnSetting(_Strict):
    explicit: _Texts
    implied: _Texts = ()


def _own_wordings(
    file: Path, attributes: Sequence[Attribute]
) -> tuple[tuple[Attribute, ...], list[Sequence[str]]]:
    """The attributes with the wordings of a file, and its groups of synonyms."""
    of_attributes: dict[str, Any] = {
        attribute.name: Annotated[list[_OwnSetting], Field(min_length=size, max_length=size)]
        for attribute in attributes
        if (size := len(attribute.settings))
    }
    wordings = create_model("_Wordings", __base__=_Strict, **of_attributes)
    model = create_model("_File", __base__=_Strict, wordings=wordings, synonyms=(list[_Texts], []))
    content, lines = load_yaml(file)
    problem = Problems(f"bench.wordings: {file.name}", lines)
    given: Any = parse_block(model, content, "", problem)
    found = tuple(
        replace(
            attribute,
            settings=tuple(
                # The package's marker stays as the name: the truth uses it, and no sentence contains it.
                replace(known, name=known.marker, explicit=own.explicit, implied=own.implied or own.explicit)
                for known, own in zip(
                    attribute.settings, getattr(given.wordings, attribute.name), strict=True
                )
            ),
        )
        for attribute in attributes
    )
    _check_apart(found, problem)
    return found, given.synonyms


def _check_apart(attributes: Sequence[Attribute], problem: Problems) -> None:
    """Refuses wordings that are part of another setting's wording."""
    said = [
        (wording.casefold(), setting.marker, attribute.name)
        for attribute in attributes
        for setting in attribute.settings
        for wording in setting.wordings
    ]
    for wording, marker, name in said:
        if any(wording in other and marker != owner for other, owner, _ in said):
            raise problem(("wordings", name), "has a wording that is part of another setting's")
