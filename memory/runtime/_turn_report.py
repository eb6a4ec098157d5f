"""How a session is led, what a turn came to, and what a session is resumed from."""

from __future__ import annotations

from dataclasses import dataclass, field

from memory.contract._model import Frozen, Id, JsonObject
from memory.contract.requests import Positive
from memory.runtime._channel import AgentOutput
from memory.runtime._policy import Recall
from memory.runtime._provider import CompletionOptions
from memory.runtime._tools import ToolResult


@dataclass(frozen=True)
class SessionSettings:
    """How a session is led.

    Attributes:
        identity: who the agent is; first in the system prompt.
        soul: the content of SOUL.md; after it.
        window_tokens: of the conversation shown to the model, by the slot's counter; older turns are summarised.
            None shows all of it.
        max_tool_rounds: completions in one turn, tools called in between.
        turn_s: seconds until an answer is cut off, with what it called tools for.
        max_tool_calls: tools called in one round; the model is told of what was left out.
        options: further options of every completion.
    """

    identity: str = "You are a helpful assistant."
    soul: str = ""
    window_tokens: int | None = 8000
    max_tool_rounds: int = 8
    turn_s: float = 600.0
    max_tool_calls: int = 16
    options: CompletionOptions = field(default_factory=CompletionOptions)


class Checkpoint(Frozen):
    """What a session is resumed from, JSON-ready."""

    session_key: Id
    epoch: Positive = 1
    history: tuple[JsonObject, ...] = ()


@dataclass(frozen=True)
class TurnReport:
    """What happened in a turn.

    Attributes:
        output: what was answered.
        recall: what the memory gave, and why it failed if it did.
        research: of the tools that ran before the model.
        recorded: whether the turn was handed to the memory.
        rounds: completions asked for.
        took_ms: from receiving to the last token.
        before_model_ms: of these, until the model was asked.
        failure: what the model's provider raised; None where it raised nothing.
    """

    output: AgentOutput
    recall: Recall
    research: tuple[ToolResult, ...] = ()
    recorded: bool = False
    rounds: int = 0
    took_ms: float = 0.0
    before_model_ms: float = 0.0
    failure: Exception | None = None
