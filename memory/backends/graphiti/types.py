"""Custom types of entities and facts: as a configuration gives them, and as the models Graphiti takes.

No SDK is imported by this module, but by :func:`build_ontology`, as are the user's own modules.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, create_model

from memory import ConfigError
from memory.adapter import PluginOptions, Public


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


class GivenTypes(Protocol):
    """The options that name types."""

    @property
    def entity_types(self) -> Mapping[str, TypeSource]: ...
    @property
    def edge_types(self) -> Mapping[str, TypeSource]: ...
    @property
    def edge_type_map(self) -> Sequence[EdgeRule]: ...
    @property
    def excluded_entity_types(self) -> Sequence[str]: ...


def check_names(options: GivenTypes) -> None:
    """Every type that is named is given; else ValueError names the field, and the nearest type."""
    entities = {DEFAULT_TYPE, *options.entity_types}
    if DEFAULT_TYPE in options.entity_types:
        raise ValueError(f"entity_types.{DEFAULT_TYPE}: this is what Graphiti calls all others; rename it")
    for at, rule in enumerate(options.edge_type_map):
        for field, name in (("source", rule.source), ("target", rule.target)):
            _known(name, entities, f"edge_type_map.{at}.{field}", "entity_types")
        for name in rule.edges:
            _known(name, options.edge_types, f"edge_type_map.{at}.edges", "edge_types")
    for name in options.excluded_entity_types:
        _known(name, entities, "excluded_entity_types", "entity_types")


def _known(name: str, known: Iterable[str], where: str, given: str) -> None:
    known = sorted(known)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known) or 'none'}"
        raise ValueError(f"{where}: {name} is not in {given}; {hint}")


def build_ontology(options: GivenTypes, owner: str) -> dict[str, Any]:
    """The types as arguments of ``add_episode`` and ``add_episode_bulk``; None where nothing is configured. Those
    given by path are imported.

    Args:
        owner: names the block in errors, such as ``memory.backends.graphiti``.

    Raises:
        ConfigError: a path leads to no pydantic model, or a field is one that Graphiti has itself.
    """
    from graphiti_core.edges import EntityEdge
    from graphiti_core.nodes import EntityNode

    def models(kind: str, own: type[BaseModel]) -> dict[str, type[BaseModel]] | None:
        built = {}
        for name, source in getattr(options, kind).items():
            where = f"{owner}.{kind}.{name}"
            built[name] = (
                _inline(name, source) if isinstance(source, InlineType) else _imported(source, where)
            )
            for clash in sorted(built[name].model_fields.keys() & own.model_fields.keys()):
                raise ConfigError(
                    f"{where}.{clash}: Graphiti has a field of this name itself; choose another"
                )
        return built or None

    allowed: dict[tuple[str, str], list[str]] = {}
    for rule in options.edge_type_map:
        allowed.setdefault((rule.source, rule.target), []).extend(rule.edges)
    return {
        "entity_types": models("entity_types", EntityNode),
        "excluded_entity_types": list(options.excluded_entity_types) or None,
        "edge_types": models("edge_types", EntityEdge),
        "edge_type_map": allowed or None,
    }


def _inline(name: str, given: InlineType) -> type[BaseModel]:
    fields: dict[str, Any] = {
        field: (_KINDS[schema.type] | None, Field(default=None, description=schema.description))
        for field, schema in given.fields.items()
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
