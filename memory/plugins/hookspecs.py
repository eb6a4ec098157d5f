"""The hooks that a plugin module implements (DESIGN section 6): two required and one optional one.

An entry point in the group ``memslot.backends`` or ``memslot.conditions`` names the module. Users write the
entry point's name in YAML. Hooks are synchronous, because pluggy has no async support. The module must not
import its SDK at the top: listing plugins imports every plugin module and may import no SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import pluggy
from pydantic import BaseModel, ConfigDict, model_validator

from memory.contract.adapter import CAPABILITIES, MemoryAdapter
from memory.contract.errors import PluginNotFound
from memory.contract.formatting import TokenCounter, Utf8TokenCounter
from memory.contract.receipts import ConditionKind, ConsistencyModel, PetObservability
from memory.contract.scope import IdAlphabet
from memory.contract.traits import label_of
from memory.storage.insert import FILE_NAME
from memory.storage.partitions import PARTITIONS, Partitions
from memory.storage.store import SqliteStore, Store

PROJECT = "memslot"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks the hooks in the module of a plugin."""


class PluginOptions(BaseModel):
    """Base of a plugin's YAML block: unknown keys are errors, and values never appear in messages.

    Docstrings below fields or ``Field(description=...)`` become the comments that ``memslot setup`` writes.

    A published configuration shows switches, numbers and choices. It shows a text only if the field is marked
    ``Public[str]``. Mark a file that is read as ``InputFile``, whose content enters the configuration hash.
    Mark a data directory as ``DataPath``, which does not enter the hash.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    FORMER: ClassVar[Mapping[str, str]] = {}
    """Key that is no longer known -> the message about its replacement, such as ``is called recipe``."""

    def effective(self) -> Mapping[str, object]:
        """Values of fields whose default depends on other fields or the environment, for equal hashes."""
        return {}

    @property
    def equivalent_control(self) -> str | None:
        """The control that the plugin equals with these options, as its adapter's traits declare it."""
        return None

    @property
    def differs_from_control(self) -> bool:
        """Whether the resolved options differ from that control's defaults."""
        return False

    def problems(self) -> Iterable[str]:
        """One sentence for each conflict between fields, such as ``llm: infer: true needs one``."""
        return ()

    @model_validator(mode="after")
    def _without_problems(self) -> Self:
        if found := list(self.problems()):
            raise ValueError("\n".join(found))
        return self

    def resolved(self) -> dict[str, object]:
        """Every option by name, with its effective value."""
        return {**dict(self), **self.effective()}

    @property
    def fallback_components(self) -> tuple[str, ...]:
        """The components that replace a model, as the adapter's traits declare them."""
        return ()


@dataclass(frozen=True)
class PluginInfo:
    """The description of a plugin, available without importing its SDK.

    Attributes:
        name: equals the entry point's name.
        kind: ``architecture`` (group ``memslot.backends``) or ``control`` (``memslot.conditions``).
        summary: one line for listings.
        capabilities: names from :data:`memory.adapter.CAPABILITIES` that at least one configuration offers.
        consistency: when a write becomes retrievable, in the default configuration.
        pet_observability: how retrievals show change over time, in the default configuration; None if not
            declared.
        sdk_modules: top-level modules that the adapter imports. They are looked up, and not imported, to
            find the missing ones.
        install: the exact command that installs them.
        options: the model of the plugin's YAML block.
        alphabet: the characters that the backend allows in ids.
        made_of: the plugin that this one is, with some options fixed. This one inherits all of its
            declarations except name, kind and summary.
        fixed: the fixed options, name -> value.
    """

    name: str
    kind: ConditionKind
    summary: str
    capabilities: frozenset[str] = frozenset()
    consistency: ConsistencyModel = "immediate"
    pet_observability: PetObservability | None = None
    sdk_modules: tuple[str, ...] = ()
    install: str = ""
    options: type[BaseModel] = PluginOptions
    alphabet: IdAlphabet = IdAlphabet()
    made_of: str | None = None
    fixed: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = self.capabilities - CAPABILITIES.keys()
        if unknown:
            raise ValueError(f"unknown capabilities {sorted(unknown)}; known are {sorted(CAPABILITIES)}")

    def label(self, about: object) -> str:
        """The plugin's name, as ``label_of`` completes it by the adapter's traits or the parsed options."""
        return label_of(
            self.name,
            getattr(about, "equivalent_control", None),
            getattr(about, "fallback_components", ()),
            differs_from_control=getattr(about, "differs_from_control", False),
        )


OptionsT = TypeVar("OptionsT", bound=BaseModel)


def _no_others(name: str, options: object, where: str = "", data_dir: Path | None = None) -> Any:
    raise PluginNotFound(f"{where}: this host builds no other providers; open it from a configuration")


@dataclass(frozen=True)
class AdapterSettings(Generic[OptionsT]):
    """The input of a plugin's factory: its validated options and the services of the host.

    Attributes:
        name: the plugin's name in the configuration.
        kind: the plugin's kind, ``architecture`` or ``control``.
        options: an instance of ``PluginInfo.options``.
        token_counter: for providers that fill a budget themselves.
        data_dir: the directory of an embedded store, unless the options name another; it may not exist yet.
        deadlines: seconds per kind of call, so that an SDK's own timeout can be set below the slot's.
        where: the block's path for messages, such as ``memory.backends.mem0``.
        create: builds another installed provider, for one that wraps it: ``create(name, options)``. Its block
            may be validated or not. ``where`` is the block's path below this one, such as ``shadows.0.options``;
            without it, the adapter has this provider's name and kind. ``data_dir`` replaces the host's.
        shared_store: the memory's store, if the host gives one; see :attr:`store`.
    """

    name: str
    options: OptionsT
    token_counter: TokenCounter = field(default_factory=Utf8TokenCounter)
    data_dir: Path = Path(".memslot")
    deadlines: Mapping[str, float] = field(default_factory=dict)
    where: str = ""
    create: Callable[..., MemoryAdapter] = _no_others
    kind: ConditionKind = "architecture"
    shared_store: Store | None = None

    @cached_property
    def store(self) -> Store:
        """The memory's store. Its first call creates it. An adapter that uses the store closes it."""
        if self.shared_store is None:
            return SqliteStore(self.data_dir / FILE_NAME, [PARTITIONS])
        return self.shared_store.handle(PARTITIONS)

    @property
    def partitions(self) -> Partitions:
        """The native partitions of this provider, in :attr:`store`."""
        return Partitions(self.store, self.name)


@hookspec(firstresult=True)
def memslot_describe() -> PluginInfo:
    """Describe this plugin, without importing an SDK."""
    raise NotImplementedError


@hookspec(firstresult=True)
def memslot_create(settings: AdapterSettings[BaseModel]) -> MemoryAdapter:
    """Build the adapter, and import the SDK. Leave network calls to ``health`` and ``setup_scope``."""
    raise NotImplementedError


@hookspec(firstresult=True)
def memslot_conformance() -> type[Any]:
    """A subclass of :class:`memory.testing.ConformanceProfile`, with the facts that the kit needs. Optional.

    Without it, the kit skips tests that need the author's facts. Import ``memory.testing`` inside the hook.
    """
    raise NotImplementedError
