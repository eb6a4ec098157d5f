"""The synthetic personas, what is written for them, and what counts as having seen it."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from memory.contract.events import MemoryEvent, Message
from memory.contract.receipts import RetrieveResult
from memory.contract.requests import ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope

_SESSION = "doctor"


def new_word() -> str:
    return f"oolong{uuid.uuid4().hex[:10]}"


@dataclass
class Trial:
    """A persona with one thing to remember.

    Attributes:
        scope: its own, of this run of doctor alone.
        shop: a word that the question and the answer share.
        marker: a word of the answer alone: where it is seen, what was written has been shown.
        set_up: whether the backend may hold something of it.
        written: whether its event was handed over.
        seen: whether its own memory showed the marker.
    """

    scope: MemoryScope
    shop: str
    marker: str
    set_up: bool = False
    written: bool = False
    seen: bool = False

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        run = f"memslot-doctor-{uuid.uuid4().hex[:12]}"
        first, second = (
            cls(MemoryScope(run_id=run, persona_id=persona), f"Hakone{uuid.uuid4().hex[:8]}", new_word())
            for persona in ("doctor-a", "doctor-b")
        )
        return first, second

    @property
    def name(self) -> str:
        return self.scope.persona_id

    @property
    def question(self) -> str:
        """What the persona is asked; the marker is not in it."""
        return f"Which is my favourite tea at {self.shop}?"

    def event(self) -> MemoryEvent:
        return MemoryEvent(
            event_id=uuid.uuid4().hex,
            scope=self.scope,
            session_id=_SESSION,
            turn_id="1",
            timestamp=datetime.now(UTC),
            messages=(
                Message(role="user", content=f"My favourite tea at {self.shop} is {self.marker}."),
                Message(role="assistant", content=f"I will remember that you like {self.marker}."),
            ),
        )


def request(scope: MemoryScope, question: str) -> RetrieveRequest:
    budget = ContextBudget(max_tokens=2000, max_items=10)
    return RetrieveRequest(query=question, scope=scope, session_id=_SESSION, budget=budget)


def shows(result: RetrieveResult, word: str, *, raw: bool = False) -> bool:
    """Whether a word stands in the section or an entry; with ``raw``, in the native payload as well."""
    shown = [result.formatted_context, *(entry.text for entry in result.entries)]
    if raw:
        shown.append(json.dumps(result.raw, ensure_ascii=False, default=str))
    return any(word.casefold() in text.casefold() for text in shown)
