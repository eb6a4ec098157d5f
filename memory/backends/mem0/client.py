"""The adapter's calls to mem0, for its worker threads. Import this only after mem0's environment is set."""

from __future__ import annotations

import importlib.util
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from mem0 import Memory
from mem0.memory import telemetry

from memory import BackendError, ConfigError, IsolationError, ScopeError
from memory.adapter import AdapterSettings, IdAlphabet, normalise_error
from memory.adapter.stores import Partition, RecentKeys
from memory.backends.mem0.models import Models, native_config
from memory.backends.mem0.opening import keyword_encoder
from memory.backends.mem0.options import Mem0Options
from memory.backends.mem0.stores import Notes, Stage, StoreLock
from memory.backends.mem0.translate import ERRORS, Ids, Row, native_filters, parts_of, row_ids

BATCH = 10_000
# Lower case only, because some file systems ignore case. No name starts with a dot.
NAMES = IdAlphabet(safe="-", escape="_", separator="_x", max_length=120)


class _Scope:
    """An open scope: its ``Memory``, and the number of calls that use it."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.users = 0
        self.dropped = False


@lru_cache(maxsize=1024)
def _name(*ids: str | None) -> str:
    return NAMES.encode(*ids)


def scope_name(ids: Ids) -> str:
    """The file name of a scope."""
    return _name(ids["user_id"], ids["run_id"], ids.get("agent_id"))


class NativeMem0:
    """mem0 and its store. Every call must hold ``turn``. The most recently used scopes stay open."""

    def __init__(self, settings: AdapterSettings[Mem0Options], directory: Path) -> None:
        self._options = settings.options
        self.where = settings.where
        self._deadlines = settings.deadlines
        self._name = settings.name
        self._directory = directory
        self._data_dir = settings.data_dir.absolute()
        self._store, self._partitions = settings.store, settings.partitions
        self._config = native_config(self._options, directory, self.where)
        self._collection: str = self._config.vector_store.config.collection_name
        self._notes = Notes()
        self._cut_off: RecentKeys[tuple[str, ...]] = RecentKeys(1000)  # events stored only in part
        self.turn = StoreLock(needed=self._options.embedded)
        self._models: Models | None = None
        self.no_keywords: str | None = None
        self._opening = threading.RLock()
        self._scopes: OrderedDict[str, _Scope] = OrderedDict()

    @contextmanager
    def memory(self, ids: Ids) -> Iterator[Memory]:
        """Open the scope if needed, and yield its ``Memory`` for one call."""
        with self._opening:
            scope = self._scope(ids)
            scope.users += 1
        try:
            yield scope.memory
        finally:
            with self._opening:
                scope.users -= 1
                if scope.dropped and not scope.users:
                    self._close_scope(scope.memory)

    def _scope(self, ids: Ids) -> _Scope:
        name = scope_name(ids)
        scope = self._scopes.get(name)
        if scope is None:
            idle = [other for other, each in self._scopes.items() if not each.users]
            for least in idle[: max(0, len(self._scopes) - self._options.open_partitions + 1)]:
                self._close_scope(self._scopes.pop(least).memory)
            scope = self._scopes[name] = _Scope(self._open_scope(name, ids))
        self._scopes.move_to_end(name)
        return scope

    def _drop_scope(self, name: str) -> None:
        """Close a scope that is being reset, after the calls that use it have ended."""
        scope = self._scopes.pop(name, None)
        if scope is not None:
            scope.dropped = True
            if not scope.users:
                self._close_scope(scope.memory)

    def _open_scope(self, name: str, ids: Ids) -> Memory:
        raise NotImplementedError

    def _close_scope(self, memory: Memory) -> None:
        raise NotImplementedError

    def _partition(self, scope: str, location: str) -> Partition:
        """The row for a scope or a collection in the table of partitions."""
        embedder = self._models.embedder if self._models is not None else None
        assert embedder is not None
        engine, made_by = self._options.vector_store.provider, embedder.embedder
        return Partition(scope, location, engine, made_by.name, embedder.dimensions, *made_by.prefixes)

    def _another_length(self, found: int) -> ConfigError:
        assert self._models is not None
        return ConfigError(
            f"{self.where}.embedder: the collection {self._collection!r} holds vectors of {found}, the embedder "
            f"makes {self._models.embedder.dimensions}; use the embedder it was written with, or another collection"
        )

    def probe(self, ids: Ids | None = None) -> Models:
        """Check that the store answers, open the scope if one is given, and return the models."""
        raise NotImplementedError

    def purge(self, ids: Ids) -> tuple[int | None, bool, tuple[str, ...]]:
        """Clear a scope: memories, entities, recent messages, history.

        Returns:
            The number of deleted memories, if known; whether a second look found none; what stays.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release clients, pools, files and the store's lock."""
        with self._opening:
            while self._scopes:
                self._close_scope(self._scopes.popitem()[1].memory)
        models, self._models = self._models, None
        if models is not None:
            models.close()
        self._store.close()

    def _build_models(self) -> Models:
        """Build the models, and set the vector length in the store's configuration."""
        models = Models(self._config, self._options, self._notes, self.turn, self._deadlines, self.where)
        try:
            embedder, given = models.embedder, self._options.given_dimensions
            if given is None:
                name = embedder.embedder.name
                noted = (each.dimensions for each in self._partitions.all() if each.embedder == name)
                given = next(filter(None, noted), None)
            if given is None or self._options.local:
                measured = embedder.measured()
                if given not in (None, measured):
                    raise ConfigError(
                        f"{self.where}.dimensions is {given}, and the embedder answers with {measured}; "
                        "leave dimensions out"
                    )
                given = measured
            embedder.config.embedding_dims = given
            config = self._config.vector_store.config
            if hasattr(config, "embedding_model_dims"):
                config.embedding_model_dims = given
            if self._options.vector_store.provider == "qdrant":
                wanted = self._options.keywords
                self.no_keywords = keyword_encoder(self.where) if wanted else "keywords is false"
        except BaseException:
            models.close()
            raise
        return models

    def prepare(self, texts: list[str]) -> ExitStack:
        """Embed documents in one batch before mem0 asks for them. Closing the returned stack forgets them."""
        return self.probe().embedder.prepare(texts)

    def add(
        self, messages: list[dict[str, str]], ids: Ids, metadata: Row, prompt: str | None, stage: Stage
    ) -> tuple[tuple[str, ...], int | None]:
        """Store all memories of an event, or none. First remove the rows of an earlier, incomplete write.

        Returns:
            Native ids, and the number of memories that the model extracted, or None if it was not asked.
        """
        notes, infer = self._notes, self._options.infers
        key = (metadata["event_id"], *ids.values())
        with self.memory(ids) as memory:
            if key in self._cut_off:
                for row in self._rows_of_event(ids, metadata["event_id"]):
                    memory.delete(row["id"])
            notes.clear()
            notes.stage = stage
            notes.waiting = None if infer else []
            texts = [] if infer else [message["content"] for message in messages]
            try:
                with memory.embedding_model.prepare(texts):
                    # mem0 deep-copies metadata three times per row. Verbatim rows get theirs at the insert.
                    given = metadata if infer else {"created_at": metadata["created_at"]}
                    answer = memory.add(messages, **ids, metadata=given, infer=infer, prompt=prompt)
                if error := notes.embedding_error or notes.insert_error:
                    raise error
                if rows := notes.waiting:
                    notes.waiting = None
                    for _, _, payload in rows:
                        payload.update(metadata)
                    native_ids, vectors, payloads = (list(column) for column in zip(*rows, strict=True))
                    memory.vector_store.insert(vectors=vectors, payloads=payloads, ids=native_ids)
            except Exception as error:
                failure = self._undone(memory, error)
                raise failure from (None if failure is error.__cause__ else error)
        self._cut_off.discard(key)
        return tuple(row["id"] for row in answer["results"]) if infer else tuple(
            notes.attempted
        ), notes.extracted

    def find_event(self, ids: Ids, event_id: str) -> tuple[str, ...] | None:
        """The ids of an event's memories, in order. None if any are missing, as after a kill."""
        rows = self._rows_of_event(ids, event_id)
        present, parts = parts_of(rows)
        if 0 < len(present) < parts:
            self._cut_off.add((event_id, *ids.values()))
        return tuple(present.values()) if rows and len(present) >= parts else None

    def _rows_of_event(self, ids: Ids, event_id: str) -> list[Row]:
        return self.rows(ids, native_filters({"event_id": {"eq": event_id}}, self._options.profile))

    def _undone(self, memory: Any, error: Exception) -> BackendError:
        """Delete the memories that a failed add stored, and return the error to raise."""
        notes, embedded = self._notes, self._options.embedded
        notes.waiting = None
        # mem0 wraps its model's errors in an LLMError. Our own error says more.
        own = error.__cause__ if isinstance(error.__cause__, BackendError) else error
        cause = notes.insert_error or own
        failure = normalise_error(cause, backend_name=self._name, operation="Memory.add", table=ERRORS)
        # An embedded engine cannot carry out a write after it has failed.
        uncertain = notes.insert_error is not None and failure.sent and not embedded
        try:
            for native_id in notes.attempted if embedded or failure.sent else ():
                memory.vector_store.delete(vector_id=native_id)
        except Exception:
            uncertain = True
        failure.sent = uncertain
        return failure

    def search(self, query: str, ids: Ids, filters: Mapping[str, Any], top_k: int) -> tuple[Row, bool]:
        """Call ``Memory.search``. Returns its answer, and whether its reranker failed."""
        notes, options = self._notes, self._options
        with self.memory(ids) as memory:
            notes.clear()
            native = {"threshold": options.least_score, "rerank": options.rerank}
            raw: Row = memory.search(query, filters={**ids, **filters}, top_k=top_k, **native)
        return raw, notes.reranking_error is not None

    def rows(self, ids: Ids, filters: Mapping[str, Any] | None = None, limit: int = BATCH) -> list[Row]:
        """The rows of ``Memory.get_all`` for a scope, including expired memories."""
        with self.memory(ids) as memory:
            answer = memory.get_all(filters={**ids, **(filters or {})}, top_k=limit, show_expired=True)
        rows: list[Row] = answer["results"]
        if any(row_ids(row) != ids for row in rows):
            raise IsolationError(f"{self._name}: the store listed rows of another scope; nothing was done")
        return rows

    def _row(self, memory: Any, native_id: str | None, ids: Ids) -> Row | None:
        """A memory of this scope. None if there is no such row, or if it belongs to another scope."""
        row: Row | None = memory.get(native_id) if _is_uuid(native_id) else None
        return row if row is not None and row_ids(row) == ids else None

    def change(self, native_id: str, ids: Ids, changes: Mapping[str, Any] | None) -> Row:
        """Update one memory, or delete it if ``changes`` is None."""
        with self.memory(ids) as memory:
            if self._row(memory, native_id, ids) is None:
                raise self._unknown()
            _ = memory.entity_store  # otherwise mem0 keeps entity links from earlier processes (mem0 #7226)
            answer: Row = (
                memory.update(native_id, **changes) if changes is not None else memory.delete(native_id)
            )
        return answer

    def history(self, native_id: str | None, ids: Ids) -> tuple[Row | None, list[Any]]:
        """A memory and its history. The memory is None if it was deleted."""
        with self.memory(ids) as memory:
            row = self._row(memory, native_id, ids)
            changes = memory.history(native_id) if _is_uuid(native_id) else []
        if row is None and not changes:
            raise self._unknown()
        return row, changes

    def _unknown(self) -> ScopeError:
        return ScopeError(f"{self._name}: native_id names no memory of this scope")

    def describe(self) -> tuple[Row, list[str]]:
        """The details and warnings of the health report."""
        models, options = self.probe(), self._options
        provider = options.vector_store.provider
        keywords, entities = self._has_keywords, importlib.util.find_spec("spacy") is not None
        embedder = models.embedder.embedder
        name = embedder.name
        if options.embedder == "lexical":
            name = f"lexical ({name}: shared words and character n-grams, no model)"
        details: Row = {
            "vector_store": f"{provider} (embedded)" if options.embedded else provider,
            "collection": self._collection,
            "dimensions": models.embedder.dimensions,
            "embedder": name,
            "infer": options.infers,
            "llm": f"{options.llm.provider}:{models.llm.config.model}" if options.llm else None,
            "keyword_search": keywords,
            "entity_linking": entities and options.infers,
            "reranker": options.reranker.provider if options.reranker else None,
            "threshold": options.least_score,
        }
        if any(embedder.prefixes):
            details["prefixes"] = list(embedder.prefixes)
        return details, list(self._complaints(keywords, entities))

    @property
    def keywords_failed(self) -> bool:
        """Whether the encoder of keyword search is installed and cannot be used."""
        failed = self._options.keywords and self.no_keywords is not None
        return failed and importlib.util.find_spec("fastembed") is not None

    @property
    def _has_keywords(self) -> bool:
        return self.no_keywords is None

    def _complaints(self, keywords: bool, entities: bool) -> Iterator[str]:
        options = self._options
        store = options.vector_store
        if options.keywords and not keywords:
            yield f"keyword search (BM25) is off; search is by vectors alone: {self.no_keywords}"
        if options.infers and not entities:
            yield 'entity linking is off: pip install "mem0ai[nlp]"'
        if options.rerank and options.reranker is None:
            yield "rerank: true does nothing without a reranker"
        if telemetry.MEM0_TELEMETRY:
            yield "mem0 was imported with telemetry on; open memslot first, or set MEM0_TELEMETRY=False"
        if store.config.get("hnsw"):
            yield "hnsw: true ranks before it filters by scope; scopes that share a table lose matches"


def _is_uuid(text: str | None) -> bool:
    try:
        return text is not None and str(uuid.UUID(text)) == text
    except ValueError:
        return False
