"""Fixtures of the Honcho tests: model servers over loopback HTTP."""

from collections.abc import Iterator

import pytest
from honcho_double import HonchoDouble


@pytest.fixture
def double() -> Iterator[HonchoDouble]:
    """A server whose worker flushes at once."""
    with HonchoDouble() as server:
        yield server
