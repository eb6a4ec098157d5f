"""An adapter as section 2 of the design document writes it: its eight members and its types.

It inherits from nothing, declares no traits, names no native ids and closes nothing.
"""

from memory import (
    BackendHealth,
    MemoryEvent,
    MemoryScope,
    ModeReceipt,
    ResetReceipt,
    RetrieveResult,
    Trace,
    WriteReceipt,
)
from memory.adapter import ContextEntry, clean_text

Store = dict[MemoryScope, list[MemoryEvent]]


class SectionTwo:
    """Keeps events in a dictionary, and finds those that share letters with the query.

    Args:
        store: what several adapters share, as a server would be.
    """

    backend_name: str = "section_two"

    def __init__(self, store=None):
        self.store: Store = {} if store is None else store
        self.read_only = False

    async def setup_scope(self, scope):
        self.store.setdefault(scope, [])

    async def set_mode(self, mode):
        self.read_only = mode.read_only
        return ModeReceipt(read_only=mode.read_only, reason=mode.reason)

    async def record_event(self, event):
        if self.read_only:
            return WriteReceipt(event_id=event.event_id, status="skipped_read_only")
        kept = self.store[event.scope]
        if event.event_id not in {other.event_id for other in kept}:
            kept.append(event)
        return WriteReceipt(event_id=event.event_id, status="committed", native_ids=(event.event_id,))

    async def retrieve(self, request):
        found = [event for event in self.store[request.scope] if _pairs(request.query) & _pairs(_said(event))]
        found.sort(key=lambda event: len(_pairs(request.query) & _pairs(_said(event))), reverse=True)
        limited = found[: request.budget.max_items]
        trace = Trace(
            backend_name=self.backend_name,
            scope=request.scope,
            native_operation="search",
            native_ids=tuple(event.event_id for event in limited),
            retrieved_count=len(limited),
        )
        entries = tuple(
            ContextEntry(
                _said(event),
                native_id=event.event_id,
                timestamp=event.timestamp,
                event_ids=(event.event_id,),
                session_id=event.session_id,
            )
            for event in limited
        )
        raw = [event.model_dump(mode="json") for event in limited]
        return RetrieveResult(request=request, raw=raw, entries=entries, trace=trace)

    def format_context(self, result):
        if not result.context_entries:
            return ""
        lines = [f"- {clean_text(entry.text)}".replace("\n", "\n  ") for entry in result.context_entries]
        head = f'<memory-context backend="{self.backend_name}" scope="{result.request.scope.label}">'
        return "\n".join([head, *lines, "</memory-context>"])

    async def reset_scope(self, scope):
        removed = len(self.store.get(scope, ()))
        self.store[scope] = []
        return ResetReceipt(scope=scope, verified=True, removed=removed)

    async def health(self):
        return BackendHealth(status="ok", backend_name=self.backend_name, consistency_model="immediate")


def _said(event):
    return "\n".join(message.content for message in event.messages)


def _pairs(text):
    """Neighbouring letters, which work for scripts without blanks, too."""
    return {text[at : at + 2].casefold() for at in range(len(text) - 1)}
