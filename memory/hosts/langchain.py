"""LangChain and LangGraph: a memory as middleware of an agent, and as two nodes of a graph made by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Annotated, Any, NotRequired

from memory.hosts._langchain_turns import Turns, beginning, with_section
from memory.hosts._shared import tested
from memory.hosts._tools import DESCRIPTIONS
from memory.runtime import OpenMemory, UserOf

with tested("langchain"):
    from langchain.agents.middleware.types import AgentMiddleware, AgentState, PrivateStateAttr
    from langchain_core.messages import AnyMessage
    from langgraph.channels.untracked_value import UntrackedValue
    from langgraph.graph import MessagesState


class TurnState(AgentState[Any]):  # type: ignore[misc]
    """State with the name of the turn: a summary may replace the message that began it."""

    memory_turn: NotRequired[Annotated[str, PrivateStateAttr]]  # type: ignore[valid-type]


_in_tool: ContextVar[bool] = ContextVar("memslot_in_tool", default=False)


class MemoryMiddleware(AgentMiddleware):  # type: ignore[misc]
    """Recalls at the first model call of a turn, and records when the agent has ended.

        agent = create_agent(model, tools, middleware=[MemoryMiddleware(memory)], checkpointer=checkpointer)
        await agent.ainvoke({"messages": [("user", "Which tea do I like?")]}, {"configurable": {"thread_id": "1"}})

    The section stands below what the user said in what is sent to the model, and in no state. A turn is the last
    human message of what a run begins with, and what follows; a session is the ``thread_id``. An agent that a tool
    of this agent asks gets its task from a model: its run is neither recalled for nor recorded. ``invoke`` and
    ``stream`` work from another thread than that of the memory's event loop, see ``open_memory_sync``.

    Args:
        memory: whoever opened it closes it, after the agent's last run.
        user_id: the person within the memory's own scope, a whole scope, or a function of
            LangGraph's ``Runtime``, whose ``context`` may say who speaks.
        tools: whether the model may search the memory, and keep a fact in it.

    Raises:
        ScopeError: the memory has no scope.
    """

    state_schema = TurnState

    def __init__(
        self,
        memory: OpenMemory,
        *,
        user_id: UserOf | None = None,
        tools: bool = False,
    ) -> None:
        super().__init__()
        self._turns = Turns(memory, user_id)
        self.tools = [self._turns.tool(name) for name in DESCRIPTIONS] if tools else []

    @property
    def name(self) -> str:
        """The same for every memory, so that LangChain refuses a second one."""
        return "memslot"

    def before_agent(self, state: Any, runtime: Any) -> dict[str, str]:
        if _in_tool.get():
            return {"memory_turn": ""}
        return beginning(state["messages"])

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, str]:
        return self.before_agent(state, runtime)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        section = await self._turns.recall(request.state, request.runtime)
        return await handler(request.override(messages=with_section(request.messages, section)))

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """As :meth:`awrap_model_call`, for an agent that is not awaited."""
        section = self._turns.recall_blocking(request.state, request.runtime)
        return handler(request.override(messages=with_section(request.messages, section)))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Note that a tool is at work: agents that run meanwhile are its own."""
        token = _in_tool.set(True)
        try:
            return await handler(request)
        finally:
            _in_tool.reset(token)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """As :meth:`awrap_tool_call`, for an agent that is not awaited."""
        token = _in_tool.set(True)
        try:
            return handler(request)
        finally:
            _in_tool.reset(token)

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
        memory, user_id: as for :class:`MemoryMiddleware`.
    """

    def __init__(self, memory: OpenMemory, *, user_id: UserOf | None = None) -> None:
        self._turns = Turns(memory, user_id)

    async def recall(self, state: Any, runtime: Any = None) -> dict[str, Any]:
        """Recall for the last human message."""
        turn = beginning(state["messages"])
        return {**turn, "memory_section": await self._turns.recall({**state, **turn}, runtime)}

    async def record(self, state: Any, runtime: Any = None) -> None:
        """Record that message and what followed it."""
        await self._turns.record(state, runtime)

    @staticmethod
    def messages(state: Any) -> list[AnyMessage]:
        """The messages with the section, for the model alone."""
        return with_section(state["messages"], state.get("memory_section", ""))
