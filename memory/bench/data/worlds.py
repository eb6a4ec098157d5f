"""The matters and people of each persona's life, built from parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from memory.bench.data.timeline import CONTEXTS

_LISTED = 40  # personas with names listed in the file
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
_STEP = 7919  # prime, so that neighbouring names sound different


@dataclass(frozen=True, slots=True)
class World:
    """The matters and people of one persona's life. Their names are unique, so that a leak is visible."""

    persona_id: str
    matters: dict[str, tuple[str, ...]]
    people: dict[str, tuple[str, ...]]

    @property
    def names(self) -> frozenset[str]:
        """All names that belong to this persona alone."""
        groups = (*self.matters.values(), *self.people.values())
        return frozenset(name for names in groups for name in names)


def read_part(name: str) -> Any:
    """A file of the game. libyaml parses it ten times as fast as the parser that reports line numbers."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(Path(__file__).with_name(f"{name}.yaml").read_text("utf-8"), loader)


def worlds(count: int = _LISTED) -> tuple[World, ...]:
    """The first ``count`` personas. Personas beyond the listed ones get names built from syllables."""
    parts = read_part("worlds")
    return tuple(_world(parts, number) for number in range(count))


def _world(parts: dict[str, Any], number: int) -> World:
    made = _made_names(number)
    listed = number < _LISTED
    matters: dict[str, tuple[str, ...]] = {}
    people: dict[str, tuple[str, ...]] = {}
    for context in CONTEXTS:
        given = parts[context]
        place, friend, other = (
            given[part][number] if listed else next(made) for part in ("places", "friends", "others")
        )
        nouns = [given["matters"][(3 * number + step) % len(given["matters"])] for step in range(3)]
        matters[context] = tuple(noun.format(place) for noun in nouns)
        people[context] = (friend, given["called"][number % len(given["called"])].format(other))
    return World(parts["personas"][number] if listed else f"p{number + 1:04}", matters, people)


def _made_names(number: int) -> Iterator[str]:
    """Names of three syllables. All have the same length, so that no name is part of another."""
    for place in range(6 * number, 6 * number + 6):
        rest, name = place * _STEP % len(_SYLLABLES) ** 3, ""
        for _ in range(3):
            rest, digit = divmod(rest, len(_SYLLABLES))
            name += _SYLLABLES[digit]
        yield f"{name}x".capitalize()
