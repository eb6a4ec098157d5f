"""What the shared HTTP client says where nobody listens."""

from __future__ import annotations

import pytest

from memory import BackendUnavailable
from memory.adapter._http import JsonHttp


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_connection_error_names_the_address() -> None:
    http = JsonHttp("http://127.0.0.1:9", backend="honcho")
    with pytest.raises(BackendUnavailable) as caught:
        await http.request("GET", "/health")
    assert str(caught.value).endswith("(httpx.ConnectError): nobody answers at http://127.0.0.1:9")
    assert not caught.value.sent
    await http.aclose()
