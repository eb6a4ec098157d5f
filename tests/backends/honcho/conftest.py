"""Fixtures of the Honcho tests: model servers over loopback HTTP."""

import pytest
from honcho_double import HonchoDouble


@pytest.fixture
def double():
    """A server whose worker flushes at once."""
    with HonchoDouble() as server:
        yield server
