"""LangGraph: two nodes for a graph of your own, over a memory."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from memory.hosts._langchain_turns import Turns, beginning, with_section
from memory.hosts._shared import tested
from memory.runtime import OpenMemory, UserOf

with tested("langchain"):
    from langchain_core.messages import AnyMessage
    from langgraph.channels.untracked_value import UntrackedValue
    from langgraph.graph import MessagesState


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
        memory, user_id: as for :class:`memory.hosts.langchain.MemoryMiddleware`.
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
