"""A store of mem0's, watched while it is written to: notes on a call, turns, and what the store is asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from memory.backends.mem0.translate import Ids, number_parts

Filters = Mapping[str, Any] | None


class Notes(threading.local):
    """Notes about the current call of this thread. mem0 itself reports none of this.

    Attributes:
        extracted: how many memories the model's answer holds; None where it was not asked.
        embedding_error, reranking_error: failures that mem0 goes on after.
        insert_error: of an insert whose rows may or may not be stored.
        attempted: ids of the rows that an insert was tried with.
        waiting: rows (id, vector, payload) of an event that go in together; None where each goes at once.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.extracted: int | None = None
        self.embedding_error: Exception | None = None
        self.reranking_error: Exception | None = None
        self.insert_error: Exception | None = None
        self.attempted: list[str] = []
        self.waiting: list[tuple[str, Any, dict[str, Any]]] | None = None


class StoreLock:
    """Lets one thread at a time use a store that is not thread-safe.

    A call releases the store while it waits for a model, so that others can read during an extraction.

    Args:
        needed: False lets every thread pass.
    """

    def __init__(self, needed: bool) -> None:
        self._lock = threading.Lock() if needed else None
        self._mine = threading.local()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the turn, and have it in the body."""
        with self._lock or nullcontext():
            self._mine.held = True
            try:
                yield
            finally:
                self._mine.held = False

    @contextmanager
    def released(self) -> Iterator[None]:
        """Release the turn in the body. A thread without a turn passes."""
        if self._lock is None or not getattr(self._mine, "held", False):
            yield
            return
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()


class WatchedStore:
    """A store of mem0's that answers as it always does.

    Args:
        native: the store.
        notes: of the current call.
        ids: a scope's, where all rows of the store are that scope's: conditions that every row meets are left out.
            Embedded Qdrant checks conditions row by row, in Python.
        vectors_only: no text is encoded for keyword search, because mem0 would try for 40 s, with every scope.
    """

    def __init__(self, native: Any, notes: Notes, *, ids: Ids | None, vectors_only: bool) -> None:
        self.native = native
        self._notes = notes
        self._ids = ids or {}
        self._vectors_only = vectors_only

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    def _beyond_scope(self, filters: Filters) -> dict[str, Any]:
        return {name: value for name, value in (filters or {}).items() if self._ids.get(name) != value}

    def search(self, query: str, vectors: Sequence[float], top_k: int = 5, filters: Filters = None) -> Any:
        return self.native.search(query, vectors, top_k, self._beyond_scope(filters))

    def search_batch(
        self, queries: list[str], vectors_list: list[Any], top_k: int = 1, filters: Filters = None
    ) -> Any:
        return self.native.search_batch(queries, vectors_list, top_k, self._beyond_scope(filters))

    def keyword_search(self, query: str, top_k: int = 5, filters: Filters = None) -> Any:
        if self._vectors_only:
            return None
        return self.native.keyword_search(query, top_k, self._beyond_scope(filters))

    def list(self, filters: Filters = None, top_k: int = 100) -> Any:
        return self.native.list(self._beyond_scope(filters), top_k)

    def insert(self, vectors: Any, payloads: Any = None, ids: Any = None) -> Any:
        """Insert rows, or keep those of an event until all are there: mem0 gives them one after the other."""
        notes = self._notes
        if notes.waiting is not None:
            notes.waiting.extend(zip(ids, vectors, payloads, strict=True))
            return None
        if notes.insert_error is not None:  # mem0 tries each row again
            raise notes.insert_error
        number_parts(payloads)
        notes.attempted.extend(ids or ())
        try:
            return self._insert(vectors, payloads, ids)
        except Exception as error:
            notes.insert_error = error
            raise

    def _insert(self, vectors: Any, payloads: Any, ids: Any) -> Any:
        if not self._vectors_only:
            return self.native.insert(vectors=vectors, payloads=payloads, ids=ids)
        return self._upsert(zip(ids, vectors, payloads, strict=True))

    def update(self, vector_id: Any, vector: Any = None, payload: Any = None) -> Any:
        if not self._vectors_only or vector is None or payload is None:
            return self.native.update(vector_id, vector, payload)
        return self._upsert([(vector_id, vector, payload)])

    def _upsert(self, rows: Any) -> Any:
        from qdrant_client.models import PointStruct

        points = [PointStruct(id=row, vector={"": vector}, payload=payload) for row, vector, payload in rows]
        return self.native.client.upsert(collection_name=self.native.collection_name, points=points)
