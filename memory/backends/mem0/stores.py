"""Wraps mem0's vector stores, notes what mem0 does not report, and locks stores that are not thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

from memory.backends.mem0.translate import Ids, number_parts

Filters = Mapping[str, Any] | None


class Notes(threading.local):
    """Notes on this thread's current call. mem0 itself reports none of this.

    Attributes:
        extracted: number of memories in the model's answer; None if the model was not called.
        embedding_error, reranking_error: failures that mem0 ignores.
        insert_error: the error of an insert whose rows may or may not be stored.
        attempted: ids of the rows that were passed to an insert.
        waiting: rows (id, vector, payload) of an event to insert together; None if each is inserted at once.
        stage: of the write.
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
        self.stage = Stage()


class GivenUp(Exception):
    """A write reached its first insert after its deadline."""


class Stage:
    """Whether a write has begun to store. A write that is given up before that stores nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: Literal["", "storing", "given up"] = ""

    def store(self) -> None:
        """Begin to store; raises GivenUp if nobody waits any more."""
        with self._lock:
            if self._state == "given up":
                raise GivenUp
            self._state = "storing"

    def give_up(self) -> bool:
        """Give the write up. True if it has stored nothing, and never will."""
        with self._lock:
            if not self._state:
                self._state = "given up"
            return self._state == "given up"


class StoreLock:
    """Lets one thread at a time use a store, if ``needed``.

    A call releases the store while it waits for a model, so that other calls can read during an extraction.
    """

    def __init__(self, needed: bool) -> None:
        self._lock = threading.Lock() if needed else None
        self._mine = threading.local()

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock or nullcontext():
            self._mine.held = True
            try:
                yield
            finally:
                self._mine.held = False

    @contextmanager
    def released(self) -> Iterator[None]:
        """Release the turn in the body. Does nothing on a thread that does not hold it."""
        if self._lock is None or not getattr(self._mine, "held", False):
            yield
            return
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()


class WatchedStore:
    """A transparent wrapper around one of mem0's stores.

    Filters on ``ids``, which all rows of the store have, are dropped: embedded Qdrant checks filters row by row in
    Python. ``vectors_only`` encodes no text for keyword search: mem0 would try for 40 s to load the encoder.
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
        """Insert rows. Collect verbatim rows for a single insert, because mem0 passes them one by one."""
        notes = self._notes
        if notes.waiting is not None:
            notes.waiting.extend(zip(ids, vectors, payloads, strict=True))
            return None
        if notes.insert_error is not None:  # mem0 retries a failed batch row by row
            raise notes.insert_error
        notes.stage.store()
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
