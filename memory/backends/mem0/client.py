"""mem0's calls as the adapter needs them, for its worker threads. Imported after mem0's environment is set."""

from __future__ import annotations

import importlib.util
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from mem0.configs.base import MemoryConfig
from mem0.memory import telemetry
from mem0.memory.main import _build_session_scope
from mem0.memory.storage import SQLiteManager

from memory import BackendError, ConfigError, IsolationError, PluginLoadError, ScopeError
from memory.adapter import AdapterSettings, RecentKeys, normalise_error, quiet_loggers
from memory.backends.mem0.models import Models, Notes, StoreLock, native_config
from memory.backends.mem0.options import Mem0Options
from memory.backends.mem0.translate import ERRORS, Ids, Row, native_filters, number_parts, parts_of, row_ids

BATCH = 10_000
# Beside mem0's tables in its history: whose memories are gone, so that their history can be shown and cleared.
_TOMBSTONES = "CREATE TABLE IF NOT EXISTS memslot_deleted (memory_id TEXT PRIMARY KEY, session_scope TEXT)"


class NativeMem0:
    """mem0 over its store, opened with the first call; ``turn`` is to be held around every call."""

    def __init__(self, settings: AdapterSettings[Mem0Options], directory: Path) -> None:
        self._options = settings.options
        self.where = settings.where
        self._deadlines = settings.deadlines
        self._name = settings.name
        self._config = native_config(self._options, directory, self.where)
        self._notes = Notes()
        # Events whose last write had no certain end.
        self._uncertain: RecentKeys[tuple[str, ...]] = RecentKeys(1000)
        self.turn = StoreLock(needed=self._options.embedded)
        self._models: Models | None = None

    def memory(self, ids: Ids) -> AbstractContextManager[Any]:
        """The ``Memory`` of a scope, for the length of a call; opens what is needed. BackendUnavailable where it is
        in use elsewhere, BackendError where files are damaged, ConfigError where a length or option is wrong."""
        raise NotImplementedError

    def entities(self, memory: Any) -> Any | None:
        """The store of entities; None where there is none."""
        raise NotImplementedError

    def probe(self, ids: Ids | None = None) -> Models:
        """The models mem0 asks, once the store was reached, and what it keeps of a scope that is named."""
        raise NotImplementedError

    def purge(self, ids: Ids) -> tuple[int | None, bool, tuple[str, ...]]:
        """Clear a scope: memories, entities, recent messages, history. How many memories went, where they could be
        counted; whether looking again found none; and what stays, in words."""
        raise NotImplementedError

    @property
    def has_keywords(self) -> bool:
        return importlib.util.find_spec("fastembed") is not None

    def close(self) -> None:
        """Free clients, pools, files and the store's lock."""
        models, self._models = self._models, None
        if models is not None:
            models.close()

    def _build_models(self) -> Models:
        return Models(self._config, self._options, self._notes, self.turn, self._deadlines)

    def _check_length(self, collection: str, found: int | None) -> None:
        if found not in (None, self._options.vector_dimensions):
            raise ConfigError(
                f"{self.where}.dimensions: the collection {collection!r} holds vectors of {found}, the "
                f"embedder makes {self._options.vector_dimensions}; use the embedder it was written with, or "
                "another collection"
            )

    def add(
        self, messages: list[dict[str, str]], ids: Ids, metadata: Row, prompt: str | None
    ) -> tuple[tuple[str, ...], int | None]:
        """All memories of the event or none and an error; and how many the model extracted. Of an event whose last
        write had no certain end only what is missing is sent."""
        notes, infer = self._notes, self._options.infers
        key = (metadata["event_id"], *ids.values())
        present: dict[int, str] = {}
        if key in self._uncertain:
            present, parts = self.parts_of(ids, metadata["event_id"])
            if present and len(present) >= parts:
                self._uncertain.discard(key)
                return tuple(present.values()), None
        with self.memory(ids) as memory:
            notes.clear()
            notes.waiting = None if infer else []
            try:
                if infer and present:  # another extraction may find other memories
                    for native_id in present.values():
                        memory.delete(native_id)
                answer = memory.add(messages, **ids, metadata=metadata, infer=infer, prompt=prompt)
                if error := notes.embedding_error or notes.insert_error:
                    raise error
                if not infer:
                    written = self._insert_waiting(memory, present)
            except Exception as error:
                failure = self._undone(memory, error)
                if failure.sent:
                    self._uncertain.add(key)
                raise failure from (None if failure is error.__cause__ else error)
        self._uncertain.discard(key)
        return written if not infer else tuple(row["id"] for row in answer["results"]), notes.extracted

    def _insert_waiting(self, memory: Any, present: Mapping[int, str]) -> tuple[str, ...]:
        """Insert the rows of an event that are not there yet, in one call; the ids of all of its rows."""
        rows, self._notes.waiting = self._notes.waiting or [], None
        number_parts([payload for _, _, payload in rows])
        missing = [row for part, row in enumerate(rows) if part not in present]
        if missing:
            ids, vectors, payloads = (list(column) for column in zip(*missing, strict=True))
            memory.vector_store.insert(vectors=vectors, payloads=payloads, ids=ids)
            # Later than the rows: a reset finds the history of rows that are there.
            memory.db.batch_add_history([row for row in self._notes.history if row["memory_id"] in ids])
        return tuple(present.get(part, row[0]) for part, row in enumerate(rows))

    def parts_of(self, ids: Ids, event_id: str) -> tuple[dict[int, str], int]:
        """The rows of an event by their numbers, and how many it should have; writing it again completes it."""
        found = self.rows(ids, native_filters({"event_id": event_id}, self._options.profile))
        present, parts = parts_of(found)
        if len(present) < parts:
            self._uncertain.add((event_id, *ids.values()))
        return present, parts

    def _undone(self, memory: Any, error: Exception) -> BackendError:
        """The error to raise for a failed add, after the memories it had stored are taken back."""
        notes = self._notes
        written, uncertain = list(notes.inserted), notes.insert_error is not None
        notes.waiting = None
        try:
            for native_id in written:
                memory.delete(native_id)
            memory.db.forget(written)
        except Exception:
            uncertain = True
        # mem0 wraps what its model raised in an LLMError; ours is the better answer.
        own = error.__cause__ if isinstance(error.__cause__, BackendError) else error
        failure = normalise_error(own, backend_name=self._name, operation="Memory.add", table=ERRORS)
        failure.sent = uncertain
        return failure

    def search(self, query: str, ids: Ids, filters: Mapping[str, Any], top_k: int) -> tuple[Row, bool]:
        notes, options = self._notes, self._options
        with self.memory(ids) as memory:
            notes.clear()
            native = {"threshold": options.least_score, "rerank": options.rerank}
            raw: Row = memory.search(query, filters={**ids, **filters}, top_k=top_k, **native)
        return raw, notes.reranking_error is not None

    def rows(self, ids: Ids, filters: Mapping[str, Any] | None = None, limit: int = BATCH) -> list[Row]:
        """``Memory.get_all`` of a scope, expired memories included."""
        with self.memory(ids) as memory:
            answer = memory.get_all(filters={**ids, **(filters or {})}, top_k=limit, show_expired=True)
        rows: list[Row] = answer["results"]
        if any(row_ids(row) != ids for row in rows):
            raise IsolationError(f"{self._name}: the store listed rows of another scope; nothing was done")
        return rows

    def _row(self, memory: Any, native_id: str | None, ids: Ids) -> Row:
        row: Row | None = memory.get(native_id) if _is_uuid(native_id) else None
        if row is None or row_ids(row) != ids:
            raise ScopeError(f"{self._name}: native_id names no memory of this scope")
        return row

    def change(self, native_id: str, ids: Ids, changes: Mapping[str, Any] | None) -> Row:
        """Update one memory, or with None delete it and note whose history is left behind."""
        with self.memory(ids) as memory:
            self._row(memory, native_id, ids)
            self.entities(memory)
            if changes is not None:
                answer: Row = memory.update(native_id, **changes)
            else:
                answer = memory.delete(native_id)
                memory.db.note_deleted(native_id, _build_session_scope(ids))
        return answer

    def history(self, native_id: str | None, ids: Ids) -> tuple[Row | None, list[Any]]:
        with self.memory(ids) as memory:
            deleted = native_id in memory.db.deleted(_build_session_scope(ids))
            return None if deleted else self._row(memory, native_id, ids), memory.history(native_id)

    def describe(self) -> tuple[Row, list[str], list[str]]:
        """Details, warnings, and what makes health ``degraded``."""
        models, options = self.probe(), self._options
        provider = options.vector_store.provider
        keywords, entities = self.has_keywords, importlib.util.find_spec("spacy") is not None
        embedder = f"lexical ({models.embedder.config.model}: shared words and character n-grams, no model)"
        if options.embedder != "lexical":
            embedder = f"{options.embedder.provider}:{models.embedder.config.model}"
        details = {
            "vector_store": f"{provider} (embedded)" if options.embedded else provider,
            "collection": self._config.vector_store.config.collection_name,
            "dimensions": options.vector_dimensions,
            "embedder": embedder,
            "infer": options.infers,
            "llm": f"{options.llm.provider}:{models.llm.config.model}" if options.llm else None,
            "keyword_search": keywords,
            "entity_linking": entities and options.infers,
            "reranker": options.reranker.provider if options.reranker else None,
            "threshold": options.least_score,
        }
        return details, list(self._complaints(keywords, entities)), []

    def _complaints(self, keywords: bool, entities: bool) -> Iterator[str]:
        options = self._options
        store = options.vector_store
        if not keywords:
            hint = ': pip install "mem0ai[extras]"' if store.provider == "qdrant" else ""
            yield f"keyword search (BM25) is off; search is by vectors alone{hint}"
        if options.infers and not entities:
            yield 'entity linking is off: pip install "mem0ai[nlp]"'
        if entities and importlib.util.find_spec("en_core_web_sm") is None:
            yield "mem0 will download spaCy's en_core_web_sm with the first call"
        if options.rerank and options.reranker is None:
            yield "rerank: true does nothing without a reranker"
        if telemetry.MEM0_TELEMETRY:
            yield "mem0 was imported with telemetry on; open memslot first, or set MEM0_TELEMETRY=False"
        if not options.profile.known:
            yield f"memslot has not been run on {store.provider}; filters are refused, rows are checked"
        if store.provider == "faiss":
            yield "faiss filters by scope after ranking; scopes that share a collection lose matches"
        if store.config.get("hnsw") and store.provider == "pgvector":
            yield "hnsw: true ranks before it filters by scope; scopes that share a table lose matches"


def _is_uuid(text: str | None) -> bool:
    try:
        return text is not None and str(uuid.UUID(text)) == text
    except ValueError:
        return False


_SAID_BY_HEALTH = ("Failed to load spaCy", "fastembed not installed", "The '")


def assemble(kind: Any, config: MemoryConfig, models: Models, store: Any, history: SQLiteManager) -> Any:
    """A ``Memory`` of these parts. Its constructor would build a client for a model that nobody configured."""
    memory = kind.__new__(kind)
    memory.config = config
    memory.embedding_model = models.embedder
    memory.llm = models.llm
    memory.reranker = models.reranker
    memory.vector_store = store
    memory.db = history
    memory.collection_name = config.vector_store.config.collection_name
    memory.api_version = config.version
    memory.custom_instructions = config.custom_instructions
    memory._entity_store = None
    return memory


class History(SQLiteManager):  # type: ignore[misc]
    """mem0's history, with what we note beside it; what is deleted is overwritten."""

    def __init__(self, file: Path, notes: Notes, *, shared: bool) -> None:
        super().__init__(str(file))
        self._notes = notes
        self.connection.execute("PRAGMA secure_delete=ON")
        if shared:  # by processes; the journal is not made anew each time: as safe, in half the time
            self.connection.execute("PRAGMA journal_mode=TRUNCATE")
        with self.connection as connection:
            connection.execute(_TOMBSTONES)

    def add_history(
        self, memory_id: str, old_memory: str | None, new_memory: str | None, event: str, **more: Any
    ) -> None:
        """A row that waits is written with those it waits for."""
        if self._notes.waiting is None:
            super().add_history(memory_id, old_memory, new_memory, event, **more)
        else:
            row = {"memory_id": memory_id, "old_memory": old_memory, "new_memory": new_memory, "event": event}
            self._notes.history.append({**row, **more})

    def note_deleted(self, memory_id: str, session: str) -> None:
        self._execute("INSERT OR REPLACE INTO memslot_deleted VALUES (?, ?)", memory_id, session)

    def deleted(self, session: str) -> list[str]:
        rows = self._execute("SELECT memory_id FROM memslot_deleted WHERE session_scope = ?", session)
        return [row[0] for row in rows]

    def forget(self, memories: Sequence[str]) -> None:
        listed = json.dumps(list(memories))
        self._execute("DELETE FROM history WHERE memory_id IN (SELECT value FROM json_each(?))", listed)

    def forget_session(self, session: str, memories: Sequence[str]) -> None:
        self.forget([*memories, *self.deleted(session)])
        for table in ("messages", "memslot_deleted"):
            self._execute(f"DELETE FROM {table} WHERE session_scope = ?", session)

    def _execute(self, statement: str, *values: str) -> list[tuple[str, ...]]:
        with self._lock, self.connection as connection:
            rows: list[tuple[str, ...]] = connection.execute(statement, values).fetchall()
        return rows


def make_directory(directory: Path, where: str) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"cannot be created ({error.strerror}); choose another directory"
        raise ConfigError(f"{where}.path: {why}") from error


@contextmanager
def opening(where: str) -> Iterator[None]:
    """Around the building of native parts: their errors in our words, their logs without what users said."""
    quiet_loggers("mem0", "mem0.utils.spacy_models", unsaid=_SAID_BY_HEALTH)
    try:
        yield
    except ImportError as error:
        missing = error.name or error
        raise PluginLoadError(f"{where}: a component of mem0 is not installed ({missing})") from error
    except TypeError as error:  # an unknown keyword; the message holds no value
        raise ConfigError(f"{where}: mem0 refused its native configuration ({error})") from error
    finally:
        quiet_loggers("mem0", unsaid=_SAID_BY_HEALTH)  # again, for what was imported meanwhile
