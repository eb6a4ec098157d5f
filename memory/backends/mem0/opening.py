"""Opening and closing mem0: its configuration with our defaults, its clients with our deadlines.

Imports mem0, so the adapter's factory imports this module only after it has set mem0's environment.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mem0 import Memory
from mem0.configs.base import MemoryConfig
from pydantic import BaseModel, ValidationError
from qdrant_client.local.persistence import CollectionPersistence

from memory import ConfigError
from memory.adapter import FileLock, PluginLoadError
from memory.backends.mem0.options import Mem0Model, Mem0Options
from memory.backends.mem0.watch import (
    LexicalEmbedding,
    NoLlm,
    Notes,
    StoreLock,
    WatchedEmbedder,
    WatchedLlm,
    WatchedReranker,
    watch_inserts,
)

__all__ = ["native_config", "open_native", "release"]

_REMOTE = ("url", "host", "api_key", "redis_url", "connection_string")
_UNUSED_MODEL = {"provider": "openai", "config": {"api_key": "unused"}}


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
    embedder = options.embedder.native() if isinstance(options.embedder, Mem0Model) else _UNUSED_MODEL
    try:
        return MemoryConfig(
            vector_store={"provider": store.provider, "config": config},
            embedder=embedder,
            llm=options.llm.native() if options.llm else _UNUSED_MODEL,
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


def open_native(
    config: MemoryConfig,
    options: Mem0Options,
    notes: Notes,
    turn: StoreLock,
    where: str,
    deadlines: Mapping[str, float],
) -> Memory:
    """A ``Memory`` that is ready for use, or an error and nothing left open.

    Raises:
        BackendUnavailable: the embedded store is in use elsewhere.
        ConfigError: the directory is not writable, a native option unknown, or the vectors' length wrong.
        PluginLoadError: a component's client library is not installed.
    """
    try:
        Path(config.history_db_path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{where}.path: cannot be created ({error.strerror}); choose another directory"
        ) from error
    if options.embedded:
        _refuse_locked(Path(config.vector_store.config.path), where)
        # Several threads use it, one at a time. Its own check, on where SQLite is built so, wants a single one.
        CollectionPersistence.CHECK_SAME_THREAD = False
        # Said by mem0's entity store, which takes a shared local client for a server.
        warnings.filterwarnings("ignore", "Payload indexes have no effect in the local Qdrant", UserWarning)
    _quieten()
    memory = Memory.__new__(Memory)
    try:
        Memory.__init__(memory, config)
        if options.vector_store.provider == "qdrant":
            _check_dimensions(memory, options, where)
        _equip(memory, options, notes, turn, deadlines)
    except BaseException as error:
        release(memory)
        if isinstance(error, ImportError):
            raise PluginLoadError(
                f"{where}: a component of mem0 is not installed ({error.name or error})"
            ) from error
        if isinstance(error, TypeError):  # an unknown keyword; the message holds no value
            raise ConfigError(f"{where}: mem0 refused its native configuration ({error})") from error
        raise
    _quieten()  # again, for what was imported meanwhile
    return memory


def _refuse_locked(path: Path, where: str) -> None:
    """Look at Qdrant's lock before Qdrant does: it would leave the lock file open on failure."""
    if path.is_dir():
        lock = FileLock(
            path / ".lock",
            what=f"the embedded store at {path}",
            instead=f"give this one another {where}.path, or configure a server in {where}.vector_store",
        )
        lock.acquire()
        lock.release()


def _check_dimensions(memory: Memory, options: Mem0Options, where: str) -> None:
    vectors = memory.vector_store.client.get_collection(memory.collection_name).config.params.vectors
    size = getattr(vectors, "size", None)
    if size not in (None, options.vector_dimensions):
        raise ConfigError(
            f"{where}.dimensions: the collection {memory.collection_name!r} holds vectors of {size}, the embedder "
            f"makes {options.vector_dimensions}; use the embedder it was written with, or another collection"
        )


def _equip(
    memory: Memory, options: Mem0Options, notes: Notes, turn: StoreLock, deadlines: Mapping[str, float]
) -> None:
    """Our embedder or bounded clients in place, everything mem0 swallows noted."""
    write_s, retrieve_s = deadlines.get("write_s", 60.0), deadlines.get("retrieve_s", 15.0)
    if isinstance(options.embedder, Mem0Model):
        _bound(memory.embedding_model, options.embedder, min(write_s, retrieve_s))
        memory.embedding_model = WatchedEmbedder(memory.embedding_model, notes, turn)
    else:
        _close(getattr(memory.embedding_model, "client", None))
        memory.embedding_model = LexicalEmbedding(options.vector_dimensions or 0)
    if options.llm is not None:
        _bound(memory.llm, options.llm, write_s)
        memory.llm = WatchedLlm(memory.llm, notes, turn)
    else:
        _close(getattr(memory.llm, "client", None))
        memory.llm = NoLlm()
    if memory.reranker is not None:
        memory.reranker = WatchedReranker(memory.reranker, notes, turn)
    watch_inserts(memory.vector_store, notes)
    pool: Any = getattr(memory.vector_store, "connection_pool", None)
    if hasattr(pool, "timeout"):
        pool.timeout = 0.9 * retrieve_s


def _bound(part: Any, model: Mem0Model, deadline_s: float) -> None:
    """Give an openai-like client our deadline; its own is 600 s, three times over."""
    client: Any = getattr(part, "client", None)
    if not hasattr(client, "with_options"):
        return
    options: dict[str, Any] = {
        "timeout": 0.9 * deadline_s / (model.max_retries + 1),
        "max_retries": model.max_retries,
    }
    native = model.native()["config"]
    if model.provider == "openai" and os.environ.get("OPENROUTER_API_KEY"):
        # mem0 sends everything there once that variable exists; what is configured comes first.
        given = {"base_url": native.get("openai_base_url"), "api_key": native.get("api_key")}
        if any(given.values()):
            given["base_url"] = given["base_url"] or "https://api.openai.com/v1"
            options.update({name: value for name, value in given.items() if value})
    part.client = client.with_options(**options)


def release(memory: Memory) -> None:
    """Close all that a ``Memory``, finished or not, holds open. Its own ``close`` does SQLite only."""
    for name in ("llm", "embedding_model"):
        part = getattr(memory, name, None)
        _close(getattr(getattr(part, "native", part), "client", None))
    for name in ("_entity_store", "_telemetry_vector_store", "vector_store"):
        store = getattr(memory, name, None)
        for handle in ("client", "connection_pool"):
            _close(getattr(store, handle, None))
    Memory.close(memory)


def _close(handle: Any) -> None:
    close = getattr(handle, "close", None) or getattr(handle, "closeall", None)
    if callable(close):
        close()


def _quieten() -> None:
    for name in ("mem0.utils.spacy_models", *logging.root.manager.loggerDict):
        if name.partition(".")[0] == "mem0":
            logging.getLogger(name).addFilter(_discreet)


_DETAIL = re.compile(r"(?<!\s)\s*+[:={\[('\"].*", re.DOTALL)


_SAID_BY_HEALTH = ("Failed to load spaCy", "fastembed not installed", "The '")


def _discreet(record: logging.LogRecord) -> bool:
    """mem0 logs memories, messages and error bodies; what comes before them is enough."""
    text = record.getMessage()
    record.msg, record.args = _DETAIL.sub("", text), ()
    record.exc_info = record.exc_text = record.stack_info = None
    return not text.startswith(_SAID_BY_HEALTH)
