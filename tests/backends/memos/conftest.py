"""Fixtures of the MemOS tests: model servers over loopback HTTP."""

import pytest
from memos_double import MemosDouble


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    """What a slot notes of a server stands below it; the server of a later test may get the same port."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def double():
    """A server on PostgreSQL with a local queue."""
    with MemosDouble() as server:
        yield server
