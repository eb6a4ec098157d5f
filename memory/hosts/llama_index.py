"""LlamaIndex: a memory as a block of its ``Memory``."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from memory import MemoryScope
from memory.hosts._shared import spoken, tested
from memory.runtime import HostTurns, TurnMemory

with tested("llama-index"):
    from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.memory import BaseMemoryBlock


class SlotMemoryBlock(BaseMemoryBlock[str]):  # type: ignore[misc]
    """One person's memory, for any number of conversations.

        memory = Memory.from_defaults(session_id="chat-1", memory_blocks=[SlotMemoryBlock(turn_memory)])
        await agent.run("Which tea do I like?", memory=memory)

    LlamaIndex hands a block what falls out of its short-term memory, which for a short conversation is nothing; so
    a turn is recorded when the agent that answered looks at its memory again. A chat engine does not look again:
    there a turn is recorded at the next one, and the last one by ``await memory.aget()``.

    Args:
        memory: whoever opened it closes it, after the agent's last run.
        scope: in place of the slot's own.
        name: of the block; names of blocks are unique.

    Raises:
        ScopeError: there is no scope.
    """

    accept_short_term_memory: bool = False
    _turns: HostTurns = PrivateAttr()
    _open: dict[str, _OpenTurn] = PrivateAttr(default_factory=dict)

    def __init__(
        self, memory: TurnMemory, *, scope: MemoryScope | None = None, name: str = "memslot", **fields: Any
    ) -> None:
        super().__init__(name=name, **fields)
        self._turns = HostTurns(memory, "llama-index", memory.slot.scope_or_default(scope))

    async def _aget(
        self,
        messages: list[ChatMessage] | None = None,
        session_id: str = "llama-index",
        **block_kwargs: Any,
    ) -> str:
        """What the memory has for the last user message; where that is answered, the turn is recorded."""
        history = _once(messages or [])
        users = [at for at, message in enumerate(history) if message.role == MessageRole.USER]
        if not users:
            return ""
        known = self._open.get(session_id)
        if known is not None and known.at(users) is not None:
            await self._record(session_id, known, history[known.at(users) : _end(users, known)])
        if any(_answer(message) for message in history[users[-1] :]):
            return ""
        turn, said = self._open.get(session_id), _text(history[users[-1]])
        if turn is None or turn.users != len(users) or turn.said != said:
            turn = self._open[session_id] = _OpenTurn(len(users), said)
        return (await self._turns.recall(turn.id, turn.said, session_id=session_id)).section

    async def _record(self, session_id: str, turn: _OpenTurn, messages: Sequence[ChatMessage]) -> None:
        answers = spoken(("assistant", _answer(message)) for message in messages)
        if answers:
            del self._open[session_id]
            await self._turns.record(turn.id, session_id=session_id, user=turn.said, messages=answers)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Nothing: what falls out of the short-term memory was recorded when it was said."""


@dataclass(slots=True)
class _OpenTurn:
    """A turn that was recalled for: which of the history's user messages began it, and what it says."""

    users: int
    said: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def at(self, users: Sequence[int]) -> int | None:
        return users[self.users - 1] if self.users <= len(users) else None


def _end(users: Sequence[int], turn: _OpenTurn) -> int | None:
    return users[turn.users] if turn.users < len(users) else None


def _once(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """A user message that is repeated before an answer is one: agents append it to a history that has it, those who
    are handed over to as well, and what failed is asked again."""
    kept: list[ChatMessage] = []
    said: str | None = None
    for message in messages:
        if message.role == MessageRole.USER:
            if said == _text(message):
                continue
            said = _text(message)
        elif _answer(message):
            said = None
        kept.append(message)
    return kept


def _text(message: ChatMessage) -> str:
    """The words of a message, without thoughts and pictures."""
    return message.content or ""


def _answer(message: ChatMessage) -> str:
    """What an assistant answers; not what it says beside the call of a tool, or, as a ReAct agent, to itself."""
    calls = message.additional_kwargs.get("tool_calls") or any(
        isinstance(block, ToolCallBlock) for block in message.blocks
    )
    text = _text(message)
    if message.role != MessageRole.ASSISTANT or calls or not text.strip():
        return ""
    answer = (
        text[text.rfind("Thought: ") :].partition("\nAnswer: ")[2] if text.startswith("Thought: ") else ""
    )
    return answer or text
