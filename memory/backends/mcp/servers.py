"""The server processes: one for each scope, a few at a time, each spoken to from the worker's thread."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from memory import BackendError
from memory.adapter import BackendProtocolError
from memory.backends.mcp.options import McpOptions, Tool


class Servers:
    """Starts, keeps and ends servers. Every method blocks, and belongs on one thread.

    Args:
        options: the block.
        directory: where the scopes' directories lie.
    """

    def __init__(self, options: McpOptions, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self._open: OrderedDict[str, tuple[Any, ClientSession, ExitStack]] = OrderedDict()

    def call(self, scope: str, tool: Tool, **values: Any) -> Any:
        """What a tool answers, as JSON.

        Raises:
            BackendError: the tool said that it failed, or did not answer; its own text stays with it.
            BackendProtocolError: the answer is no JSON.
        """
        portal, session, _ = self._server(scope)
        arguments = filled(tool.arguments, values)
        limit = timedelta(seconds=self._options.timeout_s)
        try:
            result = portal.call(session.call_tool, tool.tool, arguments, limit)
        except Exception:
            self.close(scope)  # what is wrong with this process is not wrong with the next
            raise
        if result.isError:
            raise BackendError(f"the tool {tool.tool} failed", operation=tool.tool)
        if result.structuredContent is not None:
            return result.structuredContent
        text = "".join(getattr(part, "text", "") for part in result.content)
        try:
            return json.loads(text)
        except ValueError as error:
            raise BackendProtocolError(
                f"the tool {tool.tool} answered no JSON", operation=tool.tool
            ) from error

    def rows(self, scope: str, tool: Tool, **values: Any) -> list[Any]:
        """The rows of a tool's answer."""
        found = at(self.call(scope, tool, **values), tool.rows)
        if not isinstance(found, list):
            raise BackendProtocolError(
                f"the tool {tool.tool} answered no list at {tool.rows!r}", operation=tool.tool
            )
        return found

    def close(self, scope: str) -> None:
        """End a scope's process, if it runs."""
        if scope in self._open:
            self._open.pop(scope)[2].close()

    def close_all(self) -> None:
        """End every process."""
        for scope in list(self._open):
            self.close(scope)

    def _server(self, scope: str) -> tuple[Any, ClientSession, ExitStack]:
        if scope not in self._open:
            while len(self._open) >= self._options.open_servers:
                self.close(next(iter(self._open)))
            self._open[scope] = self._start(scope)
        self._open.move_to_end(scope)
        return self._open[scope]

    def _start(self, scope: str) -> tuple[Any, ClientSession, ExitStack]:
        directory = self._directory / scope
        directory.mkdir(parents=True, exist_ok=True)
        command, *arguments = self._options.command
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        env = {
            name: value.replace("{directory}", str(directory)) for name, value in self._options.env.items()
        }
        server = StdioServerParameters(command=command, args=arguments, env={**kept, **env}, cwd=directory)
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            session = stack.enter_context(portal.wrap_async_context_manager(_session(server)))
            return portal, session, stack.pop_all()


@asynccontextmanager
async def _session(server: StdioServerParameters) -> AsyncIterator[ClientSession]:
    with open(os.devnull, "w") as quiet:  # noqa: ASYNC230  # what a server logs repeats what users said
        async with stdio_client(server, errlog=quiet) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            yield session


def at(value: Any, path: str) -> Any:
    """What lies at ``names.with.dots``; None where there is nothing."""
    for name in filter(None, path.split(".")):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """A template of arguments with its values; ``{"$each": ...}`` once for each of ``values["each"]``."""
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
        return template
    return template
