"""One user, one memory: what tools and hooks of several projects and clients find, show and forget."""

import pytest
from signet_support import BASE, daemon

OPENCODE = {"x_signet_actor": "opencode-plugin"}
MCP = {"x_signet_actor": "mcp-server"}
MCP_HEADERS = {"x-signet-actor": "mcp-server", "content-type": "application/json"}


@pytest.fixture
async def signet():
    async with daemon() as running:
        yield running


async def prompt(signet, said, key="s", **fields):
    return await signet.hook("user-prompt-submit", sessionKey=key, userMessage=said, **fields)


async def found(signet, query, **fields):
    _, answer = await signet.post("/api/memory/recall", {"query": query, **fields})
    return {row["content"] for row in answer["results"]}


async def test_a_second_project_takes_nothing_from_the_tools(signet):
    """OpenCode's tools name no project; its hooks do."""
    start = {"harness": "opencode", "project": "/tea"}
    await signet.post("/api/hooks/session-start", {**start, "sessionKey": "s"}, **OPENCODE)
    _, stored = await signet.post("/api/memory/remember", {"content": "the pot is blue"}, **OPENCODE)
    await signet.post("/api/hooks/session-start", {**start, "project": "/coffee"}, **OPENCODE)
    assert await found(signet, "pot") == {"the pot is blue"}
    for project in ("/tea", "/coffee", "/new"):
        answer = await prompt(signet, "the pot?", f"in {project}", project=project)
        assert "the pot is blue" in answer["inject"]
    assert (await signet.send("GET", f"/api/memory/{stored['id']}"))[0] == 200


async def test_projects_and_agents_share_the_memory_of_a_token(signet):
    body = {"content": "alpha builds with make", "project": "/alpha", "agentId": "first"}
    await signet.post("/api/memory/remember", body)
    for where in ({"project": "/alpha"}, {"project": "/beta", "agentId": "second"}, {}):
        answer = await prompt(signet, "builds?", f"in {where.get('project')}", **where)
        assert "alpha builds with make" in answer["inject"]
        assert "alpha builds with make" in await found(signet, "builds", **where)


async def test_hooks_and_the_mcp_server_see_each_others_memories(signet):
    await prompt(signet, "My bike is red.", project="/p")
    await signet.drain()
    _, answer = await signet.post("/api/memory/recall", {"query": "bike"}, **MCP)
    assert [row["content"] for row in answer["results"]] == ["My bike is red."]
    await signet.post("/api/memory/remember", {"content": "the lock is new"}, **MCP)
    assert "the lock is new" in (await prompt(signet, "the lock?", "t", project="/p"))["inject"]


async def test_what_was_shown_can_be_changed_and_forgotten_wherever_it_is(signet):
    await signet.post("/api/memory/remember", {"content": "the pot is blue", "project": "/tea"})
    await signet.post("/api/memory/remember", {"content": "the pot is old"})
    await signet.hook("session-start", project="/coffee", sessionKey="s")
    _, answer = await signet.post("/api/memory/recall", {"query": "pot"})
    ids = {row["content"]: row["id"] for row in answer["results"]}
    blue, old = ids["the pot is blue"], ids["the pot is old"]
    status, _ = await signet.send(
        "PATCH", f"/api/memory/{blue}", {"content": "the pot is red", "reason": "r"}
    )
    assert status == 200
    assert await found(signet, "pot", project="/tea") == {"the pot is red", "the pot is old"}
    assert (await signet.send("DELETE", f"/api/memory/{blue}?reason=r"))[0] == 200
    forget = {"ids": [old], "mode": "execute", "reason": "r", "project": "/coffee"}
    assert (await signet.post("/api/memory/forget", forget))[1]["deleted"] == 1
    assert await found(signet, "pot") == set()


async def test_strict_walls_hold_for_every_way_in():
    async with daemon(isolate="strict") as signet:
        body = {"content": "the pot is blue", "project": "/tea", "agentId": "a"}
        _, stored = await signet.post("/api/memory/remember", body)
        for where in ({}, {"project": "/tea"}, {"project": "/coffee", "agentId": "a"}):
            assert await found(signet, "pot", **where) == set()
            forget = {"ids": [stored["id"]], "mode": "execute", "reason": "r", **where}
            assert (await signet.post("/api/memory/forget", forget))[1]["deleted"] == 0
        assert await found(signet, "pot", project="/tea", agentId="a") == {"the pot is blue"}
        await signet.post("/api/memory/remember", {"content": "the iguana", "project": "a|b", "agentId": "c"})
        for alike in ({"project": "a", "agentId": "b|c"}, {"project": "a%7Cb|c"}, {"agentId": "a|b|c"}):
            assert await found(signet, "iguana", **alike) == set()


async def test_plugin_and_legacy_hooks_of_one_session_record_it_once(signet):
    body = {"harness": "t", "sessionKey": "s", "userMessage": "My bike is red."}
    hook = "/api/hooks/user-prompt-submit"
    await signet.post(hook, {**body, "runtimePath": "plugin"}, x_signet_actor="opencode-plugin")
    assert (await signet.post(hook, {**body, "runtimePath": "legacy"}))[0] == 200
    await signet.drain()
    assert [row.text for row in signet.backend.store.rows.values()] == ["My bike is red."]


async def test_a_prompt_said_twice_by_one_client_is_two(signet):
    for _ in range(2):
        await prompt(signet, "Go on.")
    await signet.drain()
    assert len(signet.backend.store.rows) == 2


async def test_odd_values_are_read_as_the_daemon_reads_them(signet):
    await signet.post("/api/memory/remember", {"content": "the pot is blue"})
    for limit, rows in ((0, 0), ("0", 0), ("5", 1), (5000, 1), (None, 1)):
        status, answer = await signet.post("/api/memory/recall", {"query": "pot", "limit": limit})
        assert (status, len(answer["results"])) == (200, rows), limit
    assert (await signet.post("/api/hooks/pre-compaction", {"sessionKey": "s"}))[0] == 400


async def test_the_mcp_server_of_signet_gives_its_reason_in_a_body(signet):
    _, stored = await signet.post("/api/memory/remember", {"content": "the pot is blue"})
    path = f"/api/memory/{stored['id']}"
    for wrong in ({}, {"reason": " "}, None):
        assert (await signet.send("DELETE", path, wrong))[0] == 400
    assert (await signet.send("DELETE", path, b"{"))[0] == 400
    assert (await signet.send("DELETE", path, {"reason": "gone"}, MCP_HEADERS))[1]["status"] == "deleted"


async def test_a_read_only_token_plays_a_whole_session_and_leaves_nothing():
    async with daemon(tokens={"full": BASE, "test": BASE}, read_only=frozenset({"test"})) as signet:
        full, test = {"authorization": "Bearer full"}, {"authorization": "Bearer test"}
        _, stored = await signet.post("/api/memory/remember", {"content": "the pot is blue"}, **full)
        before = dict(signet.backend.store.rows)
        hooks = {"harness": "t", "sessionKey": "s"}
        for name, body in (
            ("session-start", {"context": "pot"}),
            ("user-prompt-submit", {"userMessage": "Which pot? I like tea."}),
            ("compaction-complete", {"summary": "About tea."}),
            ("session-end", {"transcript": "User: I like tea.\n\nAssistant: I see."}),
        ):
            status, answer = await signet.post(f"/api/hooks/{name}", {**hooks, **body}, **test)
            assert (status, "queued" in answer and answer["queued"]) == (200, False), name
        assert (await signet.post("/api/memory/remember", {"content": "tea"}, **test))[0] == 403
        assert (await signet.send("DELETE", f"/api/memory/{stored['id']}?reason=r", headers=test))[0] == 403
        patch = {"content": "x", "reason": "r"}
        assert (await signet.send("PATCH", f"/api/memory/{stored['id']}", patch, test))[0] == 403
        await signet.drain()
        assert signet.backend.store.rows == before
        _, start = await signet.post("/api/hooks/session-start", hooks, **full)
        assert not start["sessionKnown"]
        assert "tea" not in start["inject"]
