"""The hooks a plugin module implements (DESIGN section 6): two, and a third if it likes to be measured.

An entry point in the group ``memslot.backends`` or ``memslot.conditions`` names a module; its name is the name
users write in YAML. Hooks are synchronous, because pluggy has no async support. The module must not
import its SDK at the top: listing plugins imports every plugin module and may import no SDK.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import pluggy
from pydantic import BaseModel, ConfigDict, model_validator

from memory.contract.adapter import CAPABILITIES, MemoryAdapter, label_of
from memory.contract.errors import PluginNotFound
from memory.contract.formatting import TokenCounter, Utf8TokenCounter
from memory.contract.receipts import ConditionKind, ConsistencyModel, PetObservability
from memory.contract.scope import IdAlphabet
from memory.storage.insert import FILE_NAME
from memory.storage.partitions import PARTITIONS, Partitions
from memory.storage.store import SqliteStore, Store

PROJECT = "memslot"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks ``memslot_describe``, ``memslot_create`` and ``memslot_bare`` in the module of a plugin."""


class PluginOptions(BaseModel):
    """Base of a plugin's YAML block: unknown keys are errors, values never show up in messages.

    Docstrings below fields or ``Field(description=...)`` become the comments that ``memslot setup`` writes.

    Wherever a configuration is published, switches, numbers and choices are shown, and texts are not unless they
    are marked ``Public[str]``; a ``SecretStr`` or ``Private[...]`` never is. Paths are shown as a hash; mark what
    is read ``InputFile`` and where data lies ``DataPath``, so that the configuration hash counts the first by its
    content and the second not at all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    FORMER: ClassVar[Mapping[str, str]] = {}
    """Key that is none any more -> what to write in its place, such as ``is called recipe``."""

    def effective(self) -> Mapping[str, object]:
        """Fields by name whose default depends on other fields or on the environment, as they really apply.

        For the configuration hash: two configurations that come to the same hash alike.
        """
        return {}

    @property
    def equivalent_control(self) -> str | None:
        """The control that these options make of the plugin, as its adapter's traits declare it."""
        return None

    @property
    def differs_from_control(self) -> bool:
        """Whether these options resolve to others than that control has by default."""
        return False

    def problems(self) -> Iterable[str]:
        """What is wrong between fields, a sentence for each, such as ``llm: infer: true needs one``.

        All of them are reported at once. A sentence is left out if it names a field that is wrong by itself.
        """
        return ()

    @model_validator(mode="after")
    def _without_problems(self) -> Self:
        if found := list(self.problems()):
            raise ValueError("\n".join(found))
        return self

    def resolved(self) -> dict[str, object]:
        """Every option by name, with the value that really applies."""
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
        pet_observability: what retrievals tell of change over time, in the default configuration; None is not
            declared.
        sdk_modules: top-level modules the adapter imports; looked up, never imported, to tell what is missing.
        install: the exact command that provides them.
        options: the model of the plugin's YAML block.
        alphabet: what the backend allows in ids.
        made_of: the plugin that this one is, with some options fixed; its options, capabilities, SDK modules,
            install command and alphabet are this one's as well.
        fixed: these options of it, name -> value.
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
        """Its name, and in parentheses what the name alone would hide.

        Args:
            about: the adapter's traits or the parsed options, whichever is at hand.
        """
        return label_of(
            self.name,
            getattr(about, "equivalent_control", None),
            getattr(about, "fallback_components", ()),
            differs_from_control=getattr(about, "differs_from_control", False),
        )


OptionsT = TypeVar("OptionsT", bound=BaseModel)


class CreateProvider(Protocol):
    """Builds another installed provider, for a provider such as a mirror."""

    def __call__(
        self, name: str, options: Mapping[str, Any] | BaseModel, where: str = "", data_dir: Path | None = None
    ) -> MemoryAdapter:
        """The adapter of the backend or condition ``name``, as it is written in YAML; raises PluginNotFound,
        PluginLoadError or ConfigError as for a configuration that selects it. ``options`` is its block, not yet
        validated, or its options. ``where`` is the block's place below that of the provider asking, such as
        ``shadows.0.options``; empty where the block is the asking provider's own: the adapter then goes by that
        one's name and kind. ``data_dir`` is in place of the host's."""


def _no_others(name: str, options: object, where: str = "", data_dir: Path | None = None) -> Any:
    raise PluginNotFound(f"{where}: this host builds no other providers; open it from a configuration")


@dataclass(frozen=True)
class AdapterSettings(Generic[OptionsT]):
    """What a factory gets: its validated options and the services of the host.

    Attributes:
        name: the plugin's name in the configuration.
        kind: what was asked for by that name.
        options: an instance of ``PluginInfo.options``.
        token_counter: for providers that pack a budget themselves.
        data_dir: where an embedded store may live unless its options say otherwise; not created yet.
        deadlines: seconds per kind of call, so that an SDK's own timeout can be set below the slot's.
        where: the block's path for messages, such as ``memory.backends.mem0``.
        create: builds other providers, for one that is made of them.
        shared_store: the memory's store, where the host gives one; see :attr:`store`.
    """

    name: str
    options: OptionsT
    token_counter: TokenCounter = field(default_factory=Utf8TokenCounter)
    data_dir: Path = Path(".memslot")
    deadlines: Mapping[str, float] = field(default_factory=dict)
    where: str = ""
    create: CreateProvider = _no_others
    kind: ConditionKind = "architecture"
    shared_store: Store | None = None

    @cached_property
    def store(self) -> Store:
        """The memory's store; nothing is created before its first call. An adapter that uses it closes it."""
        if self.shared_store is None:
            return SqliteStore(self.data_dir / FILE_NAME, [PARTITIONS])
        return self.shared_store.handle(PARTITIONS)

    @property
    def partitions(self) -> Partitions:
        """The native partitions of this provider, in :attr:`store`."""
        return Partitions(self.store, self.name)


class BareLibrary(Protocol):
    """A plugin's library in the calls that its users make of it, without memslot, for ``memslot tools perf``.

    Attributes:
        cold_start: source of a Python program without memslot. It opens what was filled below ``sys.argv[1]``, asks
            ``sys.argv[2]`` of user ``sys.argv[3]`` for 20 texts, and prints how many it got.
    """

    cold_start: str

    def add(self, text: str, user: str) -> object:
        """Store one message; blocks."""

    def search(self, query: str, user: str, top_k: int) -> Sequence[str]:
        """Texts, best first; blocks."""

    async def add_async(self, text: str, user: str) -> object:
        """:meth:`add` of the library's asynchronous form, or on a thread where it has none."""

    async def search_async(self, query: str, user: str, top_k: int) -> Sequence[str]:
        """:meth:`search` of the library's asynchronous form, or on a thread where it has none."""

    def close(self) -> None:
        """Release everything; blocks."""


@hookspec(firstresult=True)
def memslot_describe() -> PluginInfo:
    """Say what this plugin is. Must not import an SDK."""
    raise NotImplementedError


@hookspec(firstresult=True)
def memslot_create(settings: AdapterSettings[BaseModel]) -> MemoryAdapter:
    """Build the adapter, importing the SDK here. No network: that belongs to ``health`` and ``setup_scope``."""
    raise NotImplementedError


@hookspec(firstresult=True)
def memslot_conformance() -> type[Any]:
    """A subclass of :class:`memory.testing.ConformanceProfile`: what the kit needs to know of this plugin.

    Optional; without it what only its author can show is not tested. Import ``memory.testing`` in here.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def memslot_bare(directory: Path) -> BareLibrary:
    """Open the library itself on files below a directory, as its users would, to be measured beside the plugin.

    Optional. No key and no server is to be needed; the plugin is measured with an empty block of options.
    """
    raise NotImplementedError
