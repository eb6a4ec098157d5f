"""Fixtures of the Stigmem tests: model nodes over loopback HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from stigmem_double import StigmemDouble


@pytest.fixture(autouse=True)
def no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that hangs ends its process, which here is that of the tests."""
    monkeypatch.setattr("memory.stigmem.commands._shared._CLOSING_S", 3600.0)


@pytest.fixture
def double() -> Iterator[StigmemDouble]:
    """A node without auth, as a developer starts it."""
    with StigmemDouble() as node:
        yield node


@pytest.fixture
def tenant_double() -> Iterator[StigmemDouble]:
    """A node with auth and the multi-tenant plugin; ``ADMIN_KEY`` is its admin key."""
    with StigmemDouble(auth=True, multi_tenant=True) as node:
        yield node


@pytest.fixture(autouse=True)
def own_spool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hooks of one test meet nobody else's."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
