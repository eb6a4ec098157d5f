"""Fixtures of the Stigmem tests: model nodes over loopback HTTP."""

import pytest
from stigmem_double import StigmemDouble


@pytest.fixture(autouse=True)
def no_alarm(monkeypatch):
    """A command that hangs ends its process, which here is that of the tests."""
    monkeypatch.setattr("memory.stigmem.commands._shared._CLOSING_S", 3600.0)


@pytest.fixture
def double():
    """A node without auth, as a developer starts it."""
    with StigmemDouble() as node:
        yield node


@pytest.fixture
def tenant_double():
    """A node with auth and the multi-tenant plugin; ``ADMIN_KEY`` is its admin key."""
    with StigmemDouble(auth=True, multi_tenant=True) as node:
        yield node


@pytest.fixture(autouse=True)
def own_spool(monkeypatch, tmp_path):
    """Hooks of one test meet nobody else's."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
