"""LangChain: middleware for an agent, over a memory."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, NotRequired

from memory.hosts._shared import add_section, conversation, spoken, tested, unknown
from memory.hosts._tools import ARGUMENTS, DESCRIPTIONS, ModelTools, schema
from memory.runtime import HostTurns, OpenMemory, UserOf, answer_text, tool_running

with tested("langchain"):
    from langchain.agents.middleware.types import AgentMiddleware, AgentState, PrivateStateAttr
    from langchain.tools import ToolRuntime
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
    from langchain_core.tools import StructuredTool
    from langgraph.config import get_config


class TurnState(AgentState[Any]):  # type: ignore[misc]
    """State with the turn's name, because a summary may replace the message that began the turn."""

    memory_turn: NotRequired[Annotated[str, PrivateStateAttr]]  # type: ignore[valid-type]


class MemoryMiddleware(AgentMiddleware):  # type: ignore[misc]
    """Recalls at the first model call of a turn, and records the turn after the agent ends.

        agent = create_agent(model, tools, middleware=[MemoryMiddleware(memory)], checkpointer=checkpointer)
        await agent.ainvoke({"messages": [("user", "Which tea do I like?")]}, {"configurable": {"thread_id": "1"}})

    The model sees the section below the user's message. No state keeps it. A turn is the last human message
    of a run's input and the messages after it, and the session is the ``thread_id``. An agent that runs
    inside a tool gets its task from a model, so its run is not recorded. ``invoke`` and ``stream`` must not
    run in the thread of the memory's event loop, see ``open_memory_sync``.

    Args:
        memory, user_id: as for :class:`memory.runtime.HostTurns`. A function of ``user_id`` gets LangGraph's
            ``Runtime``.
        tools: whether the model may search the memory and store facts.
    """

    state_schema = TurnState
    name = "memslot"  # always the same, so that LangChain refuses a second memory

    def __init__(self, memory: OpenMemory, *, user_id: UserOf | None = None, tools: bool = False) -> None:
        super().__init__()
        self._turns = HostTurns(memory, "langchain", user_id)
        self._answers = ModelTools(self._turns)
        self.tools = [self._tool(name) for name in DESCRIPTIONS] if tools else []

    def before_agent(self, state: Any, runtime: Any) -> dict[str, str]:
        return _beginning(state["messages"])

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, str]:
        return _beginning(state["messages"])

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        recall = await self._turns.recall(**self._asked(request.state, request.runtime))
        return await handler(request.override(messages=_with_section(request.messages, recall.section)))

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        recall = self._turns.recall_blocking(**self._asked(request.state, request.runtime))
        return handler(request.override(messages=_with_section(request.messages, recall.section)))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        with tool_running():
            return await handler(request)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        with tool_running():
            return handler(request)

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        if said := self._said(state, runtime):
            await self._turns.record(**said)

    def after_agent(self, state: Any, runtime: Any) -> None:
        if said := self._said(state, runtime):
            self._turns.record_blocking(**said)

    def _tool(self, name: str) -> StructuredTool:
        async def ask(runtime: ToolRuntime, **given: str) -> str:
            return await self._answers.answer(name, given[ARGUMENTS[name]], **self._where(runtime))

        def ask_blocking(runtime: ToolRuntime, **given: str) -> str:
            return self._answers.answer_blocking(name, given[ARGUMENTS[name]], **self._where(runtime))

        return StructuredTool.from_function(
            ask_blocking, ask, name=name, description=DESCRIPTIONS[name], args_schema=schema(name)
        )

    def _asked(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any]:
        """Return the turn of a state, as HostTurns takes it. Its words are empty if they have been replaced."""
        turn, _, _ = (state.get("memory_turn") or "").partition("\n")
        at = _index(state["messages"], turn)
        user = "" if at is None else str(state["messages"][at].text)
        return {"turn": turn, "user": user, **self._where(runtime)}

    def _said(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any]:
        """Return the turn with its answers; empty if there is nothing to record."""
        asked, messages = self._asked(state, runtime), state["messages"]
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
        return {"session_id": str(thread or "langchain"), "scope": self._turns.scope_of(runtime)}


def _beginning(messages: Sequence[AnyMessage]) -> dict[str, str]:
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


def _with_section(messages: Sequence[AnyMessage], section: str) -> list[AnyMessage]:
    """Return a copy with the section below the last human message, or as a separate first message."""
    changed, at = list(messages), _last_human(messages)
    if section and at is not None:
        content = add_section(messages[at].content, section)
        changed[at] = messages[at].model_copy(update={"content": content})
    elif section:
        changed.insert(0, HumanMessage(section))
    return changed
