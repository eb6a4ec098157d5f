"""The embedded store keeps a directory for each scope and opens it on first use.

    <path>/qdrant/.lock                        held by one process at a time
    <path>/qdrant/scopes/<collection>/<scope>/ Qdrant's files and mem0's history of one scope

Embedded Qdrant loads and searches a whole collection, so the cost of a search depends on its scope alone here.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from mem0 import Memory

from memory import BackendError, BackendUnavailable, ConfigError, IsolationError, MemslotError
from memory.adapter import StoreError
from memory.adapter.sdk import trim_heap
from memory.adapter.stores import (
    FileLock,
    remove_directory,
    staged_directory,
    sweep_directories,
)
from memory.backends.mem0.client import NAMES, NativeMem0, scope_name
from memory.backends.mem0.models import Models
from memory.backends.mem0.opening import make_directory, opening
from memory.backends.mem0.stores import WatchedStore
from memory.backends.mem0.translate import Ids


class EmbeddedMem0(NativeMem0):
    """One stock Qdrant client for each scope. Only one call at a time uses them, see :class:`StoreLock`."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._base = Path(self._config.vector_store.config.path)
        self._root = self._base / "scopes" / NAMES.encode(self._collection)
        self._rows_of = f"collection/{self._collection}/storage.sqlite"
        self._lock = FileLock(
            self._base / ".lock",
            what=f"the embedded store at {self._base}",
            instead=f"give this one another {self.where}.path, or configure a server in {self.where}.vector_store",
        )

    def probe(self, ids: Ids | None = None) -> Models:
        models = self._start()
        if ids is not None:
            self._scope(ids)
        for scope in self._scopes.values():
            scope.memory.vector_store.col_info()
        return models

    def describe(self) -> tuple[dict[str, Any], list[str]]:
        details, warnings = super().describe()
        counted = {"partitions": len(self._partitions.all()), "open_partitions": len(self._scopes)}
        return {**details, **counted}, warnings

    def purge(self, ids: Ids) -> tuple[int | None, bool, tuple[str, ...]]:
        """Remove the scope's directory, even if its memories cannot be read and counted."""
        removed: int | None = None
        try:
            removed = len(self.rows(ids, limit=sys.maxsize))
        except IsolationError:
            raise
        except (BackendError, ConfigError, StoreError) as error:
            if isinstance(error, BackendUnavailable) or getattr(error, "ambiguous", False):
                raise
        self._start()
        self._own()
        name = scope_name(ids)
        self._drop_scope(name)
        self._partitions.drop(self._key(name))  # after a kill at this point, the scope still has its memories
        remove_directory(self._root / name)
        return removed, not (self._root / name).exists(), ()

    def close(self) -> None:
        super().close()
        self._lock.release()
        trim_heap()

    def _start(self) -> Models:
        if self._models is None:
            self._own()
            try:
                sweep_directories(self._root)
                with opening(self.where):
                    self._models = self._build_models()
            except BaseException:
                self.close()
                raise
        return self._models

    def _own(self) -> None:
        if not self._lock.held:
            self._refuse_mem0s_own()
            make_directory(self._root, self.where)
            self._lock.acquire()

    def _refuse_mem0s_own(self) -> None:
        """Refuse a store that mem0 made without memslot, because it would look empty."""
        for place in {self._base, self._base.parent}:
            try:
                names = list(json.loads((place / "meta.json").read_bytes())["collections"])
            except (OSError, ValueError, LookupError, TypeError):
                continue
            if names:
                raise ConfigError(
                    f"{self.where}.path: {place} holds a Qdrant store that memslot did not make (collections "
                    f"{', '.join(names)}); give another path, and record the events of the old store again"
                )

    def _key(self, name: str) -> str:
        return f"{self._collection}/{name}"

    def _is_there(self, directory: Path) -> bool:
        """Whether Qdrant's files are there. Without them Qdrant would create an empty collection."""
        files = (directory / "meta.json", directory / self._rows_of)
        return all(file.is_file() and file.stat().st_size for file in files)

    def _open_scope(self, name: str, ids: Ids) -> Memory:
        models, directory = self._start(), self._root / name
        try:
            location = directory.relative_to(self._data_dir).as_posix()
        except ValueError:  # an absolute path elsewhere
            location = str(directory)
        wanted = self._partition(self._key(name), location)
        known = self._partitions.listed(wanted.scope)
        if known is not None:
            exists = self._is_there(directory)
            self._partitions.open(wanted, exists=exists, is_empty=lambda: self._holds_nothing(directory))
            if known.dimensions != wanted.dimensions:  # only an empty partition gets here
                remove_directory(directory)
        try:
            if not directory.exists():
                with staged_directory(directory) as making:
                    self._close_scope(self._memory_at(making, models))
                    for file in ("history.db", self._rows_of):
                        _write_ahead(making / file)
            memory = self._memory_at(directory, models)
            vectors = memory.vector_store.client.get_collection(self._collection).config.params.vectors
            if vectors.size != models.embedder.dimensions:
                self._close_scope(memory)
                raise self._another_length(vectors.size)
        except MemslotError:
            raise
        except Exception as error:
            raise BackendError(
                f"the partition at {directory} is damaged: it cannot be opened ({type(error).__name__}); restore "
                "it from a backup, or reset the scope",
                sent=False,
            ) from error
        if known is None:  # list it only after its files exist, and before any write is acknowledged
            self._partitions.note(wanted)
        # A power cut may cost the newest lines of the history, never a memory. It saves a flush for each message.
        memory.db.connection.execute("PRAGMA synchronous = NORMAL")
        memory.reranker = models.reranker
        vectors_only = self.no_keywords is not None
        memory.vector_store = WatchedStore(
            memory.vector_store, self._notes, ids=ids, vectors_only=vectors_only
        )
        return memory

    def _memory_at(self, directory: Path, models: Models) -> Memory:
        store = self._config.vector_store
        native = store.config.model_copy(update={"path": str(directory)})
        return Memory(
            models.injected(
                self._config,
                vector_store=store.model_copy(update={"config": native}),
                history_db_path=str(directory / "history.db"),
            )
        )

    def _holds_nothing(self, directory: Path) -> bool:
        from qdrant_client import QdrantClient

        client = QdrantClient(path=str(directory))
        try:
            return bool(client.count(self._collection).count == 0)
        finally:
            client.close()

    def _close_scope(self, memory: Memory) -> None:
        """Close Qdrant and the history. mem0's own ``close`` closes only the history."""
        memory.vector_store.client.close()
        memory.close()


def _write_ahead(file: Path) -> None:
    """Make SQLite flush once per commit instead of four times. The file keeps this mode."""
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = WAL")
