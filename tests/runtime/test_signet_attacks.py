"""The Signet endpoints under attack: malformed, oversized and hostile requests, and a memory that fails."""

import json

import anyio
import pytest
from fastapi.responses import JSONResponse
from signet_support import daemon
from slot_support import Obedient

from memory import AdapterMode
from memory.adapter import BackendRejected
from memory.runtime import TurnPolicy
from memory.testing import FakeBackend


@pytest.fixture
async def signet():
    async with daemon() as opened:
        yield opened


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"harness": NaN}', b'{"a": "\\ud800"}',
        b'{"harness": "t"', b"1e999", "{“harness”: 1}".encode(),
    ],
)  # fmt: skip
async def test_a_malformed_body_is_one_clear_400(signet, body):
    for path in ("/api/hooks/session-start", "/api/hooks/pre-compaction", "/api/memory/modify"):
        status, answer = await signet.post(path, body)
        assert status == 400
        assert set(answer) == {"error"}


async def test_fields_of_the_wrong_kind_are_refused_or_ignored(signet):
    for wrong in (1, [], {}, None, True, 1e308):
        for path, body in (
            ("/api/hooks/session-start", {"harness": wrong}),
            ("/api/hooks/user-prompt-submit", {"harness": "t", "userMessage": wrong}),
            ("/api/hooks/user-prompt-submit", {"harness": "t", "userMessage": "x", "sessionKey": wrong}),
            ("/api/hooks/session-end", {"harness": "t", "transcript": wrong, "transcriptPath": wrong}),
            ("/api/hooks/compaction-complete", {"harness": "t", "summary": wrong}),
            ("/api/hooks/remember", {"harness": "t", "content": wrong, "tags": wrong}),
            ("/api/memory/remember", {"content": "x", "importance": wrong, "type": wrong, "tags": wrong}),
            ("/api/memory/recall", {"query": wrong, "limit": wrong}),
            ("/api/memory/recall", {"query": "x", "since": wrong, "importance_min": wrong, "tags": wrong}),
            ("/api/memory/modify", {"patches": wrong}),
            ("/api/memory/modify", {"patches": [wrong]}),
            ("/api/memory/forget", {"ids": wrong, "mode": wrong}),
            ("/api/memory/forget", {"ids": [wrong], "mode": "execute", "reason": "r"}),
        ):
            status, answer = await signet.post(path, body)
            assert status in (200, 400), (path, body, answer)


HOSTILE = ["", " ", "*", "a" * 513, "../../etc/passwd", "\0", "‮evil", "💥" * 300, "a\nb", "|", "~", "%"]


@pytest.mark.parametrize("key", HOSTILE)
async def test_hostile_ids_are_kept_apart_or_refused(signet, key):
    await signet.hook("session-start", sessionKey="honest", project="/p")
    for field in ("sessionKey", "project", "agentId"):
        body = {"harness": "t", field: key, "userMessage": "the iguana Rex"}
        status, answer = await signet.post("/api/hooks/user-prompt-submit", body)
        assert status in (200, 400)
        assert not answer.get("warnings")
    await signet.drain()
    assert signet.memory.status()["not_recorded"] == 0
    status, _ = await signet.send("GET", f"/api/memory/{key.encode().hex() or 'x'}")
    assert status == 404


async def test_what_is_too_large_is_refused():
    async with daemon(max_body_bytes=1000) as signet:
        status, answer = await signet.post("/api/memory/remember", {"content": "x" * 1000})
        assert (status, "1000 bytes" in answer["error"]) == (413, True)


async def test_a_body_that_never_ends_is_given_up():
    async def trickle():
        yield b"{"
        await anyio.sleep_forever()

    async with daemon(body_s=0.05) as signet:
        with anyio.fail_after(20):
            answer = await signet.http.post("/api/memory/remember", content=trickle())
        assert answer.status_code == 408


async def test_a_memory_that_is_down_costs_a_prompt_nothing_and_says_so():
    backend = Obedient()
    backend.next_read = [ConnectionRefusedError("down")]
    async with daemon(backend) as signet:
        answer = await signet.hook("user-prompt-submit", userMessage="tea?")
        assert (answer["inject"], answer["memoryCount"]) == ("", 0)
        assert answer["warnings"][0].startswith("recall failed: BackendUnavailable")
        backend.always = ConnectionRefusedError("down")
        assert (await signet.post("/api/memory/recall", {"query": "tea"}))[0] == 503
        assert (await signet.post("/api/memory/remember", {"content": "tea"}))[0] == 503
        backend.always = ConnectionResetError("lost")
        status, answer = await signet.post("/api/memory/remember", {"content": "tea"})
        assert (status, "may or may not" in answer["error"]) == (503, True)
        backend.always = None


async def test_a_memory_that_is_down_is_a_503_where_hosts_want_to_know():
    backend = Obedient()
    backend.next_read = [ConnectionRefusedError("down")]
    async with daemon(backend, TurnPolicy(on_failure="raise")) as signet:
        status, answer = await signet.post(
            "/api/hooks/user-prompt-submit", {"harness": "t", "userMessage": "?"}
        )
    assert (status, answer) == (503, {"error": "obedient: retrieve failed (ConnectionRefusedError)"})


async def test_what_a_backend_cannot_do_is_said(signet):
    async with daemon(Obedient()) as plain:
        _, stored = await plain.post("/api/memory/remember", {"content": "tea"})
        path = f"/api/memory/{stored['id']}"
        assert (await plain.send("GET", path))[1]["content"] == "tea"
        status, answer = await plain.send("PATCH", path, {"content": "x", "reason": "r"})
        assert (status, answer["status"]) == (501, "not_supported")
        patch = {"patches": [{"id": stored["id"], "content": "x", "reason": "r"}]}
        _, answer = await plain.post("/api/memory/modify", patch)
        assert answer["results"][0]["status"] == "not_supported"
    assert (await signet.post("/api/secrets/exec", {"command": "id", "secrets": {}}))[0] == 404


async def test_what_a_backend_refuses_to_delete_is_not_called_gone(signet):
    """Honcho deletes what it concluded, and no message."""

    class Keeps(FakeBackend):
        async def native_mutation(self, request):
            raise BackendRejected("no conclusion has this id", diagnostics={"status": 404})

    async with daemon(Keeps()) as refusing:
        _, stored = await refusing.post("/api/memory/remember", {"content": "tea"})
        path = f"/api/memory/{stored['id']}"
        status, answer = await refusing.send("DELETE", f"{path}?reason=r")
        assert (status, answer["status"]) == (501, "not_supported")
        assert "keeps this memory as it is" in answer["error"]
        status, answer = await refusing.send("PATCH", path, {"content": "x", "reason": "r"})
        assert (status, answer["status"]) == (501, "not_supported")
        assert (await refusing.send("GET", path))[1]["content"] == "tea"
        assert (await refusing.send("DELETE", "/api/memory/none?reason=r"))[0] == 404


async def test_read_only_stores_and_changes_nothing(signet):
    _, stored = await signet.post("/api/memory/remember", {"content": "tea"})
    await signet.memory.slot.set_mode(AdapterMode(read_only=True))
    before = signet.backend.store.fingerprint()
    path = f"/api/memory/{stored['id']}"
    assert (await signet.post("/api/memory/remember", {"content": "x"}))[0] == 403
    for change in ({"content": "x"}, {"importance": 0.9}):
        assert (await signet.send("PATCH", path, {**change, "reason": "r"}))[0] == 403
    assert (await signet.send("DELETE", f"{path}?reason=r"))[0] == 403
    answer = await signet.hook("user-prompt-submit", userMessage="tea?")
    assert answer["memoryCount"] == 1
    await signet.drain()
    assert signet.backend.store.fingerprint() == before


async def test_no_error_or_log_holds_what_was_said(signet, caplog):
    secret = "planted-sentence"
    answers = []
    for path, body in (
        ("/api/hooks/user-prompt-submit", {"harness": "t", "userMessage": secret, "sessionKey": secret * 60}),
        ("/api/memory/modify", {"patches": [{"id": "x", "content": secret, "reason": secret}]}),
        ("/api/memory/recall", {"query": secret, "limit": secret}),
        ("/api/memory/forget", {"mode": secret}),
    ):
        answers.append(await signet.post(path, body))
    assert secret not in json.dumps([answer for _, answer in answers])
    assert secret not in caplog.text


async def test_an_address_that_is_none_is_refused(signet):
    for headers in ({"origin": "http://[evil"}, {"origin": "http://]"}, {"host": "[evil"}):
        status, answer = await signet.send("GET", "/api/memories", None, headers)
        assert status == 403, (headers, answer)


async def test_a_filter_that_cannot_be_read_finds_and_deletes_nothing(signet):
    await signet.post("/api/memory/remember", {"content": "the tea is green"})
    for wrong in (
        {"since": "yesterday"}, {"until": 5}, {"since": "9999-12-31T23:59:59-23:00"}, {"importance_min": "x"},
        {"importance_min": True}, {"tags": 5}, {"tags": {}}, {"pinned": "true"}, {"type": 5}, {"who": [5]},
        {"min_score": "x"},
    ):  # fmt: skip
        for path, more in (
            ("/api/memory/recall", {}),
            ("/api/memory/forget", {"mode": "execute", "reason": "r"}),
        ):
            status, answer = await signet.post(path, {"query": "tea", **wrong, **more})
            assert (status, next(iter(wrong)) in answer["error"]) == (400, True), (path, wrong, answer)
    assert len(signet.backend.store.rows) == 1


async def test_a_blank_harness_is_none(signet):
    for name in ("session-start", "session-end", "remember"):
        body = {"harness": " ", "sessionKey": "s", "content": "tea"}
        assert (await signet.post(f"/api/hooks/{name}", body))[0] == 400


async def test_one_key_sent_twice_at_once_stores_once():
    class Slow(FakeBackend):
        async def record_event(self, event):
            await anyio.sleep(0.05)
            return await super().record_event(event)

    async with daemon(Slow()) as signet:
        answers = []

        async def remember():
            body = {"harness": "t", "content": "tea", "idempotencyKey": "k"}
            answers.append(await signet.post("/api/hooks/remember", body))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(remember)
        assert len(signet.backend.store.rows) == 1
        assert len({answer["id"] for _, answer in answers}) == 1


async def test_a_summary_that_was_not_stored_is_listed_nowhere(signet):
    await signet.memory.slot.set_mode(AdapterMode(read_only=True))
    answer = await signet.hook("compaction-complete", sessionKey="s", summary="We spoke of tea.")
    assert answer == {"success": False}
    assert (await signet.send("GET", "/api/memories"))[1]["memories"] == []


async def test_what_is_mounted_beside_has_the_same_limits():
    heard = []

    async def app(scope, receive, send):
        message = await receive()
        heard.append(message["body"])
        await JSONResponse({})(scope, receive, send)

    async def pieces(count):
        for _ in range(count):
            yield b"x" * 100

    async def trickle():
        yield b"{"
        await anyio.sleep_forever()

    async with daemon(max_body_bytes=1000, body_s=0.05) as signet:
        signet.server.mount("/beside", lambda scope, read_only: app)
        with anyio.fail_after(20):
            assert (await signet.http.post("/beside", content=pieces(10))).status_code == 200
            assert (await signet.http.post("/beside", content=pieces(11))).status_code == 413
            assert (await signet.http.post("/beside", content=trickle())).status_code == 408
        assert heard == [b"x" * 1000]


async def test_a_log_names_the_route_and_not_what_a_client_wrote_into_its_address(signet, caplog):
    signet.server.store.close()
    assert (await signet.send("GET", "/api/memory/planted%1b%5b31m"))[0] == 503
    assert "/api/memory/{item_id:path}: " in caplog.text
    assert "planted" not in caplog.text


PROMPTS = ("I like oolong.", "My bike is red.", "I live in Ulm.")


@pytest.mark.thorough
async def test_reads_register_nothing_and_recall_does_not_depend_on_the_number_of_projects(signet):
    for number, words in enumerate(PROMPTS):
        await signet.post("/api/memory/remember", {"content": words, "project": f"p{number}"})
    for number in range(40):
        await signet.send("GET", f"/api/memories?project=evil{number}")
        await signet.post("/api/memory/recall", {"query": "tea", "project": f"evil{number}"})
        await signet.post("/api/memory/forget", {"query": "tea", "project": f"evil{number}"})
        await signet.hook("session-start", sessionKey=f"e{number}", project=f"evil{number}")
    for number in range(40):
        await signet.post("/api/memory/remember", {"content": f"note {number}", "project": f"more{number}"})
    for words in PROMPTS:
        _, answer = await signet.post("/api/memory/recall", {"query": words})
        assert words in [row["content"] for row in answer["results"]]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "same-site", "origin": "http://localhost:6274"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({}, 200),
    ],
)
async def test_a_page_of_another_site_is_refused(signet, headers, status):
    assert (await signet.send("GET", "/api/memories", headers=headers))[0] == status


async def test_two_host_headers_are_refused(signet):
    given = [("host", "127.0.0.1:3850"), ("host", "evil.example")]
    assert (await signet.http.get("/api/memories", headers=given)).status_code == 400


@pytest.mark.parametrize("limit", ["      5", "5 ", "-1", "1e3", "٥", "9" * 30, [5]])
async def test_a_limit_that_is_no_number_is_a_400(signet, limit):
    for path, body in (
        ("/api/memory/recall", {"query": "tea", "limit": limit}),
        ("/api/memory/forget", {"query": "tea", "limit": limit}),
    ):
        assert (await signet.post(path, body))[0] == 400
