"""What a language of the game consists of: attributes, worlds and sentence forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Literal

from memory.bench.data.timeline import CONTEXTS

LanguageName = Literal["en", "zh"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One way in which an assistant can communicate.

    Attributes:
        name: short id, the same in all languages.
        topic: how one speaks of it.
        task: a request to which it matters, without naming it; filled with a matter or a person.
        markers: the settings, each as the phrase by which the user tells it. No marker is part of another sentence.
        acted: the settings, each as what a reply shows that follows it; no marker and no part of one.
    """

    name: str
    topic: str
    task: str
    markers: tuple[str, ...]
    acted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class World:
    """What one persona's life is about. Names are unique to the persona, so that a leak would show."""

    persona_id: str
    matters: dict[str, tuple[str, ...]]
    people: dict[str, tuple[str, ...]]

    @property
    def names(self) -> frozenset[str]:
        """Everything that belongs to this persona alone."""
        return frozenset(
            name for group in (self.matters, self.people) for names in group.values() for name in names
        )


@dataclass(frozen=True, slots=True)
class Forms:
    """Sentences, filled with ``str.format``. ``{lead}`` names the context, or is empty.

    Attributes:
        stated, announced, plain, repeated, reverted: a preference becomes known: at first, as a change, as a
            change that is not called one, once more, as a return to how it was.
        corrected: after a behaviour that did not suit.
        complaint: the same without saying what would.
        hearsay, exception: somebody else's habit, and a single case.
        disowned: what in a sentence says that it is not the user's own lasting wish.
        filler: talk without any preference.
        named: a request that names what matters to it; ``{request}`` and ``{topic}``.
        for_others: a request in which the user's own ways do not belong; ``{request}`` and ``{person}``.
        plainly: what in such a request says so.
        not_mine: the complaint after such a request was answered in the user's own way.
        leads: per context, how a sentence names it.
        life: per context, the situation a session begins in, told to simulators that write.
        scenarios: per context.
        neutral_reply: a reply in no particular way.
        replies: what the assistant says to statements and talk.
        lead_in: how a reply begins; ``{subject}`` is what it is about.
    """

    stated: tuple[str, ...]
    announced: tuple[str, ...]
    plain: tuple[str, ...]
    reverted: tuple[str, ...]
    repeated: tuple[str, ...]
    corrected: tuple[str, ...]
    complaint: tuple[str, ...]
    hearsay: tuple[str, ...]
    exception: tuple[str, ...]
    disowned: tuple[str, ...]
    filler: tuple[str, ...]
    named: tuple[str, ...]
    for_others: tuple[str, ...]
    plainly: tuple[str, ...]
    not_mine: tuple[str, ...]
    leads: Mapping[str, tuple[str, ...]]
    life: Mapping[str, tuple[str, ...]]
    scenarios: Mapping[str, tuple[str, ...]]
    neutral_reply: str
    replies: tuple[str, ...]
    lead_in: str


@dataclass(frozen=True)
class Language:
    """Everything said in one language.

    Attributes:
        name: ``en`` or ``zh``.
        worlds: personas, each with matters and people of its own.
        context_words: per context, the words by which a line names it.
    """

    name: LanguageName
    attributes: tuple[Attribute, ...]
    worlds: tuple[World, ...]
    forms: Forms
    context_words: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: {context: (context,) for context in CONTEXTS}
    )

    @cached_property
    def by_name(self) -> dict[str, Attribute]:
        """Attributes by name."""
        return {attribute.name: attribute for attribute in self.attributes}

    @cached_property
    def settings(self) -> dict[str, tuple[str, str]]:
        """Marker in lower case -> attribute, and the marker as it is written."""
        return {
            marker.casefold(): (attribute.name, marker)
            for attribute in self.attributes
            for marker in attribute.markers
        }

    @cached_property
    def any_marker(self) -> re.Pattern[str]:
        """Finds the markers in a text in lower case."""
        return re.compile("|".join(map(re.escape, sorted(self.settings, key=len, reverse=True))) or r"(?!)")

    def acted(self, attribute: str, marker: str) -> str:
        """What a reply shows that follows a setting."""
        known = self.by_name[attribute]
        return known.acted[known.markers.index(marker)]

    def shown(self, attribute: str, reply: str) -> str | None:
        """The setting of an attribute that a reply shows, as its marker; None where it shows none.

        A reply that shows several shows the first.
        """
        known, text = self.by_name[attribute], reply.casefold()
        places = [
            (text.find(acted.casefold()), marker)
            for acted, marker in zip(known.acted, known.markers, strict=True)
        ]
        return min(((at, marker) for at, marker in places if at >= 0), default=(0, None))[1]

    @cached_property
    def _requests(self) -> list[tuple[re.Pattern[str], str]]:
        """Of each attribute its request, with anything in the places that are filled in."""
        found = []
        for attribute in self.attributes:
            parts = re.split(r"\{\w+\}", attribute.task)
            found.append((re.compile(".+?".join(map(re.escape, parts)), re.IGNORECASE), attribute.name))
        return found

    def matters_to(self, request: str) -> str | None:
        """The attribute that a request calls for, or None."""
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


@dataclass(frozen=True)
class DataLanguage(Language):
    """What deterministic roles make of data that is read: settings are told by the exact words of its truth, and
    a request calls for the attribute that its beat names. Replies show a setting by a sign that is no word of it.
    """

    requests: Mapping[str, str] = field(default_factory=dict)

    def matters_to(self, request: str) -> str | None:
        """The attribute of the beat that says this."""
        return self.requests.get(request)
