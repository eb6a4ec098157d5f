"""JSON over HTTP: what was sent is known, one lost attempt is not forgotten, and no connection is left behind."""

import time

import anyio
import anyio.lowlevel
import httpx
import psutil
import pytest

from memory import BackendError, BackendUnavailable, InputError
from memory.adapter import BackendProtocolError, BackendRejected
from memory.adapter.http import JsonHttp, bearer, check_url, expect, none_if_404, server_address
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


class Server(LoopbackServer):
    """Answers as it is told."""

    answer = LoopbackAnswer(200, {})

    def respond(self, request):
        return self.answer


@pytest.mark.parametrize(
    "url",
    ["ftp://host", "host:1", "http://", "https:///path", "http://host:0", "http://host:99999", "http://[::1"],
)
def test_what_is_no_address_is_refused_with_an_example(url):
    with pytest.raises(ValueError, match="must be an http or https URL with a host"):
        server_address(url)


@pytest.mark.parametrize("url", ["http://host?key=1", "http://host/#part", "http://host/?key=1#part"])
def test_a_query_or_a_fragment_is_refused(url):
    """Keys stand in them, and paths would be appended behind."""
    with pytest.raises(InputError, match="must not hold a query or fragment"):
        check_url(url)


@pytest.mark.parametrize("path", ["notes", "//host/notes", ""])
async def test_a_path_that_may_lead_elsewhere_is_not_asked(path):
    """``//host`` is another server, which would be shown the key."""
    http = JsonHttp("http://127.0.0.1:9", backend="test")
    with pytest.raises(InputError, match="path: must start with one '/'"):
        await http.request("GET", path)
    await http.aclose()


async def test_an_answer_that_was_read_gives_its_connection_back():
    """Kept, every answer would cost one, and the last is waited for in vain."""
    with Server() as server, anyio.fail_after(60):
        http = JsonHttp(server.url, backend="test", connections=1)
        for _ in range(3):
            assert await http.request("GET", "/notes") == {}
        await http.aclose()


@pytest.mark.parametrize(("said", "wait_s"), [(7, 7.0), (True, None), ("7", None)])
async def test_how_long_to_wait_is_a_number_in_the_answer(said, wait_s):
    with Server() as server:
        http = JsonHttp(server.url, backend="test")
        server.answer = LoopbackAnswer(429, {"retry_after": said})
        with pytest.raises(BackendError) as raised:
            await http.request("GET", "/notes")
        await http.aclose()
    assert raised.value.retry_after_s == wait_s


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
async def test_what_is_no_json_is_no_answer(number):
    """Python reads them; as scores they make every comparison false."""
    with Server() as server:
        http = JsonHttp(server.url, backend="test")
        server.answer = LoopbackAnswer(200, f'{{"score": {number}}}'.encode())
        with pytest.raises(BackendProtocolError):
            await http.request("GET", "/notes")
        await http.aclose()


async def test_what_a_refusal_says_is_told_by_code_and_status():
    hints = {
        401: "missing, wrong or expired",
        403: "may not do this",
        404: "no such route or record",
        413: "too large",
        422: "the node refused the request's form",
        429: "quota is used up",
    }
    with Server() as server:
        http = JsonHttp(server.url, backend="test", server="node")
        for status, hint in hints.items():
            server.answer = LoopbackAnswer(status, {})
            with pytest.raises(BackendError, match=rf"GET /notes .*HTTP {status}\b.*{hint}"):
                await http.request("GET", "/notes")
        server.answer = LoopbackAnswer(422, {"detail": {"code": "too_long", "message": "secret words"}})
        with pytest.raises(BackendRejected, match=r"HTTP 422, code too_long: the node refused") as raised:
            await http.request("POST", "/notes", json={})
        assert raised.value.diagnostics["code"] == "too_long"
        assert "secret" not in str(raised.value)
        for status, whose in ((500, "the node failed"), (499, "the node refused it")):
            server.answer = LoopbackAnswer(status, {})
            with pytest.raises((BackendRejected, BackendUnavailable), match=whose):
                await http.request("GET", "/notes")
        server.answer = LoopbackAnswer(400, {})
        with pytest.raises(BackendRejected, match="HTTP 400"):
            await http.request("GET", "/notes")
        server.answer = LoopbackAnswer(304, {})
        with pytest.raises(BackendProtocolError, match="redirect"):
            await http.request("GET", "/notes")
        await http.aclose()


async def test_only_what_is_not_there_is_none():
    async def refused(status):
        raise BackendRejected("no", diagnostics={"status": status})

    assert await none_if_404(refused(404)) is None
    for status in (403, 405):
        with pytest.raises(BackendRejected):
            await none_if_404(refused(status))


@pytest.mark.parametrize("key", ["sécret", "sec\nret", " secret", "secret\t"])
def test_a_key_that_cannot_stand_in_a_header_is_told_without_it(key):
    with pytest.raises(InputError, match="api_key: holds characters") as raised:
        bearer(key)
    assert key.strip() not in str(raised.value)
    assert bearer("k y") == {"Authorization": "Bearer k y"}


@pytest.mark.parametrize("url", ["http://me:secret@host", "https://token@host/path", "http://@host"])
def test_credentials_in_an_address_are_refused(url):
    """They would stand in errors, logs and manifests, where addresses are shown."""
    for refuse in (check_url, lambda url: JsonHttp(check_url(url), backend="b")):
        with pytest.raises(InputError, match="must not hold credentials") as caught:
            refuse(url)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("kind", "answer"), [(dict, []), (list, {}), (str, 1), (int, "1")])
def test_an_answer_of_another_form_is_named(kind, answer):
    """Passed on, it fails later, without saying where, or reads as empty."""
    with pytest.raises(BackendProtocolError, match="GET /notes: expected"):
        expect(kind, answer, "GET /notes")
    assert expect(kind, kind(), "x") == kind()
