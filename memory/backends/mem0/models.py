"""The models of a configuration, in mem0's classes and with our deadlines: one of each, whatever many use it.

Where none is configured none is built, and no model's SDK is imported: that is nine tenths of opening mem0.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from mem0.configs.base import MemoryConfig
from mem0.utils.factory import EmbedderFactory, LlmFactory, RerankerFactory

from memory import ConfigError
from memory.adapter import BackendProtocolError, counted_openai
from memory.backends.mem0.options import Mem0Model, Mem0Options
from memory.backends.mem0.watch import (
    LexicalEmbedding,
    NoLlm,
    Notes,
    StoreLock,
    Watched,
)


class Models:
    """What a ``Memory`` asks: an embedder, a model, which raises where none is configured, and a reranker or None.
    What mem0 swallows of their failures is noted. Errors in building them are the native classes' own.
    """

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
            native = EmbedderFactory.create(
                config.embedder.provider, config.embedder.config, config.vector_store.config
            )
            native = _bound(native, options.embedder, min(write_s, retrieve_s))
            # Not of a batch: mem0 tries one text after the other when that fails, and skips those that fail again.
            failed = {"embed": partial(setattr, notes, "embedding_error")}
            self.embedder = Watched(native, turn, failed=failed)
        if options.llm is not None:
            native = LlmFactory.create(config.llm.provider, config.llm.config)
            native = _bound(native, options.llm, write_s)
            self.llm = Watched(native, turn, answered={"generate_response": notes.read})
        if config.reranker is not None:
            native = RerankerFactory.create(config.reranker.provider, config.reranker.config)
            self.reranker = Watched(
                native, turn, failed={"rerank": partial(setattr, notes, "reranking_error")}
            )

    def probe(self, role: str, dimensions: int | None, where: str) -> None:
        """One short call of the ``llm``, ``embedder`` or ``reranker``."""
        if role == "reranker":
            self.reranker.rerank("Which tea do I drink?", [{"memory": "I drink tea."}], 1)
        elif role == "embedder":
            length = len(self.embedder.embed("I drink tea.", "search"))
            if length != dimensions:
                raise ConfigError(
                    f"{where}.dimensions: is {dimensions}, and the embedder answers with {length}"
                )
        else:
            asked = [{"role": "user", "content": "Answer with the one word yes."}]
            if not self.llm.native.generate_response(messages=asked):  # past the watch, which wants memories
                raise BackendProtocolError("mem0: the llm answered with nothing", sent=False)

    def close(self) -> None:
        """Close the clients that can be closed."""
        for model in (self.embedder, self.llm):
            close_handle(getattr(getattr(model, "native", None), "client", None))


def _bound(part: Any, model: Mem0Model, deadline_s: float) -> Any:
    """Give an openai-like client our deadline."""
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
    part.client = (
        counted_openai(client, **options) if isinstance(client, OpenAI) else client.with_options(**options)
    )
    return part


def close_handle(handle: Any) -> None:
    """Close a client or a pool, if it can be closed."""
    close = getattr(handle, "close", None) or getattr(handle, "closeall", None)
    if callable(close):
        close()
