"""``from both_loops import anyio_backend as anyio_backend`` runs a module's tests on either event loop."""

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return str(request.param)
