"""Opens a slot from a configuration, in one ``async with`` (DESIGN section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from memory.contract.adapter import MemoryAdapter
from memory.contract.errors import ConfigError, LifecycleError
from memory.contract.formatting import TokenCounter
from memory.contract.scope import MemoryScope
from memory.contract.traits import AdapterTraits
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.plugins.settings import JournalSettings
from memory.slot.slot import MemorySlot
from memory.slot.tracing import TraceSink
from memory.storage.insert import WITHIN_S
from memory.storage.journal import Journal

if TYPE_CHECKING:
    from memory.slot.sync import SyncMemory


def build_slot(
    config: str | Path | Mapping[str, object] | MemslotConfig,
    *,
    scope: MemoryScope | None = None,
    token_counter: TokenCounter | None = None,
    trace_sink: TraceSink | None = None,
    registry: MemoryAdapterRegistry | None = None,
    data_dir: Path | None = None,
    neutral_sections: bool = False,
) -> MemorySlot:
    """A slot that is not open yet; enter it, or call :meth:`MemorySlot.aclose` when done.

    Args:
        config: a YAML file, its content, or the result of :func:`load_config`.
        scope: replaces ``memory.scope``.
        token_counter: replaces ``memory.token_counter``.
        trace_sink: see :class:`MemorySlot`.
        registry: replaces the installed plugins.
        data_dir: replaces ``memory.data_dir`` and ``memory.state``.
        neutral_sections: see :class:`MemorySlot`.

    Raises:
        ConfigError, PluginError: the configuration or the plugin it selects cannot be used.
    """
    data_dir = data_dir and data_dir.absolute()
    registry = registry or MemoryAdapterRegistry()
    settings = registry.load(config)
    counter = token_counter or settings.token_counter()
    adapter = registry.create(settings, token_counter=counter, data_dir=data_dir)
    with closing(settings.store(data_dir)) as store:
        return MemorySlot(
            adapter,
            journal=open_journal(settings, data_dir) if keeps_events(settings, adapter) else None,
            store=store,
            scope=scope or settings.memory.scope,
            budget=settings.memory.budget,
            deadlines=settings.memory.deadlines,
            token_counter=counter,
            trace_sink=trace_sink,
            neutral_sections=neutral_sections,
            native_ids=settings.memory.context.native_ids,
        )


def keeps_events(config: MemslotConfig, adapter: MemoryAdapter) -> bool:
    """Whether a memory has a journal: as ``memory.journal`` says, else if a model extracts its writes."""
    if config.journal is None and "journal" not in config.memory.model_fields_set:
        return AdapterTraits.of(adapter).extracts
    return config.journal is not None


def open_journal(config: MemslotConfig, data_dir: Path | None = None) -> Journal:
    """The journal of a memory, which the caller closes. Raises JournalError if the store cannot be used."""
    settings = config.journal or JournalSettings()
    within_s = min(WITHIN_S, config.memory.deadlines.write_s)
    with closing(config.store(data_dir)) as store:
        journal = Journal(store, durability=settings.durability, within_s=within_s)
    try:
        journal.open()
    except BaseException:
        journal.close()
        raise
    return journal


@contextmanager
def recorded_journal(config: Path) -> Iterator[Journal]:
    """The journal of a configuration file, closed at the end of the block.

    Raises:
        ConfigError: nothing was recorded yet.
    """
    loaded = load_config(config)
    with closing(loaded.store()) as store:
        begun, place = store.begun, store.place
    if begun:
        with open_journal(loaded) as journal:
            if loaded.journal is not None or journal.scopes():  # some backends have a journal by default
                yield journal
                return
    mend = "" if loaded.journal else "; set 'journal: true'"
    raise ConfigError(f"{config}: memory.journal: nothing was recorded yet in {place}{mend}")


class OpeningMemory(AbstractAsyncContextManager[MemorySlot]):
    """A memory that ``async with`` opens and closes. :func:`open_memory` makes it."""

    def __init__(self, build: Callable[[], MemorySlot]) -> None:
        self._build = build
        self._slot: MemorySlot | None = None

    async def __aenter__(self) -> MemorySlot:
        self._slot = self._build()
        return await self._slot.__aenter__()

    async def __aexit__(self, *ended: object) -> None:
        if self._slot is not None:
            await self._slot.__aexit__(*ended)

    def __enter__(self) -> NoReturn:
        raise LifecycleError(
            "open_memory is asynchronous; write 'async with open_memory(...)', or 'with open_memory_sync(...)'"
        )

    def __exit__(self, *ended: object) -> None:
        """Present because ``with`` looks for it before it calls ``__enter__``."""


def open_memory(
    config: str | Path | Mapping[str, object] | MemslotConfig,
    *,
    scope: MemoryScope | None = None,
    token_counter: TokenCounter | None = None,
    trace_sink: TraceSink | None = None,
    registry: MemoryAdapterRegistry | None = None,
    data_dir: Path | None = None,
) -> OpeningMemory:
    """Open the memory that a configuration selects, with its scope set up. Use it in ``async with``.

    Args:
        config, scope, token_counter, trace_sink, registry, data_dir: as for :func:`build_slot`.

    Raises:
        ConfigError, PluginError: the configuration or the plugin it selects cannot be used.
        BackendError: the scope could not be set up.
    """
    return OpeningMemory(
        partial(
            build_slot,
            config,
            scope=scope,
            token_counter=token_counter,
            trace_sink=trace_sink,
            registry=registry,
            data_dir=data_dir,
        )
    )


@contextmanager
def open_memory_sync(
    config: str | Path | Mapping[str, object] | MemslotConfig,
    *,
    scope: MemoryScope | None = None,
    token_counter: TokenCounter | None = None,
    trace_sink: TraceSink | None = None,
    data_dir: Path | None = None,
) -> Iterator[SyncMemory]:
    """:func:`open_memory` for code that does not await: an event loop runs in a separate thread meanwhile.

    Raises:
        ConfigError, PluginError, BackendError: as for :func:`open_memory`.
    """
    from memory.slot.sync import opened_in_thread

    opening = open_memory(
        config, scope=scope, token_counter=token_counter, trace_sink=trace_sink, data_dir=data_dir
    )
    with opened_in_thread(opening) as memory:
        yield memory
