"""Types that a prompt offers: which of them something is, and what a text tells of its fields. By words alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from memory.testing._scripted_text import content_words, python_literal

_PEOPLE = frozenset({"person", "people", "human", "speaker"})
_VALUE = r"(?:\s+(?:is|are|was|of|=)|\s*:)\s+(?P<value>[\w.%-]+)"


@dataclass(frozen=True, slots=True)
class TypesOffered:
    """Types to choose from: (id or name, the words of its name and description); the default has no words."""

    kinds: Sequence[tuple[Any, frozenset[str]]]
    default: Any = None

    @classmethod
    def entities(cls, listed: str) -> TypesOffered:
        """As Graphiti lists them, a Python literal; without any, everything is a plain entity."""
        offered = python_literal(listed or "[{'entity_type_id': 0, 'entity_type_name': 'Entity'}]")
        kinds = {entry["entity_type_id"]: _words(entry, "entity_type") for entry in offered}
        plain = [entry["entity_type_id"] for entry in offered if entry["entity_type_name"] == "Entity"]
        return cls([kind for kind in kinds.items() if kind[0] not in plain], next(iter(plain), None))

    @classmethod
    def facts(cls, listed: str) -> TypesOffered:
        """As Graphiti lists them, JSON."""
        offered = json.loads(listed or "[]")
        return cls([(entry["fact_type_name"], _words(entry, "fact_type")) for entry in offered])

    def of_entity(self, name: str, *, speaks: bool) -> Any:
        """The id of the type whose words the name shares most; who speaks is a person; None leaves it out."""
        return self._best(frozenset(content_words(name)) | (_PEOPLE if speaks else frozenset()))

    def of_fact(self, text: str) -> str | None:
        """The name of the type whose words the fact shares most, or None where it shares none."""
        return cast("str | None", self._best(frozenset(content_words(text))))

    def _best(self, words: frozenset[str]) -> Any:
        shared = [(len(words & known), kind) for kind, known in self.kinds]
        highest = max((count for count, _ in shared), default=0)
        return next(kind for count, kind in shared if count == highest) if highest else self.default


def _words(entry: Mapping[str, Any], kind: str) -> frozenset[str]:
    name, description = str(entry[f"{kind}_name"]), entry.get(f"{kind}_description")
    return frozenset(content_words(f"{name.replace('_', ' ')} {description or ''}"))


def attributes_told(schema: Mapping[str, Any], text: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each property: what the text says it is ("its flavour is malty"), what is known, or null."""
    found = {}
    for name, wanted in schema.get("properties", {}).items():
        match = re.search(rf"\b{re.escape(name).replace('_', '[ _]')}{_VALUE}", text, re.I)
        value = _typed(match["value"].rstrip("."), wanted) if match else None
        found[name] = known.get(name) if value is None else value
    return found


def _typed(text: str, wanted: Mapping[str, Any]) -> Any:
    kinds = {wanted.get("type"), *(entry.get("type") for entry in wanted.get("anyOf", ()))}
    if "boolean" in kinds:
        return {"yes": True, "true": True, "no": False, "false": False}.get(text.casefold())
    for kind, convert in (("integer", int), ("number", float)):
        if kind in kinds:
            try:
                return convert(text)
            except ValueError:
                return None
    return [text] if "array" in kinds else text
