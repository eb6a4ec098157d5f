"""LangChain and LangGraph: middleware for an agent, and two nodes for a custom graph, over a memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NotRequired

from memory.hosts._langchain_turns import Turns, beginning, with_section
from memory.hosts._shared import in_tool, tested, tool_running
from memory.hosts._tools import DESCRIPTIONS
from memory.runtime import OpenMemory, UserOf

with tested("langchain"):
    from langchain.agents.middleware.types import AgentMiddleware, AgentState, PrivateStateAttr
    from langchain_core.messages import AnyMessage
    from langgraph.channels.untracked_value import UntrackedValue
    from langgraph.graph import MessagesState


class TurnState(AgentState[Any]):  # type: ignore[misc]
    """State with the turn's name, because a summary may replace the message that began the turn."""

    memory_turn: NotRequired[Annotated[str, PrivateStateAttr]]  # type: ignore[valid-type]


class MemoryMiddleware(AgentMiddleware):  # type: ignore[misc]
    """Recalls at the first model call of a turn, and records the turn after the agent ends.

        agent = create_agent(model, tools, middleware=[MemoryMiddleware(memory)], checkpointer=checkpointer)
        await agent.ainvoke({"messages": [("user", "Which tea do I like?")]}, {"configurable": {"thread_id": "1"}})

    The model sees the section below the user's message. No state keeps it. A turn is the last human message
    of a run's input and the messages after it, and the session is the ``thread_id``. An agent that runs
    inside a tool gets its task from a model, so its run is neither recalled for nor recorded. ``invoke`` and
    ``stream`` must not run in the thread of the memory's event loop, see ``open_memory_sync``.

    Args:
        memory: an open memory. The code that opened it closes it, after the agent's last run.
        user_id: a user id within the memory's scope, a whole scope, or a function of LangGraph's ``Runtime``
            that returns either. Its ``context`` may name the user.
        tools: whether the model may search the memory and store facts.

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
        """The middleware's name. It is always the same, so that LangChain refuses a second memory."""
        return "memslot"

    def before_agent(self, state: Any, runtime: Any) -> dict[str, str]:
        if in_tool():
            return {"memory_turn": ""}
        return beginning(state["messages"])

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, str]:
        return self.before_agent(state, runtime)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        section = await self._turns.recall(request.state, request.runtime)
        return await handler(request.override(messages=with_section(request.messages, section)))

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Recall like :meth:`awrap_model_call`, for synchronous agents."""
        section = self._turns.recall_blocking(request.state, request.runtime)
        return handler(request.override(messages=with_section(request.messages, section)))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Mark that a tool is running, so that agents inside it are not recalled for or recorded."""
        with tool_running():
            return await handler(request)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Mark a tool like :meth:`awrap_tool_call`, for synchronous agents."""
        with tool_running():
            return handler(request)

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        await self._turns.record(state, runtime)

    def after_agent(self, state: Any, runtime: Any) -> None:
        """Record like :meth:`aafter_agent`, for synchronous agents."""
        self._turns.record_blocking(state, runtime)


class MemoryState(MessagesState):  # type: ignore[misc]
    """The messages, the turn's name and the section of this run. No checkpointer keeps the section."""

    memory_turn: NotRequired[str]  # type: ignore[valid-type]
    memory_section: NotRequired[Annotated[str, UntrackedValue(str)]]  # type: ignore[valid-type]


class MemoryNodes:
    """Two nodes for a graph over :class:`MemoryState`: one before the model, one at the end.

        nodes = MemoryNodes(memory)
        graph.add_node("recall", nodes.recall)
        graph.add_node("record", nodes.record)

    The model's node sends ``nodes.messages(state)`` instead of ``state["messages"]``.

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
        """Record the last human message and the answers to it."""
        await self._turns.record(state, runtime)

    @staticmethod
    def messages(state: Any) -> list[AnyMessage]:
        """Return the messages with the section, only for the model."""
        return with_section(state["messages"], state.get("memory_section", ""))
