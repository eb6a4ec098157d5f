"""The loopback server: what goes wrong on demand really goes wrong on the wire, and nothing is left behind."""

import threading

import httpx
import pytest

from memory.testing import FAKE_KEY, LoopbackAnswer, LoopbackProcess, LoopbackServer


class Notes(LoopbackServer):
    def __init__(self, first=None):
        super().__init__()
        self.notes = [first] if first else []

    def state(self):
        return self.notes

    def handle(self, request):
        if (request.method, request.path) == ("POST", "/notes"):
            self.notes.append(request.json["text"])
            return LoopbackAnswer(201, {"id": len(self.notes)}, {"x-kind": "note"})
        if request.method == "GET" and request.path.startswith("/notes/"):
            return LoopbackAnswer(200, {"name": request.path[7:], "asked": dict(request.params)})
        if request.path == "/boom":
            raise ZeroDivisionError
        return LoopbackAnswer(204) if request.method == "DELETE" else None


@pytest.fixture
def server():
    with Notes() as running:
        yield running


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url, trust_env=False) as opened:
        yield opened


def test_requests_arrive_whole_and_connections_are_kept(server, client):
    made = client.post("/notes", json={"text": "höhe"})
    assert (made.status_code, made.json(), made.headers["x-kind"]) == (201, {"id": 1}, "note")
    assert client.get("/notes/a%2Fb c?x=1&y=").json() == {"name": "a/b c", "asked": {"x": "1", "y": ""}}
    assert client.delete("/notes").content == b""
    assert [request.method for request in server.requests] == ["POST", "GET", "DELETE"]
    assert server.connections == 1
    with pytest.raises(httpx.TransportError):
        client.get("/hang-up")


@pytest.mark.parametrize("status", [401, 403, 404, 409, 422, 429, 500, 503])
def test_refusals_repeat_what_was_sent_and_store_nothing(server, client, status):
    server.faults.add(str(status), endpoint="POST /no*", retry_after_s=7)
    refused = client.post("/notes", json={"text": "purple hat"})
    assert refused.status_code == status
    assert "purple hat" in refused.text
    assert FAKE_KEY in refused.text
    assert refused.headers.get("retry-after") == ("7" if status == 429 else None)
    assert server.notes == []
    assert [fault.kind for fault in server.faults.fired] == [str(status)]


def test_after_a_500_the_connection_is_reset(server, client):
    server.faults.add("500")
    client.post("/notes", json={"text": "one"})
    with pytest.raises(httpx.TransportError):
        client.post("/notes", json={"text": "two"})
    assert client.post("/notes", json={"text": "three"}).status_code == 201
    assert server.notes == ["three"]


@pytest.mark.parametrize(("kind", "stored"), [("reset", []), ("lost", ["x"]), ("truncated", ["x"])])
def test_broken_answers(server, client, kind, stored):
    server.faults.add(kind)
    with pytest.raises(httpx.TransportError):
        client.post("/notes", json={"text": "x"})
    assert server.notes == stored
    assert client.post("/notes", json={"text": "y"}).status_code == 201


def test_it_leaves_no_thread_even_while_a_client_waits():
    before = set(threading.enumerate())
    with Notes() as server:
        server.faults.add("late", delay_s=30)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/notes", json={"text": "x"}, timeout=0.05, trust_env=False)
    assert set(threading.enumerate()) <= before
    with pytest.raises(RuntimeError, match="Notes is not running"):
        _ = server.url


@pytest.mark.thorough
def test_a_process_of_its_own():
    with (
        LoopbackProcess(Notes, first="zero") as process,
        httpx.Client(base_url=process.url, trust_env=False) as client,
    ):
        assert client.post("/notes", json={"text": "one"}).status_code == 201
        with process.failing("503", endpoint="POST *"):
            assert [client.post("/notes", json={"text": "x"}).status_code for _ in range(2)] == [503, 503]
            assert client.get("/notes/1").status_code == 200
        process.fault("401")
        assert [client.get("/notes/1").status_code for _ in range(2)] == [401, 200]
        assert process.state() == ["zero", "one"]
        process.set(notes=["other"])
        assert process.state() == ["other"]
        assert process.requests()[0] == {
            "method": "POST",
            "path": "/notes",
            "params": {},
            "json": {"text": "one"},
        }
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{process.url}/notes/1", trust_env=False)


@pytest.mark.thorough
def test_a_process_that_cannot_start_says_so(capfd):
    with pytest.raises(RuntimeError, match="Notes did not start"):
        LoopbackProcess(Notes, unknown=1)
    assert "unexpected keyword argument 'unknown'" in capfd.readouterr().err
