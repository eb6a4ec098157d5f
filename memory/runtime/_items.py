"""Single memories of one scope, over any slot, for tools, Signet's endpoints and MCP.

An item is a native record as recall shows it. The module keeps no copy of it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from anyio import to_thread

from memory.contract import receipts
from memory.contract.adapter import SupportsNativeMutation, SupportsProvenance
from memory.contract.errors import BackendRejected, BackendUnavailable, CapabilityNotSupported, ScopeError
from memory.contract.formatting import relabel_section
from memory.contract.receipts import ContextEntry, RetrieveResult, WriteReceipt
from memory.contract.requests import (
    ContextBudget,
    NativeMutationRequest,
    ProvenanceRequest,
)
from memory.contract.scope import MemoryScope
from memory.slot.slot import MemorySlot
from memory.slot.turns import event_from_turn, request_of
from memory.storage.kept import HostStore

_IDS = ("id", "row_id", "uuid")
_MAX_SESSIONS = 1000
# For each change: the native operation, and example arguments for the check of its declaration.
_CHANGES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "modify": ("update", {"text": "a text"}),
    "forget": ("delete", {}),
}
_TEXTS = ("memory", "text", "content", "fact", "value")


@dataclass(frozen=True, slots=True)
class Item:
    """One memory. ``id`` is None if the backend gives none. The other fields are as in ContextEntry."""

    id: str | None
    content: str
    score: float | None = None
    timestamp: datetime | None = None
    event_ids: tuple[str, ...] = ()
    session_id: str | None = None

    @classmethod
    def of(cls, entry: ContextEntry) -> Item:
        """Convert an entry of a retrieval."""
        return cls(
            entry.native_id, entry.text, entry.score, entry.timestamp, entry.event_ids, entry.session_id
        )


class MemoryItems:
    """The memories of one scope, by default the slot's own, which is set up at its first use."""

    def __init__(self, slot: MemorySlot, scope: MemoryScope | None = None) -> None:
        self.slot = slot
        self.scope = slot.delivery.scope_or_default(scope)

    @property
    def offered(self) -> tuple[str, ...]:
        """The names among search, store, get, modify and forget that the configured backend supports."""
        get = ["get"] if "provenance" in self.slot.capabilities() else []
        return ("search", "store", *get, *filter(self._can, _CHANGES))

    def _can(self, name: str) -> bool:
        """Whether the backend supports a change. A backend that declares no operations may support any."""
        if "native_mutation" not in self.slot.capabilities():
            return False
        operation, arguments = _CHANGES[name]
        if (declared := self.slot.traits.native_mutations) is None:
            return True
        known = declared.get(operation)
        return known is not None and known.native_id and known.problem(arguments) is None

    async def search(
        self,
        query: str,
        limit: int = 10,
        *,
        session_id: str = "tools",
        filters: Mapping[str, object] | None = None,
    ) -> list[Item]:
        """Search for memories, returned in the backend's order.

        Raises:
            InputError: the query is blank, or ``limit`` is not a positive number.
            CapabilityNotSupported: the backend does not support these ``filters``.
            BackendError: the backend failed.
        """
        budget = ContextBudget(max_items=limit)
        request = request_of(query, session_id, self.scope, budget=budget, filters=filters)
        await self.slot.delivery.set_up(self.scope)
        result = await self.slot.retrieve(request)
        return [Item.of(entry) for entry in result.entries[:limit]]

    async def store(
        self,
        content: str,
        *,
        session_id: str = "tools",
        event_id: str | None = None,
        agent_id: str = "agent",
        metadata: Mapping[str, object] | None = None,
    ) -> WriteReceipt:
        """Write one memory, as a message of the user.

        Raises:
            InputError: ``content`` is blank.
            BackendError: the memory was not stored.
        """
        event = event_from_turn(
            session_id, self.scope, user=content, event_id=event_id, agent_id=agent_id, metadata=metadata
        )
        await self.slot.delivery.set_up(self.scope)
        return await self.slot.record_event(event)

    async def get(self, item_id: str) -> Item | None:
        """Read the current text of one memory; None if this scope has no memory with that id.

        Raises:
            CapabilityNotSupported: the backend cannot look up a memory by its id.
            BackendError: the backend failed.
        """
        provenance = self.slot.capability(SupportsProvenance)
        if provenance is None:
            raise CapabilityNotSupported(f"{self.slot.backend_name} cannot look a memory up by its id")
        await self.slot.delivery.set_up(self.scope)
        request = ProvenanceRequest(scope=self.scope, native_id=item_id)
        try:
            found = await provenance.provenance(request)
        except (ScopeError, BackendRejected):  # the id belongs to another scope, or does not exist
            return None
        content = _texts(found.raw).get(item_id)
        return None if content is None else Item(item_id, content)

    async def everything(self) -> list[Item] | None:
        """List every memory of the scope, in the backend's order; None if the backend cannot list them."""
        provenance = self.slot.capability(SupportsProvenance)
        if provenance is None:
            return None
        request = ProvenanceRequest(scope=self.scope, since=datetime.min.replace(tzinfo=UTC))
        await self.slot.delivery.set_up(self.scope)
        found = await provenance.provenance(request)
        texts = _texts(found.raw)
        held = {name: texts.get(name) for name in found.native_ids}
        return [Item(name, text) for name, text in held.items() if text is not None]

    async def gone(self, item_id: str) -> bool:
        """Whether a memory no longer exists. Also true if the backend cannot read single memories."""
        return "get" not in self.offered or await self.get(item_id) is None

    async def modify(self, item_id: str, content: str) -> receipts.NativeMutationReceipt:
        """Replace the text of one memory.

        Raises:
            CapabilityNotSupported: the backend cannot update a single memory.
            ScopeError, BackendError: the scope has no such memory, or the backend failed.
        """
        return await self._mutate("modify", item_id, {"text": content})

    async def forget(self, item_id: str) -> receipts.NativeMutationReceipt:
        """Delete one memory. Raises the same errors as :meth:`modify`."""
        receipt = await self.delete(item_id)
        await to_thread.run_sync(self._drop_note, item_id)
        return receipt

    async def delete(self, item_id: str) -> receipts.NativeMutationReceipt:
        """Delete one memory like :meth:`forget`, but keep the note of ``memslot serve`` on it."""
        return await self._mutate("forget", item_id, {})

    def _drop_note(self, item_id: str) -> None:
        if self.slot.delivery.store is not None:
            with HostStore(self.slot.backend_name, self.slot.delivery.store) as kept:
                kept.drop("note", self.scope, item_id)

    async def forget_all(self, item_ids: Iterable[str]) -> bool:
        """Delete memories, some of which may be gone already. Returns False if the slot is read-only.

        Raises:
            BackendUnavailable: the backend did not say whether it has deleted one of them.
            CapabilityNotSupported, ScopeError, BackendError: as for :meth:`modify`.
        """
        for item_id in item_ids:
            try:
                receipt = await self.forget(item_id)
            except (ScopeError, BackendRejected):
                if await self.gone(item_id):
                    continue
                raise
            if receipt.status == "skipped_read_only":
                return False
            if receipt.status == "unknown":
                raise BackendUnavailable(
                    f"{self.slot.backend_name} did not say whether it has deleted a memory; do it again"
                )
        return True

    async def _mutate(
        self, name: str, item_id: str, arguments: dict[str, Any]
    ) -> receipts.NativeMutationReceipt:
        operation, _ = _CHANGES[name]
        mutation = self.slot.capability(SupportsNativeMutation)
        if mutation is None or not self._can(name):
            raise CapabilityNotSupported(f"{self.slot.backend_name} cannot {operation} a single memory")
        request = NativeMutationRequest(
            scope=self.scope, operation=operation, native_id=item_id, arguments=arguments
        )
        await self.slot.delivery.set_up(self.scope)
        receipt = await mutation.native_mutation(request)
        if name == "forget":
            await to_thread.run_sync(self.slot.delivery.recalls.forget, self.scope, item_id)
        return receipt


def _texts(raw: Any) -> dict[str, str | None]:
    """Return the texts of the objects in a native answer, by each of their ids. The last one of an id counts."""
    found: dict[str, str | None] = {}
    for row in _rows(raw):
        text = next((row[name] for name in _TEXTS if isinstance(row.get(name), str)), None)
        found |= {str(row[name]): text for name in _IDS if row.get(name) is not None}
    return found


def _rows(raw: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object in a native answer, outermost first."""
    if isinstance(raw, Mapping):
        yield raw
        raw = list(raw.values())
    if isinstance(raw, (list, tuple)):
        for part in raw:
            yield from _rows(part)


@dataclass(slots=True)
class Part:
    """The memories of one scope for a prompt, under a label such as ``user`` or ``project``."""

    label: str
    result: RetrieveResult
    chosen: tuple[int, ...] = ()  # indices of entries, chosen by :func:`fit_parts`, in the backend's order
    section: str = field(default="", repr=False)

    @property
    def entries(self) -> list[ContextEntry]:
        return [self.result.entries[index] for index in self.chosen]


def digest_of(entry: ContextEntry) -> str:
    """Return a digest of an entry's text. It does not depend on the scope, the id or the whitespace."""
    return hashlib.sha256(" ".join(entry.text.split()).encode("utf-8", "replace")).hexdigest()[:20]


class ShownSections:
    """The entries that a host still shows in its last 1,000 sessions, so that it does not get them twice."""

    def __init__(self, slot: MemorySlot) -> None:
        self._slot = slot
        self._shown: OrderedDict[str, set[str]] = OrderedDict()

    def new_in(self, session_id: str, result: RetrieveResult) -> Part:
        """Return the part of a retrieval that the session's host does not show yet."""
        shown, part = self._shown.get(session_id, set()), Part("user", result)
        fit_parts(self._slot, [part], lambda _, entry: digest_of(entry) in shown)
        return part

    def add(self, session_id: str, part: Part) -> None:
        """Note that the host shows this part."""
        self._shown.setdefault(session_id, set()).update(map(digest_of, part.entries))
        self._shown.move_to_end(session_id)
        if len(self._shown) > _MAX_SESSIONS:
            self._shown.popitem(last=False)

    def forget(self, session_id: str | None) -> None:
        """Note that the host shows nothing, because the session has begun, ended or was compacted."""
        self._shown.pop(session_id or "", None)


def fit_parts(slot: MemorySlot, parts: Sequence[Part], hidden: Callable[[int, ContextEntry], bool]) -> str:
    """Choose entries for every part within the budget, and join the parts' sections.

    The parts take turns, one entry each. No text appears twice, and ``hidden`` entries are skipped. Entries
    are never cut.
    """
    budget, seen = slot.delivery.budget, set[str]()
    ranked: list[tuple[int, int, int]] = []  # place within the part, part, index of the entry

    def is_new(number: int, entry: ContextEntry) -> bool:
        digest = digest_of(entry)
        if not entry.text.strip() or digest in seen or hidden(number, entry):
            return False
        seen.add(digest)
        return True

    for number, part in enumerate(parts):
        included, entries = part.result.included, part.result.entries
        # Entries outside of the section take the places of those that are not new.
        order = sorted(range(len(entries)), key=lambda index: index not in included)
        new = islice((index for index in order if is_new(number, entries[index])), len(included))
        ranked += [(place, number, index) for place, index in enumerate(sorted(new))]
    ranked = sorted(ranked)[: budget.max_items]

    def sections(count: int) -> str:
        for number, part in enumerate(parts):
            part.chosen = tuple(sorted(index for _, owner, index in ranked[:count] if owner == number))
            part.section = _render(slot, part) if part.chosen else ""
        return "\n".join(part.section for part in parts if part.section)

    def tokens(count: int) -> int:
        return slot.delivery.token_counter.count(sections(count))

    count, room = len(ranked), budget.max_tokens
    if room is not None and tokens(count) > room:
        count = bisect_right(range(1, count + 1), room, key=tokens)
    return sections(count)


def _render(slot: MemorySlot, part: Part) -> str:
    if part.chosen == part.result.included and part.result.formatted_context:
        return relabel_section(part.result.formatted_context, part.label)
    shown = part.result.model_copy(update={"formatted_context": "", "included": part.chosen})
    return relabel_section(slot.format_context(shown), part.label)
