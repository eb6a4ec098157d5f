"""The Signet endpoints over any backend: the daemon's recorded requests, what real clients add, and attacks."""

import json
import re

import httpx
import pytest
from signet_support import BASE, PAIRS, daemon, pair

from memory import BackendUnavailable, ConfigError, MemoryScope, MemorySlot
from memory.adapter._bounded import is_loopback
from memory.runtime import TurnMemory
from memory.runtime.signet import types
from memory.runtime.signet.server import RuntimeAdapterServer
from memory.runtime.signet.sessions import TokenGrant
from memory.runtime.signet.types import RuntimeAdapter
from memory.testing import FakeBackend


@pytest.fixture
async def signet():
    async with daemon() as opened:
        yield opened


OTHERWISE = {
    "01d": "one session may have several clients; a prompt that two of them report is recorded once",
    "01e": "answered alike; this server has no stub of a session start",
    "02b": "the daemon refuses `prompt`; real clients send it, so this one takes it",
    "03c": "a text has no prefixes here",
    "06b": "nothing is suppressed: recall is for one prompt, not for a transcript that keeps it",
    "06c": "one session may have several clients",
    "10_": "a preview needs no confirmation here",
    "10b": "no query finds what the words of a question do not meet",
    "11_": "no secrets are kept here",
    "11b": "no commands are run here",
    "11c": "no commands are run here",
    "11d": "no commands are run here",
    "11e": "no secrets are kept here",
    "21_": "here a session's end queues only what there is to write",
}
"""Pair -> why this server's answer differs in more than values."""


async def test_the_daemons_recorded_requests_are_answered_in_their_shape(signet):
    ids = {}
    for file in sorted(PAIRS.glob("*.json"), key=lambda file: file.name.replace("05c", "10cz")):
        recorded = json.loads(file.read_text("utf-8"))
        asked = recorded["request"]
        text = json.dumps([asked["path"], asked["body"]])
        for theirs, ours in ids.items():
            text = text.replace(theirs, ours)
        path, body = json.loads(text)
        status, answer = await signet.send(asked["method"], path, body, asked["headers"])
        theirs_answer = recorded["response"]["body"]
        _learn(ids, theirs_answer, answer)
        if not file.name.startswith(tuple(OTHERWISE)):
            assert status == recorded["response"]["status"], (file.name, answer)
            missing = _missing(theirs_answer, answer)
            assert not missing, (file.name, missing, answer)


def _learn(ids, theirs, ours):
    for name in ("id", "memoryId"):
        if isinstance(theirs, dict) and isinstance(ours, dict) and name in theirs and name in ours:
            ids[str(theirs[name])] = str(ours[name])


_OPTIONAL = {
    "queryTerms", "agentsDir", "description", "summaryPrompt", "source_id", "source_type", "session_id",
    "confidence", "access_count", "last_accessed", "deleted_at", "extraction_status", "embedding_model",
    "updated_at", "updated_by",
}  # fmt: skip


def _missing(theirs, ours, at=""):
    """Fields of the daemon that are not in our answer, or of another kind there."""
    if isinstance(theirs, dict):
        if not isinstance(ours, dict):
            return [at]
        return [
            field
            for name, value in theirs.items()
            if name not in _OPTIONAL
            for field in (
                [f"{at}.{name}"] if name not in ours else _missing(value, ours[name], f"{at}.{name}")
            )
        ]
    if isinstance(theirs, list):
        return _missing(theirs[0], ours[0], f"{at}[0]") if theirs and ours else []
    numbers = isinstance(theirs, (int, float)) and isinstance(ours, (int, float))
    return [] if ours is None or theirs is None or numbers or type(theirs) is type(ours) else [at]


async def test_its_errors_have_the_daemons_status(signet):
    for name in ("01c", "03d", "04b", "05b", "07d", "09b", "10e"):
        recorded = pair(name)
        asked = recorded["request"]
        status, answer = await signet.send(asked["method"], asked["path"], asked["body"])
        assert status == recorded["response"]["status"]
        assert answer["error"]


async def test_a_session_is_heard_and_remembered_in_the_next(signet):
    await signet.hook("session-start", sessionKey="s1", project="/p")
    first = await signet.hook(
        "user-prompt-submit", sessionKey="s1", project="/p", userMessage="I drink oolong tea."
    )
    assert first["memoryCount"] == 0
    await signet.hook(
        "user-prompt-submit", sessionKey="s1", userMessage="Bye.", lastAssistantMessage="Oolong it is."
    )
    await signet.drain()
    same = await signet.hook("user-prompt-submit", sessionKey="s1", userMessage="oolong tea?")
    assert same["memoryCount"] == 0  # the host still shows this session
    await signet.hook("session-end", sessionKey="s1", reason="exit")
    later = await signet.hook(
        "user-prompt-submit", sessionKey="s2", project="/p", userMessage="Which tea do I drink, oolong?"
    )
    assert later["memoryCount"] >= 2
    assert "I drink oolong tea." in later["inject"]
    assert "Oolong it is." in later["inject"]
    start = await signet.hook("session-start", sessionKey="s3", project="/p", context="oolong tea")
    assert start["memories"]
    assert start["inject"] == start["stableSystemPrompt"]


@pytest.mark.parametrize("name", ["userMessage", "userPrompt", "prompt"])
async def test_every_spelling_of_the_prompt_is_taken(signet, name):
    answer = await signet.hook("user-prompt-submit", **{name: "hello there"})
    assert answer["memoryCount"] == 0
    status, _ = await signet.post("/api/hooks/user-prompt-submit", {"harness": "t", name: " "})
    assert status == 400


@pytest.mark.parametrize("blank", ["", " "])
async def test_a_blank_name_is_an_absent_one(signet, blank):
    """`signet hook` sends what its host did not say as an empty text, and calls a refusal "daemon not running"."""
    for path in ("session-start", "user-prompt-submit", "pre-compaction", "session-end"):
        body = {"harness": "claude-code", "sessionKey": blank, "project": blank, "agentId": blank}
        status, answer = await signet.post(f"/api/hooks/{path}", {**body, "userPrompt": "I drink oolong."})
        assert status == 200, (path, answer)
    await signet.drain()
    start = await signet.hook("session-start", sessionKey="later", context="oolong")
    assert "I drink oolong." in start["inject"]


async def test_a_body_without_a_json_content_type_is_read(signet):
    body = b'{"harness": "t", "summary": "We spoke of tea."}'
    status, answer = await signet.post("/api/hooks/compaction-complete", body, content_type="text/plain")
    assert (status, answer["success"]) == (200, True)
    assert answer["memoryId"]


async def test_tags_come_as_a_list_or_a_text(signet):
    for tags, content in ((["a", "b"], "tea one"), ("a, b", "tea two")):
        status, stored = await signet.post("/api/memory/remember", {"content": content, "tags": tags})
        assert (status, stored["tags"]) == (200, "a,b")
    _, found = await signet.post("/api/memory/recall", {"query": "tea", "tags": "a"})
    assert len(found["results"]) == 2
    _, found = await signet.post("/api/memory/recall", {"query": "tea", "tags": ["c"]})
    assert found["results"] == []


async def test_patch_and_delete_say_success(signet):
    _, stored = await signet.post("/api/memory/remember", {"content": "tea is oolong"})
    path = f"/api/memory/{stored['id']}"
    status, answer = await signet.send("PATCH", path, {"content": "tea is sencha", "reason": "corrected"})
    assert (status, answer["success"], answer["newVersion"]) == (200, True, 2)
    assert (await signet.send("GET", path))[1]["content"] == "tea is sencha"
    status, answer = await signet.send("PATCH", path, {"content": "x"})
    assert (status, answer["error"]) == (400, "reason is required")
    status, answer = await signet.send("PATCH", path, {"content": "x", "reason": "r", "if_version": 1})
    assert (status, answer["status"], answer["currentVersion"]) == (409, "version_conflict", 2)
    status, answer = await signet.send("PATCH", "/api/memory/row-99", {"content": "x", "reason": "r"})
    assert (status, answer["id"], answer["status"]) == (404, "row-99", "not_found")
    assert (await signet.send("DELETE", path))[0] == 400
    status, answer = await signet.send("DELETE", f"{path}?reason=done")
    assert (status, answer["success"], answer["status"]) == (200, True, "deleted")
    assert (await signet.send("GET", path))[0] == 404
    assert (await signet.send("DELETE", f"{path}?reason=again"))[0] == 404


async def test_the_list_pages_through_what_was_stored(signet):
    for number in range(5):
        await signet.post(
            "/api/memory/remember", {"content": f"tea {number}", "type": "rule", "pinned": True}
        )
    _, page = await signet.send("GET", "/api/memories?limit=2&offset=1&type=rule")
    assert [row["content"] for row in page["memories"]] == ["tea 3", "tea 2"]
    assert page["stats"] == {"total": 5, "withEmbeddings": 0, "critical": 5}
    for query in ("limit=x", "limit=0", "offset=-1"):
        assert (await signet.send("GET", f"/api/memories?{query}"))[0] == 400


async def test_a_pinned_memory_is_forgotten_by_force_alone(signet):
    _, stored = await signet.post(
        "/api/hooks/remember", {"harness": "t", "content": "no friday", "pinned": True}
    )
    forget = {"ids": [stored["id"]], "mode": "execute", "reason": "r"}
    _, answer = await signet.post("/api/memory/forget", forget)
    assert (answer["deleted"], answer["results"][0]["status"]) == (0, "pinned_requires_force")
    _, answer = await signet.post("/api/memory/forget", {**forget, "force": True})
    assert answer["deleted"] == 1


async def test_a_transcript_is_recorded_where_its_prompts_were_not_heard(signet, tmp_path):
    text = "User: My bike is red.\nAssistant: Noted, red.\nUser: Bye.\nAssistant: Bye."
    answer = await signet.hook("session-end", sessionKey="s", transcript=text)
    assert answer["queued"]
    await signet.drain()
    found = await signet.hook("user-prompt-submit", sessionKey="t", userMessage="red bike?")
    assert "My bike is red." in found["inject"]
    file = tmp_path / "t.txt"
    file.write_text(text)
    answer = await signet.hook("session-end", sessionKey="u", transcriptPath=str(file))
    assert "transcriptPath is not read" in answer["warnings"][0]
    assert not answer["queued"]


async def test_after_a_compaction_what_was_said_before_it_is_recalled(signet):
    await signet.hook("user-prompt-submit", sessionKey="s", userMessage="My bike is red.")
    await signet.drain()
    assert (await signet.hook("user-prompt-submit", sessionKey="s", userMessage="red bike?"))[
        "memoryCount"
    ] == 0
    await signet.hook("compaction-complete", sessionKey="s", summary="We spoke of wheels.")
    found = await signet.hook("user-prompt-submit", sessionKey="s", userMessage="red bike?")
    assert "My bike is red." in found["inject"]


async def test_the_marketplace_is_not_here_and_health_is(signet):
    for path in ("/api/marketplace/mcp/policy", "/api/marketplace/mcp/tools", "/nowhere"):
        assert await signet.send("GET", path) == (404, {"error": "not found"})
    assert (await signet.send("GET", "/health"))[1]["status"] == "healthy"
    assert (await signet.send("GET", "/health/ready"))[0] == 200


ADA, EVE = {"authorization": "Bearer of-ada"}, {"authorization": "Bearer of-eve"}
TOKENS = {"of-ada": BASE, "of-eve": MemoryScope(run_id="r", persona_id="eve")}


async def test_a_token_of_one_scope_reaches_no_other_on_any_route():
    async with daemon(tokens=TOKENS) as signet:

        async def as_(who, method, path, body=None):
            return await signet.send(method, path, body, who)

        hooks = {"harness": "t", "sessionKey": "s", "project": "/p", "context": "iguana Rex"}
        await as_(ADA, "POST", "/api/hooks/session-start", hooks)
        await as_(ADA, "POST", "/api/hooks/user-prompt-submit", {**hooks, "userMessage": "the iguana Rex"})
        _, stored = await as_(ADA, "POST", "/api/memory/remember", {"content": "iguana Rex", "project": "/p"})
        await as_(
            ADA, "POST", "/api/hooks/remember", {**hooks, "content": "iguana Rex", "idempotencyKey": "k"}
        )
        await as_(ADA, "POST", "/api/hooks/compaction-complete", {**hooks, "summary": "iguana Rex"})
        await signet.drain()
        item = stored["id"]

        for body in (
            {"query": "iguana Rex"},
            {"query": "iguana Rex", "project": "/p"},
            {"query": "iguana Rex", "sessionKey": "s"},
        ):
            assert (await as_(EVE, "POST", "/api/memory/recall", body))[1]["results"] == []
            _, preview = await as_(EVE, "POST", "/api/memory/forget", body)
            assert preview["candidates"] == []
        assert (await as_(EVE, "GET", f"/api/memory/{item}"))[0] == 404
        assert (await as_(EVE, "PATCH", f"/api/memory/{item}", {"content": "x", "reason": "r"}))[0] == 404
        assert (await as_(EVE, "DELETE", f"/api/memory/{item}?reason=r"))[0] == 404
        patch = {"patches": [{"id": item, "content": "x", "reason": "r"}], "project": "/p"}
        assert (await as_(EVE, "POST", "/api/memory/modify", patch))[1]["updated"] == 0
        forget = {"ids": [item], "mode": "execute", "reason": "r", "force": True, "project": "/p"}
        assert (await as_(EVE, "POST", "/api/memory/forget", forget))[1]["deleted"] == 0
        assert (await as_(EVE, "GET", "/api/memories"))[1]["memories"] == []
        _, start = await as_(EVE, "POST", "/api/hooks/session-start", hooks)
        assert (start["memories"], start["inject"]) == ([], "")
        _, prompt = await as_(
            EVE, "POST", "/api/hooks/user-prompt-submit", {**hooks, "userMessage": "iguana Rex?"}
        )
        assert prompt["memoryCount"] == 0
        _, flush = await as_(
            EVE, "POST", "/api/hooks/pre-compaction", {**hooks, "sessionContext": "iguana Rex"}
        )
        assert "iguana" not in flush["summaryPrompt"]
        await signet.drain()
        rows = signet.backend.store.rows.values()
        evil = [row.id for row in rows if row.text == "iguana Rex?"]
        assert len(evil) == 1
        await as_(EVE, "POST", "/api/hooks/session-end", hooks)
        _, kept = await as_(ADA, "GET", f"/api/memory/{item}")
        assert kept["content"] == "iguana Rex"


async def test_every_route_but_health_asks_for_the_token():
    async with daemon(tokens=TOKENS) as signet:
        for method, described in await signet.routes(authorization="Bearer of-ada"):
            path = re.sub(r"{.*?}", "x", described)
            open_to_all = path == "/health"
            for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic of-ada"}):
                status, _ = await signet.send(method, path, {} if method != "GET" else None, header)
                assert (status == 401) != open_to_all, (method, path)


async def test_without_tokens_only_this_machine_is_answered(signet):
    signet.http.base_url = "http://evil.example"  # rebound to a loopback address
    assert (await signet.send("GET", "/api/memories"))[0] == 403
    signet.http.base_url = "http://localhost:3850"
    assert (await signet.send("GET", "/api/memories"))[0] == 200


def test_loopback_is_what_it_says():
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1", "[::1]", "127.9.9.9")))
    assert not any(map(is_loopback, ("", "localhost.evil.example", "0.0.0.0", "10.0.0.1", "127.0.0.1.evil")))


async def test_a_server_of_nobodys_memory_is_refused():
    async with MemorySlot(FakeBackend()) as slot, TurnMemory(slot) as memory:
        with pytest.raises(ConfigError, match="set memory"):
            RuntimeAdapterServer(memory)


async def test_a_row_that_a_session_recorded_carries_its_project(signet):
    """Clients name the session alone once it has begun."""
    await signet.hook("session-start", sessionKey="s1", project="/home/ada/α|β")
    await signet.hook("user-prompt-submit", sessionKey="s1", userMessage="I drink oolong tea.")
    await signet.drain()
    await signet.post("/api/memory/remember", {"content": "Ada drinks oolong at work.", "sessionKey": "s1"})
    await signet.post("/api/memory/remember", {"content": "Ada drinks oolong anywhere."})
    for body in ({"sessionKey": "s1"}, {"project": "/home/ada/α|β"}, {}):
        _, found = await signet.post("/api/memory/recall", {"query": "oolong", **body})
        projects = {row["content"]: row["project"] for row in found["results"]}
        assert projects["I drink oolong tea."] == "/home/ada/α|β"
        assert projects["Ada drinks oolong at work."] == "/home/ada/α|β"
        assert projects["Ada drinks oolong anywhere."] is None


async def test_a_bare_slot_is_served_and_what_waits_is_written_at_the_end():
    async with MemorySlot(FakeBackend(), scope=BASE) as slot:
        server = RuntimeAdapterServer(slot)
        async with server.app.router.lifespan_context(server.app):
            transport = httpx.ASGITransport(app=server.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                body = {"harness": "t", "sessionKey": "s", "userMessage": "I drink oolong."}
                answer = await client.post("/api/hooks/user-prompt-submit", json=body)
                assert answer.status_code == 200
        assert "oolong" in await slot.before_turn("oolong", session_id="other")


class Echo(RuntimeAdapter):
    """A harness's own adapter, which keeps what it was told."""

    harness = "echo"

    def __init__(self):
        self.heard: list[object] = []

    async def on_session_start(self, params):
        self.heard.append(params)
        return types.SessionStartResult(inject=f"for {params.session_key}")

    async def on_user_prompt_submit(self, params):
        self.heard.append(params)
        return types.PromptSubmitResult(inject="", memory_count=0)

    async def on_session_end(self, params):
        raise BackendUnavailable("the daemon is away")

    async def on_pre_compaction(self, params):
        raise NotImplementedError

    async def on_compaction_complete(self, params):
        raise NotImplementedError


async def test_a_harness_serves_its_own_adapter():
    """The contract's ``RuntimeAdapterServer``: the lifecycle of an adapter as endpoints."""
    adapter = Echo()
    server = RuntimeAdapterServer(adapter, tokens={"of-ada": TokenGrant(BASE)})
    transport = httpx.ASGITransport(app=server.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

        async def post(name, token="of-ada", **body):
            headers = {"authorization": f"Bearer {token}"}
            return await client.post(f"/api/hooks/{name}", json={"harness": "t", **body}, headers=headers)

        assert (await client.get("/health")).json() == {"status": "healthy", "harness": "echo"}
        started = await post("session-start", sessionKey="s1", project="/p")
        assert (started.status_code, started.json()["inject"]) == (200, "for s1")
        assert (await post("user-prompt-submit", userMessage="Hello.")).status_code == 200
        assert [type(params).__name__ for params in adapter.heard] == [
            "SessionStartParams",
            "PromptSubmitParams",
        ]
        assert (await post("session-start", token="wrong")).status_code == 401
        assert (await post("session-end")).status_code == 503
        assert (await post("pre-compaction")).status_code == 500
        assert (await client.post("/api/memory/recall", json={})).status_code == 404
