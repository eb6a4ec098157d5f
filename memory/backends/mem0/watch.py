"""What mem0 swallows, noticed. Each call runs on one thread, so each thread has its own notes.

mem0 turns an unreadable answer of the model into "nothing extracted", a failed embedding into a skipped memory
and a failed reranker into the unranked order. None of that may look like success.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

from mem0.memory.utils import extract_json, remove_code_blocks

from memory import BackendError
from memory.adapter import BackendProtocolError, LexicalHashEmbedder
from memory.backends.mem0.translate import never_connected


class Notes(threading.local):
    """What happened during the current call of this thread.

    Attributes:
        extracted: memories in the model's answer, or None where it was not asked.
        embedding_error: of an embedding mem0 gave up on.
        reranking_error: of the reranker.
        inserted: ids of rows the vector store has accepted.
        insert_error: of the vector store, on a row that may or may not be stored.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.extracted: int | None = None
        self.embedding_error: Exception | None = None
        self.reranking_error: Exception | None = None
        self.insert_error: Exception | None = None
        self.inserted: list[str] = []

    def read(self, answer: Any) -> None:
        """Count the memories in a model's answer: mem0 takes an unusable one for "nothing extracted"."""
        self.extracted = _count_memories(answer)


class StoreLock:
    """Whose turn it is with a store that is not thread-safe; where none is ``needed``, every thread passes.

    A call holds the turn from start to end but for the time it waits for a model, so that one extraction does
    not keep every other scope from reading (DESIGN section 5.5).
    """

    def __init__(self, needed: bool) -> None:
        self._lock = threading.Lock() if needed else None
        self._mine = threading.local()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the turn, and have it."""
        with self._lock or nullcontext():
            self._mine.held = True
            try:
                yield
            finally:
                self._mine.held = False

    @contextmanager
    def passed_on(self) -> Iterator[None]:
        """Let others have it meanwhile; a thread that has no turn has none to pass on."""
        if self._lock is None or not getattr(self._mine, "held", False):
            yield
            return
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()


class LexicalEmbedding:
    """Our embedder in the shape of mem0's ``EmbeddingBase``."""

    def __init__(self, dimensions: int) -> None:
        self._embedder = LexicalHashEmbedder(dimensions)
        self.config = SimpleNamespace(model=self._embedder.name, embedding_dims=dimensions)

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        if memory_action == "search":
            return self._embedder.embed_query(text)
        return self._embedder.embed_document(text)

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = "add") -> list[list[float]]:
        return [self.embed(text, memory_action) for text in texts]


class Watched:
    """A native model, which has no turn while it is waited for.

    Args:
        native: mem0's.
        turn: passed on meanwhile.
        failed: method -> told what it raised.
        answered: method -> told what it answered; may raise in its place.
    """

    def __init__(
        self,
        native: Any,
        turn: StoreLock,
        *,
        failed: Mapping[str, Callable[[Exception], object]] = {},
        answered: Mapping[str, Callable[[Any], object]] = {},
    ) -> None:
        self.native = native
        self._turn = turn
        self._failed = failed
        self._answered = answered

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.native, name)
        return partial(self._call, name, found) if callable(found) else found

    def _call(self, name: str, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            with self._turn.passed_on():
                answer = method(*arguments, **options)
        except Exception as error:
            if name in self._failed:
                self._failed[name](error)
            raise
        if name in self._answered:
            self._answered[name](answer)
        return answer


def _count_memories(answer: Any) -> int:
    """Memories in an extraction answer, read the way mem0 reads it."""
    content = remove_code_blocks(answer)
    for candidate in (content, extract_json(content)):
        try:
            parsed = json.loads(candidate, strict=False)
        except (ValueError, RecursionError):
            continue
        memories = (parsed["memory"] or []) if isinstance(parsed, dict) and "memory" in parsed else None
        if isinstance(memories, list) and all(_is_memory(item) for item in memories):
            return sum(1 for item in memories if item.get("text"))
        break
    raise BackendProtocolError(
        "the extracting model did not answer with the JSON mem0 asked for, so nothing was stored", sent=False
    )


def _is_memory(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("text", ""), str)


class NoLlm:
    """Stands where mem0 insists on a model and none is configured; never asked while ``infer`` is false."""

    config = SimpleNamespace(model=None)

    def generate_response(self, *_: Any, **__: Any) -> Any:
        raise BackendError("no llm is configured for mem0", sent=False)


def watch_inserts(store: Any, notes: Notes) -> None:
    """Note the ids a vector store accepts, so that half an event can be taken back."""
    native = store.insert

    def insert(vectors: Any, payloads: Any = None, ids: Any = None) -> Any:
        try:
            answer = native(vectors=vectors, payloads=payloads, ids=ids)
        except Exception as error:
            if not never_connected(error):
                notes.insert_error = error
            raise
        notes.inserted.extend(ids or ())
        return answer

    store.insert = insert
