"""The embedded store: a partition for each scope, opened when it is used.

Embedded Qdrant reads a collection whole when it opens it, and goes through all of it with every search. So each
scope has a collection of its own, in a directory of its own beside mem0's history of it: a search costs what its
scope holds, a start what is used, and a reset removes the directory.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mem0 import Memory
from mem0.configs.base import MemoryConfig
from mem0.memory.storage import SQLiteManager

from memory import BackendError, MemslotError
from memory.adapter import FileLock, give_memory_back
from memory.backends.mem0 import layout
from memory.backends.mem0.models import Models
from memory.backends.mem0.moving import move
from memory.backends.mem0.opening import Memories, assemble, make_directory, open_history, opening
from memory.backends.mem0.store import LocalClient, ScopeStore
from memory.backends.mem0.watch import watch_inserts

__all__ = ["Partitions", "ScopeMemory"]

log = logging.getLogger("memslot.mem0")
_FILES = 9  # that an open partition may have open: three of memories, of entities and of history
_FILES_OF_OTHERS = 64
_CLOSED_AT_A_TIME = 32  # after so many, memory is given back to the system


class ScopeMemory(Memory):  # type: ignore[misc]
    """A ``Memory`` on one partition. Its entities live there too, in a collection made with the first of them."""

    ids: Mapping[str, str]
    logs: layout.Logs
    _entity_store: ScopeStore | None

    @property
    def entity_store(self) -> ScopeStore:
        """mem0's own property would have it filtered and indexed like a server's."""
        if self._entity_store is None:
            store = self.vector_store
            self._entity_store = _store(self.config, store.client, self.ids, self.logs, entities=True)
        return self._entity_store

    @property
    def has_entities(self) -> bool:
        """Whether there ever was one, in this process or another."""
        return layout.entity_collection(self.collection_name) in self.vector_store.client.collections


def _store(
    config: MemoryConfig, client: Any, ids: Mapping[str, str], logs: layout.Logs, *, entities: bool = False
) -> ScopeStore:
    native = config.vector_store.config
    name = layout.entity_collection(native.collection_name) if entities else native.collection_name
    return ScopeStore(client, name, native.embedding_model_dims, native.on_disk, ids, logs)


@dataclass(slots=True)
class _Partition:
    memory: ScopeMemory
    history: SQLiteManager | None
    users: int = 0
    dropped: bool = False

    def close(self) -> None:
        self.memory.logs.end()
        store = self.memory.vector_store
        store.client.close()
        del store.insert  # the watch over it, which refers back to the store and keeps both for the collector
        if self.history is not None:
            self.history.close()


class Partitions(Memories):
    """Partitions by scope, those last used kept open. One call at a time may use it, see :class:`StoreLock`."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        native, where = self._config.vector_store.config, self._where
        self._base = Path(native.path)
        self._collection: str = native.collection_name
        self._root = layout.partitions_path(self._base, self._collection)
        self._lock = FileLock(
            self._base / ".lock",
            what=f"the embedded store at {self._base}",
            instead=f"give this one another {where}.path, or configure a server in {where}.vector_store",
        )
        self._open: OrderedDict[Path, _Partition] = OrderedDict()
        self._history: SQLiteManager | None = None
        self._moved: str | None = None
        self._closed = 0

    # -- using them -------------------------------------------------------------------------------------

    @contextmanager
    def of(self, ids: Mapping[str, str]) -> Iterator[ScopeMemory]:
        """The ``Memory`` of a scope, for the length of a call; made where there is none.

        Raises:
            BackendUnavailable: the store is in use elsewhere.
            BackendError: the scope's files are damaged.
            ConfigError: the directory is not writable, or the vectors' length wrong.
            PluginLoadError: a component's client library is not installed.
        """
        partition = self._opened(ids)
        partition.users += 1
        try:
            yield partition.memory
        finally:
            partition.users -= 1
            if partition.dropped and not partition.users:
                partition.close()

    def probe(self, ids: Mapping[str, str] | None = None) -> None:
        """Reach the partition of a scope, or look at all that are open and their files; errors as of :meth:`of`."""
        self._start()
        if ids is not None:
            self._opened(ids)
            return
        for directory, partition in self._open.items():
            partition.memory.vector_store.col_info()
            layout.check(directory, partition.memory.ids, self._collection)

    @property
    def has_keywords(self) -> bool:
        """Whether the store finds words as well as vectors."""
        return importlib.util.find_spec("fastembed") is not None

    @property
    def models(self) -> Models:
        """The models asked."""
        return self._start()

    @property
    def details(self) -> Mapping[str, Any]:
        """What health says of the store besides."""
        found = sum(1 for _ in layout.partitions_in(self._root))
        moved = {"moved": self._moved} if self._moved else {}
        return {"partitions": found, "open_partitions": len(self._open), **moved}

    def drop(self, ids: Mapping[str, str]) -> bool:
        """Remove a scope's partition, damaged or not; whether it is gone.

        A call that still waits for a model meanwhile keeps what it has open, and can write to nothing any more.
        """
        self._start()
        directory = layout.partition_path(self._root, ids)
        partition = self._open.pop(directory, None)
        if partition is not None:
            partition.dropped = True
            if not partition.users:
                partition.close()
            partition.memory.logs.drop()
        layout.remove(directory)
        return not directory.exists()

    def close(self) -> None:
        """Close every partition and the models, and free the lock."""
        while self._open:
            self._open.popitem()[1].close()
        models, self._models = self._models, None
        if models is not None:
            models.close()
        history, self._history = self._history, None
        if history is not None:
            history.close()
        self._lock.release()
        give_memory_back()

    # -- opening them -----------------------------------------------------------------------------------

    def _start(self) -> Models:
        """Own the store, clear away what was interrupted, move what older versions left. Once."""
        if self._models is not None:
            return self._models
        make_directory(self._root, self._where)
        self._lock.acquire()
        try:
            layout.sweep(self._root)
            with opening(self._where):
                models = self._build_models()
                shared = self._options.history_path
                if shared is not None:
                    make_directory(shared.parent, self._where)
                    self._history = open_history(shared, shared=True)
            self._move(models)
        except BaseException:
            self.close()
            raise
        self._models = models
        return models

    def _move(self, models: Models) -> None:
        """Divide what earlier versions kept in one collection, and say so."""

        def place(ids: Mapping[str, str], entities: bool) -> Path:
            directory = layout.partition_path(self._root, ids)
            self._make(directory, ids, models)
            if entities:
                partition = self._open_files(directory, ids, models)
                _ = partition.memory.entity_store
                partition.close()
            return directory

        old = None if self._history is not None else Path(self._config.history_db_path)
        try:
            length = partial(self._check_length, self._collection)
            self._moved = move(self._base, self._collection, old, length=length, place=place)
        except MemslotError:
            raise
        except Exception as error:
            raise BackendError(
                f"the memories at {self._base} could not be moved to a partition for each scope "
                f"({type(error).__name__}); nothing is lost, and the next start tries again",
                sent=False,
            ) from error
        if self._moved is not None:
            log.warning(
                "mem0: moved %s from one collection to a partition for each scope, in %s",
                self._moved,
                self._root,
            )

    def _opened(self, ids: Mapping[str, str]) -> _Partition:
        models = self._start()
        directory = layout.partition_path(self._root, ids)
        partition = self._open.get(directory)
        if partition is None:
            self._make_room()
            partition = self._open[directory] = self._open_at(directory, dict(ids), models)
        self._open.move_to_end(directory)
        return partition

    def _make_room(self) -> None:
        """Close the partitions that were not used for longest; those in use stay."""
        idle = [directory for directory, partition in self._open.items() if not partition.users]
        for directory in idle[: max(0, len(self._open) - self._most_open() + 1)]:
            self._open.pop(directory).close()
            self._closed += 1
            if self._closed % _CLOSED_AT_A_TIME == 0:
                give_memory_back()

    def _most_open(self) -> int:
        """As configured, or as many as the open files that the system allows; a few of those are others'."""
        try:
            import resource
        except ModuleNotFoundError:  # Windows, which allows thousands
            return self._options.open_partitions
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = (files - _FILES_OF_OTHERS) // _FILES if files != resource.RLIM_INFINITY else sys.maxsize
        return max(1, min(self._options.open_partitions, allowed))

    def _open_at(self, directory: Path, ids: dict[str, str], models: Models) -> _Partition:
        self._make(directory, ids, models)
        layout.check(directory, ids, self._collection)
        try:
            partition = self._open_files(directory, ids, models)
        except MemslotError:
            raise
        except Exception as error:
            raise layout.damaged(directory, f"it cannot be opened ({type(error).__name__})") from error
        try:
            self._check_length(self._collection, partition.memory.vector_store.length)
        except MemslotError:
            partition.close()
            raise
        return partition

    def _make(self, directory: Path, ids: Mapping[str, str], models: Models) -> None:
        if not directory.exists():
            with layout.staged(directory, ids) as making:
                self._open_files(making, ids, models).close()

    def _open_files(self, directory: Path, ids: Mapping[str, str], models: Models) -> _Partition:
        client, logs = LocalClient(directory), layout.Logs(directory)
        try:
            store = _store(self._config, client, ids, logs)
            own = None
            if self._history is None:
                own = open_history(directory / layout.HISTORY, shared=False)
                logs.keep(layout.HISTORY, own.connection)
        except BaseException:
            client.close()
            raise
        watch_inserts(store, self._notes)
        memory = assemble(ScopeMemory, self._config, models, store, own or self._history)
        memory.ids, memory.logs = ids, logs
        return _Partition(memory, own)
