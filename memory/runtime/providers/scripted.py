"""A model that follows a script, for tests and for trying an agent without a key."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from pydantic import Field

from memory.contract.events import Message
from memory.plugins.hookspecs import PluginOptions
from memory.runtime import _provider as llm
from memory.runtime.providers import ProviderPlugin

_KEPT = 1000
Line = str | llm.ToolCall | llm.CompletionResult | Exception
Script = Callable[[Sequence[Message], llm.CompletionOptions], Line]


class ScriptedProvider:
    """Answers with its ``lines`` in turn, and after the last one by ``script``.

    A line is a text, a tool call, a whole result or an error to raise. The default script answers with the
    remembered entry that shares the most words with the question, or else with what the user said before.
    """

    id = "scripted"

    def __init__(self, lines: Iterable[Line] = (), script: Script | None = None) -> None:
        self.requests: list[tuple[tuple[Message, ...], llm.CompletionOptions]] = []  # the last _KEPT of them
        self._lines = list(lines)
        self._script = script or _by_rules

    async def complete(
        self, messages: Sequence[Message], options: llm.CompletionOptions | None = None
    ) -> llm.CompletionResult:
        """Return the next line. A text has the stop reason ``end_turn``, a tool call ``tool_use``."""
        options = options or llm.CompletionOptions()
        self.requests.append((tuple(messages), options))
        del self.requests[:-_KEPT]
        line = self._lines.pop(0) if self._lines else self._script(messages, options)
        if isinstance(line, Exception):
            raise line
        if isinstance(line, llm.ToolCall):
            return llm.CompletionResult(tool_calls=(line,), stop_reason="tool_use", usage=_NO_TOKENS)
        return llm.CompletionResult(content=line, usage=_NO_TOKENS) if isinstance(line, str) else line

    async def stream(
        self, messages: Sequence[Message], options: llm.CompletionOptions | None = None
    ) -> AsyncIterator[llm.CompletionChunk]:
        result = await self.complete(messages, options)
        for piece in re.findall(r"\s*+\S++|\s++$", result.content):
            yield llm.CompletionChunk(text=piece)
        yield llm.CompletionChunk(result=result)

    async def available(self) -> bool:
        return True

    async def aclose(self) -> None:
        """Do nothing, because there are no connections."""


_NO_TOKENS = llm.Usage(input_tokens=0, output_tokens=0)


def _by_rules(messages: Sequence[Message], options: llm.CompletionOptions) -> Line:
    from memory.adapter import _scripted_rules as rules
    from memory.adapter._scripted_text import is_question, lexical_overlap

    said = tuple(rules.ChatMessage(message.role, message.content) for message in messages)
    if options.system_prompt:
        said = (rules.ChatMessage("system", options.system_prompt), *said)
    reply = rules.answer(rules.ChatRequest(messages=said, max_tokens=options.max_tokens), rules.general_rules)
    if reply == rules.NOT_KNOWN:  # the memory has no answer, but the conversation may
        *before, asked = (message.content for message in messages if message.role == "user")
        known = [text for text in before if not is_question(text) and lexical_overlap(asked, text)]
        return max(reversed(known), key=lambda text: lexical_overlap(asked, text), default=rules.NOT_KNOWN)
    if isinstance(reply, rules.ToolCall):
        return llm.tool_call("call-1", reply.name, dict(reply.arguments))
    if isinstance(reply, rules.Choice):
        return reply.ranked[0][0]
    return reply if isinstance(reply, str) else json.dumps(dict(reply))


class _Options(PluginOptions):
    """A model that answers from the recalled memory by word overlap: for trying, not for measuring."""

    lines: list[str] = Field(default_factory=list)
    """What it says first, one line a turn."""


plugin = ProviderPlugin(_Options, lambda options: ScriptedProvider(options.lines), seeded=True)
