"""What a language of the game consists of: attributes, worlds, sentence forms, and the meaning of each wording.

A user lets a setting be known in many ways: outright, or to be understood from a complaint, praise, an example or
a correction. All wordings of a setting mean the same here; no provider sees which belong together, because nothing
but the sentences reaches it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice
from typing import Literal

from memory.bench.data.dice import Dice
from memory.bench.data.timeline import CONTEXTS

LanguageName = Literal["en", "zh"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of an attribute.

    Attributes:
        acted: what a reply shows that follows it; no wording and no part of one.
        explicit: phrases that ask for it outright, to be used in a sentence; the first one is its name.
        implied: whole sentences from which it is to be understood.
    """

    acted: str
    explicit: tuple[str, ...]
    implied: tuple[str, ...] = ()

    @property
    def marker(self) -> str:
        """Its name: the truth is written in these."""
        return self.explicit[0]

    @property
    def wordings(self) -> tuple[str, ...]:
        """Every way in which it is said."""
        return (*self.explicit, *self.implied)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One way in which an assistant can communicate.

    Attributes:
        name: short id, the same in all languages.
        topic: how one speaks of it.
        settings: its values.
        requests: to which it matters, without naming it, filled with a matter or a person. The first half is made
            in practice and the second in tests, so that no test repeats what was said before.
        talk: sentences that share words with its wordings and mean none of them.
    """

    name: str
    topic: str
    settings: tuple[Setting, ...]
    requests: tuple[str, ...] = ()
    talk: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        """Names of its settings."""
        return tuple(setting.marker for setting in self.settings)

    def practised(self, *, tested: bool) -> tuple[str, ...]:
        """The requests of practice, or those of tests."""
        half = len(self.requests) // 2
        return self.requests[half:] if tested else self.requests[:half]


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
        stated, announced, plain, reverted: a preference becomes known: at first, as a change, as a change that is
            not called one, as a return to how it was. ``{marker}`` is an explicit wording.
        corrected: after a behaviour that did not suit.
        complaint: the same without saying what would.
        hearsay, exception: somebody else's habit, and a single case.
        disowned: what in a sentence says that it is not the user's own lasting wish.
        filler: talk without any preference.
        named: a request that names what matters to it; ``{request}`` and ``{topic}``.
        not_mine: the complaint after the user's own way was shown where it does not belong.
        leads: per context, how a sentence names it.
        life: per context, the situation a session begins in, told to simulators that write.
        scenarios: per context.
        neutral_reply: a reply in no particular way.
        replies: what the assistant says to statements and talk.
        lead_in: how a reply begins.
    """

    stated: tuple[str, ...]
    announced: tuple[str, ...]
    plain: tuple[str, ...]
    reverted: tuple[str, ...]
    corrected: tuple[str, ...]
    complaint: tuple[str, ...]
    hearsay: tuple[str, ...]
    exception: tuple[str, ...]
    disowned: tuple[str, ...]
    filler: tuple[str, ...]
    named: tuple[str, ...]
    not_mine: tuple[str, ...]
    leads: Mapping[str, tuple[str, ...]]
    life: Mapping[str, tuple[str, ...]]
    scenarios: Mapping[str, tuple[str, ...]]
    neutral_reply: str
    replies: tuple[str, ...]
    lead_in: str


@dataclass(frozen=True, eq=False)
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
        begins: dict[str, list[str]] = {}
        for wording in sorted(self.settings, key=len, reverse=True):
            begins.setdefault(wording[:2], []).append(wording[2:])
        # By their first letters, so that a position of the text is compared with few of them.
        groups = (
            rf"{_over_lines(begin)}(?:{'|'.join(_over_lines(rest) for rest in rests)})"
            for begin, rests in begins.items()
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
        return Setting(whole.acted, tuple(islice(explicit, asked)), tuple(islice(implied, asked)))

    def acted(self, attribute: str, marker: str) -> str:
        """What a reply shows that follows a setting."""
        known = self.by_name[attribute]
        return known.settings[known.markers.index(marker)].acted

    def shown(self, attribute: str, reply: str) -> str | None:
        """The setting of an attribute that a reply shows, as its marker; None where it shows none.

        A reply that shows several shows the first.
        """
        text = reply.casefold()
        places = [
            (text.find(setting.acted.casefold()), setting.marker)
            for setting in self.by_name[attribute].settings
        ]
        return min(((at, marker) for at, marker in places if at >= 0), default=(0, None))[1]

    @cached_property
    def _requests(self) -> list[tuple[re.Pattern[str], str]]:
        """Of each attribute its requests, with anything in the places that are filled in."""
        found = []
        for attribute in self.attributes:
            for request in attribute.requests:
                parts = re.split(r"\{\w+\}", request)
                pattern = ".+?".join(map(re.escape, parts))
                found.append((re.compile(pattern, re.IGNORECASE), attribute.name))
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


def _over_lines(text: str) -> str:
    return r"\s+".join(map(re.escape, text.split(" ")))


@dataclass(frozen=True, eq=False)
class DataLanguage(Language):
    """What deterministic roles make of data that is read: settings are told by the exact words of its truth, and
    a request calls for the attribute that its beat names. Replies show a setting by a sign that is no word of it.
    """

    requests: Mapping[str, str] = field(default_factory=dict)

    def matters_to(self, request: str) -> str | None:
        """The attribute of the beat that says this."""
        return self.requests.get(request)
