"""LangChain: middleware for an agent, over a memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NotRequired

from memory.hosts._langchain_turns import Turns, beginning, with_section
from memory.hosts._shared import tested
from memory.hosts._tools import DESCRIPTIONS
from memory.runtime import OpenMemory, UserOf, tool_running

with tested("langchain"):
    from langchain.agents.middleware.types import AgentMiddleware, AgentState, PrivateStateAttr


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
        self._turns = Turns(memory, user_id)
        self.tools = [self._turns.tool(name) for name in DESCRIPTIONS] if tools else []

    def before_agent(self, state: Any, runtime: Any) -> dict[str, str]:
        return beginning(state["messages"])

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, str]:
        return beginning(state["messages"])

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        section = await self._turns.recall(request.state, request.runtime)
        return await handler(request.override(messages=with_section(request.messages, section)))

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        recall = self._turns.turns.recall_blocking(**self._turns.asked(request.state, request.runtime))
        return handler(request.override(messages=with_section(request.messages, recall.section)))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        with tool_running():
            return await handler(request)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        with tool_running():
            return handler(request)

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        await self._turns.record(state, runtime)

    def after_agent(self, state: Any, runtime: Any) -> None:
        if said := self._turns.said(state, runtime):
            self._turns.turns.record_blocking(**said)
