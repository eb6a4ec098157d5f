"""A memory for a ``Nanobot`` that a program builds, and the removal of memory's sections from a session.

Nanobot keeps a context provider's result in the session's file and shows it again in every later turn.
Without removal, old sections would pile up in the prompt and be recorded as if a person had said them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memory import ConfigError, MemoryScope, Message
from memory.hosts._shared import add_section, bind, left_out, spoken, tested, unbind, unknown, words
from memory.runtime import HostTurns, OpenMemory, strip_context

SOURCE = "memslot"
"""The name of memslot's blocks in Nanobot's runtime context."""

_MARKER = "_runtime_context"
_MACHINES = frozenset(
    {"cron", "runtime", "session", "session_timeout", "subagent", "system:recovery", "trigger"}
)
_MACHINE_SESSIONS = ("heartbeat", "dream:", "cron:")


def without_section(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """Remove memslot's block from a message that Nanobot keeps. Returns None if there is no such block."""
    marker = message.get(_MARKER)
    if not isinstance(marker, Mapping) or SOURCE not in (marker.get("sources") or ()):
        return None
    left = {**marker, "sources": [source for source in marker["sources"] if source != SOURCE]}
    content = message.get("content")
    suffix, blocks = marker.get("suffix"), marker.get("blocks")
    if isinstance(content, str) and isinstance(suffix, str) and content.endswith(suffix):
        text = content[: len(content) - len(suffix)].removesuffix("\n\n")
        left["suffix"] = "\n\n".join(part for part in strip_context(suffix).split("\n\n") if part.strip())
        content = f"{text}\n\n{left['suffix']}" if text and left["suffix"] else text or left["suffix"]
    elif isinstance(content, list) and isinstance(blocks, list) and content[-len(blocks) :] == blocks:
        left["blocks"] = [block for block in blocks if strip_context(str(block.get("text", ""))).strip()]
        content = [*content[: len(content) - len(blocks)], *left["blocks"]]
    else:
        return None
    cleaned = {**message, "content": content, _MARKER: left}
    if not (left.get("suffix") or left.get("blocks")):
        del cleaned[_MARKER]
    return cleaned


def said(messages: Sequence[Mapping[str, Any]], asked: str) -> tuple[list[Message], list[str]]:
    """Return the spoken messages of a session's last turn, and the kinds of what holds no words of its speakers.

    Commands and messages that call tools are not spoken.

    Args:
        messages: the session's messages. Nanobot may shorten and summarise them at any time.
        asked: what the user said in the turn. The turn begins with the last message of these words, or else
            with the user's last message.
    """
    users = [at for at, message in enumerate(messages) if message.get("role") == "user"]
    asking = [at for at in users if _words(messages[at]).strip() == asked.strip()]
    turn = messages[(asking or users or [len(messages)])[-1] :]
    talk = spoken(
        (str(message.get("role")), _words(message))
        for message in turn
        if not (message.get("_command") or message.get("tool_calls"))
    )
    parts = [kind for message in turn for kind in left_out(message.get("content"))]
    return talk, parts + unknown(str(message.get("role")) for message in turn)


def _words(message: Mapping[str, Any]) -> str:
    return strip_context(words(message.get("content")))


def is_of_a_machine(persisted: Any) -> bool:
    """Whether the turn comes from one of Nanobot's own timers or helpers instead of a person."""
    key = str(persisted.context.session_key)
    return persisted.sender_id in _MACHINES or key.startswith(_MACHINE_SESSIONS)


def claim_workspace(workspace: Path, scope: MemoryScope) -> None:
    """Reserve a workspace for one scope, because Nanobot's own tools read every session of the workspace.

    Raises:
        ConfigError: the workspace belongs to another scope or is not writable.
    """
    file = workspace / ".memslot-scope"
    try:
        workspace.mkdir(parents=True, exist_ok=True)
        owner = file.read_text(encoding="utf-8").strip() if file.exists() else ""
        if not owner:
            file.write_text(f"{scope.label}\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; the workspace must be writable") from error
    if owner not in ("", scope.label):
        raise ConfigError(
            f"{workspace} is the workspace of another memory.scope, and its sessions can be read by this agent; "
            "give each scope a workspace and a configuration directory of its own"
        )


log = logging.getLogger("memslot.nanobot")


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
        self._turns = turns
        self._sections: dict[str, str] = {}
        self._asked: dict[str, str] = {}
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
        """Recall as a context provider, which gets the user's own words. It returns no context itself."""
        key = request.session_key or "sdk:default"
        self._sections.pop(key, None)
        said = self._asked[key] = request.original_user_text or ""
        recall = await self._turns.recall(request.turn_id or key, said, session_id=key)
        self._sections[key] = recall.section

    async def _record(self, event: Any) -> None:
        key = event.context.session_key
        snapshot = self._bot.sessions.get(key)
        messages = snapshot.messages if snapshot is not None else []
        talk, parts = said(messages, self._asked.pop(key, ""))
        if talk and not is_of_a_machine(event):
            await self._turns.record(event.turn_id, session_id=key, messages=talk, left_out=parts)
