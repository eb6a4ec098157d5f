"""The models for Graphiti: extracting LLM, embedder and cross-encoder. Graphiti's defaults are never used."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from graphiti_core.cross_encoder.client import CrossEncoderClient
from graphiti_core.cross_encoder.openai_reranker_client import OpenAIRerankerClient
from graphiti_core.embedder.client import EmbedderClient
from graphiti_core.llm_client.config import LLMConfig
from graphiti_core.llm_client.openai_generic_client import OpenAIGenericClient
from graphiti_core.prompts.models import Message
from openai import AsyncOpenAI
from pydantic import BaseModel, ValidationError

from memory.adapter import BackendProtocolError, BackendRejected, NativeWorker
from memory.adapter.fields import first_problem
from memory.adapter.models import (
    NOT_JSON,
    LexicalHashEmbedder,
    LocalEmbedder,
    LocalModel,
    counted_openai,
    json_of_answer,
)
from memory.backends.graphiti.options import (
    OPENAI_URL,
    GraphitiEmbedder,
    GraphitiLlm,
    GraphitiModel,
    GraphitiOptions,
)

_LEXICAL_DIMENSIONS = 1024


class ExtractingLlm(OpenAIGenericClient):
    """Graphiti's client for OpenAI-compatible endpoints. memslot builds the request and parses the answer.

    Graphiti itself asks for 16,384 tokens, always sends a temperature, and retries unreadable answers after pauses.
    """

    def __init__(self, options: GraphitiLlm, client: AsyncOpenAI) -> None:
        names = LLMConfig(model=options.model, small_model=options.model)
        super().__init__(names, client=client, structured_output_mode=options.structured_output)
        self._options = options

    async def _generate_response(
        self,
        messages: list[Message],
        response_model: type[BaseModel] | None = None,
        max_tokens: int = 0,
        model_size: Any = None,
        *,
        model: str | None = None,
    ) -> dict[str, Any]:
        options = self._options
        said: Any = [{"role": each.role, "content": self._clean_input(each.content)} for each in messages]
        asked = self.client.chat.completions.create(
            model=model or options.model,
            messages=said,
            response_format=_response_format(options, response_model),
            extra_body=dict(options.extra_body) or None,
            **options.sampling(max_tokens),
        )
        try:
            return _read(await asked, response_model)
        except json.JSONDecodeError as error:  # Graphiti would repeat the question three times
            raise BackendProtocolError(NOT_JSON) from error


def _response_format(options: GraphitiLlm, response_model: type[BaseModel] | None) -> Any:
    if response_model is None or options.structured_output == "json_object":
        return {"type": "json_object"}
    schema = {"name": response_model.__name__, "schema": response_model.model_json_schema()}
    return {"type": "json_schema", "json_schema": schema}


def _read(response: Any, response_model: type[BaseModel] | None) -> dict[str, Any]:
    """Parse a model's answer as an object. A bare list becomes the value of the only list field.

    Graphiti checks answers of the user's own types itself, after it has merged them with known values.
    """
    if isinstance(response, str):  # a page that is no JSON; the SDK hands it on
        raise BackendProtocolError(NOT_JSON)
    choices = getattr(response, "choices", None)
    if not choices:
        raise BackendProtocolError("the model's answer has no choices")
    found = json_of_answer(choices[0].message.content, finish_reason=choices[0].finish_reason)
    if isinstance(found, list):
        name = _only_list(response_model)
        if len(found) == 1 and isinstance(found[0], dict) and (name is None or name in found[0]):
            found = found[0]
        elif name is not None:
            found = {name: found}
        else:
            raise BackendProtocolError("the model's answer is a list instead of an object")
    if response_model is not None and response_model.__module__.startswith("graphiti_core."):
        try:
            response_model.model_validate(found)
        except ValidationError as error:
            wrong = first_problem(error)
            raise BackendProtocolError(f"the model's answer has another shape: {wrong}") from None
    return found


def _only_list(response_model: type[BaseModel] | None) -> str | None:
    schema = response_model.model_json_schema() if response_model is not None else {}
    lists = [name for name, field in schema.get("properties", {}).items() if field.get("type") == "array"]
    return lists[0] if len(lists) == 1 else None


class _InBatches(EmbedderClient):
    async def create(self, input_data: Any) -> list[float]:
        # Graphiti passes a string, or a list with one string.
        text = input_data if isinstance(input_data, str) else " ".join(map(str, input_data))
        return (await self.create_batch([text]))[0]


class LexicalModel(_InBatches, CrossEncoderClient):
    """memslot's lexical embedder in Graphiti's interface, and a cross-encoder that ranks by its cosine."""

    name = "lexical"
    prefixes = ("", "")

    def __init__(self, dimensions: int | None) -> None:
        self.lexical = LexicalHashEmbedder(dimensions or _LEXICAL_DIMENSIONS)

    async def embed_query(self, text: str) -> list[float]:
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


class LocalEmbedderModel(_InBatches):
    """A ``fastembed`` model in Graphiti's interface. The first call loads it on a worker thread."""

    def __init__(self, options: LocalModel, where: str) -> None:
        self.name = f"local:{options.model}"
        self.prefixes = options.prefixes(options.model)
        self._options = options
        self._where = where
        self._model: LocalEmbedder | None = None
        self._worker = NativeWorker(1, name="memslot-embedder")
        self.aclose = self._worker.aclose

    def _loaded(self) -> LocalEmbedder:
        if self._model is None:
            self._model = LocalEmbedder(self._options, self._where)
        return self._model

    async def embed_query(self, text: str) -> list[float]:
        return await self._worker.run(lambda: self._loaded().embed_query(text), sends=False)

    async def create_batch(self, input_data_list: list[str]) -> list[list[float]]:
        texts = list(input_data_list)
        return await self._worker.run(lambda: self._loaded().embed_documents(texts), sends=False)


class EndpointEmbedder(_InBatches):
    """A model behind an OpenAI-compatible endpoint. It refuses long vectors, which Graphiti would truncate."""

    def __init__(self, options: GraphitiEmbedder, dimensions: int | None, client: AsyncOpenAI) -> None:
        self.name = options.model
        self.prefixes = options.prefixes(options.model)
        self.length = dimensions
        self._asked: dict[str, Any] = {} if dimensions is None else {"dimensions": dimensions}
        self._client = client

    async def embed_query(self, text: str) -> list[float]:
        return (await self._embed([self.prefixes[0] + text.replace("\n", " ")]))[0]

    async def create_batch(self, input_data_list: list[str]) -> list[list[float]]:
        return await self._embed([self.prefixes[1] + text for text in input_data_list])

    async def _embed(self, texts: list[str]) -> list[list[float]]:
        if not texts:
            return []
        answer = await self._client.embeddings.create(input=texts, model=self.name, **self._asked)
        vectors = [each.embedding for each in answer.data]
        for vector in vectors:
            self.length = self.length or len(vector)
            if len(vector) != self.length:
                raise BackendRejected(
                    f"the embedder {self.name} answers with {len(vector)} dimensions where the graph has "
                    f"{self.length}; configure the embedder that made it, or set dimensions"
                )
        return vectors


class YesOrNo(BaseModel):
    answer: bool


class Models:
    def __init__(self, options: GraphitiOptions, deadlines: Mapping[str, float], where: str = "") -> None:
        self._http: list[Any] = []
        self._options = options
        write_s, retrieve_s = deadlines.get("write_s", 60.0), deadlines.get("retrieve_s", 15.0)
        llm, embedder, ranker = options.llm, options.embedder, options.cross_encoder
        assert llm is not None  # the options require it
        self.llm = ExtractingLlm(llm, self._connect(llm, write_s))
        self.embedder: LexicalModel | LocalEmbedderModel | EndpointEmbedder
        if isinstance(embedder, GraphitiEmbedder):
            client = self._connect(embedder, min(write_s, retrieve_s))
            self.embedder = EndpointEmbedder(embedder, options.dimensions, client)
        elif isinstance(embedder, LocalModel):
            self.embedder = LocalEmbedderModel(embedder, f"{where}.embedder")
        else:
            self.embedder = LexicalModel(options.dimensions)
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
        if isinstance(options.embedder, GraphitiEmbedder):
            probes["embedder"] = partial(self.embedder.embed_query, "I drink tea.")
        if "cross_encoder" in options.recipe and isinstance(options.cross_encoder, GraphitiModel):
            probes["cross_encoder"] = partial(self.cross_encoder.rank, "Which tea?", ["I drink tea."])
        return probes

    async def _ask(self) -> None:
        message = Message(role="user", content="Is water wet?")
        await self.llm.generate_response([message], response_model=YesOrNo)

    async def dimensions(self, listed: int | None) -> int:
        """The length of the vectors: configured, else listed, else measured."""
        embedder = self.embedder
        if isinstance(embedder, EndpointEmbedder):
            embedder.length = embedder.length or listed
            if embedder.length is not None:
                return embedder.length
        return len(await embedder.embed_query("length"))

    async def aclose(self) -> None:
        for client in self._http:
            await client.close()
        if isinstance(self.embedder, LocalEmbedderModel):
            await self.embedder.aclose()
