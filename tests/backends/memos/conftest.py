"""Fixtures of the MemOS tests: model servers over loopback HTTP."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from memos_double import MemosDouble


@pytest.fixture
def double() -> Iterator[MemosDouble]:
    """A server on PostgreSQL with a local queue."""
    with MemosDouble() as server:
        yield server
