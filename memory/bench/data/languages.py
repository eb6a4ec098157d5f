"""The languages there are, by name, and the one that data which is read makes for itself."""

from __future__ import annotations

from memory.bench.data.language import Attribute, DataLanguage, Language
from memory.bench.data.text_en import ENGLISH
from memory.bench.data.text_zh import CHINESE
from memory.bench.data.timeline import TimelineSet
from memory.contract.errors import ConfigError


def language_of(data: TimelineSet) -> DataLanguage:
    """The language of data that is read."""
    values: dict[str, dict[str, None]] = {}
    requests: dict[str, str] = {}
    for timeline in data.timelines:
        for known in timeline.preferences:
            values.setdefault(known.attribute, {})[known.value] = None
        scripts = [entry.script for entry in timeline.sessions] + [entry.script for entry in timeline.tests]
        for beat in (beat for script in scripts if script is not None for beat in script.beats):
            if beat.attribute is not None:
                requests[beat.goal] = beat.attribute
    attributes = tuple(
        Attribute(
            name,
            name,
            "",
            tuple(markers),
            tuple(f"(acts by setting {number} of {name})" for number in range(1, len(markers) + 1)),
        )
        for name, markers in values.items()
    )
    return DataLanguage("en", attributes, (), load_language("en").forms, requests=requests)


def load_language(name: str) -> Language:
    """A language by its short name.

    Raises:
        ConfigError: the game is not written in it.
    """
    if name == "en":
        return ENGLISH
    if name == "zh":
        return CHINESE
    raise ConfigError(f"language: is {name!r}; the game speaks en and zh")
