"""MemOS in this process: the handlers of its product server on worker threads, without the server. MemOS is set
up by environment variables, and keeps its parts once per process; so all adapters here share one. On import,
with the first call, it closes all logging handlers and sets up its own, reads a ``.env`` over the environment,
and makes ``.memos`` in the working directory: :func:`contained` undoes that."""

from __future__ import annotations

import logging
import logging.config
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memory import ConfigError, PluginLoadError
from memory.adapter import BackendRejected, NativeWorker, environment_kept, normalise_error
from memory.backends.memos.client import ERRORS, MAX_CONCURRENCY, Operation
from memory.backends.memos.options import MemosOptions

_DRIVERS = {"postgres": "psycopg2", "polardb": "psycopg2", "neo4j": "neo4j", "neo4j-community": "neo4j"}
_DATABASE_SETTINGS = {
    "postgres": ("POSTGRES_HOST", "POSTGRES_USER", "POSTGRES_DB"),
    "polardb": ("POLAR_DB_HOST", "POLAR_DB_USER", "POLAR_DB_PASSWORD", "POLAR_DB_DB_NAME"),
    "neo4j": ("NEO4J_URI", "NEO4J_USER", "NEO4J_PASSWORD"),
    "neo4j-community": ("NEO4J_URI", "NEO4J_USER", "NEO4J_PASSWORD"),
}
_MODEL_SETTINGS = (
    "OPENAI_API_BASE",
    "OPENAI_API_KEY",
    "MOS_CHAT_MODEL",
    "MEMRADER_API_BASE",
    "MEMRADER_API_KEY",
    "MEMRADER_MODEL",
    "MOS_EMBEDDER_BACKEND",
    "EMBEDDING_DIMENSION",
    "MOS_RERANKER_BACKEND",
)
_FIELD = "memory.backends.memos"


class InprocessTransport:
    """The way onto the MemoryOS package in this process, which puts its ``.memos`` into ``data_dir``."""

    name = "inprocess"

    def __init__(self, data_dir: Path, backend_name: str) -> None:
        self._data_dir = data_dir
        self._backend_name = backend_name
        self._worker = NativeWorker(MAX_CONCURRENCY, name="memslot-memos")

    async def call(self, operation: Operation, body: Mapping[str, Any]) -> Any:
        """MemOS' own model of the request checks the body first."""
        try:
            engine = partial(_shared.engine, self, self._data_dir)
            return await self._worker.run(lambda: engine().answer(operation, body))
        except Exception as error:
            raise normalise_error(
                error, backend_name=self._backend_name, operation=operation, table=ERRORS
            ) from error

    async def aclose(self) -> None:
        """Stop MemOS with the last adapter that uses it; that takes MemOS some seconds. Two of its threads,
        daemons that watch its queue, outlive that by up to five minutes."""
        await self._worker.aclose(lambda: _shared.release(self), timeout_s=30.0)


def check_environment(options: MemosOptions, environment: Mapping[str, str] = os.environ) -> None:
    """PluginLoadError or ConfigError where MemOS, set up by the environment, is not what the options describe."""
    absent = [name for name in ("memos", "chonkie", _DRIVERS[options.graph_db]) if find_spec(name) is None]
    if absent:
        raise PluginLoadError(
            f"transport: inprocess needs {', '.join(absent)}; pip install 'memslot[memos-inprocess]' and the "
            "driver of its graph database, such as psycopg2-binary"
        )
    needed = (*_DATABASE_SETTINGS[options.graph_db], *_MODEL_SETTINGS)
    missing = [name for name in needed if not environment.get(name)]
    if missing:
        raise ConfigError(
            f"{_FIELD}.transport: inprocess takes MemOS' settings from the environment; "
            f"set {', '.join(missing)}, or use transport: http"
        )
    queue = "redis" if _is_true(environment, "MEMSCHEDULER_USE_REDIS_QUEUE") else "local"
    graph = environment.get("GRAPH_DB_BACKEND", "").lower() or "another"
    for option, wanted, setting, found in (
        ("graph_db", options.graph_db, "GRAPH_DB_BACKEND", graph),
        ("scheduler", options.scheduler, "MEMSCHEDULER_USE_REDIS_QUEUE", queue),
    ):
        if found != wanted:
            problem = f"is {wanted}, but {setting} means {found}; change one of the two"
            raise ConfigError(f"{_FIELD}.{option}: {problem}")
    if options.graph_db == "neo4j" and not _is_true(environment, "MOS_NEO4J_SHARED_DB"):
        raise ConfigError(
            f"{_FIELD}.graph_db: set MOS_NEO4J_SHARED_DB=true; else MemOS mixes all cubes in neo4j"
        )


def _is_true(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() == "true"


@contextmanager
def contained(directory: Path) -> Iterator[None]:
    """Around everything that imports or starts MemOS: what it does to logging and environment is undone. Its
    loggers stay silent, because they write user text; ``logging.getLogger("memos").setLevel`` changes that. The
    first directory counts for the whole process, unless ``MEMOS_BASE_PATH`` names one."""
    for name in ("memos", "AddHandler", "SearchHandler", "FeedbackHandler"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL + 1)
    configure = logging.config.dictConfig
    logging.config.dictConfig = _all_but_memos
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        base = os.environ.get("MEMOS_BASE_PATH", str(directory))
        settings = {"TRANSFORMERS_NO_ADVISORY_WARNINGS": "1", "MEMOS_BASE_PATH": base}
        with environment_kept(**settings), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
        logging.config.dictConfig = configure


def _all_but_memos(config: Mapping[str, Any]) -> None:
    """``dictConfig`` for everyone else; MemOS keeps this function, and may come back with it at any time."""
    if "memos" not in config.get("loggers", {}):
        logging.config.dictConfigClass(dict(config)).configure()


class _Engine:
    """MemOS' components and the handlers over them, as ``memos.api.routers.server_router`` puts them together."""

    def __init__(self) -> None:
        from memos import __version__
        from memos.api import handlers
        from memos.api import product_models as models
        from memos.api.handlers.add_handler import AddHandler
        from memos.api.handlers.base_handler import HandlerDependencies
        from memos.api.handlers.feedback_handler import FeedbackHandler
        from memos.api.handlers.search_handler import SearchHandler
        from memos.mem_scheduler.utils.status_tracker import TaskStatusTracker

        self._components = parts = handlers.init_server()
        dependencies = HandlerDependencies.from_init_server(parts)
        tracker = TaskStatusTracker(redis_client=parts["redis_client"])
        memories, scheduler = handlers.memory_handler, handlers.scheduler_handler
        cube = parts["naive_mem_cube"]
        health = {"status": "healthy", "service": "memos", "version": __version__}
        # What makes the request of a body, and what answers it.
        self._routes: dict[Operation, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
            "add": (models.APIADDRequest, AddHandler(dependencies).handle_add_memories),
            "search": (models.APISearchRequest, SearchHandler(dependencies).handle_search_memories),
            "feedback": (models.APIFeedbackRequest, FeedbackHandler(dependencies).handle_feedback_memories),
            "get_memory": (models.GetMemoryRequest, lambda asked: memories.handle_get_memories(asked, cube)),
            "delete_memory": (
                models.DeleteMemoryRequest,
                lambda ids: memories.handle_delete_memories(ids, cube),
            ),
            "all_status": (
                dict,
                lambda _: scheduler.handle_scheduler_allstatus(parts["mem_scheduler"], tracker),
            ),
            "task_status": (dict, lambda of: scheduler.handle_scheduler_status(status_tracker=tracker, **of)),
            "health": (dict, lambda _: health),
        }

    def answer(self, operation: Operation, body: Mapping[str, Any]) -> Any:
        from fastapi.encoders import jsonable_encoder

        model, handler = self._routes[operation]
        try:
            request = model(**body)
        except ValueError as error:  # never sent, unlike what fails on an answer
            raise BackendRejected("MemOS refused the form of the request") from error
        return jsonable_encoder(handler(request))

    def close(self) -> None:
        from memos.api.lifecycle import shutdown_components

        shutdown_components(self._components)
        close = getattr(self._components["graph_db"], "close", None)
        if close is not None:  # neo4j's has none
            close()
        # MemOS gives its scheduler an SQLite file in a new temporary directory, and leaves both.
        database = self._components["mem_scheduler"].db_engine
        directory = Path(str(database.url.database)).parent
        database.dispose()
        if directory.parent == Path(tempfile.gettempdir()):
            shutil.rmtree(directory, ignore_errors=True)


class _Shared:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: set[object] = set()
        self._engine: _Engine | None = None

    def engine(self, user: object, data_dir: Path) -> _Engine:
        with self._lock:
            if self._engine is None:
                with contained(data_dir):
                    self._engine = _Engine()
            self._users.add(user)
            return self._engine

    def release(self, user: object) -> None:
        with self._lock:
            self._users.discard(user)
            if not self._users and self._engine is not None:
                engine, self._engine = self._engine, None
                engine.close()


_shared = _Shared()
