"""Fixtures of the MemOS tests: model servers over loopback HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from memos_double import MemosDouble


@pytest.fixture
def double() -> Iterator[MemosDouble]:
    """A server on PostgreSQL with a local queue."""
    with MemosDouble() as server:
        yield server
