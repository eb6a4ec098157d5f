"""A memory for a ``Nanobot`` that a program builds."""

from __future__ import annotations

from typing import Any

from memory import MemoryScope
from memory.hosts._shared import add_section, bind, tested, unbind
from memory.hosts.nanobot._turns import BotTurns, session_of
from memory.runtime import HostTurns, OpenMemory


def attach(
    bot: Any,
    memory: OpenMemory,
    *,
    user_id: str | MemoryScope | None = None,
) -> Attached:
    """Let a bot recall before each turn and record after it.

        async with open_memory("memslot.yaml") as memory:
            attached = attach(bot, memory)
            await bot.run("Which tea do I like?", hooks=[attached.hook])

    Pass the hook to every run, because only the hook shows the section to the model.

    Args:
        bot: a ``nanobot.Nanobot``.
        memory: an open memory. The code that opened it closes it, after the bot.
        user_id: a user id within the memory's scope, or a whole scope. One bot has one workspace and one
            scope.

    Raises:
        ScopeError: the memory has no scope.
        ConfigError: the bot already has a memory.
        PluginLoadError: Nanobot is missing, or its release was not tested.
    """
    with tested("nanobot"):
        from nanobot.agent.hook import AgentHook

    bind(bot, "Nanobot")
    attached = Attached(bot, HostTurns(memory, "nanobot", user_id))

    class Hook(AgentHook):  # type: ignore[misc]
        async def before_iteration(self, context: Any) -> None:
            attached.show(context)

    attached.hook = Hook()
    return attached


class Attached:
    """The memory of a bot.

    Attributes:
        hook: the hook for ``hooks=`` of every ``run``, ``run_streamed`` and ``stream``.
    """

    hook: Any

    def __init__(self, bot: Any, turns: HostTurns) -> None:
        self._bot = bot
        self._turns = BotTurns(turns)
        self._sections: dict[str, str] = {}
        self._off = [
            bot.runtime.add_context_provider(self._recall),
            bot.runtime.on_session_turn_persisted(self._record),
        ]

    def detach(self) -> None:
        """Restore the bot. Idempotent."""
        if self._off:
            unbind(self._bot)
        while self._off:
            self._off.pop()()

    def show(self, context: Any) -> None:
        """Put the section below the user's message, only for this turn's model calls."""
        section = self._sections.pop(context.session_key or "", "")
        if not section or context.iteration or not context.messages:
            return
        message = context.messages[-1]
        message["content"] = add_section(message.get("content"), section)

    async def _recall(self, request: Any) -> None:
        """Recall as a context provider. It returns no context, because Nanobot would keep that."""
        key = session_of(request)
        self._sections.pop(key, None)
        self._sections[key] = await self._turns.recall(request)

    async def _record(self, event: Any) -> None:
        snapshot = self._bot.sessions.get(event.context.session_key)
        await self._turns.record(event, snapshot.messages if snapshot is not None else [])
