"""Reads a file of wordings that replaces memslot's own, so that no memory can know them beforehand.

::

    wordings:
      verbosity:                      # each attribute, with its four settings in order
        - explicit: [one line is plenty]          # asks for it outright; used in a sentence
          implied: [I fell asleep over page two.] # whole sentences; optional
    synonyms:                         # optional; each choice gives a surface form
      - [plenty, enough]

Requests, topics and the signs in replies stay those of the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from memory.bench.data.words import Attribute, Setting
from memory.contract.errors import ConfigError
from memory.plugins.blocks import load_yaml


def own_wordings(
    file: Path, attributes: Sequence[Attribute]
) -> tuple[tuple[Attribute, ...], list[list[str]]]:
    """The attributes with the wordings of a file, and its groups of synonyms.

    Raises:
        ConfigError: lists all faults of the file.
    """
    content, lines = load_yaml(file)
    wrong: list[str] = []

    def fault(place: tuple[str, ...], what: str) -> None:
        line = lines.of(place)
        wrong.append(f"{f'line {line}: ' if line else ''}{'.'.join(place)} {what}")

    given: Any = content.get("wordings")
    if unknown := sorted(map(str, content.keys() - {"wordings", "synonyms"})):
        fault((unknown[0],), "is not known; a file has wordings and synonyms")
    given = given if isinstance(given, dict) else {}
    found = []
    for attribute in attributes:
        place, settings = ("wordings", attribute.name), given.get(attribute.name)
        if not isinstance(settings, list) or len(settings) != len(attribute.settings):
            fault(place, f"must be a list of {len(attribute.settings)} settings")
            continue
        pairs = zip(attribute.settings, settings, strict=True)
        own = tuple(_setting(known, entry, place, fault) for known, entry in pairs)
        found.append(replace(attribute, settings=own))
    for name in sorted(map(str, given.keys() - {attribute.name for attribute in attributes})):
        fault(("wordings", name), "is no attribute of the game")
    groups = content.get("synonyms") or []
    if not isinstance(groups, list) or not all(_texts(group) for group in groups):
        fault(("synonyms",), "must be a list of lists of words")
    _apart(found, fault)
    if wrong:
        raise ConfigError(f"bench.wordings: {file.name}: {'; '.join(wrong)}")
    return tuple(found), groups


def _texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) and text for text in value)


def _setting(known: Setting, entry: Any, place: tuple[str, ...], fault: Any) -> Setting:
    explicit = entry.get("explicit") if isinstance(entry, dict) else None
    implied = entry.get("implied", []) if isinstance(entry, dict) else None
    if not isinstance(explicit, list) or not _texts(explicit):
        fault(place, "has a setting whose explicit is no list of texts")
        return known
    if implied and not _texts(implied):
        fault(place, "has a setting whose implied is no list of texts")
        return known
    # The package's marker stays as the name: the truth uses it, and no sentence contains it.
    return replace(known, name=known.marker, explicit=tuple(explicit), implied=tuple(implied or explicit))


def _apart(attributes: Sequence[Attribute], fault: Any) -> None:
    """Reports wordings that are part of another setting's wording."""
    said = [
        (wording.casefold(), setting.marker, attribute.name)
        for attribute in attributes
        for setting in attribute.settings
        for wording in setting.wordings
    ]
    for wording, marker, name in said:
        if any(wording in other and marker != owner for other, owner, _ in said):
            fault(("wordings", name), "has a wording that is part of another setting's")
