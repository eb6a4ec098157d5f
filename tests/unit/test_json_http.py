"""JSON over HTTP: what was sent is known, one lost attempt is not forgotten, and no connection is left behind."""

import time

import anyio
import anyio.lowlevel
import httpx
import psutil
import pytest

from memory import BackendError, BackendUnavailable, InputError
from memory.adapter import BackendProtocolError, BackendRejected, JsonHttp
from memory.adapter._http import _Pool
from memory.testing import LoopbackAnswer, LoopbackServer


class Notes(LoopbackServer):
    def __init__(self):
        super().__init__()
        self.answers = []

    def handle(self, request):
        return self.answers.pop(0) if self.answers else LoopbackAnswer(200, {"id": "1"})


@pytest.fixture
def server():
    with Notes() as running:
        yield running


@pytest.fixture
async def http(server):
    client = JsonHttp(server.url, backend="notes", timeout_s=60)
    yield client
    await client.aclose()


def sockets(server):
    return [
        connection
        for connection in psutil.Process().net_connections("tcp")
        if connection.raddr and connection.raddr.port == server.port and connection.status == "ESTABLISHED"
    ]


@pytest.mark.parametrize("fault", ["reset", "lost", "truncated", "500"])
async def test_a_connection_that_broke_is_closed_with_all_its_pool(server, http, fault):
    for _ in range(5):
        server.faults.add(fault)
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(one_request, http)
    assert await http.request("GET", "/notes") == {"id": "1"}
    assert len(sockets(server)) == 1, "the pools that were given up hold no connection"
    await http.aclose()
    assert sockets(server) == []


async def one_request(http):
    try:
        await http.request("POST", "/notes", json={})
    except BackendError:
        pass


class GoesAway(Notes):
    """Hangs up on the first request, and nobody listens any more."""

    def handle(self, request):
        self.stop_listening()


async def test_a_retry_that_finds_nobody_does_not_undo_that_the_first_was_sent():
    with GoesAway() as gone:
        client = JsonHttp(gone.url, backend="notes", timeout_s=5)
        with pytest.raises(BackendUnavailable) as raised:
            await client.request("POST", "/notes", json={}, retry_pause_s=0.1)
        await client.aclose()
    assert isinstance(raised.value.__cause__, httpx.ConnectError)
    assert raised.value.ambiguous


@pytest.mark.parametrize(("second", "kind"), [("422", BackendRejected), ("503", BackendUnavailable)])
async def test_a_retry_that_is_refused_leaves_the_first_ambiguous(server, http, second, kind):
    server.faults.add("lost")
    server.faults.add(second)
    with pytest.raises(kind) as raised:
        await http.request("POST", "/notes", json={}, retry_pause_s=0)
    assert raised.value.ambiguous
    server.faults.add(second)
    if kind is BackendRejected:
        with pytest.raises(kind) as raised:
            await http.request("POST", "/notes", json={}, retry_pause_s=0)
        assert not raised.value.ambiguous


@pytest.mark.parametrize("status", [400, 501])
async def test_what_a_further_attempt_cannot_mend_is_sent_once(server, http, status):
    server.answers = [LoopbackAnswer(status, {})] * 2
    with pytest.raises(BackendError):
        await http.request("GET", "/notes", retry_pause_s=0)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "ambiguous"), [(301, False), (302, True), (303, True), (308, False)])
async def test_a_redirect_says_whether_the_request_may_have_been_carried_out(server, http, status, ambiguous):
    server.answers = [LoopbackAnswer(status, "", {"location": "/elsewhere"})]
    with pytest.raises(BackendProtocolError, match="redirect") as raised:
        await http.request("POST", "/notes", json={})
    assert raised.value.ambiguous is ambiguous


async def test_only_a_body_that_cannot_be_sent_is_bad_input(server, http):
    with pytest.raises(InputError, match="not JSON with finite numbers"):
        await http.request("POST", "/notes", json={"n": float("nan")})
    server.faults.add("unreadable")
    with pytest.raises(BackendProtocolError) as raised:
        await http.request("POST", "/notes", json={})
    assert raised.value.ambiguous, "it was carried out, and only the answer cannot be read"


async def test_an_error_body_nested_too_deep_is_an_error_like_others(server, http):
    server.answers = [LoopbackAnswer(422, b"[" * 200_000)]
    with pytest.raises(BackendRejected) as raised:
        await http.request("POST", "/notes", json={})
    assert raised.value.diagnostics["status"] == 422


async def test_what_is_asked_goes_along_and_what_is_none_does_not(server, http):
    await http.request("GET", "/notes", params={"scope": "r:p", "after": None, "limit": 0})
    await http.request("GET", "/notes", params={"after": None})
    assert [request.params for request in server.requests] == [{"scope": "r:p", "limit": "0"}, {}]


async def test_between_two_attempts_there_is_a_pause(server, http):
    """Sent again at once, a server that stumbled gets the second while it still lies there."""
    server.faults.add("503")
    began = time.monotonic()
    assert await http.request("GET", "/notes", retry_pause_s=0.05) == {"id": "1"}
    assert time.monotonic() - began >= 0.05


async def test_a_pool_that_broke_is_closed_also_by_a_user_who_is_cancelled():
    """Left open, its connections would be nobody's."""
    closed = []

    class Client:
        async def aclose(self):
            await anyio.lowlevel.checkpoint()
            closed.append(self)

    pool = _Pool(Client())
    pool.retired = True
    with anyio.CancelScope() as cancelled:
        async with pool:
            cancelled.cancel()
    assert len(closed) == 1
