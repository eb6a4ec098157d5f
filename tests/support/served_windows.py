"""One served memory, and a user's programs calling it in the order in which the real ones do.

OpenCode's plugin in two projects, OpenClaw with two agents, the hooks of Claude Code, MCP by HTTP and by a process.
"""

import json
import os
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import httpx
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from memory import SupportsReadiness
from memory.plugins.config import load_config
from memory.runtime import ServeSettings, listening_socket, open_shared
from memory.runtime._serving import answer

TOKENS = {name: f"token-of-{name}-0000000" for name in ("ada", "eve", "ada-who-looks")}
OPENCODE = {"x-signet-actor": "opencode-plugin", "x-signet-actor-type": "harness"}
PLUGIN = {**OPENCODE, "x-signet-runtime-path": "plugin"}
OPENCLAW = {"x-signet-actor": "openclaw-plugin", "x-signet-runtime-path": "plugin"}
LEGACY = {"x-signet-runtime-path": "legacy"}
THINGS = ("teapot", "kettle", "grinder", "cupboard", "bean", "tray", "spoon", "lamp")
CODE = {thing: f"{thing.upper()}{number}1" for number, thing in enumerate(THINGS, 1)}


def said(thing):
    return f"My {thing} has the code {CODE[thing]}."


class Windows:
    """One served memory, and whoever speaks to it.

    Args:
        slot: the memory that is served.
        http: a client of its server.
        mcp: a client of ``/mcp``, and one of ``memslot tools mcp``, which is attached to this process.
    """

    def __init__(self, slot, http, mcp):
        self.slot = slot
        self.http = http
        self.mcp = mcp

    async def send(self, method, path, body=None, headers=None, who="ada"):
        given = {"authorization": f"Bearer {TOKENS[who]}", **(headers or {})}
        done = await self.http.request(method, path, json=body, headers=given)
        return done.status_code, done.json()

    async def hook(self, name, key, headers, who="ada", **body):
        status, reply = await self.send(
            "POST", f"/api/hooks/{name}", {"harness": "h", "sessionKey": key, **body}, headers, who
        )
        assert status == 200, reply
        return dict(reply)

    async def recalled(self, thing, who="ada", **fields):
        """By the tool of a plugin; those rows that tell the thing's code."""
        body = {"query": f"What code has my {thing}?", "limit": 50, **fields}
        status, reply = await self.send("POST", "/api/memory/recall", body, OPENCODE, who)
        assert status == 200, reply
        return [row for row in reply["results"] if CODE[thing] in row["content"]]

    async def injected(self, thing, key, headers=PLUGIN, **fields):
        reply = await self.hook(
            "user-prompt-submit", key, headers, userMessage=f"What code has my {thing}?", **fields
        )
        assert not reply.get("warnings"), reply
        return CODE[thing] in reply["inject"]

    async def by_mcp(self, thing):
        """Whether each of the two MCP clients finds it."""
        return [
            CODE[thing]
            in str(await use(client, "memory_search", query=f"What code has my {thing}?", limit=50))
            for client in self.mcp
        ]

    async def written(self):
        """Wait until all that was said is written, and can be recalled."""
        with anyio.fail_after(120):
            while (await self.send("GET", "/health/ready"))[1]["waiting"]:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        readiness = self.slot.capability(SupportsReadiness)
        if readiness:
            await self.slot.delivery.set_up(self.slot.scope)
            state = await readiness.wait_until_ready(self.slot.scope, 60)
            assert state.state in ("ready", "unknown"), state


async def use(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    text = result.content[0].text
    assert not result.isError, text
    return json.loads(text) if text[:1] in "[{" else text


@asynccontextmanager
async def windows(memory, directory):
    """Serve a memory to two users, one of whom has an MCP client besides.

    Args:
        memory: the ``memory:`` block.
        directory: for what it keeps.
    """
    scope = {"run_id": directory.name, "persona_id": "ada"}
    file = directory / "memslot.yaml"
    budget = {"max_tokens": None, "max_items": 50}
    block = {"data_dir": str(directory), "budget": budget, **memory, "scope": scope}
    file.write_text(json.dumps({"memory": block}))
    tokens = [
        {"token": token, "persona_id": name[:3], "read_only": name == "ada-who-looks"}
        for name, token in TOKENS.items()
    ]
    settings = ServeSettings.model_validate({"tokens": tokens, "policy": {"recall_s": 30}})
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    urls, ready = list[str](), anyio.Event()

    def serving(url):
        urls.append(url)
        ready.set()

    try:
        async with AsyncExitStack() as stack:
            listener = stack.enter_context(listening_socket("127.0.0.1", 0, field="port"))
            slot = await stack.enter_async_context(open_shared(load_config(file)))
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(answer, slot, settings, listener, serving)
            await ready.wait()
            http = await stack.enter_async_context(httpx.AsyncClient(base_url=urls[0], timeout=120))
            headers = {"authorization": f"Bearer {TOKENS['ada']}"}
            client = await stack.enter_async_context(httpx.AsyncClient(headers=headers, timeout=120))
            by_http = await stack.enter_async_context(
                streamable_http_client(f"{urls[0]}/mcp", http_client=client)
            )
            command = ["-c", "from memory.cli import main; main()", "tools", "mcp", str(file)]
            parameters = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
            by_stdio = await stack.enter_async_context(stdio_client(parameters))
            sessions = [
                await stack.enter_async_context(ClientSession(streams[0], streams[1]))
                for streams in (by_http, by_stdio)
            ]
            for session in sessions:
                await session.initialize()
            yield Windows(slot, http, (sessions[0], sessions[1]))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def store_in_every_way(served):
    """Eight facts, by eight ways in; two windows at work at once."""
    for project, key in (("/tea", "o1"), ("/coffee", "o2")):
        await served.hook("session-start", key, PLUGIN, project=project)
    await served.hook("user-prompt-submit", "o1", PLUGIN, project="/tea", userMessage=said("teapot"))
    legacy = {"harness": "h", "sessionKey": "o1", "project": "/tea", "userMessage": said("teapot")}
    assert (await served.send("POST", "/api/hooks/user-prompt-submit", legacy, LEGACY))[0] == 200
    keyed = {"content": said("kettle"), "idempotencyKey": "kettle"}
    for _ in range(2):
        status, reply = await served.send("POST", "/api/memory/remember", keyed, OPENCODE)
        assert status == 200, reply
    assert reply["deduped"] is True
    body = {"content": said("grinder"), "project": "/coffee"}
    assert (await served.send("POST", "/api/memory/remember", body, OPENCODE))[0] == 200
    await use(served.mcp[1], "memory_store", content=said("cupboard"))
    await served.hook("session-start", "c1", LEGACY, project="/coffee")
    await served.hook("user-prompt-submit", "c1", LEGACY, project="/coffee", userMessage=said("bean"))
    for agent in ("first", "second"):
        await served.hook("session-start", f"claw-{agent}", OPENCLAW, project="/tea", agentId=agent)
    await served.hook(
        "user-prompt-submit",
        "claw-first",
        OPENCLAW,
        project="/tea",
        agentId="first",
        userMessage=said("tray"),
    )
    body = {"harness": "claude-code", "content": said("spoon"), "project": "/tea"}
    assert (await served.send("POST", "/api/hooks/remember", body, LEGACY))[0] == 200
    transcript = f"User: {said('lamp')}\n\nAssistant: I see.\n"
    await served.hook("session-end", "c2", LEGACY, project="/tea", transcript=transcript)
    await served.written()


async def look_everywhere(served, there, again):
    """Whatever is there is found by tools, MCP and prompts, and nothing else is; ``again`` begins new sessions."""
    there = frozenset(there)
    for thing in THINGS:
        assert bool(await served.recalled(thing)) is (thing in there), f"a tool, {thing}"
        assert await served.by_mcp(thing) == [thing in there] * 2, f"MCP, {thing}"
        assert await served.recalled(thing, who="eve") == [], f"another user finds the {thing}"
        for project in ("/tea", "/coffee"):
            for way, headers in (("plugin", PLUGIN), ("legacy", LEGACY)):
                key = f"{again}-{way}-{project}-{thing}"
                fields = {"project": project, "agentId": "second", "who": "ada-who-looks"}
                found = await served.injected(thing, key, headers, **fields)
                assert found is (thing in there), f"a prompt by {way} in {project}, {thing}"


async def play(served):
    """Store, find, correct, forget, find no more."""
    await store_in_every_way(served)
    await look_everywhere(served, THINGS, "before")
    if "native_mutation" not in served.slot.capabilities():
        row = (await served.recalled("grinder"))[0]
        status, reply = await served.send("DELETE", f"/api/memory/{row['id']}?reason=r")
        assert (status, bool(reply["error"])) == (501, True), (
            "what a backend cannot forget is said, and stays"
        )
        await look_everywhere(served, THINGS, "after")
        return
    for thing in ("grinder", "lamp"):  # by a tool that names no project, while another project is open
        for row in await served.recalled(thing):
            status, reply = await served.send("DELETE", f"/api/memory/{row['id']}?reason=r", headers=OPENCODE)
            assert status == 200, reply
    for row in await served.recalled("teapot"):  # from a session of the other project
        body = {"ids": [row["id"]], "mode": "execute", "reason": "r", "sessionKey": "o2"}
        status, reply = await served.send("POST", "/api/memory/forget", body, PLUGIN)
        assert (status, reply["deleted"]) == (200, 1), reply
    for row in await served.recalled("tray"):
        await use(served.mcp[1], "memory_forget", id=row["id"])
    for row in await served.recalled("kettle"):
        await use(served.mcp[0], "memory_forget", id=row["id"])
        assert (await served.send("GET", f"/api/memory/{row['id']}"))[0] == 404
    await served.written()
    await look_everywhere(served, {"cupboard", "bean", "spoon"}, "after")
    await served.send("POST", "/api/memory/remember", {"content": said("kettle")}, OPENCODE)  # after all
    await served.written()
    assert await served.recalled("kettle"), "what was forgotten can be stored again"
