"""Notes about one call of mem0, and the lock of a store that is not thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any


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
