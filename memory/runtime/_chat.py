"""The ``agent:`` block, and ``memslot chat``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from pydantic import Field

from memory.contract._quantity import quantity
from memory.contract.errors import MemslotError
from memory.contract.formatting import without_controls
from memory.contract.requests import Positive
from memory.contract.scope import MemoryScope
from memory.plugins.config import MemslotConfig
from memory.plugins.hookspecs import PluginOptions
from memory.plugins.redaction import InputFile, Public
from memory.runtime._attach import open_shared
from memory.runtime._channel import (
    ChannelClosed,
    CommandLine,
    SessionSettings,
    TurnReport,
    UserTurn,
)
from memory.runtime._hook_turns import drop_reports
from memory.runtime._loop import AgentSession, run_session
from memory.runtime._policy import TurnMemory, TurnPolicy
from memory.runtime._provider import Provider
from memory.runtime._tools import ToolRegistry, memory_tools
from memory.runtime.providers import create_provider


class ChatPolicy(TurnPolicy):
    """The turn policy of a chat. Recall excludes the session, because the model sees it anyway."""

    exclude_session: bool = True


class AgentSettings(PluginOptions):
    """The ``agent:`` block."""

    provider: Public[str] = "scripted"
    """``openai``, ``openai_compatible``, ``anthropic``, ``scripted``, or a plugin's."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The provider's own block."""
    identity: str = "You are a helpful assistant. Use what you remember of the user."
    """Who the agent is; first in the system prompt."""
    soul: InputFile | None = None
    """A file such as SOUL.md, shown after the identity."""
    tools: bool = True
    """Let the model search, store, correct and forget memories."""
    window_tokens: Positive = 8000
    """Of the conversation shown to the model; what is older is summarised."""
    max_tool_rounds: Positive = 8
    """Completions in one turn."""
    turn_s: float = Field(default=600.0, gt=0)
    """Until an answer is cut off."""
    policy: ChatPolicy = Field(default_factory=ChatPolicy)
    """What the agent grants its memory, see ``TurnPolicy``."""

    def model(self, config: MemslotConfig) -> Provider:
        """Create the model that ``config`` describes. The caller closes it."""
        return create_provider(self.provider, self.options, problem=config.problem)

    def session(self, provider: Provider, memory: TurnMemory, **given: Any) -> AgentSession:
        own = self.model_dump(include={"identity", "window_tokens", "max_tool_rounds", "turn_s"})
        settings = SessionSettings(**own, soul=self.soul.read_text("utf-8") if self.soul else "")
        tools = ToolRegistry(memory_tools(memory.slot)) if self.tools else None
        return AgentSession(provider, memory, tools, settings=settings, **given)


_HELP = """/memory       what the last turn was given, and why
/forget yes   delete everything this memory has of you
/quit         leave"""

_NO_SECTION = """nothing of an earlier conversation fits this question well enough
the model sees this conversation anyway, so it is not recalled; leave and start again to see it recalled"""


class Chat:
    """One chat between a user and a model with a memory. ``say`` prints everything except answers."""

    kind = "cli"

    def __init__(
        self, config: MemslotConfig, channel: CommandLine | None, say: Callable[[str], None]
    ) -> None:
        self._channel = channel or CommandLine(_reader())
        self.send, self.on_close = self._channel.send, self._channel.on_close
        self._config = config
        self._settings = config.section("agent", AgentSettings)
        self._provider = self._settings.model(config)
        self._say: Callable[[str], None] = lambda text: say(without_controls(text))

    async def run(self, session_key: str | None = None) -> None:
        """Chat until the channel is closed."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._provider.aclose)
            scope = self._config.memory.scope or MemoryScope(run_id="chat", persona_id="user")
            slot = await stack.enter_async_context(open_shared(self._config, scope=scope))
            memory = await stack.enter_async_context(TurnMemory(slot, self._settings.policy))
            self.session = self._settings.session(self._provider, memory, session_key=session_key)
            self._say(f"{self._provider.id} with {slot.backend_name}; /help lists what else you can say")
            await run_session(self.session, self)

    async def receive(self) -> UserTurn:
        """Wait for the next turn, and run the commands before it."""
        while True:
            turn = await self._channel.receive()
            if not turn.content.startswith("/"):
                return turn
            await self._command(turn.content)

    async def _command(self, line: str) -> None:
        match line.split():
            case ["/quit"]:
                raise ChannelClosed
            case ["/memory"]:
                self._say("\n".join(_explained(self.session.last)))
            case ["/forget", "yes"]:
                try:
                    await self._forget()
                except MemslotError as error:
                    self._say(f"error: {error}")
            case ["/help"]:
                self._say(_HELP)
            case _:
                self._say(f"{line.rstrip()} is not understood\n{_HELP}")

    async def _forget(self) -> None:
        await self.session.end()
        receipt = await self.session.memory.slot.reset_scope(self.session.scope)
        if self.session.scope == self._config.memory.scope:  # hooks report for this scope alone
            drop_reports(self._config.data_dir)
        self.session.clear()
        self._say(f"deleted{'' if receipt.verified else ', as far as the backend can say'}")


def _explained(report: TurnReport | None) -> list[str]:
    if report is None:
        return ["nothing was asked yet"]
    recall = report.recall
    lines = [f"recall took {recall.took_ms:.1f} ms"]
    if recall.failure is not None:
        lines.append(f"it failed: {recall.failure}")
    elif recall.result is None:
        lines.append("there was nothing to ask")
    else:
        shown, found = len(recall.result.included), len(recall.result.entries)
        trace = recall.result.trace
        memories = quantity(found, "memories")
        lines.append(f"{shown} of {memories}, {trace.token_count} tokens by {trace.token_counter}")
        lines.append(f"asked by {trace.native_operation}")
        if not recall.section:
            lines.append(_NO_SECTION)
    lines += recall.section.splitlines()
    lines += [f"{tool.name}: {tool.content}" for tool in (*report.research, *report.output.tool_results)]
    if not report.recorded:
        lines.append("the turn was not handed to the memory")
    return lines


def _reader() -> Callable[[], str] | None:
    """Return a reader with history and editing, by prompt_toolkit; None if stdin is to be read instead."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty()):
        return None
    try:
        from prompt_toolkit import PromptSession
    except ImportError:
        return None
    session: Any = PromptSession()
    return lambda: str(session.prompt("> "))
