"""Channels: they bring the user's turns and take the agent's answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TextIO, runtime_checkable

import anyio
import anyio.to_thread
from pydantic import Field

from memory.contract._model import Frozen, Id, JsonObject, Text
from memory.contract.formatting import without_controls
from memory.contract.requests import Positive
from memory.runtime._policy import Recall
from memory.runtime._provider import CompletionOptions, encodable
from memory.runtime._tools import ToolResult


class Attachment(Frozen):
    """A text attached to a turn, such as a file."""

    name: Text
    content: Text
    content_type: Text = "text/plain"


class UserTurn(Frozen):
    """One turn of the user."""

    content: Text
    attachments: tuple[Attachment, ...] = ()
    metadata: JsonObject = Field(default_factory=dict)


class AgentOutput(Frozen):
    """An answer of the agent, or one piece of it. The whole answer follows the pieces.

    Attributes:
        content: the text.
        tool_results: the results of the tools called in this turn.
        streaming: whether this is a piece, and more follows.
        error: why there is no answer, in one sentence; None if there is one.
    """

    content: Text = ""
    tool_results: tuple[ToolResult, ...] = ()
    streaming: bool = False
    error: Text | None = None


class ChannelClosed(Exception):
    """The other side has left. The exception has a message only if this is a failure."""


@runtime_checkable
class Channel(Protocol):
    """One conversation with a user. ``kind`` names the transport, such as ``cli``."""

    kind: str

    async def receive(self) -> UserTurn:
        """Wait for the next turn.

        Raises:
            ChannelClosed: no more turns will come.
        """

    async def send(self, output: AgentOutput) -> None:
        """Deliver an answer, or a piece of it.

        Raises:
            ChannelClosed: the other side has left.
        """

    def on_close(self, handler: Callable[[], None]) -> None:
        """Call ``handler`` once the channel is closed."""


class CommandLine:
    """A channel on the terminal: each line of stdin is a turn, and answers stream to stdout."""

    kind = "cli"

    def __init__(self, read: Callable[[], str] | None = None, out: TextIO | None = None) -> None:
        self._read = read or _line
        self._out = out or sys.stdout
        self._streamed = False
        self._handlers: list[Callable[[], None]] = []
        self.closed = False

    def on_close(self, handler: Callable[[], None]) -> None:
        """Call ``handler`` once the channel is closed."""
        self._handlers.append(handler)

    def close(self) -> None:
        """Take no new turn. Idempotent."""
        if not self.closed:
            self.closed = True
            for handler in self._handlers:
                handler()

    async def receive(self) -> UserTurn:
        """Wait for the next line that is not blank."""
        while True:
            try:
                line = await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
            except (EOFError, KeyboardInterrupt):
                self.close()
                raise ChannelClosed from None
            if line.strip():
                return UserTurn(content=encodable(line.strip()))

    async def send(self, output: AgentOutput) -> None:
        """Print an answer without control characters."""
        content = without_controls(output.content)
        try:
            if output.streaming:
                self._out.write(content)
            elif output.error:
                self._out.write(f"[{output.error}]\n")
            else:
                self._out.write("\n" if self._streamed else f"{content}\n")
            self._streamed = output.streaming
            self._out.flush()
        except OSError as error:
            self.close()
            if isinstance(error, BrokenPipeError):  # the reader has left
                raise ChannelClosed from None
            raise ChannelClosed(f"cannot write an answer: {error.strerror}") from None


def _line() -> str:
    line = sys.stdin.readline() if sys.stdin else ""
    if not line:
        raise EOFError
    return line


@dataclass(frozen=True)
class SessionSettings:
    """Settings of a session.

    Attributes:
        identity: who the agent is. The system prompt begins with it.
        soul: the content of SOUL.md. It follows the identity.
        window_tokens: how much of the conversation the model sees, in tokens by the slot's counter. Older
            turns are summarised. None shows the whole conversation.
        max_tool_rounds: the most completions in one turn, with tool calls between them.
        turn_s: seconds until the model's answer, tool calls included, is cut off.
        max_tool_calls: the most tool calls in one round. Calls beyond it fail, and the model sees that.
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
    """The state a session resumes from, JSON-ready."""

    session_key: Id
    epoch: Positive = 1
    history: tuple[JsonObject, ...] = ()


@dataclass(frozen=True)
class TurnReport:
    """The report of one turn.

    Attributes:
        output: the answer.
        recall: the memory's result or its failure.
        research: the results of the tools that ran before the model.
        recorded: whether the turn was handed to the memory.
        rounds: how many completions were requested.
        took_ms: milliseconds from the turn's arrival to the last token.
        before_model_ms: milliseconds from the turn's arrival to the first request to the model.
        failure: the exception of the model's provider; None if it raised none.
    """

    output: AgentOutput
    recall: Recall
    research: tuple[ToolResult, ...] = ()
    recorded: bool = False
    rounds: int = 0
    took_ms: float = 0.0
    before_model_ms: float = 0.0
    failure: BaseException | None = None
