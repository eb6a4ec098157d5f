"""Transports of the MCP server: stdio, and streamable HTTP by ``memslot serve``."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Any

import anyio

from memory import AdapterMode, LifecycleError, MemoryScope, ScopeError
from memory.adapter.sdk import quiet_loggers
from memory.hosts.mcp.lines import incoming, readable_body
from memory.hosts.mcp.server import build_server
from memory.runtime import MemoryItems, MemslotConfig, open_shared


@asynccontextmanager
async def _opened(config: MemslotConfig, read_only: bool) -> AsyncIterator[MemoryItems]:
    if config.memory.scope is None:
        raise ScopeError(
            f"{config.problem.source}: memory.scope says whose memory is served; add run_id and persona_id"
        )
    async with open_shared(config, setup=read_only) as slot:  # a read-only slot could not be set up later
        if read_only:
            await slot.set_mode(AdapterMode(read_only=True, reason="started with --read-only"))
        yield MemoryItems(slot)


async def serve_stdio(config: MemslotConfig, *, read_only: bool = False, hooks: bool = False) -> None:
    """Serve one client until it closes stdin. Meanwhile, other output to stdout goes to stderr.

    ``hooks`` also answers the hooks of Claude Code, Codex and Cursor, and records their reports.

    Raises:
        ConfigError, PluginError, ScopeError, BackendError: the memory cannot be opened.
        LifecycleError: writing to the client failed.
    """
    from mcp.server.stdio import stdio_server

    from memory.hosts.hooks import hooks_answered

    _quieten()
    with _own_stdout() as stdout:
        async with _opened(config, read_only) as items:
            server = build_server(items, read_only=read_only)
            client: Any = incoming(anyio.wrap_file(sys.stdin.buffer))
            async with hooks_answered(items.slot, config) if hooks else nullcontext():
                try:
                    async with stdio_server(client, anyio.wrap_file(stdout)) as streams:
                        await server.run(*streams, server.create_initialization_options())
                except* OSError as errors:
                    error: Any = errors
                    while isinstance(error, BaseExceptionGroup):
                        error = error.exceptions[0]
                    raise LifecycleError(f"the client cannot be written to ({error.strerror})") from None


def _quieten() -> None:
    """Quieten the SDK's loggers and the root logger, because they log unreadable messages verbatim."""
    quiet_loggers("mcp", "mcp.server.lowlevel.server")
    quiet_loggers("root", "root")


@contextmanager
def _own_stdout() -> Iterator[io.TextIOWrapper]:
    """Reserve the original stdout for the protocol. Output of libraries, also from C code, goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    ours = io.TextIOWrapper(os.fdopen(kept, "wb"), encoding="utf-8", write_through=True)
    printing, sys.stdout = sys.stdout, sys.stderr
    try:
        yield ours
    finally:
        sys.stdout = printing
        os.dup2(ours.fileno(), 1)
        with suppress(OSError):  # the caller already knows this error
            ours.close()


@asynccontextmanager
async def endpoint(
    callers: Mapping[tuple[MemoryScope, bool], MemoryItems],
) -> AsyncIterator[Callable[[MemoryScope, bool], Any]]:
    """Create an ASGI application for each caller's scope and whether it may only read, for ``memslot serve``.

    The application that mounts them authenticates callers, and limits and checks their requests.
    """
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    _quieten()
    # The tools need no session. Without sessions, no client leaves one open and a restart loses none. One answer
    # needs no event stream either, and some releases of the SDK leave such a stream open.
    managers = {
        caller: StreamableHTTPSessionManager(
            build_server(items, read_only=caller[1]), stateless=True, json_response=True
        )
        for caller, items in callers.items()
    }
    async with AsyncExitStack() as stack:
        for manager in managers.values():
            await stack.enter_async_context(manager.run())

        def app_for(scope: MemoryScope, read_only: bool) -> Any:
            answer = managers[scope, read_only].handle_request
            return lambda request, receive, send: answer(request, readable_body(receive), send)

        yield app_for
