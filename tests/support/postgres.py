"""A real PostgreSQL for tests, which PyPI's ``pgserver`` brings along."""

from importlib.util import find_spec

import pytest

NEEDS_POSTGRES = pytest.mark.skipif(
    find_spec("pgserver") is None or find_spec("psycopg") is None,
    reason="pgserver or psycopg is not installed",
)


def ask(url, *statements):
    """What the last of some statements finds, as the server's own user."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            found = connection.execute(statement)
        return found.fetchall() if found.description else []
