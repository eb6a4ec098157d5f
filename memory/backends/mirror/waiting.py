"""What a shadow must not forget with its process: its writes that wait, and why its memory differs.

A write is kept before the primary gets it, in the state ``prepared``, and released to the outbox once the primary
has it. If a process ends in between, the next one delivers the write and says that the two memories may differ.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from memory import MemoryScope
from memory.adapter.stores import Entry, Lane, Outbox, Tables, scope_key, scope_of

KIND = "mirror"
TABLES = Tables(
    "mirror",
    1,
    """
CREATE TABLE IF NOT EXISTS mirror_shadows (
    shadow TEXT NOT NULL,
    scope TEXT NOT NULL,
    unlike TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (shadow, scope)
);
""",
)
RESET = "reset_scope"
_CUT_OFF = "a reset did not end as it should, and the primary may have kept what the shadow lost"
_ENDED = "a process ended while the primary wrote"
_UNSURE = '"unsure"'  # outcome of a reset whose end the primary has not confirmed
_OWN = "kind = ? AND destination = ?"
_TELL = (
    "INSERT INTO mirror_shadows (shadow, scope, unlike) VALUES (?, ?, ?) "
    "ON CONFLICT (shadow, scope) DO UPDATE SET unlike = excluded.unlike"
)


class Write(NamedTuple):
    """A write of the mirror, as the outbox keeps it.

    Attributes:
        scope: whose memory.
        key: known again by it, such as an event's id.
        operation: ``record_event``, ``apply_feedback`` or ``reset_scope``.
        content: JSON-ready arguments.
    """

    scope: MemoryScope
    key: str
    operation: str
    content: dict[str, Any]

    @property
    def payload(self) -> str:
        return json.dumps({"operation": self.operation, **self.content}, ensure_ascii=False)


class ShadowWrites:
    """The waiting writes of one shadow, and what is known of its memory.

    Args:
        outbox: of the kind :data:`KIND`, over a store with :data:`TABLES`.
        name: the shadow's.

    Attributes:
        unlike: why its memory of a scope is not the primary's.
        waiting: scopes with writes that wait, and how many.
    """

    def __init__(self, outbox: Outbox, name: str) -> None:
        self.outbox = outbox
        self.unlike: dict[MemoryScope, str] = {}
        self.waiting: dict[MemoryScope, int] = {}
        self._name = name
        self._begun: set[MemoryScope] = set()
        self._loaded = False

    def lane(self, scope: MemoryScope) -> Lane:
        return Lane(self._name, scope_key(scope))

    def is_new(self, scope: MemoryScope) -> bool:
        """Whether the shadow was never told of a scope, by whatever process."""
        return scope not in self._begun

    async def load(self) -> None:
        """Read what earlier processes left. Does nothing from the second call on."""
        if not self._loaded:
            await self.outbox.store.run(self._load)
            self._loaded = True

    def _load(self, db: Any) -> None:
        left = self.outbox.read(db, f"{_OWN} AND state = 'prepared'", (KIND, self._name))
        for entry in left:
            if entry.outcome != _UNSURE:
                db.execute(_TELL, (self._name, entry.scope, _ENDED))
        db.execute(
            f"UPDATE outbox SET state = 'waiting' WHERE {_OWN} AND state = 'prepared'", (KIND, self._name)
        )
        told = "SELECT scope, unlike FROM mirror_shadows WHERE shadow = ?"
        for key, why in db.execute(told, (self._name,)).fetchall():
            self._begun.add(scope_of(key))
            if why:
                self.unlike[scope_of(key)] = why
        still = f"{_OWN} AND state IN ('waiting', 'unknown')"
        count = f"SELECT scope, count(*) FROM outbox WHERE {still} GROUP BY scope"
        for key, number in db.execute(count, (KIND, self._name)).fetchall():
            self.waiting[scope_of(key)] = number

    async def prepare(self, writes: Collection[Write]) -> None:
        """Keep writes that the primary is about to get."""
        new = {write.scope for write in writes if self.is_new(write.scope)}

        def keep(db: Any) -> None:
            for write in writes:
                outcome = _UNSURE if write.operation == RESET else None
                self.outbox.insert(
                    db, self.lane(write.scope), write.key, write.payload, state="prepared", outcome=outcome
                )
            for scope in new:
                db.execute(f"{_TELL} WHERE FALSE", (self._name, scope_key(scope), ""))

        await self.outbox.store.run(keep)
        self._begun |= new

    async def release(self, writes: Iterable[Write], *, sure: bool = True) -> None:
        """The primary has these writes, or with ``sure=False`` may have them: they wait for the shadow."""
        writes = list(writes)
        outcome = "outcome = NULL, " if sure else ""

        def go(db: Any) -> None:
            for write in writes:
                db.execute(
                    f"UPDATE outbox SET {outcome}state = 'waiting' "
                    f"WHERE {_OWN} AND scope = ? AND key = ? AND state = 'prepared'",
                    (KIND, *self.lane(write.scope), write.key),
                )

        await self.outbox.store.run(go)
        for write in writes:
            self.waiting[write.scope] = self.waiting.get(write.scope, 0) + 1

    async def drop(self, writes: Iterable[Write]) -> None:
        """The primary certainly does not have these writes."""
        gone = [(KIND, *self.lane(write.scope), write.key) for write in writes]
        statement = f"DELETE FROM outbox WHERE {_OWN} AND scope = ? AND key = ? AND state = 'prepared'"
        await self.outbox.store.run(lambda db: db.executemany(statement, gone))

    async def withdraw(self, scope: MemoryScope, *, but: str) -> None:
        """Nothing of a scope waits any more, except the entry of this key."""
        row = (KIND, *self.lane(scope), but)
        await self.outbox.store.run(
            lambda db: db.execute(f"DELETE FROM outbox WHERE {_OWN} AND scope = ? AND key != ?", row)
        )

    async def count(self, scope: MemoryScope) -> int:
        """How many writes of a scope wait."""
        found = await self.outbox.store.run(lambda db: self.outbox.count(db, self.lane(scope)), writes=False)
        self.waiting[scope] = found
        if not found:
            del self.waiting[scope]
        return found

    async def stands(self, entry: Entry) -> bool:
        """Whether an entry that was read a while ago still waits: a reset withdraws those before it."""
        statement = "SELECT 1 FROM outbox WHERE seq = ? AND state IN ('waiting', 'unknown')"
        found = await self.outbox.store.run(
            lambda db: db.execute(statement, (entry.seq,)).fetchone(), writes=False
        )
        return found is not None

    async def resets(self) -> int:
        """How many scopes are still to be reset."""
        like = f"{_OWN} AND state IN ('waiting', 'unknown', 'prepared') AND key LIKE ?"
        statement = f"SELECT count(DISTINCT scope) FROM outbox WHERE {like}"
        row = (KIND, self._name, f"{RESET}-%")
        found = await self.outbox.store.run(lambda db: db.execute(statement, row).fetchone()[0], writes=False)
        return int(found)

    async def diverges(self, scope: MemoryScope, why: str) -> None:
        """From now on the shadow's memory of a scope is not the primary's."""
        if scope not in self.unlike:
            await self._tell(scope, why)

    async def was_reset(self, scope: MemoryScope, outcome: str | None) -> None:
        """The shadow has reset a scope, and is like the primary again if that has reset it, too."""
        await self._tell(scope, _CUT_OFF if outcome == _UNSURE else "")

    async def _tell(self, scope: MemoryScope, why: str) -> None:
        row = (self._name, scope_key(scope), why)
        await self.outbox.store.run(lambda db: db.execute(_TELL, row))
        self._begun.add(scope)
        self.unlike.pop(scope, None)
        if why:
            self.unlike[scope] = why
