"""Anthropic's models, through Anthropic's SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

from pydantic import Field

from memory.contract.errors import BackendUnavailable
from memory.contract.events import Message
from memory.contract.native_errors import OPENAI_ERRORS, NativeError
from memory.plugins.redaction import Public
from memory.runtime import _provider as llm
from memory.runtime.providers import ProviderPlugin, ServiceOptions, ServiceProvider, given, key_of

_SYSTEM = ("system", "developer")
_STOPS: dict[str, llm.StopReason] = {
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
}

_ERRORS = {  # one generator makes both SDKs, so their exceptions have the same names
    name.replace("openai.", "anthropic."): meaning
    for name, meaning in OPENAI_ERRORS.items()
    if "FinishReason" not in name and name != "openai.OpenAIError"
} | {"anthropic.AnthropicError": NativeError(BackendUnavailable, sent=True)}


class AnthropicOptions(ServiceOptions):
    """A model of Anthropic's; its key is in ``ANTHROPIC_API_KEY`` where none is given."""

    example_url = "https://api.anthropic.com"

    model: Public[str] = Field(examples=["claude-sonnet-4-5"])
    """The model's name."""
    max_tokens: int = Field(default=4096, gt=0)
    """Longest answer; the API requires one."""
    temperature: float | None = Field(default=None, ge=0, le=1)
    """Default: the service's. Newer models refuse any."""


class AnthropicProvider(ServiceProvider):
    operation = "messages"
    errors = _ERRORS
    _lists_models: ClassVar[dict[str, Any]] = {"limit": 1}

    def __init__(self, options: AnthropicOptions) -> None:
        from anthropic import AsyncAnthropic

        self._options = options
        client = AsyncAnthropic(
            api_key=key_of(options, "ANTHROPIC_API_KEY", "anthropic"),
            base_url=options.base_url or "https://api.anthropic.com",
            timeout=options.timeout_s,
            max_retries=options.max_retries,
        )
        super().__init__("anthropic", client, options)

    async def complete(
        self, messages: Sequence[Message], options: llm.CompletionOptions | None = None
    ) -> llm.CompletionResult:
        with self._mapped_errors():
            return self._result(await self._client.messages.create(**self._request(messages, options)))

    async def stream(
        self, messages: Sequence[Message], options: llm.CompletionOptions | None = None
    ) -> AsyncIterator[llm.CompletionChunk]:
        with self._mapped_errors():
            async with self._client.messages.stream(**self._request(messages, options)) as stream:
                async for text in stream.text_stream:
                    yield llm.CompletionChunk(text=llm.encodable(text))
                whole = await stream.get_final_message()
            if whole.stop_reason is None:
                raise ConnectionError("the stream broke off")
            yield llm.CompletionChunk(result=self._result(whole))

    def _request(self, messages: Sequence[Message], options: llm.CompletionOptions | None) -> dict[str, Any]:
        options = options or llm.CompletionOptions()
        systems = [message.content for message in messages if message.role in _SYSTEM]
        temperature = options.temperature if options.temperature is not None else self._options.temperature
        tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in options.tools
        ]
        return given(
            model=options.model or self._options.model,
            max_tokens=options.max_tokens or self._options.max_tokens,
            messages=_native(messages),
            system="\n\n".join(filter(None, (options.system_prompt, *systems))) or None,
            # Newer SDKs have no such parameter and newer models refuse it, but older models still take it.
            extra_body=None if temperature is None else {"temperature": temperature},
            stop_sequences=list(options.stop_sequences) or None,
            tools=tools or None,
        )

    def _result(self, answer: Any) -> llm.CompletionResult:
        if not isinstance(getattr(answer, "content", None), list):  # the SDK accepts any JSON as a message
            raise self._unusable("it is no message")
        texts = [block.text for block in answer.content if block.type == "text"]
        calls = [block for block in answer.content if block.type == "tool_use"]
        return llm.CompletionResult(
            content=llm.encodable("".join(texts)),
            tool_calls=tuple(llm.tool_call(call.id, call.name, call.input) for call in calls),
            stop_reason=_STOPS.get(answer.stop_reason or "", "end_turn"),
            usage=llm.Usage(
                input_tokens=getattr(answer.usage, "input_tokens", None),
                output_tokens=getattr(answer.usage, "output_tokens", None),
            ),
            model=answer.model,
        )


def _native(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Convert messages to the API's two alternating roles.

    Tool results become user messages, and consecutive messages of one role are merged.
    """
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role in _SYSTEM:
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks: list[dict[str, Any]] = []
        if message.role == "tool":
            answered = {"tool_use_id": message.tool_call_id, "content": message.content}
            blocks.append({"type": "tool_result", **answered})
        elif message.content.strip():
            blocks.append({"type": "text", "text": message.content})
        for call in message.tool_calls or ():
            named = {name: call.get(name) for name in ("id", "name")}
            blocks.append({"type": "tool_use", **named, "input": call.get("arguments") or {}})
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        else:
            turns.append({"role": role, "content": blocks})
    return turns


plugin = ProviderPlugin(AnthropicOptions, AnthropicProvider, "pip install 'memslot[anthropic]'")
