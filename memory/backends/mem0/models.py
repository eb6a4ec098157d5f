"""A configuration in mem0's terms, its models with our deadlines, and their failures, which mem0 swallows: an
unreadable answer becomes "nothing extracted", a failed embedding a skipped memory, a failed reranker the unranked
order. A model's SDK is imported where it is configured: that is nine tenths of opening mem0."""

from __future__ import annotations

import importlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mem0.configs.base import MemoryConfig
from mem0.embeddings.base import EmbeddingBase
from mem0.memory.utils import extract_json, remove_code_blocks
from mem0.utils.factory import EmbedderFactory, LlmFactory, RerankerFactory
from pydantic import BaseModel, ValidationError

from memory import BackendError, ConfigError, PluginLoadError
from memory.adapter import BackendProtocolError, LexicalHashEmbedder, counted_openai, first_problem
from memory.backends.mem0.options import Mem0Model, Mem0Options
from memory.backends.mem0.translate import never_connected, number_parts

_REMOTE = ("url", "host", "api_key", "redis_url", "connection_string")
_NO_MODEL: dict[str, Any] = {"provider": "openai", "config": {}}


def native_config(options: Mem0Options, directory: Path, where: str) -> MemoryConfig:
    """The user's native parts over our defaults; a refusal names the field, never its value."""
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
            needed = f"{provider} needs the package {error.name}"
            raise PluginLoadError(f"{where}.vector_store: {needed}") from error
        raise ConfigError(f"{where}.vector_store.provider: mem0 has no vector store of that name") from None
    except ImportError as error:  # mem0's own words name the pip line
        raise PluginLoadError(f"{where}.vector_store: {error}") from error
    own = (kind for kind in vars(module).values() if getattr(kind, "__module__", "") == module.__name__)
    return frozenset(next((kind.model_fields for kind in own if issubclass(kind, BaseModel)), ()))


class Models:
    """What a ``Memory`` asks. What mem0 swallows of their failures is noted."""

    def __init__(
        self,
        config: MemoryConfig,
        options: Mem0Options,
        notes: Notes,
        turn: StoreLock,
        deadlines: Mapping[str, float],
    ) -> None:
        write_s, retrieve_s = deadlines.get("write_s", 60.0), deadlines.get("retrieve_s", 15.0)
        self.embedder: Any = LexicalEmbedding(options.vector_dimensions or 0)
        self.llm: Any = NoLlm()
        self.reranker: Any = None
        if isinstance(options.embedder, Mem0Model):
            part, store = config.embedder, config.vector_store.config
            native = EmbedderFactory.create(part.provider, part.config, store)
            native = _bound(native, options.embedder, min(write_s, retrieve_s))
            # Not of a batch: mem0 tries one text after the other when that fails, and skips those that fail again.
            failed = {"embed": partial(setattr, notes, "embedding_error")}
            self.embedder = WatchedModel(native, turn, failed=failed)
        if options.llm is not None:
            native = LlmFactory.create(config.llm.provider, config.llm.config)
            native = _bound(native, options.llm, write_s)
            self.llm = WatchedModel(native, turn, answered={"generate_response": notes.read})
        if config.reranker is not None:
            native = RerankerFactory.create(config.reranker.provider, config.reranker.config)
            failed = {"rerank": partial(setattr, notes, "reranking_error")}
            self.reranker = WatchedModel(native, turn, failed=failed)

    def probe(self, role: str, dimensions: int | None, where: str) -> None:
        if role == "reranker":
            self.reranker.rerank("Which tea do I drink?", [{"memory": "I drink tea."}], 1)
        elif role == "embedder":
            length = len(self.embedder.embed("I drink tea.", "search"))
            if length != dimensions:
                problem = f"is {dimensions}, and the embedder answers with {length}"
                raise ConfigError(f"{where}.dimensions: {problem}")
        else:
            asked = [{"role": "user", "content": "Answer with the one word yes."}]
            if not self.llm.native.generate_response(messages=asked):  # past the watch, which wants memories
                raise BackendProtocolError("mem0: the llm answered with nothing", sent=False)

    def close(self) -> None:
        for model in (self.embedder, self.llm):
            close_handle(getattr(getattr(model, "native", None), "client", None))


def _bound(part: Any, model: Mem0Model, deadline_s: float) -> Any:
    from openai import OpenAI

    client: Any = getattr(part, "client", None)
    if not hasattr(client, "with_options"):
        return part
    options = model.limits(deadline_s)
    native = model.native()["config"]
    if model.provider == "openai" and os.environ.get("OPENROUTER_API_KEY"):
        # mem0 sends everything there once that variable exists; what is configured comes first.
        given = {"base_url": native.get("openai_base_url"), "api_key": native.get("api_key")}
        if any(given.values()):
            given["base_url"] = given["base_url"] or "https://api.openai.com/v1"
            options.update({name: value for name, value in given.items() if value})
    ours = isinstance(client, OpenAI)
    part.client = counted_openai(client, **options) if ours else client.with_options(**options)
    return part


def close_handle(handle: Any) -> None:
    close = getattr(handle, "close", None) or getattr(handle, "closeall", None)
    if callable(close):
        close()


class Notes(threading.local):
    """What happened during the current call of this thread."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.extracted: int | None = None  # memories in the model's answer, where it was asked
        self.embedding_error: Exception | None = None
        self.reranking_error: Exception | None = None
        self.insert_error: Exception | None = None  # of an insert whose rows may or may not be stored
        self.inserted: list[str] = []
        # Rows (id, vector, payload) of an event to be inserted together; None where each goes at once.
        self.waiting: list[tuple[str, Any, dict[str, Any]]] | None = None
        self.history: list[dict[str, Any]] = []  # what mem0 would have noted meanwhile of those that wait

    def read(self, answer: Any) -> None:
        """mem0 takes an unusable answer for "nothing extracted"."""
        self.extracted = _count_memories(answer)


class StoreLock:
    """Whose turn it is with a store that is not thread-safe; where none is ``needed``, every thread passes. A
    call gives it up while it waits for a model, so that one extraction does not keep others from reading."""

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
        """A thread that has no turn has none to pass on."""
        if self._lock is None or not getattr(self._mine, "held", False):
            yield
            return
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()


class LexicalEmbedding(EmbeddingBase):  # type: ignore[misc]
    """Our embedder as mem0's."""

    def __init__(self, dimensions: int) -> None:
        self._embedder = LexicalHashEmbedder(dimensions)
        self.config = SimpleNamespace(model=self._embedder.name, embedding_dims=dimensions)

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        asked = memory_action == "search"
        return self._embedder.embed_query(text) if asked else self._embedder.embed_document(text)


@dataclass(eq=False)
class WatchedModel:
    """A native model, which has no turn while it is waited for."""

    native: Any
    turn: StoreLock
    failed: Mapping[str, Callable[[Exception], object]] = field(default_factory=dict)  # by method
    answered: Mapping[str, Callable[[Any], object]] = field(default_factory=dict)  # may raise in its place

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.native, name)
        return partial(self._call, name, found) if callable(found) else found

    def _call(self, name: str, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            with self.turn.released():
                answer = method(*arguments, **options)
        except Exception as error:
            if name in self.failed:
                self.failed[name](error)
            raise
        if name in self.answered:
            self.answered[name](answer)
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
        if isinstance(memories, list) and all(
            isinstance(item, dict) and isinstance(item.get("text", ""), str) for item in memories
        ):
            return sum(bool(item.get("text")) for item in memories)
        break
    problem = "the extracting model did not answer with the JSON mem0 asked for, so nothing was stored"
    raise BackendProtocolError(problem, sent=False)


class NoLlm:
    """Stands where mem0 insists on a model and none is configured; never asked while ``infer`` is false."""

    config = SimpleNamespace(model=None)

    def generate_response(self, *_: Any, **__: Any) -> Any:
        raise BackendError("no llm is configured for mem0", sent=False)


def watch_inserts(store: Any, notes: Notes) -> None:
    """Have the rows of an event inserted together, each with its number and how many there are, and note their
    ids. mem0 inserts one row after the other: a connection that ends meanwhile would leave some of them."""
    native = store.insert

    def insert(vectors: Any, payloads: Any = None, ids: Any = None) -> Any:
        if notes.waiting is not None:
            notes.waiting.extend(zip(ids, vectors, payloads, strict=True))
            return None
        if notes.insert_error is not None:
            raise notes.insert_error
        number_parts(payloads)
        try:
            answer = native(vectors=vectors, payloads=payloads, ids=ids)
        except Exception as error:
            if not never_connected(error):
                notes.insert_error = error
            raise
        notes.inserted.extend(ids or ())
        return answer

    store.insert = insert
