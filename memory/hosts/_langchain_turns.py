"""Turns in LangChain's messages: the message that begins a turn, its answers and its section."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from memory.hosts._shared import add_section, left_out, spoken, tested, unknown
from memory.hosts._tools import ARGUMENTS, DESCRIPTIONS, ModelTools, schema
from memory.runtime import HostTurns, OpenMemory, UserOf, answer_text

with tested("langchain"):
    from langchain.tools import ToolRuntime
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
    from langchain_core.tools import StructuredTool
    from langgraph.config import get_config


class Turns:
    """Recalls and records the turns of LangChain states, whose ``memory_turn`` names the turn."""

    def __init__(self, memory: OpenMemory, user_id: UserOf | None) -> None:
        self._turns = HostTurns(memory, "langchain", user_id)
        self._tools = ModelTools(self._turns)

    def tool(self, name: str) -> StructuredTool:
        """Create one of the model's tools."""

        async def ask(runtime: ToolRuntime, **given: str) -> str:
            return await self._tools.answer(name, given[ARGUMENTS[name]], **self._where(runtime))

        def ask_blocking(runtime: ToolRuntime, **given: str) -> str:
            return self._tools.answer_blocking(name, given[ARGUMENTS[name]], **self._where(runtime))

        return StructuredTool.from_function(
            ask_blocking, ask, name=name, description=DESCRIPTIONS[name], args_schema=schema(name)
        )

    async def recall(self, state: Mapping[str, Any], runtime: Any) -> str:
        return (await self._turns.recall(**self._asked(state, runtime))).section

    def recall_blocking(self, state: Mapping[str, Any], runtime: Any) -> str:
        return self._turns.recall_blocking(**self._asked(state, runtime)).section

    async def record(self, state: Mapping[str, Any], runtime: Any) -> None:
        if said := self._said(state, runtime):
            await self._turns.record(**said)

    def record_blocking(self, state: Mapping[str, Any], runtime: Any) -> None:
        if said := self._said(state, runtime):
            self._turns.record_blocking(**said)

    def _asked(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any]:
        turn, _, _ = (state.get("memory_turn") or "").partition("\n")
        at = _index(state["messages"], turn)
        user = "" if at is None else str(state["messages"][at].text)
        return {"turn": turn, "user": user, **self._where(runtime)}

    def _said(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any]:
        asked, messages = self._asked(state, runtime), state["messages"]
        if not asked["turn"]:
            return {}
        begun = _index(messages, asked["turn"])
        if begun is None:  # something else, such as a summary, has replaced the message
            begun = last_human(messages) or 0
        after = _index(messages, state["memory_turn"].partition("\n")[2])
        said = messages[max(begun, -1 if after is None else after) + 1 :]
        answers = spoken(
            (_role(message), str(message.text))
            for message in said
            if _role(message) == "assistant" and not getattr(message, "tool_calls", ())
        )
        structured = state.get("structured_response")
        if not answers and structured is not None:
            answers = spoken([("assistant", answer_text(structured))])
        parts = [kind for message in (messages[begun], *said) for kind in left_out(message.content)]
        parts += unknown(map(_role, messages[begun:]))
        return {**asked, "messages": answers, "left_out": parts} if answers else {}

    def _where(self, runtime: Any) -> dict[str, Any]:
        thread = getattr(getattr(runtime, "execution_info", None), "thread_id", None)
        if thread is None:
            try:
                thread = get_config().get("configurable", {}).get("thread_id")
            except RuntimeError:  # outside of a graph
                thread = None
        return {"session_id": str(thread or "langchain"), "scope": self._turns.scope_of(runtime)}


def beginning(messages: Sequence[AnyMessage]) -> dict[str, str]:
    """Return the state of a turn that begins: the turn's name, or an empty one without a human message.

    The last human message names the turn by its id, or by its words and this run. An edited message may not
    be the last one. Then the last message's id is in a second line, because no message up to it is an answer.
    """
    at = last_human(messages)
    if at is None:
        return {"memory_turn": ""}
    begun, last = messages[at], messages[-1]
    turn = begun.id or f"{_digest(begun)}:{uuid.uuid4().hex}"
    return {"memory_turn": turn if last is begun or not last.id else f"{turn}\n{last.id}"}


def _index(messages: Sequence[AnyMessage], turn: str) -> int | None:
    """Return the index of the last message that a turn's name stands for."""
    digest = turn.partition(":")[0]
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if turn and (message.id == turn if message.id else _digest(message) == digest):
            return at
    return None


def _role(message: AnyMessage) -> str:
    """Return the speaker of a message. A ``ChatMessage`` names its own, which may be unknown."""
    if isinstance(message, HumanMessage):
        return "user"
    if isinstance(message, AIMessage):
        return "assistant"
    return str(getattr(message, "role", message.type))


def _digest(message: AnyMessage) -> str:
    return sha256(str(message.text).encode("utf-8", "surrogatepass")).hexdigest()


def last_human(messages: Sequence[AnyMessage]) -> int | None:
    """Return the index of the last message by a person. LangChain marks the messages of its middleware."""
    humans = [
        at
        for at, message in enumerate(messages)
        if _role(message) == "user" and "lc_source" not in message.additional_kwargs
    ]
    return humans[-1] if humans else None


def with_section(messages: Sequence[AnyMessage], section: str) -> list[AnyMessage]:
    """Return a copy with the section below the last human message, or as a separate first message."""
    changed, at = list(messages), last_human(messages)
    if section and at is not None:
        content = add_section(messages[at].content, section)
        changed[at] = messages[at].model_copy(update={"content": content})
    elif section:
        changed.insert(0, HumanMessage(section))
    return changed
