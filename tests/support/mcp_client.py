"""A client of MCP for the tests, by the SDK's own client: that of 1.x or of 2.x."""

import json
from contextlib import asynccontextmanager

import mcp.client
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

NEWER = hasattr(mcp.client, "Client")  # 2.x


class Client:
    """What the tests ask of a session, without the names that the releases spell in their own ways."""

    def __init__(self, session):
        self.session = session

    async def call(self, name, arguments):
        """Call a tool; whether it failed, and what it said."""
        result = await self.session.call_tool(name, dict(arguments))
        return bool(_plain(result)["isError"]), str(result.content[0].text)

    async def use(self, name, **arguments):
        """Call a tool that does not fail. Returns what its JSON says; nothing found is an empty list."""
        failed, said = await self.call(name, arguments)
        assert not failed, said
        return [] if said == "no memories were found" else json.loads(said)

    async def refused(self, name, arguments):
        failed, said = await self.call(name, arguments)
        assert failed, said
        return said

    async def tools(self):
        """The tools that the server lists, as the protocol's JSON."""
        return [_plain(tool) for tool in (await self.session.list_tools()).tools]


def _plain(model):
    plain = model.model_dump(by_alias=True)
    return plain


@asynccontextmanager
async def connected(server):
    """A client of a server in this process."""
    if NEWER:
        opened = mcp.client.Client(server)
    else:
        from mcp.shared.memory import create_connected_server_and_client_session

        opened = create_connected_server_and_client_session(server)
    async with opened as session:
        yield Client(session)


@asynccontextmanager
async def over_stdio(command, **options):
    """A client of a program, and how the server introduced itself."""
    params = StdioServerParameters(command=command[0], args=command[1:])
    async with stdio_client(params, **options) as streams, ClientSession(*streams) as session:
        yield Client(session), _plain(await session.initialize())


@asynccontextmanager
async def over_http(url, headers=None):
    """A client of a server at an address."""
    if NEWER:
        import httpx2 as httpx
    else:
        import httpx

    async with (
        httpx.AsyncClient(headers=dict(headers or {}), timeout=30) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(*streams[:2]) as session,
    ):
        await session.initialize()
        yield Client(session)
