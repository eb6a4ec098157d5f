"""A configuration as YAML, from the options model of the plugin that it selects.

A short file holds what the plugin requires. A full file also shows each optional field as a comment with its
default. A field with an example (``Field(examples=[...])``) counts as required.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from memory.plugins.hookspecs import PluginInfo
from memory.plugins.settings import MemorySettings

_WIDTH = 100


def render(
    info: PluginInfo,
    carried: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | None = None,
    *,
    data_dir: str = MemorySettings().data_dir.as_posix(),
    full: bool = False,
) -> str:
    """The configuration of one plugin. It loads unchanged if the plugin has no required field.

    Args:
        info: the plugin.
        carried: another configuration's YAML content. The result keeps all of it except its provider.
        answers: option of the plugin -> its value.
        data_dir: the directory of embedded stores, unless ``carried`` gives it.
        full: also show every other option with its default and its meaning.
    """
    given = dict(carried or {})
    memory = given.pop("memory", None) or {}
    group, field = ("backends", "backend") if info.kind == "architecture" else ("conditions", "condition")
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(loader=loader, trim_blocks=True, undefined=StrictUndefined)
    return environment.get_template("config.yaml.j2").render(
        info=info,
        name=_scalar(info.name),
        group=group,
        provider=f"{field}: {_scalar(info.name)}",
        carried=_dumped({name: value for name, value in memory.items() if name not in _PROVIDERS}),
        full=full,
        settings=MemorySettings(),
        data_dir=_scalar(data_dir),
        options=list(_fields(info.options, given=answers or {}, full=full)),
        kept=_dumped(given),
    )


_PROVIDERS = ("backend", "condition", "backends", "conditions")


def _dumped(content: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True) if content else ""


def _fields(model: type[BaseModel], *, given: Mapping[str, Any], full: bool) -> Iterator[str]:
    """The lines of a model's block, not indented."""
    docstrings = _docstrings(model)
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key in given:
            value = _yaml(key, given[key])
        elif field.examples or field.is_required():
            value = _yaml(key, _placeholder(field))
        elif full:
            value = list(_optional(key, field))
        else:
            continue
        said = re.sub(r"``(.+?)``", r"\1", field.description or docstrings.get(name, ""))
        for line in textwrap.wrap(re.sub(r"\bNone\b", "null", said), _WIDTH):
            yield f"# {line}"
        yield from value


def _optional(key: str, field: FieldInfo) -> Iterator[str]:
    """A field with its default, as a comment. A field for a block also shows the block's fields."""
    default = field.get_default(call_default_factory=True, validated_data={})
    block = _model_in(field.annotation)
    if block is None or isinstance(default, (BaseModel, tuple, list)):
        lines = _yaml(key, TypeAdapter(Any).dump_python(default, mode="json"))
    else:
        lines = [*_yaml(key, default), "or, as a block:", f"{key}:", *(f"  {line}" for line in _shown(block))]
    yield from (f"# {line}" for line in lines)


def _shown(model: type[BaseModel]) -> Iterator[str]:
    """A nested block's fields with their defaults, without their descriptions."""
    for name, field in model.model_fields.items():
        value = (
            _placeholder(field)
            if field.is_required()
            else field.get_default(call_default_factory=True, validated_data={})
        )
        yield from _yaml(field.alias or name, TypeAdapter(Any).dump_python(value, mode="json"))


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The docstring below each field. Pydantic's own option would parse the source at every program start."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        except (OSError, TypeError, SyntaxError):  # a class without source: made at run time, or built in
            continue
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for field, text in pairwise(body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                    found[name] = inspect.cleandoc(said)
    return found


def _yaml(key: str, value: Any) -> list[str]:
    text: str = yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text.rstrip("\n").split("\n")


def _scalar(text: str) -> str:
    return _yaml("key", text)[0].removeprefix("key: ")


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field may hold, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) is dict:
        return None  # a mapping from the user's names to models is not one block
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)


def _placeholder(field: FieldInfo) -> Any:
    """A value of the right type for a required field."""
    if field.examples:
        return field.examples[0]
    by_type: dict[Any, Any] = {bool: False, int: 1, float: 1.0, list: [], dict: {}, tuple: []}
    return by_type.get(field.annotation, "change me" if field.default is PydanticUndefined else None)
