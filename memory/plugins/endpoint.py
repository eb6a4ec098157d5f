"""The blocks of a configuration that name a model. This module imports neither a client nor a model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, SecretStr, Tag, model_validator

from memory.plugins.hookspecs import PluginOptions
from memory.plugins.redaction import InputFile, Public

LOCAL_MODEL = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
"""The default of :class:`LocalModel`: 50 languages, 384 dimensions, 0.22 GB."""

_BGE = "Represent this sentence for searching relevant passages: "
# Part of a model's name -> its authors' prefixes of a question and of a document. The first match counts.
_PREFIXES = {
    "e5-mistral": ("Instruct: Given a question, retrieve passages that answer it\nQuery: ", ""),
    "e5": ("query: ", "passage: "),
    "nomic-embed-text": ("search_query: ", "search_document: "),
    "arctic-embed-l-v2": ("query: ", ""),
    "arctic-embed-m-v2": ("query: ", ""),
    "arctic-embed": (_BGE, ""),
    "mxbai-embed-large": (_BGE, ""),
    "bge-small-zh": ("为这个句子生成表示以用于检索相关文章：", ""),
    "bge-base-zh": ("为这个句子生成表示以用于检索相关文章：", ""),
    "bge-large-zh": ("为这个句子生成表示以用于检索相关文章：", ""),
    "bge-small-en": (_BGE, ""),
    "bge-base-en": (_BGE, ""),
    "bge-large-en": (_BGE, ""),
    "embeddinggemma": ("task: search result | query: ", "title: none | text: "),
    "qwen3-embedding": ("Instruct: Given a question, retrieve passages that answer it\nQuery:", ""),
}


class ModelEndpoint(PluginOptions):
    """A model behind an OpenAI-compatible endpoint."""

    base_url: Public[str] | None = None
    """Endpoint, such as ``http://localhost:8000/v1``. Default: OpenAI's."""
    api_key: SecretStr | None = None
    """Write ``${OPENAI_API_KEY}``, not the key itself. Default: that variable; unused with a ``base_url``."""
    max_retries: int = Field(default=0, ge=0)
    """Retries of a failed call within the slot's deadline. Safe: nothing is stored before the last answer."""

    def limits(self, deadline_s: float) -> dict[str, Any]:
        """Options of an ``openai`` client for this deadline; the client's defaults are 3 tries of 600 s."""
        return {"timeout": 0.9 * deadline_s / (self.max_retries + 1), "max_retries": self.max_retries}


class Sampling(PluginOptions):
    """The block of a language model, or the model's name alone. ``null`` leaves a field out of the request."""

    temperature: float | None = Field(default=0.0, ge=0)
    """Sampling temperature; ``null`` sends none, as reasoning models demand."""
    max_tokens: int | None = Field(default=16_384, gt=0)
    """Longest answer, in tokens; ``null`` sends no limit."""
    max_completion_tokens: int | None = Field(default=None, gt=0)
    """The same limit under the name that reasoning models take; sent in place of ``max_tokens``."""
    reasoning_effort: Public[str] | None = None
    """How long a reasoning model may think, such as ``low``. Default: not sent."""
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    """Further fields of every request, as the endpoint names them."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: object) -> object:
        return {"model": given} if isinstance(given, str) else given

    def sampling(self, wanted: int = 0) -> dict[str, Any]:
        """Fields of a chat completion for an answer of at most ``wanted`` tokens, without ``extra_body``."""
        by_reasoning = self.max_completion_tokens is not None
        name = "max_completion_tokens" if by_reasoning else "max_tokens"
        limit = self.max_completion_tokens if by_reasoning else self.max_tokens
        given = {
            "temperature": self.temperature,
            name: min(limit, wanted or limit) if limit is not None else None,
            "reasoning_effort": self.reasoning_effort,
        }
        return {key: value for key, value in given.items() if value is not None}


class Prefixes(PluginOptions):
    """The prefix that a model expects before every text. Without it, many lose a third of their recall."""

    query_prefix: Public[str] | None = None
    """Text before every question. Default: that of the model's authors where memslot knows it, else none."""
    document_prefix: Public[str] | None = None
    """Text before every stored text. Default: as for ``query_prefix``."""

    def prefixes(self, model: str | None) -> tuple[str, str]:
        """The prefix of a question and the prefix of a document for a model of this name."""
        known = known_prefixes(model or "")
        query = known[0] if self.query_prefix is None else self.query_prefix
        document = known[1] if self.document_prefix is None else self.document_prefix
        return query, document


def known_prefixes(model: str) -> tuple[str, str]:
    """The prefixes of a model's authors, by the model's name; two empty texts for an unknown model."""
    words = model.lower().replace("_", "-")
    found = (prefixes for name, prefixes in _PREFIXES.items() if _names(words, name))
    return next(found, ("", ""))


def _names(words: str, name: str) -> bool:
    """Whether ``name`` begins a word in ``words``, so that ``e5`` is not found in ``base5``."""
    start = words.find(name)
    return start >= 0 and (start == 0 or not words[start - 1].isalnum())


class LocalModel(Prefixes):
    """An embedding model that ``fastembed`` runs inside this process, without a key or a server."""

    provider: Literal["local"]
    """``local``."""
    model: Public[str] = LOCAL_MODEL
    """A model that fastembed knows, or any name for the files at ``path``. It is downloaded once."""
    path: InputFile | None = None
    """Directory of an ONNX model with ``tokenizer.json`` and ``tokenizer_config.json``; nothing is downloaded."""

    def effective(self) -> Mapping[str, object]:
        """The content of the weights in place of their path."""
        if self.path is None:
            return {}
        digest = hashlib.sha256()
        for file in sorted(self.path.expanduser().rglob("*.onnx*")):
            with file.open("rb") as weights:
                digest.update(hashlib.file_digest(weights, "sha256").digest())
        return {"path": digest.hexdigest()}


def _lexical_or(block: str) -> BeforeValidator:
    """A validator for a field that takes ``lexical`` or a model's block. It refuses any other word."""

    def check(value: object) -> object:
        if isinstance(value, str) and value != "lexical":
            raise ValueError(f"is unknown; write lexical, {block}")
        return value

    return BeforeValidator(check)


LEXICAL_OR_BLOCK = _lexical_or("or a block such as {model: ..., base_url: ...}")


def _kind(value: object) -> str:
    if isinstance(value, str):
        return "word"
    given = value.get("provider") if isinstance(value, Mapping) else getattr(value, "provider", None)
    return "local" if given == "local" else "endpoint"


ModelT = TypeVar("ModelT")
EmbedderBlock = Annotated[
    Annotated[Literal["lexical"], Tag("word")]
    | Annotated[LocalModel, Tag("local")]
    | Annotated[ModelT, Tag("endpoint")],
    Discriminator(_kind),
    _lexical_or("{provider: local} or a block such as {model: ..., base_url: ...}"),
]
"""``EmbedderBlock[MyModel]``: the word ``lexical``, a :class:`LocalModel`, or a block of the type ``MyModel``."""
