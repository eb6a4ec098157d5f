"""Finds plugins without importing SDKs, loads exactly one, and explains every failure (DESIGN section 6).

Built-in and third-party plugins register by the same entry points. A broken plugin affects only its own row.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Literal, cast

import pluggy
from pydantic import BaseModel, Field, create_model

from memory.contract.adapter import MemoryAdapter, check_adapter
from memory.contract.errors import (
    ConfigError,
    InputError,
    MemslotError,
    PluginLoadError,
    PluginNotFound,
)
from memory.contract.formatting import TokenCounter
from memory.contract.receipts import ConditionKind
from memory.plugins import hookspecs
from memory.plugins.blocks import nearest, parse_block
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.hookspecs import AdapterSettings, PluginInfo, PluginOptions
from memory.plugins.installed import entry_points, prints_on_stderr
from memory.plugins.redaction import resolve_paths

GROUPS: Mapping[ConditionKind, str] = {"architecture": "memslot.backends", "control": "memslot.conditions"}
_KINDS: Mapping[str, ConditionKind] = {group: kind for kind, group in GROUPS.items()}
_Loaded = tuple[pluggy.PluginManager, PluginInfo]


@dataclass(frozen=True)
class PluginRow:
    """One plugin in ``memslot doctor``: ``distribution`` ships it, and ``error`` is why it cannot be used."""

    name: str
    kind: ConditionKind
    distribution: str | None
    version: str | None
    info: PluginInfo | None  # None if it is broken
    missing: tuple[str, ...] = ()  # SDK modules that are not installed
    error: str | None = None

    @property
    def installed(self) -> bool:
        return self.error is None and not self.missing

    def to_json(self) -> dict[str, Any]:
        info = self.info
        return {
            "name": self.name,
            "kind": self.kind,
            "distribution": self.distribution,
            "version": self.version,
            "summary": info.summary if info else None,
            "capabilities": sorted(info.capabilities) if info else None,
            "consistency": info.consistency if info else None,
            "pet_observability": info.pet_observability if info else None,
            "installed": self.installed,
            "install": info.install if info and self.missing else None,
            "missing": list(self.missing),
            "error": self.error,
        }


class MemoryAdapterRegistry:
    """The plugins that are installed in this environment. Backends and conditions share their names.

    Methods that take or select a name raise PluginNotFound, with the nearest names. They raise
    PluginLoadError if two distributions offer the name, the module is broken, or a needed SDK is not
    installed. ``found`` replaces the installed entry points.
    """

    def __init__(self, found: Iterable[EntryPoint] | None = None) -> None:
        if found is None:
            found = [point for group in GROUPS.values() for point in entry_points(group=group)]
        self._points: dict[str, list[EntryPoint]] = {}
        for point in found:
            if point.group in _KINDS:
                self._points.setdefault(point.name, []).append(point)
        self._loaded: dict[str, _Loaded] = {}

    def names(self) -> list[str]:
        """The names of all plugins. Imports nothing."""
        return sorted(self._points)

    def rows(self) -> list[PluginRow]:
        """Every plugin with its description, backends first. Imports plugin modules, but no SDK."""
        with prints_on_stderr():  # a plugin's output must not break the JSON of a command
            rows = [self._row(name, point) for name, points in self._points.items() for point in points]
        return sorted(rows, key=lambda row: (row.kind, row.name, row.distribution or ""))

    def info(self, name: str) -> PluginInfo:
        """The description of one plugin."""
        return self._find(name)[1]

    def selected(self, config: MemslotConfig) -> PluginInfo:
        """The description of the plugin that a configuration selects."""
        return self._selected(config)[1]

    def load(self, source: str | Path | Mapping[str, object] | MemslotConfig) -> MemslotConfig:
        """Read a configuration, and check the selected provider's block. One error reports all mistakes.

        Raises:
            ConfigError: as for :func:`memory.runtime.load_config`, or the selected block is wrong.
            PluginError: no plugin has the selected name, or it cannot be loaded.
        """
        if isinstance(source, MemslotConfig):
            return source
        config = load_config(source, options_of=self.options_of)
        config.parse_options(self.selected(config).options)
        return config

    def options_of(self, name: str) -> type[BaseModel]:
        """The model of a provider's block."""
        return self._find(name)[1].options

    def create(
        self,
        config: str | Path | Mapping[str, object] | MemslotConfig,
        *,
        token_counter: TokenCounter | None = None,
        data_dir: Path | None = None,
    ) -> MemoryAdapter:
        """Build the adapter that a configuration selects (spec 4.3). Only this method imports its SDK.

        Hand the bare adapter to a :class:`memory.MemorySlot`, which applies the rules for all memories.

        Args:
            config: a YAML file, its content as a mapping, or a loaded configuration.
            token_counter: replaces the configured one.
            data_dir: replaces ``memory.data_dir`` and ``memory.state``.

        Raises:
            ConfigError: the configuration is wrong.
            PluginError: there is no such plugin, its SDK is not installed, or it fails to build its adapter.
        """
        config = self.load(config)
        manager, info = self._selected(config)
        counter = token_counter or config.token_counter()
        _require_sdk(info)
        options = resolve_paths(config.parse_options(info.options), config.base)
        return self._build(manager, info, options, config, counter, config.where, data_dir)

    def _build(
        self,
        manager: pluggy.PluginManager,
        info: PluginInfo,
        options: BaseModel,
        config: MemslotConfig,
        token_counter: TokenCounter,
        where: str,
        data_dir: Path | None,
    ) -> MemoryAdapter:
        def create(
            name: str, options: Mapping[str, Any] | BaseModel, where: str = "", data_dir: Path | None = None
        ) -> MemoryAdapter:
            block, problem = ".".join(filter(None, (settings.where, where))), config.problem
            manager, other = self._find(name, f"{problem.place(tuple(block.split('.')))}: ")
            _require_sdk(other)
            if not isinstance(options, BaseModel):
                options = parse_block(other.options, options, block, problem)
            moved = resolve_paths(options, config.base)
            known_as = other if where else replace(other, name=info.name, kind=info.kind)
            return self._build(
                manager, known_as, moved, config, token_counter, block, data_dir or own_data_dir
            )

        own_data_dir = data_dir
        settings = AdapterSettings(
            name=info.name,
            kind=info.kind,
            options=options,
            token_counter=token_counter,
            data_dir=(data_dir or config.data_dir).absolute(),
            deadlines=config.memory.deadlines.model_dump(),
            where=where,
            create=create,
            shared_store=config.store(data_dir),
        )
        try:
            with config.problem.placing():
                try:
                    adapter: object = manager.hook.memslot_create(settings=settings)
                except InputError as error:  # an option is wrong
                    raise ConfigError(f"{where}.{error}") from error
        except MemslotError:
            raise
        except ImportError as error:
            hint = f": {info.install}" if info.install else ""
            raise PluginLoadError(f"{info.name}: its SDK cannot be imported ({error.name}){hint}") from error
        except (Exception, SystemExit) as error:
            if isinstance(error, OSError) and error.filename is not None:
                raise PluginLoadError(
                    f"{info.name}: its files cannot be used ({error.strerror}); memory.data_dir, or a path among "
                    "its options, says where they are"
                ) from error
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}"
            raise PluginLoadError(
                f"{info.name}: its factory failed ({place}); add --debug for the traceback"
            ) from error
        try:
            check_adapter(adapter)
        except InputError as error:
            raise PluginLoadError(f"{info.name}: what its factory returned cannot be used: {error}") from None
        return cast(MemoryAdapter, adapter)

    def unread(self, config: MemslotConfig) -> list[str]:
        """A message for each block that no installed provider reads, as after a typo. Imports nothing."""
        known = self.names()
        return [
            f"{config.problem.place(('memory', group, name))}: no plugin has this name{nearest(name, known)}"
            for group, name in config.blocks
            if name not in known
        ]

    def conformance(self, name: str) -> type[Any] | None:
        """A plugin's profile for the kit, see :func:`memory.plugins.hookspecs.memslot_conformance`."""
        manager, info = self._find(name)
        if not manager.hook.memslot_conformance.get_hookimpls():
            return None if info.made_of is None else self.conformance(info.made_of)
        found: type[Any] = manager.hook.memslot_conformance()
        return found

    def _row(self, name: str, point: EntryPoint) -> PluginRow:
        kind, distribution = _KINDS[point.group], point.dist.name if point.dist else None
        version = point.dist.version if point.dist else None
        try:
            info = self._load(name)[1]
        except MemslotError as error:
            return PluginRow(name, kind, distribution, version, None, error=str(error))
        return PluginRow(name, kind, distribution, version, info, missing=missing_modules(info))

    def _selected(self, config: MemslotConfig) -> _Loaded:
        name, where = config.provider, config.problem.place(config.chosen)
        manager, info = self._find(name, f"{where}: ")
        if config.spelling == "condition" and info.kind != "control":
            raise PluginNotFound(f"{where}: {name} is a backend and no control; write backend: {name}")
        return manager, info

    def _find(self, name: str, where: str = "") -> _Loaded:
        if name not in self._points:
            known = nearest(name, self._points)
            raise PluginNotFound(f"{where}no plugin is named {name!r}{known or '; none is installed'}")
        return self._load(name)

    def _load(self, name: str) -> _Loaded:
        if name not in self._loaded:
            points = self._points[name]
            if len(points) > 1:
                owners = " and ".join(sorted(point.dist.name if point.dist else "?" for point in points))
                raise PluginLoadError(f"{name}: offered by {owners}; uninstall one of them")
            manager, info = _load_point(points[0], _KINDS[points[0].group])
            self._loaded[name] = manager, self._completed(info) if info.made_of else info
        return self._loaded[name]

    def _completed(self, info: PluginInfo) -> PluginInfo:
        """The full description of a plugin that is another one with some options fixed."""
        name = str(info.made_of)
        if name not in self._points or name == info.name:
            raise PluginNotFound(f"{info.name} is made of {name}: no other plugin has this name")
        other = self._load(name)[1]
        own = {field: getattr(info, field) for field in ("name", "kind", "summary", "made_of", "fixed")}
        return replace(other, options=_options_with(other.options, name, tuple(info.fixed.items())), **own)


def _load_point(point: EntryPoint, kind: ConditionKind) -> _Loaded:
    owner = f"{point.name} ({point.dist.name})" if point.dist else point.name
    where = f"{owner}: {point.value}"
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        with redirect_stdout(sys.stderr):
            manager.register(point.load(), point.name)
        manager.check_pending()
        info: object = manager.hook.memslot_describe()
    except BaseException as error:  # an import may raise anything, even KeyboardInterrupt
        raise PluginLoadError(f"{where} failed to load ({type(error).__name__}: {error})") from error
    if not isinstance(info, PluginInfo):
        raise PluginLoadError(f"{where} implements no memslot_describe that returns a PluginInfo")
    if (info.name, info.kind) != (point.name, kind):
        raise PluginLoadError(
            f"{owner}: describes itself as {info.kind} {info.name!r}, but is registered as {kind} {point.name!r}"
        )
    if not manager.hook.memslot_create.get_hookimpls():
        raise PluginLoadError(f"{where} implements no memslot_create")
    return manager, info


class _Fixed(PluginOptions):
    """Precedes another plugin's options, some of which are fixed, in the bases of a model."""

    @property
    def equivalent_control(self) -> None:  # the plugin is the control itself
        return None

    @property
    def differs_from_control(self) -> bool:
        return False


@lru_cache
def _options_with(
    options: type[BaseModel], owner: str, fixed: tuple[tuple[str, Any], ...]
) -> type[BaseModel]:
    always = f"Always this; for another value use {owner}."
    fields: dict[str, Any] = {
        name: (Literal[value], Field(default=value, description=always)) for name, value in fixed
    }
    return create_model(f"Fixed{options.__name__}", __base__=(_Fixed, options), **fields)


def _require_sdk(info: PluginInfo) -> None:
    if missing := missing_modules(info):
        names, are = ", ".join(missing), "is" if len(missing) == 1 else "are"
        raise PluginLoadError(f"{info.name} needs {names}, which {are} not installed: {info.install}")


def missing_modules(info: PluginInfo) -> tuple[str, ...]:
    """The SDK modules that cannot be found, by their top-level names: looking up a dotted name imports code.

    A directory without an ``__init__`` does not count, even if it has the name of an SDK, such as ``mem0``.
    """
    found = {module: importlib.util.find_spec(module.split(".")[0]) for module in info.sdk_modules}
    return tuple(module for module, spec in found.items() if spec is None or spec.origin is None)
