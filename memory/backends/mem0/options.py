"""The options of a ``mem0`` block, and the properties of mem0's vector stores. Imports no SDK."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, field_validator

from memory import ConfigError
from memory.adapter import DataPath, PluginOptions, Public
from memory.adapter.models import EmbedderBlock, ModelEndpoint, Prefixes, Sampling

RANGES = frozenset({"gt", "gte", "lt", "lte"})
LEXICAL_DIMENSIONS = 1024
_EXACT = frozenset({"eq", "ne", "in", "nin"})
_TEXT = frozenset({"contains", "icontains"})
OPENAI_PROVIDERS = frozenset({"azure_openai", "deepseek", "lmstudio", "minimax", "openai", "vllm", "xai"})
_SAMPLING = frozenset({"temperature", "max_tokens", "top_p"})
_OPENAI_ONLY = frozenset({"max_completion_tokens", "reasoning_effort", "extra_body"})


@dataclass(frozen=True)
class StoreProfile:
    """The measured behaviour of a vector store for metadata filters."""

    operators: frozenset[str]  # applied natively and before ranking
    package: str  # name of its distribution
    one_clause: bool = False  # one operator per key, except ranges; mem0 silently drops the rest
    iso_ranges: bool = False  # the store parses texts in range filters as dates
    float_equality: bool = False  # False: compares floats as text or not at all
    typed_lists: bool = False  # matches strings or integers only, and a list of one type only
    bool_text: bool = False  # compares values as text, and stores booleans as ``true`` and ``false``


STORES = {
    "qdrant": StoreProfile(
        _EXACT | RANGES | _TEXT, "qdrant-client", one_clause=True, iso_ranges=True, typed_lists=True
    ),
    "pgvector": StoreProfile(_EXACT | RANGES | _TEXT, "psycopg", bool_text=True),
    "chroma": StoreProfile(_EXACT | RANGES, "chromadb", float_equality=True),
}


class NativePart(PluginOptions):
    """A component in mem0's own format."""

    provider: Public[str]
    """mem0's name of the component's provider."""
    config: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Passed to mem0 as it is."""

    def native(self) -> dict[str, Any]:
        return {"provider": self.provider, "config": dict(self.config)}


class Mem0Model(NativePart, ModelEndpoint):
    """A model of one of mem0's providers, with shortcuts for endpoints."""

    provider: Public[str] = "openai"
    """mem0's name of the provider; ``openai`` serves every OpenAI-compatible endpoint."""
    model: Public[str] | None = None
    """Model name. Default: mem0's for the provider."""

    def effective(self) -> Mapping[str, Any]:
        fallback = os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        return {"base_url": self.base_url or fallback} if self.provider == "openai" else {}

    def shortcuts(self) -> dict[str, Any]:
        """The block's own fields under mem0's names; None for a field that is not set."""
        key = self.api_key.get_secret_value() if self.api_key else None
        if key is None and self.base_url and not os.environ.get("OPENAI_API_KEY"):
            key = "unused"  # clients require a key, local servers do not
        return {"model": self.model, "api_key": key, f"{self.provider}_base_url": self.base_url}

    def native(self) -> dict[str, Any]:
        """The block in mem0's format; ``config`` overrides the shortcuts."""
        given = {name: value for name, value in self.shortcuts().items() if value is not None}
        return {"provider": self.provider, "config": {**given, **self.config}}


class Mem0Llm(Mem0Model, Sampling):
    """The extracting model. For options that are not set here, mem0 decides by the model's name."""

    temperature: float | None = Field(default=0.1, ge=0)
    """Sampling temperature; ``null`` sends none, as reasoning models demand."""
    max_tokens: int | None = Field(default=2000, gt=0)
    """Longest answer, in tokens; ``null`` sends no limit."""
    top_p: float | None = Field(default=0.1, gt=0, le=1)
    """Nucleus sampling; ``null`` sends none."""

    def problems(self) -> Iterator[str]:
        nulls = {name for name in _SAMPLING & self.model_fields_set if getattr(self, name) is None}
        beyond = (self.model_fields_set & _OPENAI_ONLY) | nulls
        if beyond and self.provider not in OPENAI_PROVIDERS:
            yield (
                f"{', '.join(sorted(beyond))}: mem0 cannot pass this on to {self.provider}; use provider: openai "
                "with the base_url of an OpenAI-compatible endpoint"
            )

    def shortcuts(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in _SAMPLING & self.model_fields_set}
        return {**super().shortcuts(), **given}

    def given_options(self) -> dict[str, Any]:
        """The arguments of a chat completion that were set. None removes an argument of mem0."""
        names = (_SAMPLING | _OPENAI_ONLY) & self.model_fields_set
        given = {name: getattr(self, name) for name in names}
        if given.get("max_completion_tokens") is not None:
            given["max_tokens"] = None
        return given


class Mem0Embedder(Mem0Model, Prefixes):
    """An embedding model of one of mem0's providers."""

    @field_validator("provider")
    @classmethod
    def _mem0s(cls, value: str) -> str:
        if value == "fastembed":
            raise ValueError("write provider: local, which takes a path and prefixes as well")
        return value


class Mem0Options(PluginOptions):
    """Settings of the mem0 backend. The defaults need no key, no server and no network."""

    infer: bool | None = None
    """Let mem0 extract memories with the llm. Default: true if there is one; else messages are kept verbatim."""
    llm: Mem0Llm | None = None
    """The extracting model, e.g. ``{model: gpt-4.1-mini, api_key: "${OPENAI_API_KEY}"}``."""
    embedder: EmbedderBlock[Mem0Embedder] = "lexical"
    """``lexical`` (words and character n-grams, hashed; no model), ``{provider: local}`` (a model in this process),
    or a model behind an endpoint, like ``llm``."""
    dimensions: int | None = Field(default=None, gt=0)
    """Vector length. Default: 1024 for lexical; any other embedder is asked when a store is first opened."""
    vector_store: NativePart = NativePart(provider="qdrant")
    """``qdrant``, ``pgvector`` or ``chroma``. Default: embedded Qdrant below ``path``, a partition for each scope,
    for one process."""
    collection: Public[str] = Field(default="memslot", min_length=3)
    """Collection or table."""
    open_partitions: int = Field(default=64, gt=0)
    """Scopes whose partitions stay open; others are opened again when they are used."""
    path: DataPath | None = None
    """Directory of the embedded store and mem0's history. Default: ``<data_dir>/<backend name>``."""
    keywords: bool = True
    """Search by keywords (BM25) beside vectors, if the store and its encoder can. On Qdrant, ``false`` searches by
    vectors alone."""
    reranker: NativePart | None = None
    """mem0's reranker."""
    rerank: bool = False
    """Rerank search results; needs ``reranker``."""
    custom_instructions: str | None = None
    """Rules for the extracting model, in addition to the observation date."""
    top_k: int | None = Field(default=None, gt=0)
    """Memories per search where the request's budget sets no ``max_items``. Default: as many as may fill its
    ``max_tokens``, and 20 where there are none or a reranker would be asked about each."""
    threshold: float | None = Field(default=None, ge=0, le=1)
    """Least semantic score. Default: mem0's 0.1, and 0 for lexical, whose scores are low."""
    workers: int = Field(default=4, gt=0)
    """Concurrent native calls. On embedded Qdrant, which is not thread-safe, only models are waited for at once."""

    def problems(self) -> Iterator[str]:
        if self.infer and self.llm is None:
            yield (
                "infer: true needs an llm to extract with; add llm: {model: ..., base_url: ..., api_key: ...}, "
                "or set infer: false to store messages verbatim"
            )
        store = self.vector_store
        if not self.keywords and store.provider != "qdrant":
            yield f"keywords: only qdrant can leave them out, and vector_store.provider is {store.provider}"
        if store.provider not in STORES:
            yield (
                f"vector_store.provider: {store.provider} is not supported; mem0 filters reliably on "
                f"{', '.join(STORES)} only"
            )
        if store.provider == "qdrant" and ("host" in store.config) != ("port" in store.config):
            yield (
                "vector_store.config needs host and port together; mem0 would quietly open a local store instead"
            )

    def effective(self) -> Mapping[str, Any]:
        """The resolved values. mem0 sends everything to OpenRouter once that variable is set."""
        return {
            "infer": self.infers,
            "llm": self.llm if self.infers else None,
            "dimensions": self.given_dimensions
            or (LEXICAL_DIMENSIONS if self.embedder == "lexical" else None),
            "threshold": self.least_score,
            "openrouter": "OPENROUTER_API_KEY" in os.environ,
        }

    @property
    def infers(self) -> bool:
        return self.llm is not None if self.infer is None else self.infer

    @property
    def equivalent_control(self) -> str | None:
        """``simple_rag`` without extraction: verbatim messages, found by vector search (spec 2.2)."""
        return None if self.infers else "simple_rag"

    @property
    def differs_from_control(self) -> bool:
        return not self.infers and self.resolved() != Mem0Options(infer=False).resolved()

    @property
    def fallback_components(self) -> tuple[str, ...]:
        return ("lexical embedder",) if self.embedder == "lexical" else ()

    @property
    def profile(self) -> StoreProfile:
        return STORES[self.vector_store.provider]

    @property
    def embedded(self) -> bool:
        """Whether each scope has an embedded Qdrant of its own."""
        config = self.vector_store.config
        return self.vector_store.provider == "qdrant" and not (config.get("url") or config.get("host"))

    @property
    def local(self) -> bool:
        """Whether the embedder runs in this process, so that a call costs no request."""
        return not isinstance(self.embedder, Mem0Embedder)

    @property
    def threads(self) -> int:
        """The number of worker threads; one if calls to an embedded store never wait for a model."""
        waits = self.infers or self.embedder != "lexical" or self.reranker is not None
        return self.workers if waits or not self.embedded else 1

    @property
    def least_score(self) -> float:
        own = 0.0 if self.embedder == "lexical" else 0.1
        return own if self.threshold is None else self.threshold

    @property
    def given_dimensions(self) -> int | None:
        """The configured length of vectors; None leaves it to the embedder."""
        named = (
            self.embedder.config.get("embedding_dims") if isinstance(self.embedder, Mem0Embedder) else None
        )
        return self.dimensions or named

    def check_keys(self, where: str) -> None:
        """Report a missing key now; mem0 would report it only when it is opened."""
        for name, model in (("llm", self.llm), ("embedder", self.embedder)):
            if isinstance(model, Mem0Model) and model.provider == "openai":
                keys = (model.native()["config"].get("api_key"), os.environ.get("OPENAI_API_KEY"))
                if not any(keys) and not (name == "llm" and os.environ.get("OPENROUTER_API_KEY")):
                    raise ConfigError(
                        f'{where}.{name}.api_key is missing; write "${{OPENAI_API_KEY}}" and set that variable, '
                        "or give the base_url of an endpoint that needs no key"
                    )
