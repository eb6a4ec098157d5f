"""The ``agent:`` block, and conversations with the agent by HTTP: one session and channel for each, kept over
restarts.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Self

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from pydantic import Field

from memory.contract.errors import MemslotError
from memory.contract.requests import Positive
from memory.contract.scope import MemoryScope
from memory.plugins.config import MemslotConfig
from memory.plugins.hookspecs import PluginOptions
from memory.plugins.redaction import InputFile, Public
from memory.runtime._channel import (
    AgentOutput,
    ChannelClosed,
    Checkpoint,
    HttpChannel,
    SessionSettings,
    UserTurn,
    sent,
)
from memory.runtime._loop import AgentSession, run_session
from memory.runtime._policy import TurnMemory, TurnPolicy
from memory.runtime._provider import Provider
from memory.runtime._tools import ToolRegistry, memory_tools
from memory.runtime.providers import create_provider
from memory.slot.host_store import HostStore, StoredObject


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
        """The model, whose block stands in ``config``; whoever asks for it closes it."""
        return create_provider(self.provider, self.options, problem=config.problem)

    def session(self, provider: Provider, memory: TurnMemory, **given: Any) -> AgentSession:
        own = self.model_dump(include={"identity", "window_tokens", "max_tool_rounds", "turn_s"})
        settings = SessionSettings(**own, soul=self.soul.read_text("utf-8") if self.soul else "")
        tools = ToolRegistry(memory_tools(memory.slot)) if self.tools else None
        return AgentSession(provider, memory, tools, settings=settings, **given)


log = logging.getLogger(__name__)

Place = tuple[MemoryScope, str]
_IDLE_BESIDE_OTHERS_S = 0.2  # what another server answered next is read anew


class Conversations:
    """The sessions of one agent, by scope and session key.

    Args:
        provider: the model.
        memory: the slot as hosts use it.
        settings: how sessions are led.
        store: keeps where each has come to.
        max_open: sessions open at once; the one that was silent longest goes on from what is kept of it.
        idle_s: a session nobody speaks to is closed after so many seconds, and goes on likewise.
        grace_s: how long turns in work may take to end, in seconds, when this is left.

    Use it as ``async with Conversations(...) as conversations:``, in one task.
    """

    def __init__(
        self,
        provider: Provider,
        memory: TurnMemory,
        settings: AgentSettings,
        store: HostStore,
        *,
        max_open: int = 1000,
        idle_s: float = 900.0,
        grace_s: float = 10.0,
    ) -> None:
        self._provider = provider
        self._memory = memory
        self._settings = settings
        self._store = store
        self._max_open = max_open
        self._idle_s = min(idle_s, _IDLE_BESIDE_OTHERS_S) if store.on_server else idle_s
        self._grace_s = grace_s
        self._open: OrderedDict[Place, HttpChannel] = OrderedDict()
        self._tasks: TaskGroup = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> bool | None:
        for channel in list(self._open.values()):
            channel.close()
        self._tasks.cancel_scope.deadline = anyio.current_time() + self._grace_s
        return await self._tasks.__aexit__(*raised)

    async def turn(
        self, scope: MemoryScope, key: str, turn: UserTurn, project: str = ""
    ) -> AsyncGenerator[str]:
        """One turn of a conversation, as server-sent events; a second one waits until the first is answered.

        A client that leaves in mid-answer changes nothing: the turn is finished, recorded and part of the
        conversation. What is kept of it and cannot be read is an ``error``.
        """
        while True:
            try:
                async with aclosing(self._channel((scope, key), project).exchange(turn)) as events:
                    async for event in events:
                        yield event
                    return
            except ChannelClosed:  # it was idle or one too many, just now; nothing was handed over
                await anyio.lowlevel.checkpoint()
            except MemslotError as error:
                yield sent(AgentOutput(error=str(error)))
                return

    def _channel(self, place: Place, project: str) -> HttpChannel:
        channel = self._open.get(place)
        if channel is None or channel.closed:
            scope, key = place
            kept = self._store.get("conversation", scope, key)
            session = self._settings.session(
                self._provider,
                self._memory,
                scope=scope,
                session_key=key,
                project=project,
                checkpoint=Checkpoint(**kept) if kept else None,
            )
            channel = self._open[place] = HttpChannel(idle_s=self._idle_s)
            self._tasks.start_soon(self._run, place, channel, session)
            if len(self._open) > self._max_open:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(place)
        return channel

    async def _run(self, place: Place, channel: HttpChannel, session: AgentSession) -> None:
        def keep(checkpoint: Checkpoint) -> None:
            self._store.put(StoredObject("conversation", *place, checkpoint.model_dump(mode="json")))

        try:
            await run_session(session, channel, keep)
        except Exception as error:
            reason = str(error) if isinstance(error, MemslotError) else type(error).__name__
            log.error("a conversation ended: %s", reason)
            await channel.send(AgentOutput(error=f"the conversation cannot go on: {reason}"))
        finally:
            channel.close()
            channel.drop_reader()
            if self._open.get(place) is channel:
                del self._open[place]
