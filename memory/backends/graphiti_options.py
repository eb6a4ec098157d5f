"""What a ``graphiti`` block may say. Imports no SDK."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from memory import IdAlphabet, PluginOptions

__all__ = ["GROUP_IDS", "GraphitiModel", "GraphitiOptions", "Ingest", "Recipe"]

Ingest = Literal["message", "text", "json", "triplet"]
Recipe = Literal["hybrid", "mmr", "cross_encoder", "combined", "combined_mmr", "combined_cross_encoder"]

# Graphiti allows [a-zA-Z0-9_-]. Capitals would meet on file systems that fold case, and full-text indexes split
# a name at "-".
GROUP_IDS = IdAlphabet(safe="", escape="_", separator="_x", max_length=120, prefix="ms_")
LEXICAL_DIMENSIONS = 1024
_SERVERS = ("falkordb", "neo4j")


class GraphitiModel(PluginOptions):
    """A model behind an OpenAI-compatible endpoint."""

    model: str
    """Model name."""
    base_url: str | None = None
    """Endpoint, such as ``http://localhost:8000/v1``. Default: OpenAI's."""
    api_key: SecretStr | None = None
    """Write ``${OPENAI_API_KEY}``, not the key itself. Default: that variable; unused with a ``base_url``."""
    max_retries: int = Field(default=0, ge=0)
    """Retries of a failed call within the slot's deadline. Safe: nothing is stored before the last answer."""

    def key(self) -> str | None:
        """The key to send, or None where there is none and the endpoint needs one."""
        if self.api_key is not None:
            return self.api_key.get_secret_value()
        return os.environ.get("OPENAI_API_KEY") or ("unused" if self.base_url else None)


class GraphitiLlm(GraphitiModel):
    """The extracting model."""

    small_model: str | None = None
    """For Graphiti's simpler prompts, where its client makes the difference. Default: ``model``."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature."""
    max_tokens: int = Field(default=16_384, gt=0)
    """Longest answer, in tokens."""
    structured_output: Literal["json_schema", "json_object"] = "json_schema"
    """``json_object`` for endpoints that do not know JSON schemas."""


class GraphitiOptions(PluginOptions):
    """Settings of the Graphiti backend. Everything but the extracting model works without key and network."""

    llm: GraphitiLlm | None = Field(
        default=None, examples=[{"model": "gpt-4.1-mini", "base_url": "https://api.openai.com/v1"}]
    )
    """The extracting model, required: any OpenAI-compatible endpoint; the key is ``$OPENAI_API_KEY`` unless
    ``api_key`` is given."""
    embedder: Literal["lexical"] | GraphitiModel = "lexical"
    """``lexical`` (words and character n-grams, hashed; no model) or a model like ``llm``."""
    dimensions: int = Field(default=LEXICAL_DIMENSIONS, ge=64)
    """Vector length."""
    cross_encoder: Literal["lexical"] | GraphitiModel = "lexical"
    """Used by the ``cross_encoder`` recipes only. A model is asked once per passage and must give logprobs."""
    driver: Literal["kuzu"] = "kuzu"
    """The graph database: Kuzu inside this process, one database per scope."""
    path: Path | None = None
    """Directory of the databases. Default: ``<data_dir>/<backend name>``."""
    buffer_mb: int = Field(default=128, ge=64)
    """Largest buffer of one scope's database, in MB; Kuzu's own default is 80 % of the machine."""
    open_graphs: int = Field(default=8, gt=0)
    """Scopes whose graphs stay open, at some 80 MB each; others are opened again in 0.05 s when needed."""
    ingest: Ingest = "message"
    """An episode of ``role: content`` lines (``message``), of plain ``text``, or of the event as ``json``; or
    ``triplet``: facts given in ``metadata.triplets`` are added without extraction."""
    bulk: Literal["sequential", "native"] = "sequential"
    """How a preload is written. ``native`` is ``add_episode_bulk``: faster, but facts that contradict each other
    within a batch all stay valid."""
    cs_in_body: bool = False
    """Write scenario, context and attribute into the episode's text, where the extracting model sees them."""
    custom_instructions: str | None = None
    """Passed to every extraction as ``custom_extraction_instructions``."""
    recipe: Recipe = "hybrid"
    """How to search: keywords and vectors over facts, fused by rank (``hybrid``), by ``mmr`` or by a
    ``cross_encoder``; ``combined`` ones also return nodes, episodes and communities."""
    top_k: int = Field(default=10, gt=0)
    """Results of each kind where the request's budget sets no ``max_items``."""
    sim_min_score: float | None = Field(default=None, ge=-1, le=1)
    """Least cosine similarity of a vector match. Default: Graphiti's 0.6, and 0 for lexical, whose are low."""
    reranker_min_score: float | None = None
    """Least score after reranking. Default: 0, and -2 for mmr, whose scores go below zero."""
    only_valid: bool = False
    """Leave out facts that have been invalidated."""

    @field_validator("driver", mode="before")
    @classmethod
    def _supported(cls, value: object) -> object:
        if value in _SERVERS:
            raise ValueError(f"{value} is not supported yet; use kuzu, which needs no server")
        return value

    @field_validator("embedder", "cross_encoder", mode="before")
    @classmethod
    def _known(cls, value: object) -> object:
        if isinstance(value, str) and value != "lexical":
            raise ValueError("is unknown; write lexical, or a block such as {model: ..., base_url: ...}")
        return value

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.llm is None:
            raise ValueError(
                "llm is required: Graphiti extracts and reconciles facts with a language model; add llm: {model: "
                '..., base_url: ..., api_key: "${OPENAI_API_KEY}"}, any OpenAI-compatible endpoint will do'
            )
        models = {"llm": self.llm, "embedder": self.embedder, "cross_encoder": self.cross_encoder}
        for name, model in models.items():
            if isinstance(model, GraphitiModel) and model.key() is None:
                raise ValueError(
                    f'{name}.api_key is missing; write "${{OPENAI_API_KEY}}" and set that variable, or give the '
                    "base_url of an endpoint that needs no key"
                )
        return self

    @property
    def least_similarity(self) -> float:
        """The ``sim_min_score`` sent to Graphiti."""
        if self.sim_min_score is not None:
            return self.sim_min_score
        return 0.0 if self.embedder == "lexical" else 0.6

    @property
    def least_rerank(self) -> float:
        """The ``reranker_min_score`` sent to Graphiti."""
        if self.reranker_min_score is not None:
            return self.reranker_min_score
        return -2.0 if self.recipe.endswith("mmr") else 0.0
