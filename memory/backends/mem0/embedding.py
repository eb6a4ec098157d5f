"""The embedders that mem0 calls. They add prefixes, embed in batches, and check the length of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from mem0.embeddings.base import EmbeddingBase

from memory.adapter import BackendProtocolError, BackendRejected, quantity
from memory.adapter.models import LexicalHashEmbedder, LocalEmbedder
from memory.backends.mem0.stores import Notes, StoreLock

Vector = list[float]


class ProviderEmbedder:
    """An embedder of one of mem0's providers. It puts the prefixes of a question and of a document before texts."""

    def __init__(self, native: Any, provider: str, prefixes: tuple[str, str]) -> None:
        self.native = native
        self.name = f"{provider}:{native.config.model}"
        self.prefixes = prefixes

    def embed_query(self, text: str) -> Vector:
        return list(self.native.embed(self.prefixes[0] + text, "search"))

    def embed_documents(self, texts: list[str]) -> list[Vector]:
        written = [self.prefixes[1] + text for text in texts]
        return [list(vector) for vector in self.native.embed_batch(written, "add")]


Embedder = ProviderEmbedder | LocalEmbedder | LexicalHashEmbedder


class Embedding(EmbeddingBase):  # type: ignore[misc]
    """An embedder in mem0's interface, which reads ``config``. It releases the store's turn while a model works.

    It notes failures, because mem0 silently skips a memory whose embedding fails. It refuses a vector of the
    wrong length before anything is sent to the store.
    """

    def __init__(self, embedder: Embedder, notes: Notes, turn: StoreLock | None) -> None:
        self.embedder = embedder
        self._notes = notes
        self._turn = turn
        self._prepared: dict[str, Vector] = {}
        self.config = SimpleNamespace(model=embedder.name, embedding_dims=None)

    @property
    def dimensions(self) -> Any:
        """The length of the store's vectors; None until it is known."""
        return self.config.embedding_dims

    def measured(self) -> int:
        """The length of a vector that the embedder makes now."""
        return len(self._ask("search", ["I drink tea."])[0])

    def prepare(self, texts: Sequence[str]) -> ExitStack:
        """Embed documents in one batch, which :meth:`embed` uses until the returned stack is closed."""
        wanted = [text for text in dict.fromkeys(texts) if text not in self._prepared]
        done = ExitStack()
        if len(wanted) > 1:
            self._prepared.update(zip(wanted, self.embed_batch(wanted), strict=True))
            for text in wanted:
                done.callback(self._prepared.pop, text, None)
        return done

    def embed(self, text: str, memory_action: str | None = None) -> Vector:
        if memory_action == "search":
            return self._ask("search", [text])[0]
        ready = self._prepared.get(text)
        if ready is not None:
            return ready
        try:
            return self._ask("add", [text])[0]
        except Exception as error:
            self._notes.embedding_error = error
            raise

    def embed_batch(self, texts: list[str], memory_action: str = "add") -> list[Vector]:
        return self._ask(memory_action, list(texts)) if texts else []

    def _ask(self, action: str, texts: list[str]) -> list[Vector]:
        if self._turn is None:
            vectors = self._vectors(action, texts)
        else:
            with self._turn.released():
                vectors = self._vectors(action, texts)
        if len(vectors) != len(texts):
            problem = f"the embedder made {len(vectors)} vectors of {quantity(len(texts), 'texts')}"
            raise BackendProtocolError(problem, sent=False)
        length = self.dimensions
        for vector in vectors:
            if length is not None and len(vector) != length:
                raise BackendRejected(
                    f"the embedder answers with vectors of {len(vector)}, and the store holds vectors of "
                    f"{length}; use the embedder that the store was made with",
                    sent=False,
                )
        return vectors

    def _vectors(self, action: str, texts: list[str]) -> list[Vector]:
        if action == "search":
            return [self.embedder.embed_query(text) for text in texts]
        return self.embedder.embed_documents(texts)
