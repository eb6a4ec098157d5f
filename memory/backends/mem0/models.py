"""mem0's native configuration, and the models that mem0 calls, under memslot's deadlines.

mem0 hides an unreadable answer and a failed reranker; memslot notes both. The SDK of a model is imported only if
that model is configured, because these imports take most of mem0's start-up time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mem0.configs.base import MemoryConfig
from mem0.embeddings.base import EmbeddingBase
from mem0.utils.factory import EmbedderFactory, LlmFactory, RerankerFactory
from pydantic import ValidationError

from memory import BackendError, ConfigError
from memory.adapter import BackendProtocolError, BackendRejected, quantity
from memory.adapter.fields import first_problem
from memory.adapter.models import (
    LexicalHashEmbedder,
    LocalEmbedder,
    LocalModel,
    counted_openai,
    json_of_answer,
    model_answer_fault,
)
from memory.backends.mem0.opening import opening
from memory.backends.mem0.options import LEXICAL_DIMENSIONS, Mem0Embedder, Mem0Model, Mem0Options
from memory.backends.mem0.stores import Notes, StoreLock

_REMOTE = ("url", "host", "api_key")
_NO_MODEL: dict[str, Any] = {"provider": "openai", "config": {}}
_OURS = "memslot"  # a provider's name in mem0's factories


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


def native_config(options: Mem0Options, directory: Path, where: str) -> MemoryConfig:
    """mem0's configuration: memslot's defaults, overridden by the user's native parts."""
    store = options.vector_store
    config: dict[str, Any] = {"collection_name": options.collection}
    if store.provider == "pgvector":
        # It searches its approximate index before it filters by scope, so a shared table loses matches.
        config["hnsw"] = False
    elif not any(store.config.get(name) for name in _REMOTE):
        config["path"] = str(directory / store.provider)
    embedder = _NO_MODEL
    if isinstance(options.embedder, Mem0Embedder):
        embedder = options.embedder.native()
        if options.given_dimensions is not None:  # mem0 asks the endpoint for vectors of this length
            embedder["config"]["embedding_dims"] = options.given_dimensions
    try:
        with opening(where):
            return MemoryConfig(
                vector_store={"provider": store.provider, "config": {**config, **store.config}},
                embedder=embedder,
                llm=options.llm.native() if options.llm else _NO_MODEL,
                reranker=options.reranker.native() if options.reranker else None,
            )
    except ValidationError as error:
        raise ConfigError(f"{where}: {first_problem(error)}") from None


class Models:
    """The models that a ``Memory`` calls. The store's ``turn`` is released while a call waits for one."""

    def __init__(
        self,
        config: MemoryConfig,
        options: Mem0Options,
        notes: Notes,
        turn: StoreLock,
        deadlines: Mapping[str, float],
        where: str,
    ) -> None:
        write_s, retrieve_s = deadlines.get("write_s", 60.0), deadlines.get("retrieve_s", 15.0)
        asked = options.embedder
        if isinstance(asked, LocalModel):
            self.embedder = Embedding(LocalEmbedder(asked, f"{where}.embedder"), notes, turn)
        elif isinstance(asked, Mem0Embedder):
            part = config.embedder
            native = EmbedderFactory.create(part.provider, part.config, config.vector_store.config)
            native = _bound(native, asked, min(write_s, retrieve_s))
            prefixes = asked.prefixes(native.config.model)
            self.embedder = Embedding(ProviderEmbedder(native, asked.provider, prefixes), notes, turn)
        else:
            self.embedder = Embedding(
                LexicalHashEmbedder(options.dimensions or LEXICAL_DIMENSIONS), notes, None
            )
        self.llm: Any = NoLlm()
        if options.llm is not None:
            native = _bound(LlmFactory.create(config.llm.provider, config.llm.config), options.llm, write_s)
            if hasattr(getattr(native, "client", None), "chat"):
                native.client = _Shaped(native.client, options.llm.given_options())
            self.llm = ExtractingLlm(native, notes, turn)
        self.reranker: Any = None
        if config.reranker is not None:
            native = RerankerFactory.create(config.reranker.provider, config.reranker.config)
            self.reranker = Reranker(native, notes, turn)

    def injected(self, config: MemoryConfig, **changes: Any) -> MemoryConfig:
        """A copy of ``config`` with ``changes``, from which mem0's factories take these models."""
        LlmFactory.register_provider(_OURS, f"{__name__}.given", SimpleNamespace)
        EmbedderFactory.provider_to_class[_OURS] = f"{__name__}.given"
        llm = config.llm.model_copy(update={"provider": _OURS, "config": {"model": self.llm}})
        embedder = config.embedder.model_copy(update={"provider": _OURS, "config": {"model": self.embedder}})
        update = {"llm": llm, "embedder": embedder, "reranker": None, **changes}
        return config.model_copy(update=update)

    def probe(self, role: str, where: str) -> None:
        """Call a model once. It must answer, and an embedder's vectors must have the store's length."""
        if role == "reranker":
            self.reranker.rerank("Which tea do I drink?", [{"memory": "I drink tea."}], 1)
        elif role == "embedder":
            known, self.embedder.config.embedding_dims = self.embedder.dimensions, None
            try:
                length = self.embedder.measured()
            finally:
                self.embedder.config.embedding_dims = known
            if length != known:
                problem = f"the store holds vectors of {known}, and the embedder answers with {length}"
                raise ConfigError(f"{where}.embedder: {problem}")
        else:
            asked = [{"role": "user", "content": "Answer with the one word yes."}]
            if not self.llm.native.generate_response(messages=asked):  # not via ExtractingLlm
                raise BackendProtocolError("mem0: the llm answered with nothing", sent=False)

    def close(self) -> None:
        for native in (getattr(self.embedder.embedder, "native", None), getattr(self.llm, "native", None)):
            close_handle(getattr(native, "client", None))


def given(config: Any) -> Any:
    """The model that a configuration carries. mem0's factories call this instead of a class."""
    return config.model


def lexical_embedding(dimensions: int = LEXICAL_DIMENSIONS) -> Embedding:
    """The lexical embedder in mem0's interface, for use without an adapter."""
    embedding = Embedding(LexicalHashEmbedder(dimensions), Notes(), None)
    embedding.config.embedding_dims = dimensions
    return embedding


class _Shaped:
    """An OpenAI client that sends these options, and not those that mem0 chooses by the model's name."""

    def __init__(self, client: Any, sampling: Mapping[str, Any]) -> None:
        self._client = client
        self._sampling = sampling
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))
        self.close = client.close

    def _create(self, **request: Any) -> Any:
        shaped = {**request, **self._sampling}
        return self._client.chat.completions.create(
            **{name: value for name, value in shaped.items() if value is not None}
        )


def _bound(part: Any, model: Mem0Model, deadline_s: float) -> Any:
    """Give one of mem0's models memslot's deadline. Count its calls if its client is an ``OpenAI``."""
    from openai import OpenAI

    client: Any = getattr(part, "client", None)
    if not hasattr(client, "with_options"):
        return part
    options = model.limits(deadline_s)
    native = model.native()["config"]
    if model.provider == "openai" and os.environ.get("OPENROUTER_API_KEY"):
        # With that variable set, mem0 sends everything to OpenRouter. The configuration takes precedence.
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


class ExtractingLlm:
    """The extracting model. An unusable answer is an error here, and "nothing extracted" for mem0."""

    def __init__(self, native: Any, notes: Notes, turn: StoreLock) -> None:
        self.native = native
        self.config = native.config
        self._notes = notes
        self._turn = turn

    def generate_response(self, *arguments: Any, **options: Any) -> Any:
        with self._turn.released():
            answer = self.native.generate_response(*arguments, **options)
        readable, self._notes.extracted = _extraction(answer)
        return readable


class Reranker:
    """The reranker. It notes its failures, because mem0 ignores them."""

    def __init__(self, native: Any, notes: Notes, turn: StoreLock) -> None:
        self._native = native
        self._notes = notes
        self._turn = turn

    def rerank(self, *arguments: Any, **options: Any) -> Any:
        try:
            with self._turn.released():
                return self._native.rerank(*arguments, **options)
        except Exception as error:
            self._notes.reranking_error = error
            raise


def _extraction(answer: Any) -> tuple[str, int]:
    """An extraction as mem0 wants it, and the number of its memories."""
    try:
        found = json_of_answer(answer)
    except BackendProtocolError as error:
        raise _unusable(str(error).removeprefix("the model's answer ")) from None
    memories = found.get("memory", "missing") if isinstance(found, dict) else found
    memories = [] if memories is None else memories
    return json.dumps({"memory": memories}), _count_memories(memories)


def _count_memories(memories: Any) -> int:
    if not isinstance(memories, list):
        raise _unusable("has no list named memory")
    if not all(isinstance(item, dict) and isinstance(item.get("text"), str) for item in memories):
        raise _unusable("holds memories without a text")
    return sum(bool(item["text"]) for item in memories)


def _unusable(problem: str) -> BackendProtocolError:
    why = model_answer_fault() or f"it {problem}"
    return BackendProtocolError(
        f"the extracting model did not answer with the JSON mem0 asked for, so nothing was stored: {why}",
        sent=False,
    )


class NoLlm:
    """A placeholder, because mem0 requires a model. mem0 never calls it while ``infer`` is false."""

    config = SimpleNamespace(model=None)

    def generate_response(self, *_: Any, **__: Any) -> Any:
        raise BackendError("no llm is configured for mem0", sent=False)
