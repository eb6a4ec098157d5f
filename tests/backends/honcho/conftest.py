"""Fixtures of the Honcho tests: model servers over loopback HTTP."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from honcho_double import HonchoDouble


@pytest.fixture
def double() -> Iterator[HonchoDouble]:
    """A server whose worker flushes at once."""
    with HonchoDouble() as server:
        yield server
