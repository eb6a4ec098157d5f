"""The models that Graphiti is given: extracting LLM, embedder, cross-encoder. Never its own defaults."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from graphiti_core.cross_encoder.client import CrossEncoderClient
from graphiti_core.cross_encoder.openai_reranker_client import OpenAIRerankerClient
from graphiti_core.embedder.client import EmbedderClient
from graphiti_core.embedder.openai import OpenAIEmbedder, OpenAIEmbedderConfig
from graphiti_core.llm_client.config import LLMConfig
from graphiti_core.llm_client.errors import EmptyResponseError
from graphiti_core.llm_client.openai_generic_client import OpenAIGenericClient
from graphiti_core.prompts.models import Message
from openai import AsyncOpenAI
from pydantic import BaseModel

from memory import ConfigError
from memory.adapter import LexicalHashEmbedder, counted_openai
from memory.backends.graphiti.options import OPENAI_URL, GraphitiModel, GraphitiOptions
from memory.backends.graphiti.stores import Write

_ATTEMPTS = 4  # Graphiti's own number for answers that are empty or no JSON


class BoundedLlm(OpenAIGenericClient):
    """Graphiti's generic client without its pauses of 5 to 120 s, which no deadline here outlives."""

    async def _generate_response_with_retry(  # type: ignore[override]  # Graphiti decorates its own
        self, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        answer: dict[str, Any]
        for _ in range(_ATTEMPTS - 1):
            with suppress(json.JSONDecodeError, EmptyResponseError):
                answer = await Write.call(self._generate_response(*args, **kwargs))
                return answer
        answer = await Write.call(self._generate_response(*args, **kwargs))
        return answer


class LexicalModel(EmbedderClient, CrossEncoderClient):
    """memslot's zero-key embedder as Graphiti's, and cosine of its vectors as a cross-encoder."""

    def __init__(self, dimensions: int) -> None:
        self.lexical = LexicalHashEmbedder(dimensions)

    async def create(self, input_data: Any) -> list[float]:
        text = input_data if isinstance(input_data, str) else " ".join(map(str, input_data))
        return self.lexical.embed(text)

    async def create_batch(self, input_data_list: list[str]) -> list[list[float]]:
        return [self.lexical.embed(text) for text in input_data_list]

    async def rank(self, query: str, passages: list[str]) -> list[tuple[str, float]]:
        wanted = self.lexical.embed_query(query)
        scored = [
            (text, sum(a * b for a, b in zip(wanted, self.lexical.embed_document(text), strict=True)))
            for text in passages
        ]
        return sorted(scored, key=lambda pair: -pair[1])


class YesOrNo(BaseModel):
    answer: bool


class Models:
    def __init__(self, options: GraphitiOptions, deadlines: Mapping[str, float]) -> None:
        self._http: list[Any] = []
        self._options = options
        write_s, retrieve_s = deadlines.get("write_s", 60.0), deadlines.get("retrieve_s", 15.0)
        llm, embedder, ranker = options.llm, options.embedder, options.cross_encoder
        assert llm is not None  # the options refuse to be without
        self.llm = BoundedLlm(
            LLMConfig(model=llm.model, small_model=llm.small_model or llm.model, temperature=llm.temperature),
            client=self._connect(llm, write_s),
            max_tokens=llm.max_tokens,
            structured_output_mode=llm.structured_output,
        )
        self.embedder: Any = LexicalModel(options.dimensions)
        if isinstance(embedder, GraphitiModel):
            self.embedder = OpenAIEmbedder(
                OpenAIEmbedderConfig(embedding_model=embedder.model, embedding_dim=options.dimensions),
                client=self._connect(embedder, min(write_s, retrieve_s)),
            )
        self.cross_encoder: Any = LexicalModel(options.dimensions)
        if isinstance(ranker, GraphitiModel):
            client = self._connect(ranker, retrieve_s)
            self.cross_encoder = OpenAIRerankerClient(LLMConfig(model=ranker.model), client=client)

    def _connect(self, model: GraphitiModel, deadline_s: float) -> Any:
        url = model.base_url or OPENAI_URL
        client = AsyncOpenAI(api_key=model.key(), base_url=url, **model.limits(deadline_s))
        self._http.append(counted_openai(client))
        return self._http[-1]

    def probes(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        options = self._options
        probes: dict[str, Callable[[], Awaitable[object]]] = {"llm": self._ask}
        if isinstance(options.embedder, GraphitiModel):
            probes["embedder"] = self._embed
        if "cross_encoder" in options.recipe and isinstance(options.cross_encoder, GraphitiModel):
            probes["cross_encoder"] = partial(self.cross_encoder.rank, "Which tea?", ["I drink tea."])
        return probes

    async def _ask(self) -> None:
        message = Message(role="user", content="Is water wet?")
        await self.llm.generate_response([message], response_model=YesOrNo)

    async def _embed(self) -> None:
        dimensions = self._options.dimensions
        length = len(await self.embedder.create("I drink tea."))
        if length != dimensions:
            raise ConfigError(
                f"memory.backends.graphiti.dimensions: is {dimensions}, and the embedder answers with {length}"
            )

    async def aclose(self) -> None:
        for client in self._http:
            await client.close()
