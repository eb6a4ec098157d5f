"""LangChain and LangGraph: a memory as middleware of an agent, and as two nodes of a graph made by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, NotRequired

from memory import MemoryScope
from memory.hosts._shared import add_section, spoken, tested
from memory.runtime import HostTurns, TurnMemory, answer_text

with tested("langchain"):
    from langchain.agents.middleware.types import AgentMiddleware, AgentState, PrivateStateAttr
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
    from langgraph.channels.untracked_value import UntrackedValue
    from langgraph.config import get_config
    from langgraph.graph import MessagesState

ScopeOf = MemoryScope | Callable[[Any], MemoryScope]


class TurnState(AgentState[Any]):  # type: ignore[misc]
    """The id of the human message that began the turn: others may follow it, and a summary replace it."""

    memory_turn: NotRequired[Annotated[str, PrivateStateAttr]]  # type: ignore[valid-type]


class MemoryMiddleware(AgentMiddleware):  # type: ignore[misc]
    """Recalls at the first model call of a turn, and records when the agent has ended.

        agent = create_agent(model, tools, middleware=[MemoryMiddleware(memory)], checkpointer=checkpointer)
        await agent.ainvoke({"messages": [("user", "Which tea do I like?")]}, {"configurable": {"thread_id": "1"}})

    The section stands below what the user said in what is sent to the model, and in no state. A turn is the last
    human message of what a run begins with, and what follows; a session is the ``thread_id``. ``invoke`` and
    ``stream`` work from another thread than that of the memory's event loop, see ``open_turn_memory_sync``.

    Args:
        memory: whoever opened it closes it, after the agent's last run.
        scope: in place of the slot's own, or a function of LangGraph's ``Runtime``, whose ``context`` may say who
            speaks.
    """

    state_schema = TurnState

    def __init__(self, memory: TurnMemory, *, scope: ScopeOf | None = None) -> None:
        super().__init__()
        self._turns = _Turns(memory, scope)

    @property
    def name(self) -> str:
        """The same for every memory, so that LangChain refuses a second one."""
        return "memslot"

    def before_agent(self, state: Any, runtime: Any) -> dict[str, str]:
        return {"memory_turn": turn_of(state["messages"])}

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, str]:
        return self.before_agent(state, runtime)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        section = await self._turns.recall(request.state, request.runtime)
        return await handler(request.override(messages=with_section(request.messages, section)))

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """As :meth:`awrap_model_call`, for an agent that is not awaited."""
        section = self._turns.recall_blocking(request.state, request.runtime)
        return handler(request.override(messages=with_section(request.messages, section)))

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        await self._turns.record(state, runtime)

    def after_agent(self, state: Any, runtime: Any) -> None:
        """As :meth:`aafter_agent`, for an agent that is not awaited."""
        self._turns.record_blocking(state, runtime)


class MemoryState(MessagesState):  # type: ignore[misc]
    """Messages, the turn, and the section of this run, which no checkpointer keeps."""

    memory_turn: NotRequired[str]  # type: ignore[valid-type]
    memory_section: NotRequired[Annotated[str, UntrackedValue(str)]]  # type: ignore[valid-type]


class MemoryNodes:
    """Two nodes for a graph over :class:`MemoryState`: one before the model, one at the end.

        nodes = MemoryNodes(memory)
        graph.add_node("recall", nodes.recall)
        graph.add_node("record", nodes.record)

    The model's node sends ``nodes.messages(state)`` in place of ``state["messages"]``.

    Args:
        memory, scope: as for :class:`MemoryMiddleware`.
    """

    def __init__(self, memory: TurnMemory, *, scope: ScopeOf | None = None) -> None:
        self._turns = _Turns(memory, scope)

    async def recall(self, state: MemoryState, runtime: Any = None) -> dict[str, Any]:
        """Recall for the last human message."""
        turn = {"memory_turn": turn_of(state["messages"])}
        return {**turn, "memory_section": await self._turns.recall({**state, **turn}, runtime)}

    async def record(self, state: MemoryState, runtime: Any = None) -> None:
        """Record that message and what followed it."""
        await self._turns.record(state, runtime)

    @staticmethod
    def messages(state: MemoryState) -> list[AnyMessage]:
        """The messages with the section, for the model alone."""
        return with_section(state["messages"], state.get("memory_section", ""))


class _Turns:
    """Turns of states whose ``memory_turn`` names them."""

    def __init__(self, memory: TurnMemory, scope: ScopeOf | None) -> None:
        self._scope_of = scope if callable(scope) else None
        self._turns = HostTurns(memory, "langchain", None if callable(scope) else scope)

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
        turn = state.get("memory_turn") or ""
        at = _index(state["messages"], turn)
        user = "" if at is None else str(state["messages"][at].text)
        return {"turn": turn, "user": user, **self._where(runtime)}

    def _said(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any]:
        asked, messages = self._asked(state, runtime), state["messages"]
        answers = spoken(
            ("assistant", str(message.text))
            for message in messages[_index(messages, asked["turn"]) or 0 :]
            if isinstance(message, AIMessage) and not message.tool_calls
        )
        structured = state.get("structured_response")
        if not answers and structured is not None:
            answers = spoken([("assistant", answer_text(structured))])
        return {**asked, "messages": answers} if answers and asked["turn"] else {}

    def _where(self, runtime: Any) -> dict[str, Any]:
        thread = getattr(getattr(runtime, "execution_info", None), "thread_id", None)
        if thread is None:
            try:
                thread = get_config().get("configurable", {}).get("thread_id")
            except RuntimeError:  # outside of a graph
                thread = None
        scope = self._scope_of(runtime) if self._scope_of else None
        return {"session_id": str(thread or "langchain"), "scope": scope}


def turn_of(messages: Sequence[AnyMessage]) -> str:
    """The name of what the last human message begins; empty where there is none."""
    at = last_human(messages)
    return "" if at is None else messages[at].id or f"{at}"


def _index(messages: Sequence[AnyMessage], turn: str) -> int | None:
    return next((at for at, message in enumerate(messages) if turn == (message.id or f"{at}")), None)


def last_human(messages: Sequence[AnyMessage]) -> int | None:
    return next(
        (at for at in range(len(messages) - 1, -1, -1) if isinstance(messages[at], HumanMessage)), None
    )


def with_section(messages: Sequence[AnyMessage], section: str) -> list[AnyMessage]:
    """A copy in which the section stands below the last human message."""
    changed, at = list(messages), last_human(messages)
    if section and at is not None:
        content = add_section(messages[at].content, section)
        changed[at] = messages[at].model_copy(update={"content": content})
    return changed
