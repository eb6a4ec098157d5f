"""Turns of Nanobot: what was said in them, and by whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memory import Message
from memory.hosts._shared import conversation, words
from memory.runtime import HostTurns, strip_context

_MACHINES = frozenset(
    {"cron", "runtime", "session", "session_timeout", "subagent", "system:recovery", "trigger"}
)
_MACHINE_SESSIONS = ("heartbeat", "dream:", "cron:")


class BotTurns:
    """Recalls for the requests of a bot, and records its saved turns.

    Nanobot names a saved turn by its id and its session. Its words are in the session's messages.
    """

    def __init__(self, turns: HostTurns) -> None:
        self._turns = turns
        self._asked: dict[str, str] = {}

    async def recall(self, request: Any) -> str:
        """Return the section for a request, which holds the user's own words."""
        key = session_of(request)
        asked = self._asked[key] = request.original_user_text or ""
        return (await self._turns.recall(request.turn_id or key, asked, session_id=key)).section

    async def record(self, event: Any, messages: Sequence[Mapping[str, Any]]) -> None:
        """Record a saved turn, unless Nanobot's own timers or helpers asked in it."""
        key = str(event.context.session_key)
        talk, parts = said(messages, self._asked.pop(key, ""))
        if talk and not (event.sender_id in _MACHINES or key.startswith(_MACHINE_SESSIONS)):
            await self._turns.record(event.turn_id, session_id=key, messages=talk, left_out=parts)

    def forget(self, key: str) -> None:
        """Forget what was asked in a session, whose turn ended without being saved."""
        self._asked.pop(key, None)


def session_of(request: Any) -> str:
    return request.session_key or "sdk:default"


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
    return conversation(
        messages[(asking or users or [len(messages)])[-1] :],
        lambda message: str(message.get("role")),
        lambda message: message.get("content"),
        lambda message: message.get("_command") or message.get("tool_calls"),
    )


def _words(message: Mapping[str, Any]) -> str:
    return strip_context(words(message.get("content")))
