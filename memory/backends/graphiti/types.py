"""Custom types of entities and facts: as a configuration gives them, and as the models Graphiti takes.

No SDK is imported by this module; the user's own modules are, by :func:`build_ontology`.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, create_model

from memory import ConfigError
from memory.adapter import PluginOptions, Public

__all__ = ["EdgeRule", "Ontology", "TypeName", "TypeSource", "build_ontology", "check_names"]


def _name(text: str) -> str:
    # A type's name becomes a label in queries, a field's name a property.
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", text):
        raise ValueError("use letters, digits and underscores, a letter first")
    return text


def _source(given: object) -> object:
    path = isinstance(given, str) and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", given)
    if not path and not isinstance(given, (Mapping, InlineType)):
        raise ValueError("name a pydantic model as mypkg.types:Person, or give a block with a description")
    return given


TypeName = Public[Annotated[str, AfterValidator(_name)]]
DEFAULT_TYPE = "Entity"
_KINDS: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "list": list[str],
}


class FieldSchema(PluginOptions):
    """One field of an inline type. It is empty where nothing is said."""

    type: Literal["string", "integer", "number", "boolean", "list"] = "string"
    """What it holds; ``list`` is of strings."""
    description: str = Field(min_length=1)
    """What the extracting model is told of it."""


class InlineType(PluginOptions):
    """A type written in the configuration."""

    description: str = Field(min_length=1)
    """What the extracting model is told of it."""
    fields: dict[TypeName, FieldSchema] = Field(default_factory=dict)
    """Attributes to extract, by name."""


TypeSource = Annotated[str | InlineType, BeforeValidator(_source)]


class EdgeRule(PluginOptions):
    """Which facts may join two types of entities."""

    source: TypeName
    """Type of the entity the fact starts at; ``Entity`` is any."""
    target: TypeName
    """Type of the entity it ends at."""
    edges: tuple[TypeName, ...] = Field(min_length=1)
    """Types of facts."""


def check_names(
    entity_types: Mapping[str, TypeSource],
    edge_types: Mapping[str, TypeSource],
    rules: Iterable[EdgeRule],
    excluded: Iterable[str],
) -> None:
    """Every type that is named is given.

    Raises:
        ValueError: one is not; names the field, and the nearest type.
    """
    entities = {DEFAULT_TYPE, *entity_types}
    if DEFAULT_TYPE in entity_types:
        raise ValueError(f"entity_types.{DEFAULT_TYPE}: this is what Graphiti calls all others; rename it")
    for at, rule in enumerate(rules):
        for field, name in (("source", rule.source), ("target", rule.target)):
            _known(name, entities, f"edge_type_map.{at}.{field}", "entity_types")
        for name in rule.edges:
            _known(name, edge_types.keys(), f"edge_type_map.{at}.edges", "edge_types")
    for name in excluded:
        _known(name, entities, "excluded_entity_types", "entity_types")


def _known(name: str, known: Iterable[str], where: str, given: str) -> None:
    known = sorted(known)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known) or 'none'}"
        raise ValueError(f"{where}: {name} is not in {given}; {hint}")


@dataclass(frozen=True, slots=True)
class Ontology:
    """What ``add_episode`` and ``add_episode_bulk`` are given; None where nothing is configured."""

    entity_types: Mapping[str, type[BaseModel]] | None
    edge_types: Mapping[str, type[BaseModel]] | None
    edge_type_map: Mapping[tuple[str, str], list[str]] | None
    excluded: list[str] | None

    @property
    def arguments(self) -> dict[str, Any]:
        """As keyword arguments of Graphiti; dicts of one call are never another's."""
        return {
            "entity_types": dict(self.entity_types) if self.entity_types else None,
            "excluded_entity_types": self.excluded,
            "edge_types": dict(self.edge_types) if self.edge_types else None,
            "edge_type_map": dict(self.edge_type_map) if self.edge_type_map else None,
        }


def build_ontology(
    entity_types: Mapping[str, TypeSource],
    edge_types: Mapping[str, TypeSource],
    rules: Iterable[EdgeRule],
    excluded: Iterable[str],
    *,
    owner: str,
    protected: tuple[Iterable[str], Iterable[str]],
) -> Ontology:
    """Models of all types; those given by path are imported.

    Args:
        owner: names the block in errors, such as ``memory.backends.graphiti``.
        protected: fields that Graphiti's own entities, and its facts, have already.

    Raises:
        ConfigError: a path leads to no pydantic model, or a field is protected.
    """

    def models(
        kind: str, sources: Mapping[str, TypeSource], taken: Iterable[str]
    ) -> Mapping[str, type[BaseModel]] | None:
        taken = frozenset(taken)
        built = {}
        for name, source in sources.items():
            where = f"{owner}.{kind}.{name}"
            built[name] = (
                _inline(name, source) if isinstance(source, InlineType) else _imported(source, where)
            )
            for clash in sorted(built[name].model_fields.keys() & taken):
                raise ConfigError(
                    f"{where}.{clash}: Graphiti has a field of this name itself; choose another"
                )
        return built or None

    allowed: dict[tuple[str, str], list[str]] = {}
    for rule in rules:
        allowed.setdefault((rule.source, rule.target), []).extend(rule.edges)
    return Ontology(
        models("entity_types", entity_types, protected[0]),
        models("edge_types", edge_types, protected[1]),
        allowed or None,
        list(excluded) or None,
    )


def _inline(name: str, given: InlineType) -> type[BaseModel]:
    fields: dict[str, Any] = {
        field: (_KINDS[one.type] | None, Field(default=None, description=one.description))
        for field, one in given.fields.items()
    }
    return create_model(name, __doc__=given.description, **fields)


def _imported(path: str, where: str) -> type[BaseModel]:
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ConfigError(
            f"{where}: cannot import {module} ({type(error).__name__}: {error.name}); is it installed here?"
        ) from error
    except AttributeError as error:
        raise ConfigError(f"{where}: {module} has no {name}") from error
    except Exception as error:
        raise ConfigError(f"{where}: importing {module} failed ({type(error).__name__})") from error
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise ConfigError(f"{where}: {path} is no pydantic model; give a subclass of pydantic.BaseModel")
    if not found.__doc__:
        raise ConfigError(
            f"{where}: {path} has no docstring, which is what the extracting model is told of it"
        )
    return found
