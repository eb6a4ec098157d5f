"""Open sessions with MCP servers: one for each scope over stdio, or one in all over HTTP.

Only the adapter's worker thread uses them.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from memory import BackendUnavailable
from memory.adapter.sdk import quiet_loggers

OPEN_AT_MOST = 4
"""Servers that run at a time. One more ends the server that started first."""
quiet_loggers("mcp")  # it logs invalid JSON from a server, which may contain user text


class Sessions:
    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], url: str, directory: Path, *, timeout_s: float
    ) -> None:
        self._command = command
        self._env = env
        self._url = url
        self._directory = directory
        self._timeout = timedelta(seconds=timeout_s)
        self._open: dict[str, tuple[BlockingPortal, ClientSession, ExitStack]] = {}

    def call(self, space: str, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """The answer of a tool."""
        return self._ask(space, "call_tool", tool, dict(arguments))

    def tools(self, space: str) -> Any:
        """The server's list of its tools."""
        return self._ask(space, "list_tools")

    def close(self) -> None:
        """End every server."""
        for key in list(self._open):
            self._end(key)

    def _ask(self, space: str, method: str, *arguments: Any) -> Any:
        key = self._url or space
        if key not in self._open:
            while len(self._open) >= OPEN_AT_MOST:
                self._end(next(iter(self._open)))
            self._start(key)
        portal, session, _ = self._open[key]
        try:
            return portal.call(getattr(session, method), *arguments)
        except Exception:
            self._end(key)  # a new session may work
            raise

    def _start(self, key: str) -> None:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            try:
                session = stack.enter_context(portal.wrap_async_context_manager(self._session(key)))
            except Exception as error:
                why = "no MCP server answers: it ended, is not there, or takes longer than timeout_s"
                raise BackendUnavailable(why, sent=False) from error
            self._open[key] = portal, session, stack.pop_all()

    def _end(self, key: str) -> None:
        self._open.pop(key)[2].close()

    @asynccontextmanager
    async def _session(self, space: str) -> AsyncIterator[ClientSession]:
        async with AsyncExitStack() as stack:
            if self._url:
                client = httpx.AsyncClient(timeout=self._timeout.total_seconds())
                await stack.enter_async_context(client)
                streams = await stack.enter_async_context(
                    streamable_http_client(self._url, http_client=client)
                )
            else:
                streams = await stack.enter_async_context(self._process(space, stack))
            session = ClientSession(streams[0], streams[1], self._timeout)
            await stack.enter_async_context(session)
            await session.initialize()
            yield session

    def _process(self, space: str, stack: AsyncExitStack) -> Any:
        directory = self._directory / space
        directory.mkdir(parents=True, exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        env = {name: text.replace("{directory}", str(directory)) for name, text in self._env.items()}
        server = StdioServerParameters(
            command=self._command[0], args=list(self._command[1:]), env=kept | env, cwd=directory
        )
        # A server's log may contain user text.
        return stdio_client(server, errlog=stack.enter_context(open(os.devnull, "w")))
