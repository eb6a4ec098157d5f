"""A configuration as commented YAML, from the options model of the plugin it selects.

Optional fields are shown as comments with their defaults. A field with an example (``Field(examples=[...])``)
is written out with it, because its model cannot do without.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from memory.bench.engine.settings import RUN_DEFAULTS, ExperimentSettings
from memory.plugins.config import MemorySettings
from memory.plugins.hookspecs import PluginInfo

_WIDTH = 100
_HEAD = """\
# A memslot configuration. Lines that are commented out show defaults.
# Strings may use ${{VARIABLE}} and ${{VARIABLE:-default}}; keep secrets in variables.
memory:
  # The one line to change for another memory; 'memslot backends' lists what there is.
  {field}: {name}
  # Whose memory it is. Different scopes never see each other.
  scope:
    run_id: demo
    persona_id: user
    # backend_namespace: null
    # agent_id: null
  # How much context a turn may get; null is unlimited.
  budget:
    max_tokens: {budget.max_tokens}
    max_items: {budget.max_items}
    # min_tokens: null
  # Where embedded stores live; relative to this file, as every path here.
  # data_dir: {data_dir}
  # Measures the context section: this estimate, or package.module:function (text -> int).
  # token_counter: {token_counter}
  # Longest waits, seconds.
  # deadlines:
{deadlines}
"""


_SERVE = """\
# Whether the projects and agents of one user have one memory (shared) or one each (strict) in 'memslot serve'.
serve:
  isolate: shared
""".splitlines()


def render(
    info: PluginInfo,
    carried: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | None = None,
) -> str:
    """The configuration of one plugin. It loads unchanged if the plugin has no required field.

    Args:
        info: the plugin.
        carried: another configuration, as YAML gives it: all of it but its provider is kept.
        answers: options of the plugin with a value of their own.
    """
    group, field = ("backends", "backend") if info.kind == "architecture" else ("conditions", "condition")
    settings = MemorySettings()
    head = _HEAD.format(
        field=field,
        name=_scalar(info.name),
        budget=settings.budget,
        data_dir=settings.data_dir.as_posix(),
        token_counter=settings.token_counter,
        deadlines="\n".join(
            f"  #   {key}: {value:g}" for key, value in settings.deadlines.model_dump().items()
        ),
    )
    kept = {name: value for name, value in (carried or {}).items() if name != "memory"}
    if carried is not None:
        head = _carried_head(f"{field}: {_scalar(info.name)}", carried)
    body = list(_fields(info.options, given=answers or {}))
    lines = [f"  # {info.summary}"] if info.summary else []
    lines += [f"  {group}:", f"    {_scalar(info.name)}:", *(f"      {line}" for line in body)]
    if "serve" not in kept:
        lines += _SERVE
    if "run" not in kept:
        lines += [
            "# What 'memslot run' measures.",
            "# run:",
            *(f"#   {line}" for line in _run_block()),
        ]
    lines += _dumped(kept)
    return head + "\n".join(lines) + "\n"


def _carried_head(provider: str, carried: Mapping[str, Any]) -> str:
    memory = {
        name: value
        for name, value in (carried.get("memory") or {}).items()
        if name not in ("backend", "condition", "backends", "conditions")
    }
    lines = ["# Scope, budget and the rest are those of the configuration it was made from.", "memory:"]
    return "\n".join([*lines, f"  {provider}", *(f"  {line}" for line in _dumped(memory)), ""])


def _dumped(content: Mapping[str, Any]) -> list[str]:
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True).splitlines() if content else []


def _fields(
    model: type[BaseModel], *, commented: bool = False, given: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """The lines of a model's block, not indented; ``commented`` for a block that is itself optional."""
    docstrings = _docstrings(model)
    for name, field in model.model_fields.items():
        key = field.alias or name
        for line in textwrap.wrap(_plain(field.description or docstrings.get(name, "")), _WIDTH):
            yield f"# {line}"
        if given and key in given:
            yield from _yaml(key, given[key])
        elif field.examples and not commented:
            yield from _yaml(key, field.examples[0])
        elif field.is_required():
            value = _yaml(key, _placeholder(field))
            yield from (_comment(value) if commented else value)
        else:
            yield from _optional(key, field)


def _optional(key: str, field: FieldInfo) -> Iterator[str]:
    """A field at its default, as a comment. A field for a block shows the block's fields."""
    default = field.get_default(call_default_factory=True, validated_data={})
    block = _model_in(field.annotation)
    if block is None or isinstance(default, (BaseModel, tuple, list)):
        yield from _comment(_yaml(key, TypeAdapter(Any).dump_python(default, mode="json")))
        return
    yield from _comment(_yaml(key, default))
    yield from _comment(["or, as a block:", f"{key}:", *(f"  {line}" for line in _shown(block))])


def _run_block() -> Iterator[str]:
    """The ``run:`` block's own fields; those of a played experiment belong into ``bench:``."""
    played = {"mode", "providers", "roles", "limits"}
    for name, field in ExperimentSettings.model_fields.items():
        if name not in played:
            default = field.get_default(call_default_factory=True, validated_data={})
            value = RUN_DEFAULTS.get(name, TypeAdapter(Any).dump_python(default, mode="json"))
            yield from _yaml(name, value)


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
    """The text below each field. Read here: pydantic would parse the source at every start of every program."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        except (OSError, TypeError, SyntaxError):  # made at run time, or built in
            continue
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for field, text in pairwise(body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                    found[name] = inspect.cleandoc(said)
    return found


def _comment(lines: list[str] | Iterator[str]) -> Iterator[str]:
    return (f"# {line}" for line in lines)


def _yaml(key: str, value: Any) -> list[str]:
    text: str = yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text.rstrip("\n").split("\n")


def _scalar(text: str) -> str:
    return _yaml("key", text)[0].removeprefix("key: ")


def _plain(description: str) -> str:
    """A docstring as a comment: without its markup, and in YAML's words."""
    return re.sub(r"\bNone\b", "null", re.sub(r"``(.+?)``", r"\1", description))


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model a field may hold, if it may hold one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) is dict:
        return None  # models under names of the user's own are not one block
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)


def _placeholder(field: FieldInfo) -> Any:
    """A value of the right type for a field that must be filled in."""
    if field.examples:
        return field.examples[0]
    by_type: dict[Any, Any] = {bool: False, int: 1, float: 1.0, list: [], dict: {}, tuple: []}
    return by_type.get(field.annotation, "change me" if field.default is PydanticUndefined else None)
