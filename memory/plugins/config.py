"""YAML to settings: environment variables, secrets, and errors that name file, line, field and fix.

Only the selected provider's block is resolved and validated, so a configuration may carry blocks of backends
that are not installed, and variables that are not set (spec 4.3).
"""

from __future__ import annotations

import difflib
import importlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from memory.contract.errors import ConfigError, MemslotError
from memory.contract.receipts import ConditionKind
from memory.contract.requests import ContextBudget
from memory.contract.scope import MemoryScope
from memory.contract.tokens import CallableTokenCounter, TokenCounter, Utf8TokenCounter
from memory.plugins.redaction import (
    HIDDEN,
    DataPath,
    Public,
    Redaction,
    Scrubber,
    slow_hash,
    texts_in,
)
from memory.plugins.variables import Problems, Resolver
from memory.plugins.yaml import Lines, load_yaml
from memory.slot.journal import Durability
from memory.slot.rules import Deadlines

__all__ = ["MemorySettings", "MemslotConfig", "load_config", "load_token_counter", "parse_block"]

# Told by the provider already, or without effect on any answer.
_NOT_HASHED = ("backend", "condition", "journal")
ModelT = TypeVar("ModelT", bound=BaseModel)


class JournalSettings(BaseModel):
    """The block ``memory.journal``; ``true`` means its defaults, a text its path."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    path: DataPath | None = None
    """The file. By default ``journal.db`` in ``memory.data_dir``."""
    durability: Durability = "process"
    """``process`` survives the end of the process at any moment; ``machine`` a power cut as well."""
    max_mb: int | None = Field(default=1024, gt=0)
    """Largest size of the file, in megabytes; what is delivered and oldest goes first. None: unbounded."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, given: Any) -> Any:
        if given is True:
            return {}
        return {"path": given} if isinstance(given, str) else given

    def file(self, data_dir: Path) -> Path:
        """Where the journal is."""
        return self.path or data_dir / "journal.db"


class MemorySettings(BaseModel):
    """The ``memory:`` block."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    backend: Public[str] | None = None
    condition: Public[str] | None = None
    scope: MemoryScope | None = None
    read_only_test_sessions: bool = True
    budget: ContextBudget = Field(default_factory=lambda: ContextBudget(max_tokens=2000, max_items=20))
    deadlines: Deadlines = Field(default_factory=Deadlines)
    token_counter: Public[str] = Utf8TokenCounter.name
    data_dir: DataPath = Path(".memslot")
    journal: JournalSettings | None = None
    backends: dict[str, dict[str, Any] | None] = Field(default_factory=dict)
    conditions: dict[str, dict[str, Any] | None] = Field(default_factory=dict)

    @field_validator("journal", mode="before")
    @classmethod
    def _no_journal(cls, given: Any) -> Any:
        return None if given is False else given


@dataclass(frozen=True)
class MemslotConfig:
    """A configuration, resolved for the one provider it selects.

    Attributes:
        memory: the ``memory:`` block.
        provider: name of the backend or condition.
        kind: ``architecture`` for a backend, ``control`` for a condition.
        options: the provider's own block, environment variables filled in, not yet validated.
        run: the ``run:`` block for the benchmark, or None.
        source: file name for messages.
        secrets: path of a value that came from a variable whose name says credential -> what is written there.
    """

    memory: MemorySettings
    provider: str
    kind: ConditionKind
    options: dict[str, Any] = field(repr=False)
    run: dict[str, Any] | None = field(repr=False)
    source: str
    secrets: Mapping[tuple[str, ...], str] = field(repr=False)
    lines: Lines = field(repr=False)

    @property
    def where(self) -> str:
        """Path of the provider's block, such as ``memory.backends.mem0``."""
        return f"memory.{_group(self.kind)}.{self.provider}"

    def parse_options(self, model: type[ModelT]) -> ModelT:
        """The provider's block as its options model.

        Raises:
            ConfigError: a key is unknown or a value wrong.
        """
        return parse_block(model, self.options, self.where, source=self.source, lines=self.lines)

    def redacted(self, options: BaseModel, run: BaseModel | None = None) -> dict[str, Any]:
        """The configuration as it may be published, JSON-ready; see :mod:`memory.plugins.redaction`.

        Args:
            options: the provider's parsed block.
            run: the parsed ``run:`` block, where there is one.
        """
        redaction, group = self._redaction, _group(self.kind)
        memory = _without_blocks(redaction.shown(self.memory, ("memory",)))
        memory[group] = {self.provider: redaction.shown(options, ("memory", group, self.provider))}
        return {"memory": memory, **({} if run is None else {"run": redaction.shown(run, ("run",))})}

    def config_hash(self, options: BaseModel, run: BaseModel | None = None) -> str:
        """64 hexadecimal digits over what determines results, arguments as for :meth:`redacted`.

        Covers the effective options, private ones included; credentials and where data lies are left out.
        """
        content, path = self._redaction.content, ("memory", _group(self.kind), self.provider)
        memory = _without_blocks(content(self.memory, ("memory",)))
        return slow_hash(
            {
                "provider": [self.kind, self.provider],
                "memory": {key: one for key, one in memory.items() if key not in _NOT_HASHED},
                "options": content(options, path),
                "run": None if run is None else content(run, ("run",)),
            }
        )

    def scrubber(self, options: BaseModel | None = None, more: Mapping[str, str] | None = None) -> Scrubber:
        """Takes every text of this configuration that is not shown out of what others wrote.

        Args:
            options: the provider's parsed block; where it has none, every text of the block counts as private.
            more: further texts -> what stands in their place.
        """
        shown = json.dumps(self.redacted(options), ensure_ascii=False) if options is not None else ""
        paths = [(self.run or {}).get(name) for name in ("data", "output")]
        given = {*texts_in(self.options), *texts_in(paths), str(self.memory.data_dir), str(Path.cwd())}
        return Scrubber({**{text: HIDDEN for text in given if text not in shown}, **(more or {})})

    @property
    def _redaction(self) -> Redaction:
        return Redaction(Path(), self.secrets)


def load_config(
    source: str | Path | Mapping[str, Any] | MemslotConfig, *, env: Mapping[str, str] | None = None
) -> MemslotConfig:
    """Read a configuration.

    Args:
        source: a YAML file, or its content as a mapping.
        env: variables for ``${NAME}`` and ``${NAME:-default}``; the process environment by default.

    Raises:
        ConfigError: the file is unreadable or not YAML, a key is unknown, a value wrong, a variable unset, or
            not exactly one of ``memory.backend`` and ``memory.condition`` is given.
    """
    if isinstance(source, MemslotConfig):
        return source
    if isinstance(source, Mapping):
        name, content, lines = "config", dict(source), Lines()
    elif isinstance(source, (str, os.PathLike)) and str(source):
        name = str(source)
        content, lines = load_yaml(Path(source))
    else:
        raise ConfigError("load_config takes the name of a YAML file, or its content as a mapping")
    problem = Problems(name, lines)
    unknown = sorted(str(section) for section in content if section not in ("memory", "run"))
    if unknown:
        raise problem((unknown[0],), f"is not a known section{_nearest(unknown[0], ('memory', 'run'))}")
    if not isinstance(content.get("memory"), Mapping):
        raise problem(("memory",), "is missing; a configuration starts with 'memory:' and names a backend")
    return _resolve(content, problem, os.environ if env is None else env)


def _resolve(content: dict[str, Any], problem: Problems, env: Mapping[str, str]) -> MemslotConfig:
    memory = dict(content["memory"])
    kind, provider = _selected(memory, problem)
    group = _group(kind)
    resolver = Resolver(env, problem)
    blocks = {} if memory.get(group) is None else memory[group]
    if not isinstance(blocks, Mapping):
        raise problem(("memory", group), "must be a mapping, from names to their options")
    if provider not in blocks:
        raise problem(("memory", group, provider), f"is missing; add '{provider}: {{}}' for its defaults")
    given = {} if blocks[provider] is None else blocks[provider]
    if not isinstance(given, Mapping):
        raise problem(("memory", group, provider), "must be a mapping of options, or empty for its defaults")
    options = resolver.fill(given, ("memory", group, provider))
    common = {key: value for key, value in memory.items() if key not in ("backends", "conditions")}
    settings = parse_block(
        MemorySettings,
        resolver.fill(common, ("memory",)),
        "memory",
        source=problem.source,
        lines=problem.lines,
    )
    run = content.get("run")
    if run is not None and not isinstance(run, Mapping):
        raise problem(("run",), "must be a mapping")
    return MemslotConfig(
        memory=settings,
        provider=provider,
        kind=kind,
        options=options,
        run=resolver.fill(run, ("run",)) if run is not None else None,
        source=problem.source,
        secrets=resolver.secrets,
        lines=problem.lines,
    )


def _without_blocks(memory: dict[str, Any]) -> dict[str, Any]:
    """Without the mappings of all providers' blocks, of which one alone is read."""
    return {key: one for key, one in memory.items() if key not in ("backends", "conditions")}


def _group(kind: ConditionKind) -> Literal["backends", "conditions"]:
    return "backends" if kind == "architecture" else "conditions"


def _selected(memory: dict[str, Any], problem: Problems) -> tuple[ConditionKind, str]:
    given = {word: memory[word] for word in ("backend", "condition") if memory.get(word) is not None}
    for word, name in given.items():
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise problem(("memory", word), "must be the name of one; see 'memslot backends'")
    if len(given) > 1:
        raise problem(
            ("memory",),
            f"backend ({given['backend']}) and condition ({given['condition']}) are both set, and exactly one "
            "context provider may be active; remove one",
        )
    for word, name in given.items():
        return ("control" if word == "condition" else "architecture"), name
    raise problem(("memory",), "selects nothing; set backend (e.g. mem0) or condition (e.g. full_history)")


def parse_block(
    model: type[ModelT], data: Mapping[str, Any], where: str, *, source: str = "", lines: Lines | None = None
) -> ModelT:
    """Validate one block.

    Args:
        model: pydantic model of the block.
        data: its content.
        where: its path, such as ``memory.backends.mem0``; prefixes every message.
        source, lines: file name and key positions, for messages.

    Raises:
        ConfigError: with the path of the field, what is wrong, and the nearest known name for a typo. Values
            are never repeated: they may be secrets.
    """
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False, include_context=False)
        # Where a value may be one of several things, the deepest complaint is about the one that was meant.
        first = max(problems, key=lambda problem: len(problem["loc"]))
        names = _data_path(data, first["loc"], missing=first["type"] == "missing")
        what = first["msg"].removeprefix("Value error, ")
        if first["type"] == "missing":
            what = "is required"
        elif first["type"] == "extra_forbidden":
            known = _fields_at(model, names[:-1])
            what = f"is not a known field{_nearest(str(names[-1]), known)}"
    except MemslotError:
        raise
    except Exception as error:  # a validator of a plugin's own, which should have raised ValueError
        names, what = [], f"could not be understood ({type(error).__name__})"
    path = (*where.split("."), *(str(part) for part in names))
    raise Problems(source, lines or Lines())(path, what)


def load_token_counter(name: str) -> TokenCounter:
    """The counter a configuration names: the default one, or ``package.module:function`` (text -> int).

    Raises:
        ConfigError: the function cannot be imported, or does not count.
    """
    if name == Utf8TokenCounter.name:
        return Utf8TokenCounter()
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever that module does when it is imported
        raise ConfigError(
            f"memory.token_counter: cannot import {name!r}; "
            f"write {Utf8TokenCounter.name!r} or 'package.module:function'"
        ) from error
    counter = found if isinstance(found, TokenCounter) else CallableTokenCounter(name, found)
    try:
        tokens = counter.count("How many?")
    except Exception as error:
        raise ConfigError(
            f"memory.token_counter: {name} fails for a text; name a function text -> int"
        ) from error
    if not isinstance(tokens, int) or tokens < 0:
        raise ConfigError(
            f"memory.token_counter: {name} gives no number of tokens; name a function text -> int"
        )
    return counter


def _nearest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; known: {', '.join(sorted(known))}" if known else ""


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


def _fields_at(model: type[BaseModel], path: list[str | int]) -> list[str]:
    """Field names of the model found by walking ``path`` through nested models, optionals and dicts."""
    current: Any = model
    for part in path:
        options = _models(current)
        if not options:
            return []
        field = options[0].model_fields.get(str(part))
        if field is not None:
            current = field.annotation
    models = _models(current)
    return list(models[0].model_fields) if models else []


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType, dict, list, tuple):
        return [model for argument in get_args(annotation) for model in _models(argument)]
    return []
