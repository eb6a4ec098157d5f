"""Turns YAML into settings: environment variables, secrets, and errors that name file, line, field and fix.

Only the selected provider's block is resolved and validated. A configuration may therefore hold blocks of
backends that are not installed, and variables that are not set (spec 4.3).
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel

from memory.contract.errors import ConfigError, PluginError
from memory.contract.formatting import CallableTokenCounter, TokenCounter, Utf8TokenCounter
from memory.plugins.blocks import (
    SECTIONS,
    ModelT,
    Problems,
    Resolver,
    load_yaml,
    nearest,
    parse_block,
    together,
)
from memory.plugins.redaction import (
    HIDDEN,
    Redaction,
    Scrubber,
    data_paths,
    resolve_paths,
    slow_hash,
    texts_in,
)
from memory.plugins.settings import JournalSettings, MemorySettings
from memory.storage.insert import FILE_NAME
from memory.storage.store import SqliteStore, Store

# Fields that the provider's name and options already cover, or that change no answer.
_NOT_HASHED = ("backend", "condition", "backends", "conditions", "journal", "state")
Spelling = Literal["backend", "condition"]
Group = Literal["backends", "conditions"]


@dataclass(frozen=True)
class MemslotConfig:
    """A configuration, resolved for the one provider it selects.

    Attributes:
        memory: the ``memory:`` block, with paths as written.
        provider: name of the backend or condition.
        spelling: which of ``memory.backend`` and ``memory.condition`` names it; the first may name either.
        chosen: path of the field that names it, for messages.
        group: the group that holds its block, or would.
        blocks: group and name of every provider's block.
        options: the provider's block with its environment variables filled in, not yet validated.
        run: the ``run:`` block for the benchmark, or None.
        sections: further blocks as written, see :meth:`section`.
        resolver: fills variables into the blocks, and knows which values are credentials from variables.
        problem: builds errors that name file, line and field.
        base: the base of relative paths: the file's directory, or without a file the working directory.
    """

    memory: MemorySettings
    provider: str
    spelling: Spelling
    chosen: tuple[str, ...]
    group: Group
    blocks: tuple[tuple[str, str], ...]
    options: dict[str, object] = field(repr=False)
    run: dict[str, object] | None = field(repr=False)
    sections: Mapping[str, object] = field(repr=False)
    resolver: Resolver = field(repr=False)
    problem: Problems = field(repr=False)
    base: Path

    @property
    def where(self) -> str:
        """Path of the provider's block, such as ``memory.backends.mem0``."""
        return f"memory.{self.group}.{self.provider}"

    @property
    def data_dir(self) -> Path:
        """``memory.data_dir``, resolved relative to the file."""
        return resolve_paths(self.memory.data_dir, self.base)

    @property
    def journal(self) -> JournalSettings | None:
        """``memory.journal``. With ``memory.state``, a journal is on by default."""
        if self.memory.state is not None and "journal" not in self.memory.model_fields_set:
            return JournalSettings()
        return self.memory.journal

    def store(self, data_dir: Path | None = None) -> Store:
        """The memory's store: in PostgreSQL if ``memory.state`` is set, else a file in ``memory.data_dir``.

        ``data_dir`` replaces both. The store's first call creates or connects it.

        Raises:
            ConfigError: ``memory.state`` cannot be read, or psycopg is not installed.
        """
        if self.memory.state is not None and data_dir is None:
            from memory.storage.postgres import PostgresStore

            return PostgresStore(self.memory.state.get_secret_value())
        return SqliteStore((data_dir or self.data_dir) / FILE_NAME)

    def section(self, name: Literal["agent", "serve", "hooks"], model: type[ModelT]) -> ModelT:
        """A block that only some commands read, so others need no variables of it. Absent: its defaults.

        Raises:
            ConfigError: a variable is unset, a key is unknown or a value is wrong.
        """
        content = self.resolver.fill(self.sections.get(name) or {}, (name,))
        return resolve_paths(parse_block(model, content, name, self.problem), self.base)

    def place(self, options: BaseModel) -> str:
        """The paths of this configuration's embedded stores, which the configuration hash leaves out."""
        paths = [self.data_dir, *data_paths(resolve_paths(options, self.base))]
        return "|".join(path.absolute().as_posix() for path in paths)

    def parse_options(self, model: type[ModelT]) -> ModelT:
        """The provider's block, parsed by its options model. Raises ConfigError."""
        return parse_block(model, self.options, self.where, self.problem)

    def token_counter(self) -> TokenCounter:
        """The counter that ``memory.token_counter`` names: the default, or ``package.module:function``.

        Raises:
            ConfigError: the function cannot be imported, or returns no number of tokens.
        """
        name = self.memory.token_counter
        if name == Utf8TokenCounter.name:
            return Utf8TokenCounter()
        module, _, attribute = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
            counter = found if isinstance(found, TokenCounter) else CallableTokenCounter(name, found)
            tokens: object = counter.count("How many?")
            if not isinstance(tokens, int) or tokens < 0:
                raise TypeError("no number of tokens")
        except Exception as error:  # an import, and a foreign function, may raise anything
            mend = f"write {Utf8TokenCounter.name!r}, or 'package.module:function' for a function text -> int"
            raise self.problem(
                ("memory", "token_counter"), f"{name!r} counts no tokens ({type(error).__name__}); {mend}"
            ) from error
        return counter

    def redacted(self, options: BaseModel, run: BaseModel | None = None) -> dict[str, Any]:
        """The configuration in publishable form, JSON-ready; ``options`` and ``run`` are parsed blocks."""
        redaction, path = Redaction(self.base, self.resolver.secrets), ("memory", self.group, self.provider)
        memory = _without_blocks(redaction.shown(self.memory, ("memory",)))
        memory[self.group] = {self.provider: redaction.shown(options, path)}
        return {"memory": memory, **({} if run is None else {"run": redaction.shown(run, ("run",))})}

    def config_hash(self, options: BaseModel, run: BaseModel | None = None) -> str:
        """64 hexadecimal digits over everything that determines results.

        The hash covers the effective options, private ones included. It leaves out credentials, data paths,
        and whether ``memory.backend`` or ``memory.condition`` names the provider.
        """
        content = Redaction(self.base, self.resolver.secrets).content
        memory = content(self.memory, ("memory",))
        return slow_hash(
            {
                "provider": self.provider,
                "memory": {key: value for key, value in memory.items() if key not in _NOT_HASHED},
                "options": self._resolved(options),
                "run": None if run is None else content(run, ("run",)),
            }
        )

    def options_hash(self, options: BaseModel) -> str:
        """As :meth:`config_hash`, over the options alone, without the provider's name."""
        return slow_hash(self._resolved(options))

    def _resolved(self, options: BaseModel) -> dict[str, Any]:
        redaction = Redaction(self.base, self.resolver.secrets)
        return redaction.content(options, ("memory", self.group, self.provider))

    def scrubber(self, options: BaseModel | None = None, more: Mapping[str, str] | None = None) -> Scrubber:
        """Removes every private text of this configuration from a foreign text.

        Without ``options``, every text of the block counts as private. ``more`` maps further texts to theirs.
        """
        shown = json.dumps(self.redacted(options), ensure_ascii=False) if options is not None else ""
        paths = [(self.run or {}).get(name) for name in ("data", "output")]
        given = {*texts_in(self.options), *texts_in(paths), str(self.memory.data_dir)}
        given |= {str(Path.cwd()), str(self.base)}
        return Scrubber({**{text: HIDDEN for text in given if text not in shown}, **(more or {})})


def load_config(
    source: str | Path | Mapping[str, object] | MemslotConfig,
    *,
    env: Mapping[str, str] | None = None,
    provider: str | None = None,
    named_by: tuple[str, ...] = (),
    options_of: Callable[[str], type[BaseModel]] | None = None,
) -> MemslotConfig:
    """Read a configuration.

    Args:
        source: a YAML file, or its content as a mapping.
        env: variables for ``${NAME}`` and ``${NAME:-default}``; the process environment by default.
        provider: replaces the provider that ``memory`` names.
        named_by: path of the field that names ``provider``, for messages.
        options_of: returns the model of a provider's block. With it, an error also covers that block.

    Raises:
        ConfigError: the file is unreadable or not YAML, a key is unknown, a value is wrong, a variable is
            unset, or not exactly one of ``memory.backend`` and ``memory.condition`` is given.
    """
    if isinstance(source, MemslotConfig):
        return source
    content, problem, base = _read(source)
    unknown = sorted(str(section) for section in content if section not in SECTIONS)
    if unknown:
        hint = nearest(unknown[0], SECTIONS)
        if unknown[0] in MemorySettings.model_fields:
            hint = "; it belongs below 'memory:'"
        elif unknown[0] == "bench":
            hint = "; 'memslot run' plays this file"
        raise problem((unknown[0],), f"is not a known section{hint}")
    if not isinstance(content.get("memory"), Mapping):
        raise problem(("memory",), "is missing; a configuration starts with 'memory:' and names a backend")
    memory = {**content["memory"], **({} if provider is None else {"backend": provider, "condition": None})}
    others = {name: content.get(name) for name in SECTIONS if name != "memory"}
    chosen = named_by if provider is not None else ()
    spelling, provider = _selected(memory, problem)
    if provider in memory and provider not in MemorySettings.model_fields:
        raise problem(("memory", provider), f"belongs below 'memory.{spelling}s:', as {spelling}s.{provider}")
    group, options = _block(provider, spelling, memory, problem)
    resolver = Resolver(os.environ if env is None else env, problem)
    for name, section in others.items():
        if section is not None and not isinstance(section, Mapping):
            raise problem((name,), "must be a mapping")
    wrong: list[ConfigError] = []
    with noted(wrong):
        settings = parse_block(
            MemorySettings, resolver.fill(_without_blocks(memory), ("memory",)), "memory", problem
        )
    filled: dict[str, Any] = {}
    for name, given, path in (
        ("options", options, ("memory", group, provider)),
        ("run", others["run"], ("run",)),
    ):
        with noted(wrong):
            filled[name] = None if given is None else resolver.fill(given, path)
    if wrong and options_of is not None and "options" in filled:
        with noted(wrong), suppress(PluginError):  # a missing plugin is reported once the rest is right
            parse_block(options_of(provider), filled["options"], f"memory.{group}.{provider}", problem)
    if wrong:
        raise together(wrong)
    return MemslotConfig(
        memory=settings,
        provider=provider,
        spelling=spelling,
        chosen=chosen or ("memory", spelling),
        group=group,
        blocks=tuple((value, str(name)) for value in get_args(Group) for name in memory.get(value) or ()),
        options=filled["options"],
        run=filled["run"],
        sections=others,
        resolver=resolver,
        problem=problem,
        base=base,
    )


@contextmanager
def noted(wrong: list[ConfigError]) -> Iterator[None]:
    """Collect an error instead of raising it, so that one message reports all of them."""
    try:
        yield
    except ConfigError as error:
        wrong.append(error)


def _read(source: str | Path | Mapping[str, object]) -> tuple[dict[str, Any], Problems, Path]:
    if isinstance(source, Mapping):
        return dict(source), Problems("config"), Path.cwd()  # read now, because the program may change it
    if isinstance(source, (str, os.PathLike)) and str(source):
        content, lines = load_yaml(Path(source))
        return content, Problems(str(source), lines), Path(source).absolute().parent
    raise ConfigError("load_config takes the name of a YAML file, or its content as a mapping")


def _block(
    provider: str, spelling: Spelling, memory: dict[str, Any], problem: Problems
) -> tuple[Group, dict[str, Any]]:
    """The group of the provider's block, and its content. An absent block is empty."""
    for group in get_args(Group):
        if not isinstance(memory.get(group), Mapping | None):
            raise problem(("memory", group), "must be a mapping, from names to their options")
    found: list[Group] = [group for group in get_args(Group) if provider in (memory.get(group) or {})]
    if not found:
        for group in get_args(Group):
            for name in map(str, memory.get(group) or ()):
                if _plain(name) == _plain(provider):
                    raise problem(("memory", group, name), f"is read as another provider's; write {provider}")
        default: Group = "backends" if spelling == "backend" else "conditions"
        problem.lines["memory", default, provider] = problem.lines.of(("memory", spelling))
        return default, {}
    path = ("memory", found[-1], provider)
    if len(found) == 2:
        raise problem(path, "stands under memory.backends as well; keep one of the two")
    options = memory[found[0]][provider]
    if options is not None and not isinstance(options, Mapping):
        raise problem(path, "must be a mapping of options, or empty for its defaults")
    return found[0], dict(options or {})


def _plain(name: str) -> str:
    """A name without case and punctuation, to recognise misspellings."""
    return "".join(filter(str.isalnum, name)).casefold()


def _without_blocks(memory: dict[str, Any]) -> dict[str, Any]:
    """The ``memory`` block without the providers' blocks."""
    return {key: value for key, value in memory.items() if key not in get_args(Group)}


def _selected(memory: dict[str, Any], problem: Problems) -> tuple[Spelling, str]:
    given = [(word, memory[word]) for word in get_args(Spelling) if memory.get(word) is not None]
    for word, name in given:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise problem(("memory", word), "must be the name of one; see 'memslot doctor'")
    if len(given) == 1:
        return given[0]
    if given:
        raise problem(
            ("memory",),
            f"backend ({memory['backend']}) and condition ({memory['condition']}) are both set, and exactly one "
            "context provider may be active; remove one",
        )
    for name in map(str, memory):
        if name not in MemorySettings.model_fields:
            raise problem(("memory", name), f"is not a known field{nearest(name, get_args(Spelling))}")
    raise problem(
        ("memory",), "selects nothing; set backend to a name that 'memslot doctor' lists, e.g. mem0"
    )
