"""A native system for tests. It runs in this process, fails on demand, and does not know memslot."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import wraps
from operator import contains, eq, ge, gt, le, lt, ne
from typing import Any, TypeVar

import anyio

from memory.adapter._scripted_text import lexical_overlap
from memory.testing._faults import FAKE_KEY, FaultKind, Faults

STORE_FAULTS: tuple[FaultKind, ...] = (
    "401", "403", "422", "429", "500", "refused", "slow", "late", "lost", "truncated", "unreadable",
)  # fmt: skip

Call = TypeVar("Call", bound=Callable[..., Awaitable[Any]])
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": eq,
    "ne": ne,
    "gt": gt,
    "gte": ge,
    "lt": lt,
    "lte": le,
    "contains": contains,
    "in": lambda have, want: have in want,
    "nin": lambda have, want: have not in want,
    "icontains": lambda have, want: want.casefold() in have.casefold(),
}


class FakeNativeError(Exception):
    """An error of the store's client. Like a real one, it repeats the request and the credentials."""

    def __init__(self, status: int, said: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"HTTP {status} for key {FAKE_KEY} while handling: {said}")
        self.status_code, self.code, self.request_id = status, f"fake_{status}", "fake-request-1"
        if retry_after is not None:
            self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class FakeRow:
    """A stored record.

    Attributes:
        id, space: the row's id and the id of its space.
        text: the searchable text.
        kind: ``message`` or ``feedback``.
        created_at: ISO 8601, as the client sent it.
        labels: flat metadata. ``where`` filters by it.
        metadata: any further JSON.
    """

    id: str
    space: str
    text: str
    kind: str
    created_at: str
    labels: Mapping[str, object]
    metadata: Mapping[str, object] = field(default_factory=dict)


def _served(act: Call) -> Call:
    """Make a method a native call: counted, delayed by the latency, and subject to the ordered faults."""

    @wraps(act)
    async def served(self: FakeNativeStore, *sent: Any, **named: Any) -> Any:
        rows = [row for rows in sent if isinstance(rows, list | tuple) for row in rows]
        texts = [row.get("text") for row in rows if isinstance(row, Mapping)]  # verbatim
        said = " ".join(map(str, (*sent, *named.values(), *texts)))
        self.operations.append(act.__name__)
        await anyio.sleep(self.latency_s)
        fault = self.faults.take(act.__name__)
        if fault is None:
            return await act(self, *sent, **named)
        if fault.kind == "refused":
            raise ConnectionRefusedError(f"no connection for key {FAKE_KEY}: {said}")
        if fault.kind.isdigit():
            after = fault.retry_after_s if fault.kind == "429" else None
            raise FakeNativeError(int(fault.kind), said, retry_after=after)
        if fault.kind == "slow":
            await anyio.sleep(fault.delay_s)
        answer = await act(self, *sent, **named)
        if fault.kind == "late":
            await anyio.sleep(fault.delay_s)
        if fault.kind == "lost":
            raise ConnectionResetError(f"connection lost for key {FAKE_KEY}: {said}")
        if fault.kind == "truncated":
            raise EOFError(f"the answer ends in its middle, for key {FAKE_KEY}: {said}")
        # Any reader fails on a plain object, as it does on a proxy's HTML page.
        return object() if fault.kind == "unreadable" else answer

    return served  # type: ignore[return-value]


class FakeNativeStore:
    """The server. It outlives its clients: a second adapter finds what the first one wrote.

    Args:
        derivation_s: seconds until a search finds a stored row. 0 means at once.
        latency_s: seconds that each call takes.

    Attributes:
        rows: everything stored, by id, oldest first.
        spaces: the spaces that exist.
        operations: the names of all calls so far.
        faults: the ordered faults.
        derivation_fails: while True, no search ever finds a row stored now.
        clients: the number of connected clients.
    """

    def __init__(self, *, derivation_s: float = 0.0, latency_s: float = 0.0) -> None:
        self.derivation_s = derivation_s
        self.latency_s = latency_s
        self.rows: dict[str, FakeRow] = {}
        self.spaces: set[str] = set()
        self.operations: list[str] = []
        self.faults = Faults(STORE_FAULTS)
        self.derivation_fails = False
        self.clients = 0
        self._history: list[dict[str, Any]] = []
        self._derived_at: dict[str, float | None] = {}
        self._next = 1

    def fingerprint(self) -> str:
        """A hash of everything stored. Equal hashes mean that nothing was written in between."""
        state = [sorted(self.spaces), [asdict(row) for row in self.rows.values()], self._history]
        return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()

    def texts(self, space: str) -> list[str]:
        """The texts of a space, oldest first, for assertions."""
        return [row.text for row in self._in(space)]

    @_served
    async def ping(self) -> dict[str, str]:
        """Check that the server is up."""
        return {"version": "1.0"}

    @_served
    async def create_space(self, space: str) -> None:
        """Create a space, unless it exists."""
        self.spaces.add(space)

    @_served
    async def insert(self, space: str, records: Sequence[Mapping[str, Any]]) -> list[str]:
        """Store records in one transaction and return their ids in order. 404 if the space does not exist."""
        if space not in self.spaces:
            raise FakeNativeError(404, space)
        ids = []
        for record in records:
            row = FakeRow(id=f"row-{self._next}", space=space, **record)
            self._next += 1
            self.rows[row.id] = row
            self._derived_at[row.id] = None if self.derivation_fails else time.monotonic() + self.derivation_s
            self._note(row, "added", row.text)
            ids.append(row.id)
        return ids

    @_served
    async def search(
        self, space: str, query: str, *, limit: int | None = None, where: Mapping[str, object] | None = None
    ) -> list[dict[str, Any]]:
        """Rows that share words with the query, with a ``score``. The best come first, then the newest."""
        found = [
            (score, index, row)
            for index, row in enumerate(self._in(space))
            if self._findable(row)
            and _matches(row, where or {})
            and (score := lexical_overlap(query, row.text)) > 0
        ]
        found.sort(key=lambda hit: (-hit[0], -hit[1]))
        return [{**asdict(row), "score": round(score, 4)} for score, _, row in found[:limit]]

    @_served
    async def list_rows(self, space: str, **labels: object) -> list[dict[str, Any]]:
        """All rows of a space with these labels, oldest first. Rows that no search finds yet are included."""
        where = {name: {"eq": value} for name, value in labels.items()}
        return [asdict(row) for row in self._in(space) if _matches(row, where)]

    @_served
    async def pending(self, space: str) -> tuple[int, int]:
        """Two counts of a space: rows that no search finds yet, and rows that none ever will."""
        hidden = [self._derived_at[row.id] for row in self._in(space) if not self._findable(row)]
        failed = hidden.count(None)
        return len(hidden) - failed, failed

    @_served
    async def update(self, space: str, row_id: str, text: str) -> None:
        """Replace a row's text. 404 if the space has no such row."""
        row = replace(self._row(space, row_id), text=text)
        self.rows[row_id] = row
        self._note(row, "updated", text)

    @_served
    async def delete(self, space: str, row_id: str) -> None:
        """Delete one row. 404 if the space has no such row."""
        row = self._row(space, row_id)
        del self.rows[row_id]
        self._note(row, "deleted", None)

    @_served
    async def delete_rows(self, space: str) -> int:
        """Delete all rows of a space, with their history."""
        removed = [row_id for row_id, row in self.rows.items() if row.space == space]
        for row_id in removed:
            del self.rows[row_id]
        self._history = [entry for entry in self._history if entry["space"] != space]
        return len(removed)

    @_served
    async def history(self, space: str, row_id: str | None = None) -> list[dict[str, Any]]:
        """Additions, updates and deletions in a space or of one row, oldest first."""
        return [e for e in self._history if e["space"] == space and row_id in (None, e["row_id"])]

    def _in(self, space: str) -> Iterator[FakeRow]:
        return (row for row in self.rows.values() if row.space == space)

    def _row(self, space: str, row_id: str) -> FakeRow:
        row = self.rows.get(row_id)
        if row is None or row.space != space:
            raise FakeNativeError(404, row_id)
        return row

    def _findable(self, row: FakeRow) -> bool:
        derived_at = self._derived_at[row.id]
        return derived_at is not None and derived_at <= time.monotonic()

    def _note(self, row: FakeRow, change: str, text: str | None) -> None:
        event_id = row.labels.get("event_id")
        entry = {"row_id": row.id, "space": row.space, "change": change, "text": text, "event_id": event_id}
        self._history.append({**entry, "created_at": row.created_at})


def _matches(row: FakeRow, where: Mapping[str, Any]) -> bool:
    """Whether a row satisfies every ``{key: {operator: value}}``. A row without the key does not."""
    for key, clauses in where.items():
        have = row.labels.get(key, row.metadata.get(key))
        try:
            if have is None or not all(_COMPARE[operator](have, want) for operator, want in clauses.items()):
                return False
        except TypeError:
            return False
    return True
