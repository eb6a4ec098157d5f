"""Turns in LangChain's messages: the message that begins a turn, its answers and its section."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from memory.hosts._shared import add_section, conversation, spoken, tested, unknown
from memory.hosts._tools import ARGUMENTS, DESCRIPTIONS, ModelTools, schema
from memory.runtime import HostTurns, OpenMemory, UserOf, answer_text

with tested("langchain"):
    from langchain.tools import ToolRuntime
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
    from langchain_core.tools import StructuredTool
    from langgraph.config import get_config


class Turns:
    """Recalls and records the turns of states, whose ``memory_turn`` names the turn."""

    def __init__(self, memory: OpenMemory, user_id: UserOf | None) -> None:
        self.turns = HostTurns(memory, "langchain", user_id)
        self._tools = ModelTools(self.turns)

    def tool(self, name: str) -> StructuredTool:
        async def ask(runtime: ToolRuntime, **given: str) -> str:
            return await self._tools.answer(name, given[ARGUMENTS[name]], **self._where(runtime))

        def ask_blocking(runtime: ToolRuntime, **given: str) -> str:
            return self._tools.answer_blocking(name, given[ARGUMENTS[name]], **self._where(runtime))

        return StructuredTool.from_function(
            ask_blocking, ask, name=name, description=DESCRIPTIONS[name], args_schema=schema(name)
        )

    async def recall(self, state: Mapping[str, Any], runtime: Any) -> str:
        return (await self.turns.recall(**self.asked(state, runtime))).section

    async def record(self, state: Mapping[str, Any], runtime: Any) -> None:
        if said := self.said(state, runtime):
            await self.turns.record(**said)

    def asked(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any]:
        """Return the turn of a state, as HostTurns takes it. Its words are empty if they have been replaced."""
        turn, _, _ = (state.get("memory_turn") or "").partition("\n")
        at = _index(state["messages"], turn)
        user = "" if at is None else str(state["messages"][at].text)
        return {"turn": turn, "user": user, **self._where(runtime)}

    def said(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any]:
        """Return the turn with its answers; empty if there is nothing to record."""
        asked, messages = self.asked(state, runtime), state["messages"]
        if not asked["turn"]:
            return {}
        begun = _index(messages, asked["turn"])
        if begun is None:  # something else, such as a summary, has replaced the message
            begun = _last_human(messages) or 0
        after = _index(messages, state["memory_turn"].partition("\n")[2])
        answered = max(begun, -1 if after is None else after) + 1
        talk, parts = conversation(
            [messages[begun], *messages[answered:]],
            _role,
            lambda message: message.content,
            lambda message: getattr(message, "tool_calls", ()),
        )
        parts += unknown(map(_role, messages[begun + 1 : answered]))
        answers = [message for message in talk if message.role == "assistant"]
        structured = state.get("structured_response")
        if not answers and structured is not None:
            answers = spoken([("assistant", answer_text(structured))])
        return {**asked, "messages": answers, "left_out": parts} if answers else {}

    def _where(self, runtime: Any) -> dict[str, Any]:
        try:
            thread = get_config().get("configurable", {}).get("thread_id")
        except RuntimeError:  # outside of a graph
            thread = None
        return {"session_id": str(thread or "langchain"), "scope": self.turns.scope_of(runtime)}


def beginning(messages: Sequence[AnyMessage]) -> dict[str, str]:
    """Return the state of a turn that begins: the id of the last human message, or none.

    An edited message may not be the last one. Then the last message's id is in a second line, because no
    message up to it is an answer. Only a list outside of a graph has messages without ids.
    """
    at = _last_human(messages)
    if at is None:
        return {"memory_turn": ""}
    begun, last = messages[at], messages[-1]
    begun.id = begun.id or uuid.uuid4().hex
    return {"memory_turn": begun.id if last is begun or not last.id else f"{begun.id}\n{last.id}"}


def _index(messages: Sequence[AnyMessage], turn: str) -> int | None:
    """Return the index of the last message with an id."""
    return max((at for at, message in enumerate(messages) if turn and message.id == turn), default=None)


def _role(message: AnyMessage) -> str:
    """Return the speaker of a message. A ``ChatMessage`` names its own, which may be unknown."""
    if isinstance(message, HumanMessage):
        return "user"
    if isinstance(message, AIMessage):
        return "assistant"
    return str(getattr(message, "role", message.type))


def _last_human(messages: Sequence[AnyMessage]) -> int | None:
    """Return the index of the last message by a person. LangChain marks the messages of its middleware."""
    humans = [
        at
        for at, message in enumerate(messages)
        if _role(message) == "user" and "lc_source" not in message.additional_kwargs
    ]
    return max(humans, default=None)


def with_section(messages: Sequence[AnyMessage], section: str) -> list[AnyMessage]:
    """Return a copy with the section below the last human message, or as a separate first message."""
    changed, at = list(messages), _last_human(messages)
    if section and at is not None:
        content = add_section(messages[at].content, section)
        changed[at] = messages[at].model_copy(update={"content": content})
    elif section:
        changed.insert(0, HumanMessage(section))
    return changed
