"""A memory for a ``Nanobot`` that a program builds itself."""

from __future__ import annotations

import logging
from typing import Any

from memory import MemoryScope
from memory.hosts._shared import bind, tested, unbind
from memory.hosts.nanobot.turns import said, turn_event
from memory.runtime import HostTurns, TurnMemory

log = logging.getLogger("memslot.nanobot")


def attach(bot: Any, memory: TurnMemory, *, scope: MemoryScope | None = None) -> Attached:
    """Let a bot recall before each turn and record after it.

        async with open_memory("memslot.yaml") as slot, TurnMemory(slot) as memory:
            attached = attach(bot, memory)
            await bot.run("Which tea do I like?", hooks=[attached.hook])

    Without the hook nothing is recalled: it is what shows a section to the model and to nobody else.

    Args:
        bot: a ``nanobot.Nanobot``.
        memory: whoever opened it closes it, after the bot.
        scope: in place of the slot's own. One bot, one workspace, one scope.

    Raises:
        ScopeError: there is no scope.
        ConfigError: the bot has a memory already.
        PluginLoadError: Nanobot is missing, or of a release that was not tested.
    """
    with tested("nanobot"):
        from nanobot.agent.hook import AgentHook

    bind(bot, "Nanobot")
    attached = Attached(bot, memory, memory.slot.scope_or_default(scope))

    class Hook(AgentHook):  # type: ignore[misc]
        async def before_iteration(self, context: Any) -> None:
            attached.show(context)

    attached.hook = Hook()
    return attached


class Attached:
    """A memory at work in a bot.

    Attributes:
        hook: for ``hooks=`` of every ``run``, ``run_streamed`` and ``stream``.
    """

    hook: Any

    def __init__(self, bot: Any, memory: TurnMemory, scope: MemoryScope) -> None:
        self._bot = bot
        self._turns = HostTurns(memory, "nanobot", scope)
        self._scope = scope
        self._sections: dict[str, str] = {}
        self._known: dict[str, int] = {}
        self._off = [
            bot.runtime.add_context_provider(self._recall),
            bot.runtime.on_session_turn_persisted(self._record),
        ]

    def detach(self) -> None:
        """Leave the bot as it was. Idempotent."""
        if self._off:
            unbind(self._bot)
        while self._off:
            self._off.pop()()

    def show(self, context: Any) -> None:
        """Put the section below what the user said, for this turn's model calls and nothing else."""
        section = self._sections.pop(context.session_key or "", "")
        if not section or context.iteration or not context.messages:
            return
        message = context.messages[-1]
        content = message.get("content")
        if isinstance(content, list):
            message["content"] = [*content, {"type": "text", "text": section}]
        else:
            message["content"] = f"{content}\n\n{section}"

    async def _recall(self, request: Any) -> None:
        """As a context provider, because it is told the user's own words; it adds nothing itself."""
        key = request.session_key or "sdk:default"
        self._sections.pop(key, None)
        said = request.original_user_text or ""
        recall = await self._turns.recall(request.turn_id or key, said, session_id=key)
        self._sections[key] = recall.section

    async def _record(self, event: Any) -> None:
        key = event.context.session_key
        snapshot = self._bot.sessions.get(key)
        messages = snapshot.messages if snapshot is not None else []
        turn = turn_event(self._scope, event, said(messages, self._known.get(key)))
        self._known[key] = len(messages)
        if turn is not None:
            await self._turns.record(turn.turn_id, session_id=key, messages=turn.messages)
