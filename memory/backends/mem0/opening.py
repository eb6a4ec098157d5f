"""Opens mem0's parts. It translates their errors and keeps user content out of their logs."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memory import ConfigError, PluginLoadError
from memory.adapter.sdk import quiet_loggers
from memory.adapter.stores import create_directory

_SAID_BY_HEALTH = (
    "Failed to load spaCy",
    "fastembed not installed",
    "Failed to load BM25",
    "The '",
    "Collection ",
)
_PIP_NAMES = {
    "azure": "azure-identity",
    "google": "google-genai",
    "google.genai": "google-genai",
    "google.generativeai": "google-generativeai",
    "psycopg_pool": "psycopg[pool]",
    "faiss": "faiss-cpu",
    "sentence_transformers": "sentence-transformers",
    "vertexai": "google-cloud-aiplatform",
    "botocore": "boto3",
}


def make_directory(directory: Path, where: str) -> None:
    try:
        create_directory(directory)
    except OSError as error:
        why = f"{directory} cannot be created ({error.strerror}); choose another directory"
        raise ConfigError(f"{where}.path: {why}") from error


@contextmanager
def opening(where: str) -> Iterator[None]:
    """Wrap the construction of native parts: translate errors and quiet loggers."""
    quiet_loggers("mem0", "mem0.utils.spacy_models", unsaid=_SAID_BY_HEALTH)
    try:
        yield
    except ImportError as error:
        raise PluginLoadError(f"{where}: a component of mem0 is not installed ({_missing(error)})") from error
    except TypeError as error:  # an unknown keyword; its message contains no value, so no secret
        raise ConfigError(f"{where}: mem0 refused its native configuration ({error})") from error
    finally:
        quiet_loggers("mem0", unsaid=_SAID_BY_HEALTH)  # again, for loggers created meanwhile


def _missing(error: ImportError) -> str:
    """The pip command for a missing package, or mem0's own message if the error does not name the module."""
    if error.name is None or error.name.startswith("mem0"):
        return str(error)
    package = _PIP_NAMES.get(error.name) or _PIP_NAMES.get(error.name.partition(".")[0])
    return f"pip install {package or error.name.partition('.')[0]}"


def keyword_encoder(where: str) -> str | None:
    """Why mem0's keyword search on Qdrant cannot work, or None. mem0 itself would retry for 40 s."""
    if importlib.util.find_spec("fastembed") is None:
        return "pip install 'memslot[local]'"
    from fastembed import SparseTextEmbedding

    from memory.adapter.models import load_model

    try:
        load_model(
            lambda **how: SparseTextEmbedding("Qdrant/bm25", **how),
            repository="Qdrant/bm25",
            problem="the files of Qdrant/bm25 are not on this machine, and",
            instead="put them into $FASTEMBED_CACHE_PATH",
            cache=False,
        )
    except ConfigError as error:
        return str(error)
    return None
