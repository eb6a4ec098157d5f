"""Google ADK: a ``BaseMemoryService`` over a memory, and a plugin that records every run."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any

from memory import MemoryScope, Message
from memory.hosts._shared import tested
from memory.hosts._tools import DESCRIPTIONS, SEARCH, STORE, ModelTools
from memory.runtime import HostTurns, MemoryItems, OpenMemory, answer_text

with tested("adk"):
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.tools.function_tool import FunctionTool
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types


class SlotMemoryService(BaseMemoryService):  # type: ignore[misc]
    """A memory for all users of an app. ``app_name`` becomes the scope's run, and ``user_id`` its persona.

        service = SlotMemoryService(memory)
        runner = Runner(..., memory_service=service, plugins=[RecordingPlugin(service)])

    ADK shows memories through its ``PreloadMemoryTool`` (every turn) or ``LoadMemoryTool`` (when the model
    asks). Give the agent one of them.

    Args:
        memory: an open memory. The code that opened it closes it, after the runner.
    """

    def __init__(self, memory: OpenMemory) -> None:
        self._turns = HostTurns(memory, "adk", lambda session: _scope(session.app_name, session.user_id))
        self.recalls_once = False  # set by the plugin, which notices the end of a run

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> Any:
        """Return the memories for a query, best first. The turn policy decides what a failure does."""
        turn = f"search {query}" if self.recalls_once else uuid.uuid4().hex
        scope = _scope(app_name, user_id)
        recall = await self._turns.recall(turn, query, session_id="adk", scope=scope)
        entries = recall.result.context_entries if recall.result else ()
        return SearchMemoryResponse(
            memories=[
                MemoryEntry(
                    id=entry.native_id,
                    content=types.Content(parts=[types.Part(text=entry.text)]),
                    timestamp=entry.timestamp.isoformat() if entry.timestamp else None,
                )
                for entry in entries
            ]
        )

    async def add_session_to_memory(self, session: Any) -> None:
        """Record a session's turns, each once."""
        await self._record(session.app_name, session.user_id, session.id, session.events)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Any],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Record these turns. ``custom_metadata`` is ignored."""
        await self._record(app_name, user_id, session_id or "adk", events)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[Any],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store each entry as one memory.

        Raises:
            InputError, BackendError: an entry was not stored. The entries before it are stored.
        """
        items = MemoryItems(self._turns.memory.slot, _scope(app_name, user_id))
        for entry in memories:
            text = "\n".join(part.text for part in entry.content.parts or () if part.text)
            metadata = {**(custom_metadata or {}), **entry.custom_metadata}
            store = partial(items.store, text, event_id=entry.id, agent_id="adk", metadata=metadata)
            await self._turns.call(store)

    def tools(self) -> list[Any]:
        """Return the tools for an agent's ``tools=``: a search, and a way to store a fact."""
        answers = ModelTools(self._turns)

        async def memory_search(query: str, tool_context: ToolContext) -> str:
            session = tool_context.session
            return await answers.answer(SEARCH, query, self._turns.scope_of(session), session.id)

        async def memory_store(content: str, tool_context: ToolContext) -> str:
            session = tool_context.session
            return await answers.answer(STORE, content, self._turns.scope_of(session), session.id)

        memory_search.__doc__, memory_store.__doc__ = DESCRIPTIONS[SEARCH], DESCRIPTIONS[STORE]
        return [FunctionTool(memory_search), FunctionTool(memory_store)]

    async def _record(self, app_name: str, user_id: str, session_id: str, events: Iterable[Any]) -> None:
        scope = _scope(app_name, user_id)
        self._turns.end("adk", scope)
        for invocation, group in groupby(events, key=lambda event: event.invocation_id):
            run = list(group)
            ids = Counter(event.id for event in run)
            for spoken in _answered(run):
                asked = spoken[0][0]
                name = asked.id if ids[asked.id] == 1 else asked.timestamp
                await self._turns.record(
                    f"{invocation or session_id}:{name}",
                    session_id=session_id,
                    scope=scope,
                    messages=[said for _, said in spoken],
                    timestamp=datetime.fromtimestamp(asked.timestamp, UTC),
                    left_out=[kind for event, _ in spoken for kind in _left_out(event)],
                )


def _scope(app_name: str, user_id: str) -> MemoryScope:
    return MemoryScope(run_id=app_name, persona_id=user_id)


class RecordingPlugin(BasePlugin):  # type: ignore[misc]
    """Records each run through a service after its end, because ADK does not hand runs to a memory service."""

    def __init__(self, service: SlotMemoryService, name: str = "memslot") -> None:
        super().__init__(name=name)
        self._service = service
        service.recalls_once = True

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """Record this run, unless its agent is a tool of another agent."""
        if isinstance(invocation_context.memory_service, InMemoryMemoryService):
            return
        session, run = invocation_context.session, invocation_context.invocation_id
        await self._service.add_events_to_memory(
            app_name=session.app_name,
            user_id=session.user_id,
            session_id=session.id,
            events=[event for event in session.events if event.invocation_id == run],
        )


def _answered(run: Iterable[Any]) -> Iterator[list[tuple[Any, Message]]]:
    """Split a run at each answer. A run that waits for an approval continues under the same invocation."""
    spoken: list[tuple[Any, Message]] = []
    for event in run:
        if event.author == "user" and _ends_with_answer(spoken):
            yield spoken
            spoken = []
        if (said := _said(event)) is not None:
            spoken.append((event, said))
    if _ends_with_answer(spoken):
        yield spoken


def _ends_with_answer(spoken: list[tuple[Any, Message]]) -> bool:
    return bool(spoken) and spoken[-1][1].role == "assistant"


def _left_out(event: Any) -> list[str]:
    """Return the kinds of an event's parts without words, such as ``image/png``."""
    parts = (event.content.parts if event.content else None) or ()
    kept = [part.inline_data or part.file_data for part in parts]
    return [str(data.mime_type or "file") for data in kept if data]


def _said(event: Any) -> Message | None:
    """Return the words of an event, without thoughts; None if it has no words or calls a tool."""
    parts = event.content.parts if event.content and event.content.parts and not event.partial else ()
    if any(part.function_call for part in parts):
        return None
    text = "\n".join(part.text for part in parts if part.text and not part.thought)
    role = "user" if event.author == "user" else "assistant"
    return Message.model_validate({"role": role, "content": answer_text(text)}) if text.strip() else None
