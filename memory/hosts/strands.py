"""Strands Agents: a memory as a ``MemoryStore`` of its ``MemoryManager``."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from strands.memory.extraction.triggers import InvocationTrigger
from strands.memory.types import MemoryEntry, MemoryStore

from memory import ContextBudget, MemoryScope, Message
from memory.runtime import TurnMemory, event_from_turn


class SlotStore(MemoryStore):  # type: ignore[misc]
    """One scope of a slot.

        manager = MemoryManager(stores=[SlotStore(memory, session_id="chat-1")])
        agent = Agent(memory_manager=manager)
        await agent.invoke_async("Which tea do I like?")
        await manager.flush()

    Strands injects what is found below what the user said, for one model call, and hands over the messages of every
    invocation in the background. Call the agent in the slot's event loop: ``invoke_async``, not ``agent(...)``.

    Args:
        memory: whoever opened it closes it, after ``flush``.
        session_id: the conversation; Strands does not tell a store which one it is.
        scope: in place of the slot's own.
        name: for Strands' tools and logs.
        writable: False records nothing.

    Raises:
        ScopeError: there is no scope.
    """

    def __init__(
        self,
        memory: TurnMemory,
        *,
        session_id: str,
        scope: MemoryScope | None = None,
        name: str = "memory",
        writable: bool = True,
    ) -> None:
        self.name = name
        self.description = "Long-term memory of earlier conversations."
        self.max_search_results = memory.slot.budget.max_items
        self.writable = writable
        self.extraction = {"trigger": InvocationTrigger()} if writable else None
        self._memory = memory
        self._scope = memory.slot.scope_or_default(scope)
        self._session_id = session_id
        self._run = uuid.uuid4().hex

    async def search(self, query: str, options: Mapping[str, Any] | None = None) -> list[Any]:
        """What the memory has, best first; what to do where it fails says the turn policy."""
        most = (options or {}).get("max_search_results") or self.max_search_results
        budget = ContextBudget(max_tokens=self._memory.slot.budget.max_tokens, max_items=most)
        recall = await self._memory.recall(
            query, session_id=self._session_id, scope=self._scope, budget=budget
        )
        entries = recall.result.context_entries if recall.result else ()
        return [
            MemoryEntry(content=entry.text, metadata={"id": entry.native_id, "score": entry.score})
            for entry in entries
        ]

    async def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Record one sentence, as if the user had said it."""
        await self._memory.record_turn(
            session_id=self._session_id, scope=self._scope, user=content, metadata=metadata
        )

    async def add_messages(self, messages: Sequence[Mapping[str, Any]], context: Any = None) -> None:
        """Record what was said, turn by turn. A batch that Strands sends again is recorded once."""
        numbers = getattr(context, "sequence_numbers", None) or [uuid.uuid4().hex] * len(messages)
        for turn in _turns(zip(messages, numbers, strict=True)):
            told = tuple(message for message, _ in turn)
            event_id = f"strands:{self._run}:{turn[0][1]}-{turn[-1][1]}"
            event = event_from_turn(
                self._session_id, self._scope, messages=told, event_id=event_id, agent_id="strands"
            )
            await self._memory.record(event)


def _turns(messages: Iterable[tuple[Mapping[str, Any], Any]]) -> list[list[tuple[Message, Any]]]:
    """What was said, without tools and pictures, cut where the user speaks."""
    turns: list[list[tuple[Message, Any]]] = []
    for message, number in messages:
        text = "\n".join(block["text"] for block in message["content"] if "text" in block)
        if not text.strip():
            continue
        if message["role"] == "user" or not turns:
            turns.append([])
        turns[-1].append((Message(role=message["role"], content=text), number))
    return turns
