"""Attributes of communication and their settings, with the wordings that let each be known."""

from __future__ import annotations

from dataclasses import dataclass

IMPLIED = ("complaint", "praise", "example", "correction")


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of an attribute."""

    acted: str  # what a reply shows that follows it; no wording and no part of one
    explicit: tuple[str, ...]  # phrases that ask for it outright, to be used in a sentence
    implied: tuple[str, ...] = ()  # whole sentences from which it is to be understood
    name: str = ""  # the first explicit wording where it is empty

    @property
    def marker(self) -> str:
        """Its name: the truth is written in these."""
        return self.name or self.explicit[0]

    @property
    def wordings(self) -> tuple[str, ...]:
        return (*self.explicit, *self.implied)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One way in which an assistant can communicate."""

    name: str  # short id, the same in all languages
    topic: str  # how one speaks of it
    settings: tuple[Setting, ...]
    # To which it matters, without naming it, filled with a matter or a person. The first half is made in practice
    # and the second in tests, so that no test repeats what was said before.
    requests: tuple[str, ...] = ()
    talk: tuple[str, ...] = ()  # sentences that share words with its wordings and mean none of them

    @property
    def markers(self) -> tuple[str, ...]:
        return tuple(setting.marker for setting in self.settings)

    def practised(self, *, tested: bool) -> tuple[str, ...]:
        """The requests of practice, or those of tests."""
        half = len(self.requests) // 2
        return self.requests[half:] if tested else self.requests[:half]
