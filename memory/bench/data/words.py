"""Attributes of communication, their settings, and the wordings of each setting."""

from __future__ import annotations

from dataclasses import dataclass

IMPLIED = ("complaint", "praise", "example", "correction")


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

    name: str  # short id, the same in all languages
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
