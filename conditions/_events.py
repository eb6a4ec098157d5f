"""An event as conditions need it: what was said as plain text, and what is known about it besides."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from sys import intern
from typing import Any

from memory import MemoryEvent, Message


def said(message: Message) -> str:
    """A message's text; its tool calls, where it has some, as JSON behind it."""
    calls = json.dumps(message.tool_calls, ensure_ascii=False) if message.tool_calls else ""
    return "\n".join(part for part in (message.content, calls) if part.strip())


@dataclass(frozen=True, slots=True)
class Known:
    """Everything of an event but scope and words, in little memory: there may be hundreds of thousands."""

    event_id: str
    session_id: str
    turn_id: str
    agent_id: str
    timestamp: datetime
    cs_fields: dict[str, str] | None
    metadata: dict[str, Any] | None

    @classmethod
    def of(cls, event: MemoryEvent) -> Known:
        return cls(
            event.event_id,
            intern(str(event.session_id)),
            event.turn_id,
            intern(str(event.agent_id)),
            event.timestamp,
            event.cs_fields or None,
            event.metadata or None,
        )

    def raw(self) -> dict[str, Any]:
        """JSON-ready, so that what is retrieved can be traced (spec section 1)."""
        return {
            "event_id": self.event_id,
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "agent_id": self.agent_id,
            "timestamp": self.timestamp.isoformat(),
            **(self.cs_fields or {}),
            **({"metadata": self.metadata} if self.metadata else {}),
        }
