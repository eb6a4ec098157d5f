"""Opening mem0: its configuration with our defaults, and a ``Memory`` of parts we choose.

Imports mem0, so the adapter's factory imports this module only after it has set mem0's environment.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mem0.configs.base import MemoryConfig
from mem0.memory.storage import SQLiteManager
from pydantic import BaseModel, ValidationError

from memory import ConfigError
from memory.adapter import PluginLoadError, first_problem, quiet_loggers
from memory.backends.mem0.layout import TOMBSTONES
from memory.backends.mem0.models import Models
from memory.backends.mem0.options import Mem0Model, Mem0Options

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
        raise ConfigError(f"{where}: {first_problem(error)}") from None


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
    own = (kind for kind in vars(module).values() if getattr(kind, "__module__", "") == module.__name__)
    return frozenset(next((kind.model_fields for kind in own if issubclass(kind, BaseModel)), ()))


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
    """Make a directory where there is none; ConfigError where it cannot be made."""
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
