"""What was said, as plain text."""

from __future__ import annotations

import json

from memory import Message

__all__ = ["said"]


def said(message: Message) -> str:
    """A message's text; its tool calls, where it has some, as JSON behind it."""
    calls = json.dumps(message.tool_calls, ensure_ascii=False) if message.tool_calls else ""
    return "\n".join(part for part in (message.content.strip(), calls) if part)
