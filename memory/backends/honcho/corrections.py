"""Messages whose only conclusion was deleted by a correction: derived once, and named by nothing any more."""

from __future__ import annotations

from memory.adapter.stores import Store, Tables

TABLES = Tables(
    "honcho",
    1,
    """
CREATE TABLE IF NOT EXISTS honcho_corrections (
    server TEXT NOT NULL,
    workspace TEXT NOT NULL,
    session TEXT NOT NULL,
    peer TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (server, workspace, session, peer, number)
);
""",
)


class Corrections:
    """Kept in the memory's store, so that a later process does not take such a message for lost.

    Args:
        store: a handle that has :data:`TABLES`.
        server: the server's address.
    """

    def __init__(self, store: Store, server: str) -> None:
        self._store = store
        self._server = server
        self.close = store.close

    async def add(self, workspace: str, session: str, peer: str, number: int) -> None:
        """Note a message, by Honcho's inner number.

        Raises:
            StoreError: it cannot be noted.
        """
        row = (self._server, workspace, session, peer, number)
        statement = "INSERT INTO honcho_corrections VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        await self._store.run(lambda db: db.execute(statement, row))

    async def of(self, workspace: str, session: str, peer: str) -> set[int]:
        """The noted messages of a peer in a session."""
        if not self._store.begun:
            return set()
        chosen = "server = ? AND workspace = ? AND session = ? AND peer = ?"
        statement, row = f"SELECT number FROM honcho_corrections WHERE {chosen}", (workspace, session, peer)
        found = await self._store.run(
            lambda db: db.execute(statement, (self._server, *row)).fetchall(), writes=False
        )
        return {int(number) for (number,) in found}

    async def forget(self, workspace: str) -> None:
        """A workspace was emptied."""
        if self._store.begun:
            statement = "DELETE FROM honcho_corrections WHERE server = ? AND workspace = ?"
            await self._store.run(lambda db: db.execute(statement, (self._server, workspace)))
