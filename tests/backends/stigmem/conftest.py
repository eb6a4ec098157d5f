"""Fixtures of the Stigmem tests: model nodes over loopback HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import stigmem_double_more  # noqa: F401 (registers lint, decay, synthesis, intents and gardens)
from stigmem_double import StigmemDouble


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
