"""A language model as the session loop sees it (Signet's runtime contract, ``Provider``).

A conversation is a sequence of :class:`memory.Message`; a call of a tool stands in ``Message.tool_calls`` as
``{"id": ..., "name": ..., "arguments": {...}}``, whatever the model's own API makes of it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Literal, Protocol, runtime_checkable

from pydantic import BeforeValidator, Field, JsonValue

from memory.contract._model import Frozen, Id, JsonObject, Text, check_number
from memory.contract.events import Message
from memory.contract.requests import Positive

StopReason = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence"]
Seed = Annotated[int, BeforeValidator(check_number), Field(ge=0, lt=2**31)]
Temperature = Annotated[float, BeforeValidator(check_number), Field(ge=0, le=2, allow_inf_nan=False)]


class ToolDefinition(Frozen):
    """A tool's description for a model. ``input_schema`` is a JSON Schema of an object."""

    name: Id
    description: Text = ""
    input_schema: JsonObject = Field(default_factory=lambda: dict[str, JsonValue](type="object"))


class ToolCall(Frozen):
    """The model wants a tool to be called.

    Attributes:
        id: names the call in the message that answers it.
        name: of the tool, which need not exist.
        arguments: what it is called with.
        problem: why ``arguments`` could not be read, or None. The tool is then not called; the model is told.
    """

    id: Id
    name: Text
    arguments: JsonObject = Field(default_factory=dict)
    problem: Text | None = None

    def to_json(self) -> dict[str, JsonValue]:
        """As it stands in ``Message.tool_calls``."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}


class Usage(Frozen):
    """Tokens as the model's server counted them; None where it does not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None


class CompletionOptions(Frozen):
    """How to complete.

    Attributes:
        model: in place of the provider's own.
        max_tokens: longest answer.
        temperature: 0 to 2; None leaves it to the model.
        tools: what the model may call.
        system_prompt: stands before the conversation.
        stop_sequences: texts that end the answer.
        seed: for the same answer to the same question, as far as the server can; ignored where its API has none.
    """

    model: Text | None = None
    max_tokens: Positive | None = None
    temperature: Temperature | None = None
    tools: tuple[ToolDefinition, ...] = ()
    system_prompt: Text | None = None
    stop_sequences: tuple[Text, ...] = ()
    seed: Seed | None = None


class CompletionResult(Frozen):
    """A whole answer. ``model`` names the model that answered, if the server says so."""

    content: Text = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: StopReason = "end_turn"
    usage: Usage = Field(default_factory=Usage)
    model: Text | None = None

    def to_message(self) -> Message | None:
        """The answer as a part of the conversation; None where the model said and called nothing."""
        if not self.content.strip() and not self.tool_calls:
            return None
        calls = tuple(call.to_json() for call in self.tool_calls) or None
        return Message(role="assistant", content=self.content, tool_calls=calls)


class CompletionChunk(Frozen):
    """A piece of a streamed answer: some text, or, last of all, the whole of it as ``result``."""

    text: Text = ""
    result: CompletionResult | None = None


@runtime_checkable
class Provider(Protocol):
    """A language model.

    Failures are those of memory's error tree (:class:`memory.BackendError` and below), with ``backend_name`` set to
    ``id``; none holds a key or a word of the conversation.
    """

    id: str

    async def complete(
        self, messages: Sequence[Message], options: CompletionOptions | None = None
    ) -> CompletionResult:
        """The model's answer to a conversation.

        Raises:
            BackendError: there is none.
        """

    def stream(
        self, messages: Sequence[Message], options: CompletionOptions | None = None
    ) -> AsyncIterator[CompletionChunk]:
        """The same in pieces as they come; the last one holds the whole answer.

        Raises:
            BackendError: there is none, or it broke off.
        """

    async def available(self) -> bool:
        """Whether the model's server answers just now."""

    async def aclose(self) -> None:
        """Release connections. Idempotent."""


def encodable(text: str) -> str:
    """A text with halves of surrogate pairs replaced, because no store and no wire takes them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def tool_call(call_id: str, name: str, given: object) -> ToolCall:
    """A call as a model's server words it: ``given`` is an object, or its JSON as text."""
    try:
        if isinstance(given, str):
            given = json.loads(given) if given.strip() else {}
            given = json.loads(encodable(json.dumps(given, ensure_ascii=False, allow_nan=False)))
        problem = None if isinstance(given, Mapping) else "the arguments are no object; send one"
    except (ValueError, RecursionError):
        problem = "the arguments are no JSON; send an object"
    arguments = dict(given) if isinstance(given, Mapping) and problem is None else {}
    return ToolCall(id=call_id, name=encodable(name), arguments=arguments, problem=problem)
