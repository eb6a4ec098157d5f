"""A process or connection for each scope, a few at a time. Only the worker's thread uses them."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from anyio import BrokenResourceError
from anyio.from_thread import start_blocking_portal
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import McpError

from memory import BackendError, BackendUnavailable
from memory.adapter import BackendProtocolError
from memory.adapter.http import http_client
from memory.adapter.sdk import quiet_loggers
from memory.adapter.stores import FileLock, create_directory
from memory.backends.mcp.options import McpOptions, Tool

HEALTH = "health"  # takes the place of a scope, for a process that only lists its tools
_APART = "give this one another directory, or a server with a url"
_PAGE_LIMIT = 10_000
_TIMED_OUT = 408  # the SDK's code for its own time-out, as in HTTP
quiet_loggers("mcp")  # it logs invalid JSON from a server, which may contain user text


class Servers:
    def __init__(self, options: McpOptions, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self._open: OrderedDict[str, tuple[Any, ClientSession, ExitStack]] = OrderedDict()

    def call(self, scope: str, tool: Tool, **values: Any) -> Any:
        """A tool's answer as JSON. None if it is not JSON, or the row does not exist."""
        portal, session, _ = self._session(scope)
        values |= {"scope": scope, "directory": str(self._directory / scope)}
        arguments = filled(tool.arguments, values)
        try:
            result = portal.call(session.call_tool, tool.tool, arguments)
        except Exception as error:
            self.close(scope)  # a new session may work
            if isinstance(error, McpError) and error.error.code != _TIMED_OUT:
                ended = f"the server ended, or broke off, when {tool.tool} was called"
                raise BackendUnavailable(ended, operation=tool.tool) from error
            raise
        answer = result.structuredContent
        if answer is None:
            with suppress(ValueError):
                answer = json.loads("".join(getattr(part, "text", "") for part in result.content))
        problem = at(answer, tool.error) if tool.error else None
        if problem is not None and problem == tool.absent:
            return None
        if result.isError or problem:
            raise BackendError(f"the tool {tool.tool} failed", operation=tool.tool)
        return answer

    def rows(self, scope: str, tool: Tool, **values: Any) -> list[Any]:
        rows: list[Any] = []
        for page in range(1, _PAGE_LIMIT):
            found = at(self.call(scope, tool, page=page, **values), tool.rows)
            if not isinstance(found, list):
                problem = f"the tool {tool.tool} answered no list at {tool.rows!r}"
                raise BackendProtocolError(problem, operation=tool.tool)
            rows += found
            if not found or not tool.asks_for("{page}"):
                break
        return rows

    def check(self, scope: str) -> None:
        portal, session, _ = self._session(scope)
        try:
            listed = portal.call(session.list_tools)
        except Exception:
            self.close(scope)
            raise
        there = sorted(tool.name for tool in listed.tools)
        named = {tool.tool for tool in vars(self._options).values() if isinstance(tool, Tool)}
        missing = sorted(named.difference(there))
        if missing and not listed.nextCursor:  # they may be on a further page
            lacks = f"the server has no tool {', '.join(missing)}; it has {', '.join(there)}"
            raise BackendError(lacks, sent=False)

    def close(self, scope: str) -> None:
        found = self._open.pop(self._server_of(scope), None)
        if found is not None:
            found[2].close()

    def close_all(self) -> None:
        while self._open:
            self._open.popitem()[1][2].close()

    def _server_of(self, scope: str) -> str:
        return filled(self._options.url, {"scope": scope}) if self._options.url else scope

    def _session(self, scope: str) -> tuple[Any, ClientSession, ExitStack]:
        key = self._server_of(scope)
        if key not in self._open:
            while len(self._open) >= self._options.open_servers:
                self._open.popitem(last=False)[1][2].close()
            self._open[key] = self._start(scope)
        self._open.move_to_end(key)
        return self._open[key]

    def _start(self, scope: str) -> tuple[Any, ClientSession, ExitStack]:
        directory = self._directory / scope
        create_directory(directory)
        opening = _opened(self._options, self._server_of(scope), directory)
        with ExitStack() as stack:
            if not self._options.url and scope != HEALTH:  # two processes would lose each other's writes
                file = directory.with_name(f"{scope}.lock")
                lock = FileLock(file, what=f"the memory at {directory}", instead=_APART)
                lock.acquire()
                stack.callback(lock.release)
            portal = stack.enter_context(start_blocking_portal())
            try:
                session = stack.enter_context(portal.wrap_async_context_manager(opening))
                return portal, session, stack.pop_all()
            except (BaseExceptionGroup, McpError) as error:
                first: BaseException = error
                while isinstance(first, BaseExceptionGroup):  # the first error in the group has a useful type
                    first = first.exceptions[0]
                if isinstance(first, (McpError, BrokenResourceError)):
                    raise BackendUnavailable(
                        "the server does not answer as an MCP server: it ended, or takes longer than timeout_s",
                        sent=False,
                    ) from first
                raise first from error


@asynccontextmanager
async def _opened(options: McpOptions, url: str, directory: Path) -> AsyncIterator[ClientSession]:
    async with AsyncExitStack() as stack:
        transport: AbstractAsyncContextManager[Any]
        if options.url:
            headers = {name: value.get_secret_value() for name, value in options.headers.items()}
            # The client follows no redirect, so that no header reaches another host.
            client = http_client(url, backend="mcp", timeout_s=options.timeout_s, headers=headers)
            transport = streamable_http_client(url, http_client=await stack.enter_async_context(client))
        else:
            command, *arguments = options.command
            kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
            env = {name: text.replace("{directory}", str(directory)) for name, text in options.env.items()}
            # A server's log may contain user text.
            quiet = stack.enter_context(open(os.devnull, "w"))  # noqa: ASYNC230, SIM115
            server = StdioServerParameters(command=command, args=arguments, env=kept | env, cwd=directory)
            transport = stdio_client(server, errlog=quiet)
        read, write, *_ = await stack.enter_async_context(transport)
        limit = timedelta(seconds=options.timeout_s)
        session = await stack.enter_async_context(ClientSession(read, write, limit))
        await session.initialize()
        yield session


def at(value: Any, path: str) -> Any:
    """The value at ``names.with.dots``, or None."""
    for name in filter(None, path.split(".")):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Fill a template of arguments. ``{"$each": ...}`` becomes an item for each of ``values["each"]``."""
    if isinstance(template, dict):
        if set(template) == {"$each"}:
            return [filled(template["$each"], {**values, **message}) for message in values["each"]]
        return {name: filled(value, values) for name, value in template.items()}
    if isinstance(template, list):
        return [filled(value, values) for value in template]
    if isinstance(template, str):
        for name, value in values.items():
            if template == f"{{{name}}}":
                return value
        for name in ("scope", "directory", "key"):
            template = template.replace(f"{{{name}}}", str(values.get(name, "")))
    return template
