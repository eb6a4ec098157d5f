"""Opening mem0: its configuration with our defaults, and a ``Memory`` of parts we choose.

Imports mem0, so the adapter's factory imports this module only after it has set mem0's environment.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mem0 import Memory
from mem0.configs.base import MemoryConfig
from mem0.memory.storage import SQLiteManager
from mem0.utils.factory import VectorStoreFactory
from mem0.vector_stores.base import VectorStoreBase
from pydantic import BaseModel, ValidationError

from memory import ConfigError
from memory.adapter import PluginLoadError, quiet_loggers
from memory.backends.mem0.layout import TOMBSTONES
from memory.backends.mem0.models import Models, close_handle
from memory.backends.mem0.options import Mem0Model, Mem0Options
from memory.backends.mem0.watch import Notes, StoreLock, watch_inserts

__all__ = [
    "Memories",
    "SharedMemory",
    "assemble",
    "make_directory",
    "native_config",
    "open_history",
    "opening",
]

_SAID_BY_HEALTH = ("Failed to load spaCy", "fastembed not installed", "The '")
_REMOTE = ("url", "host", "api_key", "redis_url", "connection_string")
_NO_MODEL: dict[str, Any] = {"provider": "openai", "config": {}}
_CREATED_ELSEWHERE = frozenset({"UniqueViolation", "DuplicateTable", "DuplicateObject"})


def native_config(options: Mem0Options, directory: Path, where: str) -> MemoryConfig:
    """The configuration for ``Memory``: the user's native parts over our defaults.

    Raises:
        ConfigError: mem0 refuses it; says which field, never its value.
        PluginLoadError: the vector store's client library is not installed.
    """
    store = options.vector_store
    defaults: dict[str, Any] = {
        "collection_name": options.collection,
        "embedding_model_dims": options.vector_dimensions,
        # Its approximate index is searched before the scope filter, so that a shared table loses matches.
        "hnsw": False,
    }
    if not any(store.config.get(name) for name in _REMOTE):
        defaults["path"] = str(directory / store.provider)
    accepted = _accepted_fields(store.provider, where)
    config = {**{name: value for name, value in defaults.items() if name in accepted}, **store.config}
    embedder = options.embedder.native() if isinstance(options.embedder, Mem0Model) else _NO_MODEL
    try:
        return MemoryConfig(
            vector_store={"provider": store.provider, "config": config},
            embedder=embedder,
            llm=options.llm.native() if options.llm else _NO_MODEL,
            reranker=options.reranker.native() if options.reranker else None,
            history_db_path=str(options.history_path or directory / "history.db"),
        )
    except ValidationError as error:
        raise ConfigError(f"{where}: {_first_problem(error)}") from None


def _accepted_fields(provider: str, where: str) -> frozenset[str]:
    try:
        module = importlib.import_module(f"mem0.configs.vector_stores.{provider}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("mem0"):
            raise PluginLoadError(
                f"{where}.vector_store: {provider} needs the package {error.name}"
            ) from error
        raise ConfigError(f"{where}.vector_store.provider: mem0 has no vector store of that name") from None
    except ImportError as error:  # mem0's own words name the pip line
        raise PluginLoadError(f"{where}.vector_store: {error}") from error
    for kind in vars(module).values():
        if inspect.isclass(kind) and issubclass(kind, BaseModel) and kind.__module__ == module.__name__:
            return frozenset(kind.model_fields)
    return frozenset()


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place}: {problem['msg'].removeprefix('Value error, ')}" if place else problem["msg"]


class Memories:
    """What opens mem0's store, with all that it is opened with.

    Args:
        config: of :func:`native_config`.
        options: the configuration block.
        notes, turn: of the adapter's calls.
        where: path of the block, for messages.
        deadlines: the slot's, in seconds.
    """

    def __init__(
        self,
        config: MemoryConfig,
        options: Mem0Options,
        notes: Notes,
        turn: StoreLock,
        where: str,
        deadlines: Mapping[str, float],
    ) -> None:
        self._config = config
        self._options = options
        self._notes = notes
        self._turn = turn
        self._where = where
        self._deadlines = deadlines
        self._models: Models | None = None

    def _build_models(self) -> Models:
        return Models.build(self._config, self._options, self._notes, self._turn, self._deadlines)

    def _check_length(self, collection: str, found: int | None) -> None:
        """Vectors are of the embedder's length, where the store tells; ConfigError otherwise."""
        if found not in (None, self._options.vector_dimensions):
            raise ConfigError(
                f"{self._where}.dimensions: the collection {collection!r} holds vectors of {found}, the "
                f"embedder makes {self._options.vector_dimensions}; use the embedder it was written with, or "
                "another collection"
            )


class SharedMemory(Memories):
    """One ``Memory`` for all scopes, which a server's store keeps apart by their ids. Opened with the first call.

    Attributes:
        details: what health says of the store besides.
    """

    details: Mapping[str, Any] = {}

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._opening = threading.Lock()
        self._memory: Memory | None = None

    @contextmanager
    def of(self, ids: Mapping[str, str]) -> Iterator[Memory]:
        """The ``Memory`` to use for a scope, for the length of a call.

        Raises:
            ConfigError: the directory is not writable, a native option unknown, or the vectors' length wrong.
            PluginLoadError: a component's client library is not installed.
        """
        yield self._opened()

    def probe(self, ids: Mapping[str, str] | None = None) -> None:
        """The cheapest call that reaches the collection, and creates it where that is left to the first call."""
        self._reach(self._opened().vector_store)

    def entities(self, memory: Memory) -> Any:
        """mem0's entity store, which it opens with the first entity. Deletions before that leave entities of
        earlier processes behind (mem0 #7226)."""
        with self._opening:
            store = memory.entity_store
        self._reach(store)
        return store

    @property
    def has_keywords(self) -> bool:
        """Whether the store finds words as well as vectors."""
        store = self._opened().vector_store
        if self._options.vector_store.provider == "qdrant":
            return bool(store._has_bm25_slot) and importlib.util.find_spec("fastembed") is not None
        return type(store).keyword_search is not VectorStoreBase.keyword_search

    @property
    def models(self) -> Models:
        """The models asked, once they are built."""
        self._opened()
        assert self._models is not None
        return self._models

    def close(self) -> None:
        """Close all that a ``Memory`` holds open. Its own ``close`` does SQLite only."""
        with self._opening:
            memory, self._memory = self._memory, None
            models, self._models = self._models, None
        if models is not None:
            models.close()
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
        make_directory(Path(self._config.history_db_path).parent, self._where)
        with opening(self._where):
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
                history = open_history(Path(self._config.history_db_path), shared=True)
            except BaseException:
                _close_store(store)
                models.close()
                raise
        self._models = models
        return assemble(Memory, self._config, models, store, history)

    def _reach(self, store: Any) -> None:
        """PostgreSQL fails when two connections create one table at a time: a lock for ours, a second try for
        those of other processes."""
        with self._opening:
            try:
                store.list(top_k=1)
            except Exception as error:
                if type(error).__name__ not in _CREATED_ELSEWHERE:
                    raise
                store.list(top_k=1)


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


def _close_store(store: Any) -> None:
    for handle in ("client", "connection_pool"):
        close_handle(getattr(store, handle, None))


def open_history(file: Path, *, shared: bool) -> SQLiteManager:
    """mem0's history, with what we note beside it; what is deleted is overwritten. One that several processes may
    share keeps SQLite's journal, which is not made anew each time: as safe, and half of its time on a disk."""
    history = SQLiteManager(str(file))
    history.connection.execute("PRAGMA secure_delete=ON")
    if shared:
        history.connection.execute("PRAGMA journal_mode=TRUNCATE")
    with history.connection as connection:
        connection.execute(TOMBSTONES)
    return history


def make_directory(directory: Path, where: str) -> None:
    """Make a directory where there is none.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{where}.path: cannot be created ({error.strerror}); choose another directory"
        ) from error


@contextmanager
def opening(where: str) -> Iterator[None]:
    """Around the building of native parts: their errors in our words, their logs without what users said.

    Raises:
        ConfigError, PluginLoadError: a native option is unknown, a client library not installed.
    """
    quiet_loggers("mem0", "mem0.utils.spacy_models", unsaid=_SAID_BY_HEALTH)
    try:
        yield
    except ImportError as error:
        raise PluginLoadError(
            f"{where}: a component of mem0 is not installed ({error.name or error})"
        ) from error
    except TypeError as error:  # an unknown keyword; the message holds no value
        raise ConfigError(f"{where}: mem0 refused its native configuration ({error})") from error
    finally:
        quiet_loggers("mem0", unsaid=_SAID_BY_HEALTH)  # again, for what was imported meanwhile
