"""``from one_loop import anyio_backend as anyio_backend`` runs a module's tests on asyncio alone."""

import pytest


@pytest.fixture
def anyio_backend():
    return "asyncio"
