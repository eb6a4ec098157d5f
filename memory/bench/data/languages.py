"""The languages there are, by name, and the one that data which is read makes for itself.

Wordings and names of one stand in ``words_en.yaml`` and ``worlds_en.yaml``, its sentence forms in ``text_en``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from memory.bench.data import text_en, text_zh
from memory.bench.data.language import Attribute, DataLanguage, Language, Setting, World
from memory.bench.data.timeline import CONTEXTS, TimelineSet
from memory.contract.errors import ConfigError
from memory.plugins.blocks import load_yaml

_IMPLIED = ("complaint", "praise", "example", "correction")


@cache
def load_language(name: str) -> Language:
    """A language by its short name.

    Raises:
        ConfigError: the game is not written in it.
    """
    if name == "en":
        return Language("en", _attributes("en"), _worlds("en"), text_en.FORMS)
    if name == "zh":
        return Language("zh", _attributes("zh"), _worlds("zh"), text_zh.FORMS, text_zh.CONTEXT_WORDS)
    raise ConfigError(f"language: is {name!r}; the game speaks en and zh")


def language_of(data: TimelineSet) -> DataLanguage:
    """The language of data that is read."""
    values: dict[str, dict[str, None]] = {}
    requests: dict[str, str] = {}
    for timeline in data.timelines:
        for known in timeline.preferences:
            values.setdefault(known.attribute, {})[known.value] = None
        scripts = [session.script for session in timeline.sessions]
        scripts += [test.script for test in timeline.tests]
        for beat in (beat for script in scripts if script is not None for beat in script.beats):
            if beat.attribute is not None:
                requests[beat.goal] = beat.attribute
    attributes = tuple(
        Attribute(
            name,
            name,
            tuple(
                Setting(f"(acts by setting {number} of {name})", (marker,))
                for number, marker in enumerate(markers, start=1)
            ),
        )
        for name, markers in values.items()
    )
    return DataLanguage("en", attributes, (), load_language("en").forms, requests=requests)


def _read(name: str) -> dict[str, Any]:
    content, _ = load_yaml(Path(__file__).with_name(f"{name}.yaml"))
    return dict(content)


def _attributes(language: str) -> tuple[Attribute, ...]:
    return tuple(
        Attribute(
            name,
            given["topic"],
            tuple(
                Setting(
                    entry["acted"],
                    tuple(entry["explicit"]),
                    tuple(said for kind in _IMPLIED for said in entry[kind]),
                )
                for entry in given["settings"]
            ),
            tuple(given["requests"]),
            tuple(given["talk"]),
        )
        for name, given in _read(f"words_{language}").items()
    )


def _worlds(language: str) -> tuple[World, ...]:
    """Personas out of parts; what makes a name unique is used once."""
    parts = _read(f"worlds_{language}")
    worlds = []
    for number, persona_id in enumerate(parts["personas"]):
        matters: dict[str, tuple[str, ...]] = {}
        people: dict[str, tuple[str, ...]] = {}
        for context in CONTEXTS:
            given = parts[context]
            nouns = [given["matters"][(3 * number + step) % len(given["matters"])] for step in range(3)]
            matters[context] = tuple(noun.format(given["places"][number]) for noun in nouns)
            called = given["called"][number % len(given["called"])]
            people[context] = (given["friends"][number], called.format(given["others"][number]))
        worlds.append(World(persona_id, matters, people))
    return tuple(worlds)
