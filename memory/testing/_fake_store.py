"""A native system for tests: in this process, observable, and faulty on demand.

It plays what an adapter talks to, a database with a search: rows labelled with the space they belong to, a
history, and errors that echo what the client sent. It knows nothing of memslot.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import anyio

from memory.testing._faults import FAKE_KEY, FaultKind, Faults
from memory.testing._scripted_text import lexical_overlap

STORE_FAULTS: tuple[FaultKind, ...] = (
    "401", "403", "422", "429", "500", "refused", "slow", "late", "lost", "truncated", "unreadable",
)  # fmt: skip
"""What the store plays of :data:`~memory.testing._faults.FaultKind`."""

T = TypeVar("T")

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": lambda have, want: have == want,
    "ne": lambda have, want: have != want,
    "gt": lambda have, want: have > want,
    "gte": lambda have, want: have >= want,
    "lt": lambda have, want: have < want,
    "lte": lambda have, want: have <= want,
    "in": lambda have, want: have in want,
    "nin": lambda have, want: have not in want,
    "contains": lambda have, want: want in have,
    "icontains": lambda have, want: want.casefold() in have.casefold(),
}


class FakeNativeError(Exception):
    """What the store's client raises; like real ones, its text repeats the request and the credentials."""

    def __init__(self, status: int, said: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"HTTP {status} for key {FAKE_KEY} while handling: {said}")
        self.status_code = status
        self.code = f"fake_{status}"
        self.request_id = "fake-request-1"
        if retry_after is not None:
            self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class FakeRow:
    """A stored record.

    Attributes:
        id, space: its own id, and the space it belongs to.
        text: what is searched.
        kind: ``message`` or ``feedback``.
        created_at: ISO 8601, as the client sent it.
        labels: flat metadata; what ``where`` filters by.
        metadata: any further JSON.
    """

    id: str
    space: str
    text: str
    kind: str
    created_at: str
    labels: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)


class FakeNativeStore:
    """The server. It outlives its clients, so a second adapter on the same store finds what the first wrote.

    Args:
        derivation_s: seconds until a stored row can be found; 0 is at once.
        latency_s: seconds every call takes.

    Attributes:
        rows: everything stored, by id, oldest first.
        spaces: the spaces that exist.
        operations: names of all calls so far.
        faults: what is to go wrong.
        derivation_fails: rows stored from now on never become findable.
        clients: how many are connected.
        in_flight, peak_in_flight: calls running now, and the most there ever were.
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
        self.in_flight = 0
        self.peak_in_flight = 0
        self._history: list[dict[str, Any]] = []
        self._derived_at: dict[str, float | None] = {}
        self._next = 1

    def fingerprint(self) -> str:
        """A hash of everything stored; equal before and after means nothing was written."""
        state = [sorted(self.spaces), [asdict(row) for row in self.rows.values()], self._history]
        return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()

    def texts(self, space: str) -> list[str]:
        """The texts stored in a space, oldest first; for assertions."""
        return [row.text for row in self._in(space)]

    # -- the native interface -----------------------------------------------------------------------------

    async def ping(self) -> dict[str, str]:
        """Whether the server is up."""
        return await self._serve("ping", "", lambda: {"version": "1.0"})

    async def create_space(self, space: str) -> None:
        """Create a space, unless it exists."""
        await self._serve("create_space", space, lambda: self.spaces.add(space))

    async def insert(self, space: str, records: Sequence[Mapping[str, Any]]) -> list[str]:
        """Store records in one transaction; their ids, in order. 404 for an unknown space."""
        return await self._serve("insert", _echo(records), lambda: self._insert(space, records))

    async def search(
        self, space: str, query: str, *, limit: int | None = None, where: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Rows that share words with the query, best and then newest first, with their ``score``."""
        return await self._serve("search", query, lambda: self._search(space, query, limit, where or {}))

    async def list_rows(self, space: str, **labels: Any) -> list[dict[str, Any]]:
        """All rows of a space with these labels, oldest first, findable or not."""
        where = {name: {"eq": value} for name, value in labels.items()}
        return await self._serve(
            "list_rows", space, lambda: [asdict(row) for row in self._in(space) if _matches(row, where)]
        )

    async def pending(self, space: str) -> tuple[int, int]:
        """How many rows of a space are not findable yet, and how many never will be."""
        return await self._serve("pending", space, lambda: self._pending(space))

    async def update(self, space: str, row_id: str, text: str) -> None:
        """Replace a row's text. 404 if the space has no such row."""
        await self._serve("update", text, lambda: self._change(space, row_id, text))

    async def delete(self, space: str, row_id: str) -> None:
        """Delete one row. 404 if the space has no such row."""
        await self._serve("delete", row_id, lambda: self._change(space, row_id, None))

    async def delete_rows(self, space: str) -> int:
        """Delete all rows of a space, with their history."""
        return await self._serve("delete_rows", space, lambda: self._clear(space))

    async def history(self, space: str, row_id: str | None = None) -> list[dict[str, Any]]:
        """What was added, updated and deleted in a space, or to one of its rows; oldest first."""
        return await self._serve(
            "history",
            space,
            lambda: [e for e in self._history if e["space"] == space and row_id in (None, e["row_id"])],
        )

    # -- the server's inside ------------------------------------------------------------------------------

    async def _serve(self, operation: str, said: str, act: Callable[[], T]) -> T:
        self.operations.append(operation)
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            await anyio.sleep(self.latency_s)
            fault = self.faults.take(operation)
            if fault is None:
                return act()
            if fault.kind == "refused":
                raise ConnectionRefusedError(f"no connection for key {FAKE_KEY}: {said}")
            if fault.kind.isdigit():
                after = fault.retry_after_s if fault.kind == "429" else None
                raise FakeNativeError(int(fault.kind), said, retry_after=after)
            if fault.kind == "slow":
                await anyio.sleep(fault.delay_s)
            answer = act()
            if fault.kind == "late":
                await anyio.sleep(fault.delay_s)
            if fault.kind == "lost":
                raise ConnectionResetError(f"connection lost for key {FAKE_KEY}: {said}")
            if fault.kind == "truncated":
                raise EOFError(f"the answer ends in its middle, for key {FAKE_KEY}: {said}")
            # Nonsense has no type; whoever reads it stumbles, as over a proxy's HTML page.
            return object() if fault.kind == "unreadable" else answer  # type: ignore[return-value]
        finally:
            self.in_flight -= 1

    def _in(self, space: str) -> Iterator[FakeRow]:
        return (row for row in self.rows.values() if row.space == space)

    def _insert(self, space: str, records: Sequence[Mapping[str, Any]]) -> list[str]:
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

    def _search(
        self, space: str, query: str, limit: int | None, where: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        found = [
            (score, index, row)
            for index, row in enumerate(self._in(space))
            if self._findable(row)
            and _matches(row, where)
            and (score := lexical_overlap(query, row.text)) > 0
        ]
        found.sort(key=lambda hit: (-hit[0], -hit[1]))
        return [{**asdict(row), "score": round(score, 4)} for score, _, row in found[:limit]]

    def _findable(self, row: FakeRow) -> bool:
        derived_at = self._derived_at[row.id]
        return derived_at is not None and derived_at <= time.monotonic()

    def _pending(self, space: str) -> tuple[int, int]:
        hidden = [row for row in self._in(space) if not self._findable(row)]
        failed = sum(1 for row in hidden if self._derived_at[row.id] is None)
        return len(hidden) - failed, failed

    def _change(self, space: str, row_id: str, text: str | None) -> None:
        row = self.rows.get(row_id)
        if row is None or row.space != space:
            raise FakeNativeError(404, row_id)
        if text is None:
            del self.rows[row_id]
        else:
            self.rows[row_id] = FakeRow(**{**asdict(row), "text": text})
        self._note(row, "deleted" if text is None else "updated", text)

    def _clear(self, space: str) -> int:
        doomed = [row.id for row in self._in(space)]
        for row_id in doomed:
            del self.rows[row_id]
        self._history = [entry for entry in self._history if entry["space"] != space]
        return len(doomed)

    def _note(self, row: FakeRow, change: str, text: str | None) -> None:
        self._history.append(
            {
                "row_id": row.id,
                "space": row.space,
                "change": change,
                "text": text,
                "created_at": row.created_at,
                "event_id": row.labels.get("event_id"),
            }
        )


def _matches(row: FakeRow, where: Mapping[str, Any]) -> bool:
    """Whether a row satisfies every ``{key: {operator: value}}``; a row without the key satisfies none."""
    for key, clauses in where.items():
        have = row.labels.get(key, row.metadata.get(key))
        for operator, want in clauses.items():
            try:
                if have is None or not _COMPARE[operator](have, want):
                    return False
            except TypeError:
                return False
    return True


def _echo(records: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(str(record.get("text")) for record in records)
