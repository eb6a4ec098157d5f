"""What Nanobot keeps of a turn: the words of its speakers, memslot's section among them, and the workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memory import ConfigError, MemoryScope, Message
from memory.hosts._shared import conversation, tested, words
from memory.runtime import strip_context

with tested("nanobot"):
    from nanobot.runtime_context import (
        RUNTIME_CONTEXT_HISTORY_META,
        detach_runtime_context,
        reattach_runtime_context,
    )

SOURCE = "memslot"  # the name of memslot's blocks in Nanobot's runtime context


def said(messages: Sequence[Mapping[str, Any]], asked: str) -> tuple[list[Message], list[str]]:
    """Return the spoken messages of a session's last turn, and the kinds of what holds no words of its speakers.

    Commands and messages that call tools are not spoken. The turn begins with the user's last message of the
    words ``asked``, or else with the user's last message: Nanobot may shorten its messages at any time.
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


def without_section(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """Remove memslot's block from a message that Nanobot keeps. Returns None if there is no such block."""
    marker = message.get(RUNTIME_CONTEXT_HISTORY_META)
    if not isinstance(marker, Mapping) or SOURCE not in (marker.get("sources") or ()):
        return None
    if (found := detach_runtime_context(message.get("content"), marker)) is None:
        return None
    content, sources, blocks = found
    texts = [strip_context(str(block.get("text", ""))).strip() for block in blocks]
    cleaned = {**message, "content": content}
    del cleaned[RUNTIME_CONTEXT_HISTORY_META]
    if left := [{**block, "text": text} for block, text in zip(blocks, texts, strict=True) if text]:
        others = [source for source in sources if source != SOURCE]
        cleaned["content"], marker = reattach_runtime_context(content, others, left)
        cleaned[RUNTIME_CONTEXT_HISTORY_META] = marker
    return cleaned


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
