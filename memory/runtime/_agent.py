"""The ``agent:`` block: which model answers, and how its sessions are led."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from memory.contract.requests import Positive
from memory.plugins.config import MemslotConfig
from memory.plugins.hookspecs import PluginOptions
from memory.plugins.redaction import InputFile, Public
from memory.runtime._loop import AgentSession
from memory.runtime._policy import TurnMemory, TurnPolicy
from memory.runtime._provider import Provider
from memory.runtime._tools import ToolRegistry, memory_tools
from memory.runtime._turn_report import SessionSettings
from memory.runtime.providers import create_provider


class ChatPolicy(TurnPolicy):
    """The turn policy of a chat, which shows its conversation to the model itself."""

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
        """The model, whose block stands in ``config``; whoever asks for it closes it.

        Raises:
            ConfigError, PluginError: it cannot be used.
        """
        return create_provider(self.provider, self.options, problem=config.problem)

    def session(self, provider: Provider, memory: TurnMemory, **given: Any) -> AgentSession:
        settings = SessionSettings(
            identity=self.identity,
            soul=self.soul.read_text("utf-8") if self.soul else "",
            window_tokens=self.window_tokens,
            max_tool_rounds=self.max_tool_rounds,
            turn_s=self.turn_s,
        )
        tools = ToolRegistry(memory_tools(memory.slot)) if self.tools else None
        return AgentSession(provider, memory, tools, settings=settings, **given)
