"""CrewAI: a memory through the LLM hooks and the task callback of a crew.

CrewAI's own ``Memory`` extracts and embeds itself, and requires a vector store. So this binding bypasses it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from memory import ConfigError
from memory.hosts._shared import tested
from memory.hosts._tools import DESCRIPTIONS, SEARCH, STORE, ModelTools
from memory.runtime import HostTurns, OpenMemory, UserOf, strip_context

with tested("crewai"):
    from crewai.hooks import (
        register_after_llm_call_hook,
        register_before_llm_call_hook,
        unregister_after_llm_call_hook,
        unregister_before_llm_call_hook,
    )
    from crewai.tools import tool


class CrewMemory:
    """The memory of a crew. Each task is a turn.

        with open_memory_sync("memslot.yaml") as memory, CrewMemory(crew, memory, session_id="chat-1"):
            crew.kickoff(inputs={"question": "Which tea do I like?"})

    The section is an agent's last message during a model call. It is removed before CrewAI keeps the
    messages. A turn consists of the task's description and its output.

    Args:
        crew: a ``Crew`` that runs one kickoff at a time.
        memory, user_id: as for :class:`memory.runtime.HostTurns`. Open the memory with ``open_memory_sync``,
            because CrewAI calls hooks synchronously. A function of ``user_id`` gets ``session_id``.
        session_id: the conversation.
        tools: whether the crew's agents may search the memory and store facts.

    Raises:
        ConfigError: the crew already has a memory.
    """

    def __init__(
        self,
        crew: Any,
        memory: OpenMemory,
        *,
        session_id: str,
        user_id: UserOf | None = None,
        tools: bool = False,
    ) -> None:
        self._turns = HostTurns(memory, "crewai", user_id, session_id)
        if isinstance(getattr(crew.task_callback, "__self__", None), CrewMemory):
            raise ConfigError("this crew has a memory already; one crew takes one memory")
        self._tools = [self._tool(name) for name in DESCRIPTIONS] if tools else []
        for agent in crew.agents:
            agent.tools = [*(agent.tools or ()), *self._tools]
        self._crew = crew
        self._session_id = session_id
        self._inner: Callable[[Any], Any] | None = crew.task_callback
        crew.task_callback = self._record
        register_before_llm_call_hook(self._before)
        register_after_llm_call_hook(self._after)

    def __enter__(self) -> CrewMemory:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    def detach(self) -> None:
        """Restore the crew. Idempotent."""
        if self._crew is not None:
            unregister_before_llm_call_hook(self._before)
            unregister_after_llm_call_hook(self._after)
            self._crew.task_callback = self._inner
            for agent in self._crew.agents:
                agent.tools = [tool for tool in agent.tools or () if tool not in self._tools]
            self._crew = None

    def _tool(self, name: str) -> Any:
        answers = ModelTools(self._turns)

        def memory_search(query: str) -> str:
            return answers.answer_blocking(SEARCH, query, None, self._session_id)

        def memory_store(content: str) -> str:
            return answers.answer_blocking(STORE, content, None, self._session_id)

        made = memory_search if name == SEARCH else memory_store
        made.__doc__ = DESCRIPTIONS[name]
        return tool(name)(made)

    def _before(self, context: Any) -> None:
        """Show the section to tasks of the crew and its ``kickoff_for_each`` copies, but not to delegates."""
        if not self._is_ours(context.crew) or context.task not in context.crew.tasks:
            return
        _take_out(context.messages)
        said, turn = str(context.task.description), str(context.task.id)
        section = self._turns.recall_blocking(turn, said, session_id=self._session_id).section
        if section:
            context.messages.append({"role": "user", "content": section})

    def _after(self, context: Any) -> None:
        if self._is_ours(context.crew):
            _take_out(context.messages)

    def _is_ours(self, crew: Any) -> bool:
        return crew is not None and crew.task_callback == self._record

    def _record(self, output: Any) -> Any:
        self._turns.end(self._session_id)
        if str(output.description).strip():
            self._turns.record_blocking(
                uuid.uuid4().hex,
                session_id=self._session_id,
                user=str(output.description),
                assistant=str(output.raw or ""),
            )
        return self._inner(output) if self._inner is not None else None


def _take_out(messages: list[Any]) -> None:
    """Remove the messages that are a section, in place, because CrewAI's executor shares the list."""
    messages[:] = [message for message in messages if not _is_section(message.get("content"))]


def _is_section(content: Any) -> bool:
    return isinstance(content, str) and bool(content.strip()) and not strip_context(content).strip()
