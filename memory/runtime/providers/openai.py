"""OpenAI's models, and every server with the chat completions API (Ollama, vLLM), through OpenAI's SDK."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from pydantic import Field

from memory.contract.events import Message
from memory.contract.native_errors import OPENAI_ERRORS
from memory.plugins.redaction import Public
from memory.runtime import _provider as llm
from memory.runtime.providers import ProviderPlugin, ServiceOptions, ServiceProvider, given, key_of

_STOPS: dict[str, llm.StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
}


class OpenAIOptions(ServiceOptions):
    """OpenAI's own service; its key is in ``OPENAI_API_KEY`` where none is given."""

    example_url = "http://127.0.0.1:11434/v1"

    max_tokens: int | None = Field(default=None, gt=0)
    """Longest answer. Default: the server's."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Default: the server's."""


class CompatibleOptions(OpenAIOptions):
    """A server that speaks OpenAI's chat completions."""

    base_url: Public[str] = Field(examples=[OpenAIOptions.example_url])
    """The server's address, with ``/v1`` where it has that."""


class OpenAIProvider(ServiceProvider):
    """A model behind ``chat/completions``. OpenAI's ``own`` service requires ``max_completion_tokens``."""

    operation = "chat.completions"
    errors = OPENAI_ERRORS

    def __init__(self, options: OpenAIOptions, *, own: bool = False) -> None:
        from openai import AsyncOpenAI

        self._options = options
        self._limit = "max_completion_tokens" if own else "max_tokens"
        client = AsyncOpenAI(
            api_key=self._key(options, own),
            base_url=options.base_url or "https://api.openai.com/v1",
            timeout=options.timeout_s,
            max_retries=options.max_retries,
        )
        super().__init__("openai" if own else "openai_compatible", client, options)

    @staticmethod
    def _key(options: OpenAIOptions, own: bool) -> str:
        """OpenAI needs a key. Another server may need none."""
        if own and (options.base_url is None or "OPENAI_API_KEY" in os.environ):
            return key_of(options, "OPENAI_API_KEY", "openai")
        return options.api_key.get_secret_value() if options.api_key else "unused"

    async def complete(
        self, messages: Sequence[Message], options: llm.CompletionOptions | None = None
    ) -> llm.CompletionResult:
        with self._mapped_errors():
            answer = await self._client.chat.completions.create(**self._request(messages, options))
            if not getattr(answer, "choices", None) or answer.choices[0].message is None:
                raise self._unusable("no choice")
            message = answer.choices[0].message
            calls = [
                (call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
            ]
            return _result(message.content, calls, answer.choices[0].finish_reason, answer)

    async def stream(
        self, messages: Sequence[Message], options: llm.CompletionOptions | None = None
    ) -> AsyncIterator[llm.CompletionChunk]:
        request = self._request(messages, options)
        request |= {"stream": True, "stream_options": {"include_usage": True}}
        pieces: list[str] = []
        calls: dict[int, list[str]] = {}
        finish, last = None, None
        with self._mapped_errors():
            async with await self._client.chat.completions.create(**request) as chunks:
                async for last in chunks:
                    if not last.choices:
                        continue
                    finish = last.choices[0].finish_reason or finish
                    delta = last.choices[0].delta
                    _gather(calls, getattr(delta, "tool_calls", None) or ())
                    if getattr(delta, "content", None):
                        pieces.append(llm.encodable(delta.content))
                        yield llm.CompletionChunk(text=pieces[-1])
            if finish is None:
                raise self._unusable("the stream broke off")
            called = [parts for _, parts in sorted(calls.items())]
            yield llm.CompletionChunk(result=_result("".join(pieces), called, finish, last))

    def _request(self, messages: Sequence[Message], options: llm.CompletionOptions | None) -> dict[str, Any]:
        options = options or llm.CompletionOptions()
        said = [{"role": "system", "content": options.system_prompt}] if options.system_prompt else []
        temperature = options.temperature if options.temperature is not None else self._options.temperature
        tools = [
            _function(name=tool.name, description=tool.description, parameters=tool.input_schema)
            for tool in options.tools
        ]
        return given(
            model=options.model or self._options.model,
            messages=[*said, *map(_native, messages)],
            temperature=temperature,
            seed=options.seed,
            stop=list(options.stop_sequences) or None,
            tools=tools or None,
            **{self._limit: options.max_tokens or self._options.max_tokens},
        )


def _native(message: Message) -> dict[str, Any]:
    calls = [
        {"id": call.get("id")}
        | _function(name=call.get("name"), arguments=json.dumps(call.get("arguments") or {}))
        for call in message.tool_calls or ()
    ]
    return given(
        role=message.role,
        content=message.content,
        name=message.name or None,
        tool_call_id=message.tool_call_id or None,
        tool_calls=calls or None,
    )


def _function(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": fields}


def _gather(calls: dict[int, list[str]], deltas: Sequence[Any]) -> None:
    """Join the pieces of calls. Servers send the id and the name once, and the arguments in pieces."""
    for delta in deltas:
        parts = calls.setdefault(delta.index if delta.index is not None else len(calls), ["", "", ""])
        function = delta.function
        parts[0] = delta.id or parts[0]
        parts[1] = (function.name if function else None) or parts[1]
        parts[2] += (function.arguments if function else None) or ""


def _result(
    content: str | None, calls: Sequence[Sequence[Any]], finish: str | None, answer: Any
) -> llm.CompletionResult:
    usage = getattr(answer, "usage", None)
    read = [
        llm.tool_call(call_id or f"call-{number}", name or "", arguments)
        for number, (call_id, name, arguments) in enumerate(calls)
    ]
    return llm.CompletionResult(
        content=llm.encodable(content or ""),
        tool_calls=tuple(read),
        # Some servers report "stop" although they call a tool.
        stop_reason="tool_use" if read and finish != "length" else _STOPS.get(finish or "", "end_turn"),
        usage=llm.Usage(
            input_tokens=getattr(usage, "prompt_tokens", None),
            output_tokens=getattr(usage, "completion_tokens", None),
        ),
        model=getattr(answer, "model", None),
    )


_INSTALL = "pip install 'memslot[openai]'"
plugin = ProviderPlugin(OpenAIOptions, partial(OpenAIProvider, own=True), _INSTALL, seeded=True)
compatible = ProviderPlugin(CompatibleOptions, OpenAIProvider, _INSTALL, seeded=True)
