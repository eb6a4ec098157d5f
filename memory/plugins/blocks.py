"""One block of a configuration, checked against its model: errors name file, line, field and fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from memory.contract.errors import MemslotError
from memory.plugins.variables import NO_FILE, Problems

ModelT = TypeVar("ModelT", bound=BaseModel)


def parse_block(
    model: type[ModelT], data: Mapping[str, Any], where: str, problem: Problems = NO_FILE
) -> ModelT:
    """Validate one block.

    Args:
        model: pydantic model of the block. Its attribute ``FORMER``, if any, says what became of keys of old.
        data: its content.
        where: its path, such as ``memory.backends.mem0``; prefixes every message.
        problem: knows the file and the lines of its keys, for messages.

    Raises:
        ConfigError: with the path of the field, what is wrong, and the nearest known name for a typo. Values
            are never repeated: they may be secrets.
    """
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False, include_context=False)
        # Where a value may be one of several things, the deepest complaint is about the one that was meant. A key
        # that is misspelt comes before one that is missing because of it.
        first = max(problems, key=lambda problem: (len(problem["loc"]), problem["type"] == "extra_forbidden"))
        names = _data_path(data, first["loc"], missing=first["type"] == "missing")
        what = first["msg"].removeprefix("Value error, ")
        if first["type"] == "missing":
            what = _required(_model_at(model, names[:-1]), str(names[-1]))
        elif first["type"] == "string_type" and isinstance(_value_at(data, names), (int, float)):
            what = "must be text; put it in quotes"
        elif first["type"] == "extra_forbidden":
            what = _unknown(str(names[-1]), _model_at(model, names[:-1]))
    except MemslotError:
        raise
    except Exception as error:  # a validator of a plugin's own, which should have raised ValueError
        names, what = [], f"could not be understood ({type(error).__name__})"
    raise problem((*where.split("."), *(str(part) for part in names)), what)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: those like it, or else all."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; known: {', '.join(known)}" if known else ""


def _required(model: type[BaseModel] | None, name: str) -> str:
    field = model.model_fields.get(name) if model else None
    return f"is required, e.g. {field.examples[0]}" if field is not None and field.examples else "is required"


def _unknown(name: str, model: type[BaseModel] | None) -> str:
    former: Mapping[str, str] = getattr(model, "FORMER", {})
    if name in former:
        return former[name]
    return f"is not a known field{nearest(name, model.model_fields if model else ())}"


def _data_path(data: Any, loc: tuple[int | str, ...], *, missing: bool) -> list[str | int]:
    """The part of pydantic's location that exists in the data: names of union branches do not."""
    path: list[str | int] = []
    for position, part in enumerate(loc):
        inside = isinstance(data, Mapping) and part in data
        if inside or (isinstance(data, list) and isinstance(part, int)):
            path.append(part)
            data = data[part]
        elif missing and position == len(loc) - 1:
            path.append(part)
    return path


def _value_at(data: Any, path: list[str | int]) -> Any:
    for part in path:
        data = data[part]
    return data


def _model_at(model: type[BaseModel], path: list[str | int]) -> type[BaseModel] | None:
    """The model found by walking ``path`` through nested models, optionals and mappings."""
    current: Any = model
    for part in path:
        options = _models(current)
        if not options:
            return None
        field = options[0].model_fields.get(str(part))
        if field is not None:
            current = field.annotation
    return next(iter(_models(current)), None)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType, dict, list, tuple):
        return [model for argument in get_args(annotation) for model in _models(argument)]
    return []
