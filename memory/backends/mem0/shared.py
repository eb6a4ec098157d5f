"""Vector stores with one collection for all scopes. Each scope has its own history on this machine."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

from mem0 import Memory
from mem0.memory.storage import SQLiteManager
from mem0.vector_stores.base import VectorStoreBase

from memory import ConfigError, IsolationError
from memory.adapter.stores import remove_directory
from memory.backends.mem0.client import NAMES, NativeMem0, scope_name
from memory.backends.mem0.models import Models, close_handle
from memory.backends.mem0.opening import make_directory, opening
from memory.backends.mem0.stores import WatchedStore
from memory.backends.mem0.translate import Ids, row_ids

_MOST = 1_000_000  # rows of one scope; a reset that leaves more is not verified


class SharedMem0(NativeMem0):
    """One vector store for all scopes. Each scope has its own ``Memory`` and history."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._shared: Memory | None = None

    def probe(self, ids: Ids | None = None) -> Models:
        self._opened().vector_store.list(top_k=1)
        assert self._models is not None
        return self._models

    @property
    def _has_keywords(self) -> bool:
        store = self._opened().vector_store
        if self._options.vector_store.provider == "qdrant":
            return super()._has_keywords
        return type(store.native).keyword_search is not VectorStoreBase.keyword_search

    def purge(self, ids: Ids) -> tuple[int, bool, tuple[str, ...]]:
        """Delete rows by their ids: ``Memory.delete_all`` takes ten times as long, and keeps texts and entities."""
        with self.memory(ids) as memory:
            store, entities = memory.vector_store, memory.entity_store
            found = [row["id"] for row in self.rows(ids, limit=_MOST)]
            for native_id in found:
                store.delete(vector_id=native_id)
            for native_id in self._entity_ids(entities, ids):
                entities.delete(vector_id=native_id)
            left = self.rows(ids, limit=1) or self._entity_ids(entities, ids)
        name = scope_name(ids)
        directory = self._history_of(name)
        with self._opening:
            self._drop_scope(name)
            if directory.exists():
                remove_directory(directory)
            # A process that was killed during a deletion may have left its directory behind.
            for left_over in directory.parent.glob(".gone-*"):
                shutil.rmtree(left_over, ignore_errors=True)
        kept = ("history and recent messages that other machines keep of this scope",)
        return len(found), not left, kept

    def close(self) -> None:
        with self._opening:
            shared, self._shared = self._shared, None
            super().close()
        if shared is not None:
            _close_store(shared.entity_store)
            _close_store(shared.vector_store)
            shared.close()

    def _history_of(self, name: str) -> Path:
        return self._directory / "history" / NAMES.encode(self._collection) / name

    def _open_scope(self, name: str, ids: Ids) -> Memory:
        memory = copy.copy(self._opened())
        directory = self._history_of(name)
        make_directory(directory, self.where)
        memory.db = SQLiteManager(str(directory / "history.db"))
        return memory

    def _close_scope(self, memory: Memory) -> None:
        """Close the history only, because other scopes use the store."""
        memory.db.close()

    def _opened(self) -> Memory:
        with self._opening:
            if self._shared is None:
                self._shared = self._open()
            return self._shared

    def _open(self) -> Memory:
        memory: Memory | None = None
        with opening(self.where):
            models = self._build_models()
            try:
                memory = Memory(models.injected(self._config, history_db_path=":memory:"))
                memory.reranker = models.reranker
                pool: Any = getattr(memory.vector_store, "connection_pool", None)
                if hasattr(pool, "timeout"):
                    pool.timeout = 0.9 * self._deadlines.get("retrieve_s", 15.0)
                memory.vector_store = WatchedStore(
                    memory.vector_store, self._notes, ids=None, vectors_only=self.no_keywords is not None
                )
                memory.vector_store.list(top_k=1)  # some stores create their collection now
                self._models = models
                emptied = self._check(memory.vector_store, models.embedder.dimensions)
                memory.entity_store.list(top_k=1)  # creates it once, before scopes copy ``memory``
                if emptied:
                    memory.entity_store.reset()
            except BaseException:
                self._models = None
                if memory is not None:
                    _close_store(memory.vector_store)
                    memory.close()
                models.close()
                raise
        return memory

    def _check(self, store: Any, length: int | None) -> bool:
        """Compare the collection with the table of partitions and with the rows in it.

        Returns:
            Whether the collection was empty and was made anew, for vectors of another length.
        """
        rows = _listed(store, top_k=1)
        if any("event_id" not in (row.payload or {}) for row in rows):
            provider = self._options.vector_store.provider
            raise ConfigError(
                f"{self.where}.collection: {self._collection!r} on {provider} holds memories that memslot did not "
                "write; give another collection"
            )
        wanted = self._partition(f"collection {self._collection}", self._collection)
        found = self._length_of(store)
        if found not in (None, length) and rows:
            raise self._another_length(found)
        if found is None and (known := self._partitions.listed(wanted.scope)) is not None:
            found = known.dimensions  # chroma keeps the length of a collection that is empty
        emptied = not rows and found not in (None, length)
        if emptied:
            store.reset()
        self._partitions.open(wanted, exists=True, is_empty=lambda: not rows)
        return emptied

    def _length_of(self, store: Any) -> int | None:
        if self._options.vector_store.provider == "chroma":  # it tells by a row alone
            vectors = store.collection.get(limit=1, include=["embeddings"])["embeddings"]
            return len(vectors[0]) if len(vectors) else None
        if self._options.vector_store.provider == "qdrant":
            size: int = store.client.get_collection(store.collection_name).config.params.vectors.size
            return size
        table = "attrelid = to_regclass(quote_ident(%s))"
        asked = f"SELECT atttypmod FROM pg_attribute WHERE attname = 'vector' AND {table}"
        with store.connection_pool.connection() as connection:
            found = connection.execute(asked, (store.collection_name,)).fetchone()
        return found[0] if found and found[0] > 0 else None

    def _entity_ids(self, store: Any, ids: Ids) -> list[str]:
        rows = _listed(store, filters=dict(ids), top_k=_MOST)
        if any(row_ids(row.payload or {}) != ids for row in rows):
            raise IsolationError(f"{self._name}: the store listed entities of another scope")
        return [row.id for row in rows]


def _listed(store: Any, **asked: Any) -> list[Any]:
    """Rows of a store. Some stores of mem0 wrap them in a list or a pair."""
    rows = store.list(**asked)
    return list(rows[0] if rows and isinstance(rows[0], (list, tuple)) else rows or ())


def _close_store(store: Any) -> None:
    for handle in ("client", "connection_pool"):
        close_handle(getattr(store, handle, None))
