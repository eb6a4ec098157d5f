"""A control condition: the newest session of each person, in order, and nothing older."""

from __future__ import annotations

from memory import (
    BackendHealth,
    MemoryEvent,
    MemoryScope,
    Message,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    BaseAdapter,
    ContextEntry,
    IdAlphabet,
    PluginInfo,
    PluginOptions,
    ScopeEncoder,
    hookimpl,
)


class LastSessionOptions(PluginOptions):
    """The block ``memory.conditions.last_session``."""

    sessions: int = 1
    """How many of the newest sessions are remembered."""


class LastSession(BaseAdapter):
    """Keeps events by session, in memory, and shows those of the newest.

    Args:
        options: the condition's block.
    """

    backend_name = "last_session"
    traits = AdapterTraits(kind="control", consistency="immediate")

    def __init__(self, options: LastSessionOptions) -> None:
        self._sessions = options.sessions
        self._events: dict[MemoryScope, dict[str, list[MemoryEvent]]] = {}
        self._encoder = ScopeEncoder(IdAlphabet())

    def native_scope(self, scope: MemoryScope) -> dict[str, str]:
        return dict(self._encoder.encode(scope))

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        sessions = self._events.setdefault(event.scope, {})
        known = sessions.setdefault(event.session_id, [])
        if all(other.event_id != event.event_id for other in known):
            known.append(event)
        volatile = "volatile: kept until this process ends"
        return self.receipt(event, "dict.append", [event.event_id], warnings=[volatile])

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        sessions = self._events.get(request.scope, {}).values()
        newest = sorted(sessions, key=lambda events: events[-1].timestamp)[-self._sessions :]
        said = [
            (event, message)
            for events in newest
            for event in sorted(events, key=lambda event: event.timestamp)
            for message in event.messages
            if message.content.strip()
        ]
        if request.budget.max_items is not None:
            said = said[-request.budget.max_items :]
        return RetrieveResult(
            request=request,
            raw=[
                {
                    "by": message.name or message.role,
                    "said": message.content,
                    **event.model_dump(mode="json", exclude={"messages"}),
                }
                for event, message in said
            ],
            entries=tuple(self._entry(event, message) for event, message in said),
            trace=self.trace(request.scope, "dict.values", consistency="committed"),
        )

    def _entry(self, event: MemoryEvent, message: Message) -> ContextEntry:
        return ContextEntry(
            message.content,
            native_id=event.event_id,
            timestamp=event.timestamp,
            labels=(("by", message.name or message.role),),
            event_ids=(event.event_id,),
            session_id=event.session_id,
            scope_ids=self.native_scope(event.scope),
        )

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        removed = sum(map(len, self._events.pop(scope, {}).values()))
        return ResetReceipt(scope=scope, verified=scope not in self._events, removed=removed)

    async def health(self) -> BackendHealth:
        return self.health_of()


@hookimpl
def memslot_describe() -> PluginInfo:
    """Listed without building anything."""
    return PluginInfo(
        name="last_session",
        kind="control",
        summary="the newest session alone, volatile",
        options=LastSessionOptions,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[LastSessionOptions]) -> LastSession:
    """Build it; there is no SDK to import."""
    return LastSession(settings.options)
