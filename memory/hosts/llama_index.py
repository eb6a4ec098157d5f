"""LlamaIndex: a block for its ``Memory``, over a memory."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from memory.hosts._shared import left_out, spoken, tested
from memory.hosts._tools import DESCRIPTIONS, ModelTools
from memory.runtime import HostTurns, OpenMemory, UserOf

with tested("llama-index"):
    from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.memory import BaseMemoryBlock
    from llama_index.core.tools import FunctionTool

_MAX_FLUSHED, _MAX_SESSIONS = 8, 1000


class SlotMemoryBlock(BaseMemoryBlock[list[ChatMessage]]):  # type: ignore[misc]
    """One person's memory, for any number of conversations.

        chat = Memory.from_defaults(session_id="chat-1", memory_blocks=[SlotMemoryBlock(memory)])
        await agent.run("Which tea do I like?", memory=chat)

    The section is a separate message before the conversation. A turn is recorded when the agent reads its
    memory again after the answer. A chat engine does not read again: a turn is recorded at the next one, and
    the last turn by ``await memory.aget()``. Messages that leave the short-term memory stay in their turn.

    Args:
        memory, user_id: as for :class:`memory.runtime.HostTurns`. A function of ``user_id`` gets the session id.
        name: the block's name. It must be unique among the blocks.
    """

    accept_short_term_memory: bool = True
    _turns: HostTurns = PrivateAttr()
    _sessions: OrderedDict[str, _Session] = PrivateAttr(default_factory=OrderedDict)

    def __init__(
        self,
        memory: OpenMemory,
        *,
        user_id: UserOf | None = None,
        name: str = "memslot",
        **fields: Any,
    ) -> None:
        super().__init__(name=name, **fields)
        self._turns = HostTurns(memory, "llama-index", user_id)

    def tools(self, session_id: str = "llama-index") -> list[FunctionTool]:
        """Return the tools for one conversation's agent (``tools=``): a search, and a way to store a fact."""
        functions = ModelTools(self._turns).functions(self._turns.scope_of(session_id), session_id)
        return [
            FunctionTool.from_defaults(async_fn=made, name=name, description=DESCRIPTIONS[name])
            for name, made in functions.items()
        ]

    async def _aget(
        self,
        messages: list[ChatMessage] | None = None,
        session_id: str = "llama-index",
        **block_kwargs: Any,
    ) -> list[ChatMessage]:
        """Record the open turn if it has an answer, and recall for the last user message if it has none."""
        session = self._session(session_id)
        turns = _turns_of([*session.flushed, *(messages or [])])
        if not turns:
            return []
        at = session.find(turns)
        if at is None and session.turn and turns[-1].answers:  # a summary has replaced the question
            await self._record(session_id, session, _Turn(session.said, turns[-1].answers[-1:]))
        elif at is not None and turns[at].answers:
            await self._record(session_id, session, turns[at])
            at = None
        if turns[-1].answers:
            session.flushed = []
            return []
        if at is None or at < len(turns) - 1:  # an unanswered earlier turn will get no answer now
            session.open_turn(turns)
        last = turns[-1]
        recall = await self._turns.recall(
            session.turn, last.said, session_id=session_id, scope=self._turns.scope_of(session_id)
        )
        return [ChatMessage(role="user", content=recall.section)] if recall.section else []

    async def _record(self, session_id: str, session: _Session, turn: _Turn) -> None:
        named, session.turn, session.flushed = session.turn, "", []
        await self._turns.record(
            named,
            session_id=session_id,
            scope=self._turns.scope_of(session_id),
            user=turn.said,
            messages=spoken(("assistant", answer) for answer in turn.answers),
            left_out=turn.left_out,
        )

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Keep the messages that leave the short-term memory while their turn is open."""
        for message in messages:
            session = self._session(str(message.additional_kwargs.get("session_id", "llama-index")))
            session.flushed.append(message)
            users = [at for at, kept in enumerate(session.flushed) if kept.role == MessageRole.USER]
            if len(users) > _MAX_FLUSHED:
                del session.flushed[: users[1]]

    def _session(self, session_id: str) -> _Session:
        session = self._sessions.setdefault(session_id, _Session())
        self._sessions.move_to_end(session_id)
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session


@dataclass(slots=True)
class _Turn:
    """A question in a history and its answers."""

    said: str
    answers: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def digest(self) -> int:
        return hash((self.said, *self.answers))


@dataclass(slots=True)
class _Session:
    """The open turn of a conversation. Its words and the turns before it identify it."""

    turn: str = ""
    said: str = ""
    before: list[int] = field(default_factory=list)
    flushed: list[ChatMessage] = field(default_factory=list)

    def open_turn(self, turns: list[_Turn]) -> None:
        self.turn, self.said = uuid.uuid4().hex, turns[-1].said
        self.before = [turn.digest for turn in turns[:-1]]

    def find(self, turns: list[_Turn]) -> int | None:
        """Return the index of the open turn in a history that may have lost its beginning and gained an end.

        If several turns have its words, it is the one that most of the earlier turns precede.
        """
        places = [at for at, turn in enumerate(turns) if self.turn and turn.said == self.said]
        return max(places, key=lambda at: (self._alike(turns[:at]), -at), default=None)

    def _alike(self, before: list[_Turn]) -> int:
        pairs = zip(reversed(before), reversed(self.before), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0].digest == pair[1], pairs))


def _turns_of(messages: Sequence[ChatMessage]) -> list[_Turn]:
    """Group messages into questions with their answers. A question repeated before an answer counts once.

    Agents repeat a question of the history, also after a handover, and users ask again after a failure.
    """
    turns: list[_Turn] = []
    for message in messages:
        if message.role == MessageRole.USER:
            if not turns or turns[-1].answers or turns[-1].said != _text(message):
                turns.append(_Turn(_text(message)))
        elif turns and (answer := _answer(message)):
            turns[-1].answers.append(answer)
        if turns:
            turns[-1].left_out += left_out(message.blocks)
    return turns


def _text(message: ChatMessage) -> str:
    """Return the words of a message, without thoughts and pictures."""
    return message.content or ""


def _answer(message: ChatMessage) -> str:
    """Return the answer in a message; empty for a tool call. A ReAct agent's thoughts are left out."""
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
