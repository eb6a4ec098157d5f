"""A store of each kind: a SQLite file, and a PostgreSQL server."""

import pytest
from both_loops import anyio_backend as anyio_backend

from memory.storage.store import SqliteStore


@pytest.fixture(params=["file", "server"])
def open_handle(request, tmp_path):
    """Opens one more handle on the same store."""
    opened = []
    if request.param == "server":
        for needed in ("pgserver", "psycopg"):
            pytest.importorskip(needed)
        from memory.storage.postgres import PostgresStore

        first = PostgresStore(request.getfixturevalue("state_url"))
    else:
        first = SqliteStore(tmp_path / "data" / "memslot.db")
    opened.append(first)

    def open_one(*tables, **options):
        opened.append(first.handle(*tables, **options))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()
