"""Importing Graphiti without its side effects, and building the clients it is given. Never its defaults."""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from memory import PluginLoadError
from memory.backends.graphiti_options import Driver, GraphitiModel, GraphitiOptions
from memory.backends.graphiti_stores import STORES
from memory.backends.graphiti_turn import Turn
from memory.lexical import LexicalHashEmbedder

__all__ = ["Clients", "build_clients", "import_sdk"]

_TELEMETRY = "GRAPHITI_TELEMETRY_ENABLED"
_MODULES = (
    "graphiti_core.cross_encoder.openai_reranker_client",
    "graphiti_core.embedder.openai",
    "graphiti_core.llm_client.openai_generic_client",
    "memory.backends.graphiti_native",
)
_ATTEMPTS = 4  # Graphiti's own number for answers that are empty or no JSON


def import_sdk(driver: Driver = "kuzu") -> None:
    """Import ``graphiti_core``: no telemetry, and no variables from whatever ``.env`` file it finds.

    Raises:
        PluginLoadError: the client of the graph database is not installed.
    """
    os.environ[_TELEMETRY] = "false"
    with _environment_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of its own code
        for name in _MODULES:
            importlib.import_module(name)
        try:
            importlib.import_module(STORES[driver])
        except ImportError as error:
            extra = "graphiti-falkordb" if driver == "falkordb" else "graphiti"
            raise PluginLoadError(
                f"graphiti: driver: {driver} needs {error.name}, which is not installed: "
                f"pip install 'memslot[{extra}]'"
            ) from error
    _quieten()


@contextmanager
def _environment_kept() -> Iterator[None]:
    before = dict(os.environ)
    os.environ["PYTHON_DOTENV_DISABLED"] = "1"
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@dataclass(frozen=True, slots=True)
class Clients:
    """What ``Graphiti(...)`` is given, and the HTTP clients to close."""

    llm: Any
    embedder: Any
    cross_encoder: Any
    http: tuple[Any, ...]

    async def aclose(self) -> None:
        """Close every HTTP client."""
        for client in self.http:
            await client.close()


def build_clients(options: GraphitiOptions, deadlines: Mapping[str, float]) -> Clients:
    """Clients bounded by the slot's deadlines; the SDK's own wait 600 s."""
    from graphiti_core.cross_encoder.client import CrossEncoderClient
    from graphiti_core.cross_encoder.openai_reranker_client import OpenAIRerankerClient
    from graphiti_core.embedder.client import EmbedderClient
    from graphiti_core.embedder.openai import OpenAIEmbedder, OpenAIEmbedderConfig
    from graphiti_core.llm_client.config import LLMConfig
    from graphiti_core.llm_client.errors import EmptyResponseError
    from graphiti_core.llm_client.openai_generic_client import OpenAIGenericClient
    from openai import AsyncOpenAI

    write_s, retrieve_s = deadlines.get("write_s", 60.0), deadlines.get("retrieve_s", 15.0)
    http: list[Any] = []

    def connect(model: GraphitiModel, deadline_s: float) -> Any:
        client = AsyncOpenAI(
            api_key=model.key(),
            base_url=model.base_url or "https://api.openai.com/v1",
            timeout=0.9 * deadline_s / (model.max_retries + 1),
            max_retries=model.max_retries,
        )
        http.append(client)
        return client

    class BoundedLlm(OpenAIGenericClient):  # type: ignore[misc]
        """Graphiti's generic client without its pauses of 5 to 120 s, which no deadline here outlives."""

        async def _generate_response_with_retry(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    answer: dict[str, Any] = await Turn.call(self._generate_response(*args, **kwargs))
                    return answer
                except (json.JSONDecodeError, EmptyResponseError):
                    if attempt == _ATTEMPTS:
                        raise
            raise AssertionError("unreachable")

    class LexicalEmbedding(EmbedderClient):  # type: ignore[misc]
        """memslot's zero-key embedder as Graphiti's."""

        def __init__(self) -> None:
            self.lexical = LexicalHashEmbedder(options.dimensions)

        async def create(self, input_data: Any) -> list[float]:
            text = input_data if isinstance(input_data, str) else " ".join(map(str, input_data))
            return self.lexical.embed(text)

        async def create_batch(self, input_data_list: list[str]) -> list[list[float]]:
            return [self.lexical.embed(text) for text in input_data_list]

    class LexicalRanking(CrossEncoderClient):  # type: ignore[misc]
        """Cosine of lexical vectors, best first: a cross-encoder that calls nobody."""

        def __init__(self) -> None:
            self.lexical = LexicalHashEmbedder(options.dimensions)

        async def rank(self, query: str, passages: list[str]) -> list[tuple[str, float]]:
            wanted = self.lexical.embed_query(query)
            scored = [
                (text, sum(a * b for a, b in zip(wanted, self.lexical.embed_document(text), strict=True)))
                for text in passages
            ]
            return sorted(scored, key=lambda pair: -pair[1])

    llm = options.llm
    assert llm is not None  # the options refuse to be without
    config = LLMConfig(
        api_key=llm.key(),
        model=llm.model,
        base_url=llm.base_url,
        temperature=llm.temperature,
        small_model=llm.small_model or llm.model,
    )
    generic = BoundedLlm(
        config,
        client=connect(llm, write_s),
        max_tokens=llm.max_tokens,
        structured_output_mode=llm.structured_output,
    )
    embedder: Any = LexicalEmbedding()
    if isinstance(options.embedder, GraphitiModel):
        model = options.embedder
        embedder = OpenAIEmbedder(
            OpenAIEmbedderConfig(
                api_key=model.key(), embedding_model=model.model, embedding_dim=options.dimensions
            ),
            client=connect(model, min(write_s, retrieve_s)),
        )
    ranking: Any = LexicalRanking()
    if isinstance(options.cross_encoder, GraphitiModel):
        model = options.cross_encoder
        ranking = OpenAIRerankerClient(
            LLMConfig(api_key=model.key(), model=model.model), client=connect(model, retrieve_s)
        )
    return Clients(generic, embedder, ranking, tuple(http))


_DETAIL = re.compile(r"\s*[:={\[('\"].*", re.DOTALL)


def _quieten() -> None:
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "graphiti_core":
            logging.getLogger(name).addFilter(_discreet)


def _discreet(record: logging.LogRecord) -> bool:
    """Graphiti logs queries, parameters and error bodies; what comes before them is enough."""
    record.msg, record.args = _DETAIL.sub("", record.getMessage()), ()
    record.exc_info = record.exc_text = record.stack_info = None
    return True
