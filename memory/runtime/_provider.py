"""A language model as the session loop sees it (Signet's runtime contract, ``Provider``).

A conversation is a sequence of :class:`memory.Message`. Each tool call is an entry of ``Message.tool_calls``:
``{"id": ..., "name": ..., "arguments": {...}}``, for every model's API.
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
    """A tool call that the model requests.

    Attributes:
        id: names the call in the message that answers it.
        name: the tool's name. The tool may not exist.
        arguments: the tool's input.
        problem: why the arguments could not be read, or None. With a problem, the tool is not called, and the
            problem goes back to the model.
    """

    id: Id
    name: Text
    arguments: JsonObject = Field(default_factory=dict)
    problem: Text | None = None

    def to_json(self) -> dict[str, JsonValue]:
        """Return the call as an entry of ``Message.tool_calls``."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}


class Usage(Frozen):
    """Tokens as the model's server counted them; None if it does not report them."""

    input_tokens: int | None = None
    output_tokens: int | None = None


class CompletionOptions(Frozen):
    """Options of one completion.

    Attributes:
        model: replaces the provider's own model.
        max_tokens: the longest answer.
        temperature: 0 to 2; None leaves it to the model.
        tools: the tools that the model may call.
        system_prompt: precedes the conversation.
        stop_sequences: texts that end the answer.
        seed: asks for reproducible answers. It is ignored if the server's API takes no seed.
    """

    model: Text | None = None
    max_tokens: Positive | None = None
    temperature: Temperature | None = None
    tools: tuple[ToolDefinition, ...] = ()
    system_prompt: Text | None = None
    stop_sequences: tuple[Text, ...] = ()
    seed: Seed | None = None


class CompletionResult(Frozen):
    """A whole answer. ``model`` names the model that answered, if the server reports it."""

    content: Text = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: StopReason = "end_turn"
    usage: Usage = Field(default_factory=Usage)
    model: Text | None = None

    def to_message(self) -> Message | None:
        """Return the answer as a message; None if it holds neither text nor tool calls."""
        if not self.content.strip() and not self.tool_calls:
            return None
        calls = tuple(call.to_json() for call in self.tool_calls) or None
        return Message(role="assistant", content=self.content, tool_calls=calls)


class CompletionChunk(Frozen):
    """A piece of a streamed answer. The last piece holds the whole answer in ``result``."""

    text: Text = ""
    result: CompletionResult | None = None


@runtime_checkable
class Provider(Protocol):
    """A language model.

    Its methods raise :class:`memory.BackendError` and its subclasses, with ``backend_name`` set to ``id``. No
    error holds a key or user text.
    """

    id: str

    async def complete(
        self, messages: Sequence[Message], options: CompletionOptions | None = None
    ) -> CompletionResult:
        """Answer a conversation.

        Raises:
            BackendError: the model gave no answer.
        """

    def stream(
        self, messages: Sequence[Message], options: CompletionOptions | None = None
    ) -> AsyncIterator[CompletionChunk]:
        """Stream the answer to a conversation. The last piece holds the whole answer.

        Raises:
            BackendError: the model gave no answer, or the answer broke off.
        """

    async def available(self) -> bool:
        """Whether the model's server answers now."""

    async def aclose(self) -> None:
        """Release connections. Idempotent."""


def encodable(text: str) -> str:
    """Replace unpaired surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def tool_call(call_id: str, name: str, given: object) -> ToolCall:
    """Build a call from a model's answer. ``given`` holds the arguments as an object or as JSON text."""
    try:
        if isinstance(given, str):
            given = json.loads(given) if given.strip() else {}
            given = json.loads(encodable(json.dumps(given, ensure_ascii=False, allow_nan=False)))
        problem = None if isinstance(given, Mapping) else "the arguments are no object; send one"
    except (ValueError, RecursionError):
        problem = "the arguments are no JSON; send an object"
    arguments = dict(given) if isinstance(given, Mapping) and problem is None else {}
    return ToolCall(id=call_id, name=encodable(name), arguments=arguments, problem=problem)
