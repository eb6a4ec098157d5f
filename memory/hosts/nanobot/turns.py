"""What a turn of Nanobot was, and a session without what memory put into it.

Nanobot keeps what a context provider returned in the session's file and shows it again in every later turn. Memory
would then see itself: old sections pile up in the prompt, and are recorded as if they had been said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from memory import ConfigError, MemoryEvent, MemoryScope, Message
from memory.runtime import event_from_turn, strip_context

SOURCE = "memslot"
"""Name of our blocks in Nanobot's runtime context."""

_MARKER = "_runtime_context"
_MACHINES = frozenset(
    {"cron", "runtime", "session", "session_timeout", "subagent", "system:recovery", "trigger"}
)
_MACHINE_SESSIONS = ("heartbeat", "dream:", "cron:")


def without_section(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """A message of a session without our block; None where it has none. Blocks of others stay.

    Args:
        message: as Nanobot keeps it, with its marker of what was appended.
    """
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


def said(messages: Sequence[Mapping[str, Any]], known: int | None) -> list[Message]:
    """What user and assistant said in the last turn of a session: neither commands nor the traffic of tools, nor
    what is said beside a call of one.

    Args:
        messages: the session's, without any section.
        known: how many there were before the turn; None, or more than there are, means from the last user's on.
    """
    if known is None or known > len(messages):
        users = [at for at, message in enumerate(messages) if message.get("role") == "user"]
        known = users[-1] if users else len(messages)
    spoken = [
        message for message in messages[known:] if not (message.get("_command") or message.get("tool_calls"))
    ]
    found = [(str(item.get("role")), strip_context(_text(item.get("content")))) for item in spoken]
    return [
        Message.model_validate({"role": role, "content": text})
        for role, text in found
        if role in ("user", "assistant") and text.strip()
    ]


def turn_event(scope: MemoryScope, persisted: Any, messages: Iterable[Message]) -> MemoryEvent | None:
    """The event of a turn; None where nobody said anything, as when Nanobot's own timers and helpers speak.

    Args:
        scope: whose memory.
        persisted: Nanobot's event; its turn has one event id, however often it is handed over.
        messages: what was said.
    """
    spoken, key, turn_id = tuple(messages), persisted.context.session_key, persisted.turn_id
    if not spoken or persisted.sender_id in _MACHINES or key.startswith(_MACHINE_SESSIONS):
        return None
    return event_from_turn(
        key, scope, messages=spoken, event_id=f"nanobot:{turn_id}", turn_id=turn_id, agent_id="nanobot"
    )


def claim_workspace(workspace: Path, scope: MemoryScope) -> None:
    """Let a workspace belong to one scope, since Nanobot's own tools read every session of it.

    Raises:
        ConfigError: it belongs to another, or cannot be written.
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


def _text(content: Any) -> str:
    if isinstance(content, list):
        parts = [
            item.get("text") for item in content if isinstance(item, Mapping) and item.get("type") == "text"
        ]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
