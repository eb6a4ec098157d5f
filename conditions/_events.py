"""An event as conditions need it: what was said as plain text, and what is known about it besides."""

from __future__ import annotations

import json
from typing import Any

from memory import MemoryEvent, Message

__all__ = ["about", "said"]


def said(message: Message) -> str:
    """A message's text; its tool calls, where it has some, as JSON behind it."""
    calls = json.dumps(message.tool_calls, ensure_ascii=False) if message.tool_calls else ""
    return "\n".join(part for part in (message.content.strip(), calls) if part)


def about(event: MemoryEvent) -> dict[str, Any]:
    """Everything but scope and words, JSON-ready, so that what is retrieved can be traced (spec section 1)."""
    return {
        "event_id": event.event_id,
        "session_id": event.session_id,
        "turn_id": event.turn_id,
        "agent_id": event.agent_id,
        "timestamp": event.timestamp.isoformat(),
        **event.cs_fields,
        **({"metadata": event.metadata} if event.metadata else {}),
    }
