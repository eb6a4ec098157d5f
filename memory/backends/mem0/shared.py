"""A store on a server, or of a library that keeps one collection: scopes share it, kept apart by their ids."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from mem0 import Memory
from mem0.memory.main import _build_session_scope
from mem0.utils.factory import VectorStoreFactory
from mem0.vector_stores.base import VectorStoreBase

from memory import IsolationError
from memory.backends.mem0.client import BATCH, History, NativeMem0, assemble, make_directory, opening
from memory.backends.mem0.models import Models, close_handle, watch_inserts
from memory.backends.mem0.translate import Ids, row_ids


class SharedMem0(NativeMem0):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._opening = threading.Lock()
        self._memory: Memory | None = None

    @contextmanager
    def memory(self, ids: Ids) -> Iterator[Memory]:
        yield self._opened()

    def probe(self, ids: Ids | None = None) -> Models:
        """The cheapest call that reaches the collection, and creates it where the first call does."""
        self._reach(self._opened().vector_store)
        assert self._models is not None
        return self._models

    def entities(self, memory: Memory) -> Any:
        """mem0 opens it with the first entity. Deletions before that leave earlier ones behind (mem0 #7226)."""
        with self._opening:
            store = memory.entity_store
        self._reach(store)
        return store

    @property
    def has_keywords(self) -> bool:
        store = self._opened().vector_store
        if self._options.vector_store.provider == "qdrant":
            return bool(store._has_bm25_slot) and super().has_keywords
        return type(store).keyword_search is not VectorStoreBase.keyword_search

    def purge(self, ids: Ids) -> tuple[int, bool, tuple[str, ...]]:
        """By ids, after each row's scope is checked: ``Memory.delete_all`` takes ten times as long, writes deleted
        texts into the history, and leaves entities of earlier processes."""
        session = _build_session_scope(ids)
        with self.memory(ids) as memory:
            entities = self.entities(memory)

            def forget(batch: list[str]) -> None:
                memory.db.forget(batch)  # first: nobody finds it any more without the rows
                self._delete_points(memory.vector_store, batch)

            removed = _drain(lambda: [row["id"] for row in self.rows(ids)], forget)
            _drain(partial(self._entity_ids, entities, ids), partial(self._delete_points, entities))
            memory.db.forget_session(session, [])
            left = self.rows(ids, limit=1) or self._entity_ids(entities, ids)
            left = left or memory.db.get_last_messages(session, 1)
        return removed, not left, ("history and recent messages in files of other processes",)

    def close(self) -> None:
        """mem0's own ``close`` does SQLite only."""
        with self._opening:
            memory, self._memory = self._memory, None
            super().close()
        if memory is not None:
            _close_store(memory._entity_store)
            _close_store(memory.vector_store)
            memory.close()

    def _opened(self) -> Memory:
        with self._opening:
            if self._memory is None:
                self._memory = self._open()
            return self._memory

    def _open(self) -> Memory:
        make_directory(Path(self._config.history_db_path).parent, self.where)
        with opening(self.where):
            models = self._build_models()
            store: Any = None
            try:
                native = self._config.vector_store
                store = VectorStoreFactory.create(native.provider, native.config)
                if native.provider == "qdrant":
                    vectors = store.client.get_collection(store.collection_name).config.params.vectors
                    self._check_length(store.collection_name, getattr(vectors, "size", None))
                pool: Any = getattr(store, "connection_pool", None)
                if hasattr(pool, "timeout"):
                    pool.timeout = 0.9 * self._deadlines.get("retrieve_s", 15.0)
                if hasattr(pool, "connection") and hasattr(store, "_get_cursor"):
                    _read_at_once(store)
                    _send_vectors_as_text(store)
                watch_inserts(store, self._notes)
                history = History(Path(self._config.history_db_path), self._notes, shared=True)
            except BaseException:
                _close_store(store)
                models.close()
                raise
        self._models = models
        return assemble(Memory, self._config, models, store, history)

    def _reach(self, store: Any) -> None:
        """PostgreSQL fails when two make one table at a time: a lock for ours, a second try for others."""
        with self._opening:
            try:
                store.list(top_k=1)
            except Exception as error:
                if type(error).__name__ not in ("UniqueViolation", "DuplicateTable", "DuplicateObject"):
                    raise
                store.list(top_k=1)

    def _delete_points(self, store: Any, ids: Sequence[str]) -> None:
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


def _drain(listed: Callable[[], list[str]], delete: Callable[[list[str]], None]) -> int:
    """Delete what is listed until nothing is, or the store lists the same again; how many were deleted."""
    removed = 0
    previous: list[str] = []
    while (batch := listed()) and batch != previous:
        delete(batch)
        removed += len(batch)
        previous = batch
    return removed


def _read_at_once(store: Any) -> None:
    """Let a psycopg store read without opening a transaction and committing it: one trip, not three."""
    within_transaction = store._get_cursor

    @contextmanager
    def cursor(commit: bool = False) -> Iterator[Any]:
        if commit:
            with within_transaction(commit=True) as writing:
                yield writing
            return
        with store.connection_pool.connection() as connection:
            connection.autocommit = True
            try:
                with connection.cursor() as reading:
                    yield reading
            finally:
                if not connection.closed:
                    connection.autocommit = False

    store._get_cursor = cursor


def _send_vectors_as_text(store: Any) -> None:
    """psycopg writes a list as an array, number by number in Python; pgvector reads the text of a list as well."""
    native = store.search

    def search(query: str, vectors: Sequence[float], top_k: int = 5, filters: Any = None) -> Any:
        return native(query, str([float(number) for number in vectors]), top_k, filters)

    store.search = search


def _close_store(store: Any) -> None:
    for handle in ("client", "connection_pool"):
        close_handle(getattr(store, handle, None))
