"""A store on a server, or of a library that keeps one collection: scopes share it, kept apart by their ids.

Each scope has a history of its own on this machine, so that a reset removes it whole.
"""

from __future__ import annotations

import copy
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from mem0 import Memory
from mem0.memory.storage import SQLiteManager
from mem0.vector_stores.base import VectorStoreBase

from memory import ConfigError, IsolationError
from memory.adapter.stores import Partition, remove_directory
from memory.backends.mem0.client import BATCH, NativeMem0
from memory.backends.mem0.embedded import NAMES
from memory.backends.mem0.models import Models, close_handle
from memory.backends.mem0.opening import make_directory, opening
from memory.backends.mem0.stores import WatchedStore
from memory.backends.mem0.translate import Ids, row_ids

_RACES = ("UniqueViolation", "DuplicateTable", "DuplicateObject")  # of two that make one table


class SharedMem0(NativeMem0):
    """One vector store for all scopes, and a ``Memory`` with its own history for each that was used last."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._opening = threading.RLock()
        self._shared: Memory | None = None
        self._scopes: OrderedDict[Path, Memory] = OrderedDict()
        self._in_use: dict[Path, int] = {}

    @contextmanager
    def memory(self, ids: Ids) -> Iterator[Memory]:
        directory = self._history_of(ids)
        with self._opening:
            memory = self._opened_scope(directory)
            self._in_use[directory] = self._in_use.get(directory, 0) + 1
        try:
            yield memory
        finally:
            with self._opening:
                self._in_use[directory] -= 1
                if not self._in_use[directory]:
                    del self._in_use[directory]

    def probe(self, ids: Ids | None = None) -> Models:
        """The cheapest call that reaches the collection, and creates it where the first call does."""
        with self._opening:
            self._reach(self._opened().vector_store)
            assert self._models is not None
            return self._models

    @property
    def _has_keywords(self) -> bool:
        store = self._opened().vector_store
        if self._options.vector_store.provider == "qdrant":
            return super()._has_keywords
        return type(store.native).keyword_search is not VectorStoreBase.keyword_search

    def purge(self, ids: Ids) -> tuple[int, bool, tuple[str, ...]]:
        """By ids, after each row's scope is checked.

        ``Memory.delete_all`` takes ten times as long, writes deleted texts into the history, and leaves entities of
        earlier processes.
        """
        with self.memory(ids) as memory:
            store = memory.vector_store
            removed = _drain(lambda: [row["id"] for row in self.rows(ids)], partial(self._delete, store))
            left: Sequence[Any] = self.rows(ids, limit=1)
            entities = memory.entity_store
            _drain(partial(self._entity_ids, entities, ids), partial(self._delete, entities))
            left = left or self._entity_ids(entities, ids)
        directory = self._history_of(ids)
        with self._opening:
            opened = self._scopes.pop(directory, None)
            if opened is not None:
                opened.db.close()
            if directory.exists():
                remove_directory(directory)
            # A killed process may have left a directory that it was deleting.
            for left_over in directory.parent.glob(".gone-*"):
                shutil.rmtree(left_over, ignore_errors=True)
        return removed, not left, ("history and recent messages that other machines keep of this scope",)

    def close(self) -> None:
        """mem0's own ``close`` does SQLite only."""
        with self._opening:
            shared, self._shared = self._shared, None
            for memory in self._scopes.values():
                memory.db.close()
            self._scopes.clear()
            super().close()
        if shared is not None:
            _close_store(shared.entity_store)
            _close_store(shared.vector_store)
            shared.close()

    def _history_of(self, ids: Ids) -> Path:
        name = NAMES.encode(ids["user_id"], ids["run_id"], ids.get("agent_id"))
        return self._directory / "history" / NAMES.encode(self._collection) / name

    def _opened_scope(self, directory: Path) -> Memory:
        if directory not in self._scopes:
            memory = copy.copy(self._opened())
            make_directory(directory, self.where)
            memory.db = SQLiteManager(str(directory / "history.db"))
            idle = [each for each in self._scopes if each not in self._in_use]
            for least in idle[: max(0, len(self._scopes) - self._options.open_partitions + 1)]:
                self._scopes.pop(least).db.close()
            self._scopes[directory] = memory
        self._scopes.move_to_end(directory)
        return self._scopes[directory]

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
                    memory.vector_store, self._notes, ids=None, vectors_only=self._vectors_only
                )
                self._reach(memory.vector_store)
                self._check(memory.vector_store, models)
                self._reach(memory.entity_store)  # once for all scopes
            except BaseException:
                if memory is not None:
                    _close_store(memory.vector_store)
                    memory.close()
                models.close()
                raise
        self._models = models
        return memory

    @property
    def _vectors_only(self) -> bool:
        return self._options.vector_store.provider == "qdrant" and self.no_keywords is not None

    def _check(self, store: Any, models: Models) -> None:
        """Compare the collection with the table of partitions and with what it holds.

        Raises:
            ConfigError: it was made with another embedder or length, or by a program that is not memslot.
        """
        embedder = models.embedder
        provider, length = self._options.vector_store.provider, embedder.dimensions
        rows = self._some_rows(store)
        if any("event_id" not in (row.payload or {}) for row in rows):
            raise ConfigError(
                f"{self.where}.collection: {self._collection!r} on {provider} holds memories that memslot did not "
                "write; give another collection"
            )
        found = _length_of(store)
        if found not in (None, length):
            if rows:
                raise ConfigError(
                    f"{self.where}.embedder: the collection {self._collection!r} holds vectors of {found}, the "
                    f"embedder makes {length}; use the embedder it was written with, or another collection"
                )
            store.reset()
        named = (embedder.embedder.name, length, *embedder.embedder.prefixes)
        wanted = Partition(f"collection {self._collection}", self._collection, provider, *named)
        self._partitions.open(wanted, exists=True, is_empty=lambda: not rows)

    def _some_rows(self, store: Any) -> list[Any]:
        listed = store.list(top_k=1)
        return list(listed[0] if listed and isinstance(listed[0], (list, tuple)) else listed or ())

    def _reach(self, store: Any) -> None:
        """PostgreSQL fails when two make one table at a time: a lock for ours, a second try for others."""
        with self._opening:
            try:
                store.list(top_k=1)
            except Exception as error:
                if type(error).__name__ not in _RACES:
                    raise
                store.list(top_k=1)

    def _delete(self, store: Any, ids: Sequence[str]) -> None:
        if self._options.vector_store.provider != "qdrant":
            for native_id in ids:
                store.delete(vector_id=native_id)
            return
        from qdrant_client.models import PointIdsList

        for start in range(0, len(ids), 1000):
            points = PointIdsList(points=list(ids[start : start + 1000]))
            store.client.delete(collection_name=store.collection_name, points_selector=points)

    def _entity_ids(self, store: Any, ids: Ids) -> list[str]:
        listed = store.list(filters=dict(ids), top_k=BATCH)
        rows = listed[0] if listed and isinstance(listed[0], (list, tuple)) else listed
        if any(row_ids(row.payload or {}) != ids for row in rows or ()):
            what = "the store listed entities of another scope"
            raise IsolationError(f"{self._name}: {what}; nothing was done")
        return [row.id for row in rows or ()]


def _length_of(store: Any) -> int | None:
    """The length of a collection's vectors, where a public call tells it."""
    if hasattr(store, "client") and hasattr(store.client, "get_collection"):
        try:
            vectors = store.client.get_collection(store.collection_name).config.params.vectors
        except AttributeError:  # chroma has a call of that name
            return None
        return getattr(vectors, "size", None)
    pool = getattr(store, "connection_pool", None)
    if pool is None or not hasattr(pool, "connection"):
        return None
    table = "attrelid = to_regclass(quote_ident(%s))"
    asked = f"SELECT atttypmod FROM pg_attribute WHERE attname = 'vector' AND {table}"
    with pool.connection() as connection:
        found = connection.execute(asked, (store.collection_name,)).fetchone()
    return found[0] if found and found[0] > 0 else None


def _drain(listed: Callable[[], list[str]], delete: Callable[[list[str]], None]) -> int:
    """Delete what is listed until nothing is, or the store lists the same again; how many were deleted."""
    removed = 0
    previous: list[str] = []
    while (batch := listed()) and batch != previous:
        delete(batch)
        removed += len(batch)
        previous = batch
    return removed


def _close_store(store: Any) -> None:
    for handle in ("client", "connection_pool"):
        close_handle(getattr(store, handle, None))
