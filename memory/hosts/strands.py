"""Strands Agents: a ``MemoryStore`` for its ``MemoryManager``, over a memory."""

from __future__ import annotations

import re
import uuid
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory import ContextBudget, Message
from memory.hosts._shared import left_out, tested, unknown, words
from memory.runtime import HostTurns, OpenMemory, UserOf, answer_text, tool_running

with tested("strands"):
    from strands.memory.extraction.triggers import InvocationTrigger
    from strands.memory.extraction.types import ExtractionTriggerContext, MemoryMessageFilter
    from strands.memory.types import MemoryEntry, MemoryStore

try:
    from strands.middleware import ExecuteToolStage
except ImportError:  # older releases do not tell that a tool is running
    ExecuteToolStage = None
_MAX_UNANSWERED = 16
_VALIDATED = re.compile("Successfully validated .* structured output")
_EVERYTHING = MemoryMessageFilter(exclude=[])  # Strands' default hides tool calls, which _said must see


class SlotStore(MemoryStore):  # type: ignore[misc]
    """A Strands store over one scope of a memory.

        manager = MemoryManager(stores=[SlotStore(memory, session_id="chat-1")])
        agent = Agent(memory_manager=manager)
        await agent.invoke_async("Which tea do I like?")
        await manager.flush()

    Strands shows the memories below the user's message for one model call, and hands over the messages of
    every invocation in the background. In the thread of the memory's event loop, use ``await
    agent.invoke_async(...)``; ``agent(...)`` works in other threads.

    Args:
        memory, user_id: as for :class:`memory.runtime.HostTurns`. A function of ``user_id`` gets ``session_id``.
        session_id: the conversation, which Strands does not tell its stores.
    """

    def __init__(
        self,
        memory: OpenMemory,
        *,
        session_id: str,
        user_id: UserOf | None = None,
        name: str = "memory",
        writable: bool = True,
    ) -> None:
        self.name = name
        self.description = "Long-term memory of earlier conversations."
        self.writable = writable
        self._trigger = _Trigger()
        self.extraction = {"trigger": self._trigger, "filter": _EVERYTHING} if writable else None
        self._turns = HostTurns(memory, "strands", user_id, session_id)
        self.max_search_results = self._turns.memory.slot.delivery.budget.max_items
        self._session_id = session_id
        self._run = uuid.uuid4().hex
        self._count = 0
        self._asked: dict[int, _Asked] = {}
        self._fill: dict[str, Any] = {}  # inputs of tool calls without a result yet

    async def search(self, query: str, options: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the memories for a query, best first. The turn policy decides what a failure does."""
        max_items = (options or {}).get("max_search_results") or self.max_search_results
        budget = ContextBudget(
            max_tokens=self._turns.memory.slot.delivery.budget.max_tokens, max_items=max_items
        )
        recall = await self._turns.recall(uuid.uuid4().hex, query, session_id=self._session_id, budget=budget)
        entries = recall.result.context_entries if recall.result else ()
        return [
            MemoryEntry(content=entry.text, metadata={"id": entry.native_id, "score": entry.score})
            for entry in entries
        ]

    async def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Record one text as a message of the user."""
        await self._turns.record(
            uuid.uuid4().hex, session_id=self._session_id, user=content, metadata=metadata
        )

    async def add_messages(self, messages: Sequence[Mapping[str, Any]], context: Any = None) -> None:
        """Record the messages turn by turn. A batch that Strands sends again is recorded once.

        A batch may end within a turn. A question waits for its answer in a later batch, and is not recorded
        without one. If another process got the question before an interrupt, the agent's history has it.
        A batch of an agent inside another agent's tool is not recorded, because an agent wrote its question.
        """
        first = getattr(context, "sequence_numbers", None) or [
            self._count + at for at in range(len(messages))
        ]
        self._count += len(messages)
        for message, number in zip(messages, first, strict=True):
            self._fill.update(_structured(message))
            asked = max((at for at in self._asked if at < number), default=number)
            if (kinds := unknown([message["role"]])) and asked in self._asked:
                self._asked[asked].left_out += kinds
            if (said := self._said(message)) is None:
                continue
            if said.role == "user":
                self._asked[number] = _Asked((said,), left_out(message["content"]))
                while len(self._asked) > _MAX_UNANSWERED:
                    del self._asked[min(self._asked)]
                continue
            turn = self._asked.setdefault(asked, self._asked_before(message))
            turn.answers[number] = said
            await self._turns.record(
                f"{self._run}:{asked}",
                session_id=self._session_id,
                messages=[*turn.question, *turn.answers.values()],
                left_out=turn.left_out,
            )

    def _asked_before(self, answer: Mapping[str, Any]) -> _Asked:
        """Find the question of an answer in the agent's history; empty if it is not there."""
        history = list(self._trigger.messages())
        while history and history.pop()["content"] != answer["content"]:
            pass
        for message in reversed(history):
            said = self._said(message) if message["role"] == "user" else None
            if said is not None and said.role == "user":
                return _Asked((said,), left_out(message["content"]))
        return _Asked()

    def _said(self, message: Mapping[str, Any]) -> Message | None:
        """Return the words of a message, without thoughts and pictures; None if it calls a tool.

        A run may end with a structured output, which Strands treats as a tool call. Its JSON is returned.
        """
        blocks = message["content"]
        for result in (block["toolResult"] for block in blocks if "toolResult" in block):
            output = self._fill.pop(result.get("toolUseId"), None)
            if output is not None and _VALIDATED.match(words(result.get("content"))):
                return Message(role="assistant", content=answer_text(output))
        if any("toolUse" in block for block in blocks) or message["role"] not in ("user", "assistant"):
            return None
        text = words(blocks)
        return Message(role=message["role"], content=answer_text(text)) if text.strip() else None


async def _mark_tool(context: Any, run: Any) -> AsyncIterator[Any]:
    """Mark that a tool is running, so that nothing is recorded for agents inside it."""
    with tool_running():
        async for event in run(context):
            yield event


class _Trigger(InvocationTrigger):  # type: ignore[misc]
    """A trigger that fires after each invocation and gives access to the agent's history."""

    _agent: weakref.ref[Any] | None = None

    def attach(self, context: ExtractionTriggerContext) -> None:
        self._agent = weakref.ref(context.agent)
        if ExecuteToolStage is not None:
            context.agent.add_middleware(ExecuteToolStage, _mark_tool)
        super().attach(context)

    def messages(self) -> Sequence[Mapping[str, Any]]:
        """Return the agent's history; empty before the store has an agent."""
        agent = self._agent() if self._agent else None
        return agent.messages if agent else ()


@dataclass(slots=True)
class _Asked:
    """A question and its answers, by Strands' message numbers."""

    question: tuple[Message, ...] = ()
    left_out: list[str] = field(default_factory=list)
    answers: dict[int, Message] = field(default_factory=dict)


def _structured(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of the tool calls in a message, by their ids."""
    calls = [block["toolUse"] for block in message["content"] if "toolUse" in block]
    return {str(call.get("toolUseId")): call.get("input") for call in calls}
