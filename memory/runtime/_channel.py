"""Channels: where turns come from and answers go. Hosts differ in nothing else."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
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
    """A text that comes with a turn, such as a file."""

    name: Text
    content: Text
    content_type: Text = "text/plain"


class UserTurn(Frozen):
    """One turn of the user."""

    content: Text
    attachments: tuple[Attachment, ...] = ()
    metadata: JsonObject = Field(default_factory=dict)


class AgentOutput(Frozen):
    """An answer of the agent: a piece of it with ``streaming``, else the whole, which comes last.

    Attributes:
        content: text.
        tool_results: of the tools that were called on the way.
        streaming: more follows.
        error: why there is no answer, in one sentence; None where there is one.
    """

    content: Text = ""
    tool_results: tuple[ToolResult, ...] = ()
    streaming: bool = False
    error: Text | None = None


class ChannelClosed(Exception):
    """The other side has left. A message says that this is a failure."""


@runtime_checkable
class Channel(Protocol):
    """One conversation with somebody. ``kind`` names the way, such as ``cli``."""

    kind: str

    async def receive(self) -> UserTurn:
        """The next turn.

        Raises:
            ChannelClosed: there will be none.
        """

    async def send(self, output: AgentOutput) -> None:
        """Deliver an answer, or a piece of it.

        Raises:
            ChannelClosed: nobody takes it.
        """

    def on_close(self, handler: Callable[[], None]) -> None:
        """Call ``handler`` once the channel is closed."""


class _ClosingChannel:
    def __init__(self) -> None:
        self._handlers: list[Callable[[], None]] = []
        self.closed = False

    def on_close(self, handler: Callable[[], None]) -> None:
        self._handlers.append(handler)

    def close(self) -> None:
        """Take no new turn. Idempotent."""
        if not self.closed:
            self.closed = True
            for handler in self._handlers:
                handler()


class CommandLine(_ClosingChannel):
    """A line of stdin is a turn; answers go to stdout as they come.

    Args:
        read: reads a line, called on a thread of its own; by default ``input`` line by line.
        out: where answers go.
    """

    kind = "cli"

    def __init__(self, read: Callable[[], str] | None = None, out: TextIO | None = None) -> None:
        super().__init__()
        self._read = read or _line
        self._out = out or sys.stdout
        self._streamed = False

    async def receive(self) -> UserTurn:
        """The next line that is not blank."""
        while True:
            try:
                line = await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
            except (EOFError, KeyboardInterrupt):
                self.close()
                raise ChannelClosed from None
            if line.strip():
                return UserTurn(content=encodable(line.strip()))

    async def send(self, output: AgentOutput) -> None:
        """Print it, without what would move the terminal."""
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


class HttpChannel(_ClosingChannel):
    """One turn by HTTP: a request brings it, and its answer is a stream of server-sent events.

    The session loop has one end, and the route that answers the request has the other, :meth:`events`.

    Args:
        turn: of the request.
        backlog: pieces of an answer kept for a slow reader; the loop waits for it beyond that.
        queue_timeout_s: how long the loop waits for a slow reader, in seconds; then it counts as gone.
    """

    kind = "http"

    def __init__(self, turn: UserTurn, backlog: int = 1000, *, queue_timeout_s: float = 30.0) -> None:
        super().__init__()
        self._turn: UserTurn | None = turn
        self._queue_timeout_s = queue_timeout_s
        self._pieces, self._answer = anyio.create_memory_object_stream[AgentOutput](backlog)

    async def receive(self) -> UserTurn:
        """The turn, once."""
        turn, self._turn = self._turn, None
        if turn is None:
            raise ChannelClosed
        return turn

    async def send(self, output: AgentOutput) -> None:
        """Send to the reader. One that has left gets nothing more; its turn goes on."""
        try:
            with anyio.fail_after(self._queue_timeout_s):
                await self._pieces.send(output)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError):
            self._pieces.close()

    def close(self) -> None:
        """End the answer. Idempotent."""
        super().close()
        self._pieces.close()

    async def events(self) -> AsyncGenerator[str]:
        """The answer's pieces, each ``data: {"content": ..., "streaming": ...}``; the last one is not streaming."""
        with self._answer:
            async for output in self._answer:
                yield f"data: {output.model_dump_json()}\n\n"


@dataclass(frozen=True)
class SessionSettings:
    """Settings of a session.

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
    """The state a session resumes from, JSON-ready."""

    session_key: Id
    epoch: Positive = 1
    history: tuple[JsonObject, ...] = ()


@dataclass(frozen=True)
class TurnReport:
    """The report of one turn.

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
    failure: BaseException | None = None
