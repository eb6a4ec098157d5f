"""What a ``mem0`` block may say, and what each of mem0's vector stores can really do. Imports no SDK."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from memory import ConfigError
from memory.adapter import LEXICAL_OR_BLOCK, DataPath, Durability, ModelEndpoint, PluginOptions, Public

RANGES = frozenset({"gt", "gte", "lt", "lte"})
_EXACT = frozenset({"eq", "ne", "in", "nin"})
_TEXT = frozenset({"contains", "icontains"})


@dataclass(frozen=True)
class StoreProfile:
    """What a vector store does with ids and metadata filters, as measured."""

    operators: frozenset[str] = frozenset()  # that it applies natively and before ranking
    package: str | None = None  # the distribution, where its name is not mem0's own for the store
    known: bool = True  # memslot was run on it, or its mem0 code was read
    folds_case: bool = False  # ids that differ in case only may meet
    one_clause: bool = False  # at most one operator per key, apart from ranges; mem0 silently drops the rest
    iso_ranges: bool = False  # the store parses texts in range filters as dates
    float_equality: bool = False  # others compare floats as text or not at all
    typed_lists: bool = False  # matches strings or integers only, and a list of one type only
    bool_text: bool = False  # compares as text, where JSON's booleans are in small letters


STORES = {
    "qdrant": StoreProfile(
        _EXACT | RANGES | _TEXT, "qdrant-client", one_clause=True, iso_ranges=True, typed_lists=True
    ),
    "pgvector": StoreProfile(_EXACT | RANGES | _TEXT, "psycopg", bool_text=True),
    "chroma": StoreProfile(_EXACT | RANGES, "chromadb", float_equality=True),
    # faiss filters after ranking and answers operators with nothing; redis and weaviate know ids only.
    "faiss": StoreProfile(package="faiss-cpu"),
    "redis": StoreProfile(folds_case=True),
    "weaviate": StoreProfile(folds_case=True),
}


class NativePart(PluginOptions):
    """A component in mem0's own words."""

    provider: Public[str]
    """mem0's name of the component's provider."""
    config: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Passed to mem0 as it is."""

    def native(self) -> dict[str, Any]:
        return {"provider": self.provider, "config": dict(self.config)}


class Mem0Model(NativePart, ModelEndpoint):
    """A language or embedding model, with shortcuts for OpenAI-compatible endpoints."""

    provider: Public[str] = "openai"
    """mem0's name of the provider; ``openai`` serves every OpenAI-compatible endpoint."""
    model: Public[str] | None = None
    """Model name; mem0's default for the provider otherwise."""

    def effective(self) -> Mapping[str, Any]:
        fallback = os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        return {"base_url": self.base_url or fallback} if self.provider == "openai" else {}

    def native(self) -> dict[str, Any]:
        """``config`` wins over the shortcuts."""
        key = self.api_key.get_secret_value() if self.api_key else None
        if key is None and self.base_url and not os.environ.get("OPENAI_API_KEY"):
            key = "unused"  # the client insists on one, local servers do not
        shortcuts = {"model": self.model, "api_key": key, f"{self.provider}_base_url": self.base_url}
        given = {name: value for name, value in shortcuts.items() if value is not None}
        return {"provider": self.provider, "config": {**given, **self.config}}


class Mem0Options(PluginOptions):
    """Settings of the mem0 backend. The defaults need no key, no server and no network."""

    infer: bool | None = None
    """Let mem0 extract memories with the llm. Default: true if there is one; else messages are kept verbatim."""
    llm: Mem0Model | None = None
    """The extracting model, e.g. ``{model: gpt-4.1-mini, api_key: "${OPENAI_API_KEY}"}``."""
    embedder: Annotated[Literal["lexical"] | Mem0Model, LEXICAL_OR_BLOCK] = "lexical"
    """``lexical`` (words and character n-grams, hashed; no model) or a model like ``llm``."""
    dimensions: int | None = Field(default=None, gt=0)
    """Vector length. Default: 1024 for lexical, 1536 for openai; required for other embedders."""
    vector_store: NativePart = NativePart(provider="qdrant")
    """mem0's vector store. Default: embedded Qdrant below ``path``, a partition for each scope, for one process."""
    collection: Public[str] = Field(default="memslot", min_length=3)
    """Collection or table."""
    open_partitions: int = Field(default=128, gt=0)
    """Scopes whose partitions of the embedded store stay open; others are opened again when they are used."""
    durability: Durability = "machine"
    """What an acknowledged event survives in the embedded store: the end of the ``process``, or a power cut of the
    ``machine`` too, which flushes the disk for each event."""
    path: DataPath | None = None
    """Directory of the embedded store and mem0's history. Default: ``<data_dir>/<backend name>``."""
    history_path: DataPath | None = None
    """SQLite file of mem0's history. Default: one in each partition of an embedded store, else in ``path``."""
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
    cs_filtering: Literal["hard", "soft"] | None = None
    """``hard`` requires scenario, context and attribute of every row; ``soft`` only adds them to the query.
    Default: hard. Stores that cannot filter (faiss, redis, weaviate, unknown ones) then refuse such requests."""
    workers: int = Field(default=4, gt=0)
    """Concurrent native calls. On embedded Qdrant, which is not thread-safe, only models are waited for at once."""
    user_id_template: Public[str] | None = None
    """mem0's user_id. Default: ``{persona_id}``."""
    run_id_template: Public[str] | None = None
    """mem0's run_id. Default: ``{run_id}:{backend_namespace}:{agent_id}``, absent fields at the end left out."""
    allow_sharing: bool = False
    """Accept templates that leave out a scope field, so that scopes share memory."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.infer and self.llm is None:
            raise ValueError(
                "infer: true needs an llm to extract with; add llm: {model: ..., base_url: ..., api_key: ...}, "
                "or set infer: false to store messages verbatim"
            )
        store = self.vector_store
        if store.provider == "qdrant" and ("host" in store.config) != ("port" in store.config):
            raise ValueError(
                "vector_store.config needs host and port together; mem0 would quietly open a local store instead"
            )
        if self.cs_filtering == "hard" and not self.profile.operators:
            raise ValueError(
                f"cs_filtering: hard is not possible on {store.provider}; set it to soft, or use qdrant, pgvector "
                "or chroma"
            )
        if self.embedder != "lexical" and self.vector_dimensions is None:
            raise ValueError("dimensions is required for this embedder; give the length of its vectors")
        return self

    def effective(self) -> Mapping[str, Any]:
        """mem0 sends everything to OpenRouter once that has a key."""
        return {
            "infer": self.infers,
            "llm": self.llm if self.infers else None,
            "dimensions": self.vector_dimensions,
            "threshold": self.least_score,
            "cs_filtering": self.filters_cs,
            "openrouter": "OPENROUTER_API_KEY" in os.environ,
        }

    @property
    def infers(self) -> bool:
        return self.llm is not None if self.infer is None else self.infer

    @property
    def equivalent_control(self) -> str | None:
        """Verbatim messages found by vectors are the control ``simple_rag`` (spec 2.2)."""
        return None if self.infers else "simple_rag"

    @property
    def differs_from_control(self) -> bool:
        return not self.infers and self.resolved() != Mem0Options(infer=False).resolved()

    @property
    def fallback_components(self) -> tuple[str, ...]:
        return ("lexical embedder",) if self.embedder == "lexical" else ()

    @property
    def profile(self) -> StoreProfile:
        return STORES.get(self.vector_store.provider, StoreProfile(known=False, folds_case=True))

    @property
    def embedded(self) -> bool:
        config = self.vector_store.config
        return self.vector_store.provider == "qdrant" and not (config.get("url") or config.get("host"))

    @property
    def threads(self) -> int:
        """An embedded store without a remote model never has two calls to wait for."""
        waits = self.infers or self.embedder != "lexical" or self.reranker is not None
        return self.workers if waits or not self.embedded else 1

    @property
    def filters_cs(self) -> Literal["hard", "soft", "none"]:
        return self.cs_filtering or ("hard" if self.profile.operators else "none")

    @property
    def least_score(self) -> float:
        """None would mean 0.1 to mem0."""
        own = 0.0 if self.embedder == "lexical" else 0.1
        return own if self.threshold is None else self.threshold

    @property
    def vector_dimensions(self) -> int | None:
        if isinstance(self.embedder, Mem0Model):
            given = self.dimensions or self.embedder.config.get("embedding_dims")
            return given or (1536 if self.embedder.provider == "openai" else None)
        return self.dimensions or 1024

    def check_keys(self, where: str) -> None:
        """Say early what mem0 would only say when it is opened."""
        for name, model in (("llm", self.llm), ("embedder", self.embedder)):
            if isinstance(model, Mem0Model) and model.provider == "openai":
                keys = (model.native()["config"].get("api_key"), os.environ.get("OPENAI_API_KEY"))
                if not any(keys) and not (name == "llm" and os.environ.get("OPENROUTER_API_KEY")):
                    raise ConfigError(
                        f'{where}.{name}.api_key is missing; write "${{OPENAI_API_KEY}}" and set that variable, '
                        "or give the base_url of an endpoint that needs no key"
                    )
