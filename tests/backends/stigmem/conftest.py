"""Fixtures of the Stigmem tests: model nodes over loopback HTTP."""

import pytest
from stigmem_double import StigmemDouble


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
