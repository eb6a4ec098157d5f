"""An MCP server on its way: over stdio, whose stdout carries the protocol alone, over streamable HTTP for this
machine, or in ``memslot serve``.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import anyio

from memory import LifecycleError, MemoryScope, MemorySlot, ScopeError
from memory.adapter.sdk import quiet_loggers
from memory.hosts.mcp.lines import Cancelled, Incoming, Outgoing
from memory.hosts.mcp.server import build_server
from memory.runtime import (
    MemoryItems,
    MemslotConfig,
    TurnPolicy,
    listening_socket,
    open_reach,
    open_shared,
    serve_app,
    turns_of,
)

if TYPE_CHECKING:
    from mcp.server.transport_security import TransportSecuritySettings

HOST = "127.0.0.1"
_GRACE_S = 5


@asynccontextmanager
async def _opened(config: MemslotConfig, read_only: bool) -> AsyncIterator[MemoryItems]:
    if config.memory.scope is None:
        raise ScopeError(
            f"{config.problem.source}: memory.scope says whose memory is served; add run_id and persona_id"
        )
    async with (
        open_shared(config, setup=read_only) as slot,  # which a read-only slot could not do later
        open_reach(slot, config.isolate or "shared", read_only=read_only) as items,
    ):
        yield items


async def serve_stdio(config: MemslotConfig, *, read_only: bool = False, hooks: bool = False) -> None:
    """Serve one client until it closes our stdin. Other code that prints meanwhile prints to stderr.

    ``hooks`` answers those of Claude Code, Codex and Cursor as well, and empties their spool.

    Raises:
        ConfigError, PluginError, ScopeError, BackendError: the memory cannot be opened.
        LifecycleError: the client cannot be written to.
    """
    from mcp.server.stdio import stdio_server

    _quieten()
    with _own_stdout() as stdout:
        async with _opened(config, read_only) as items:
            server = build_server(items, read_only=read_only)
            cancelled = Cancelled()
            client: Any = Incoming(anyio.wrap_file(sys.stdin.buffer), cancelled)
            ours: Any = Outgoing(anyio.wrap_file(stdout), cancelled)
            async with _hooks_answered(items.slot, config) if hooks else nullcontext():
                try:
                    async with stdio_server(client, ours) as (incoming, outgoing):
                        await server.run(incoming, outgoing, server.create_initialization_options())
                except* OSError as errors:
                    error: Any = errors
                    while isinstance(error, BaseExceptionGroup):
                        error = error.exceptions[0]
                    raise LifecycleError(f"the client cannot be written to ({error.strerror})") from None


@asynccontextmanager
async def _hooks_answered(slot: MemorySlot, config: MemslotConfig) -> AsyncIterator[None]:
    """Answer the hooks meanwhile. A failure of theirs is a line on stderr, and ends nothing else."""
    from memory.hosts.hooks import HookSettings, answer_hooks

    policy = TurnPolicy(not_said=config.section("hooks", HookSettings).not_said)
    turns_of(slot, policy)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer_hooks, slot, config.data_dir)
        yield
        tasks.cancel_scope.cancel()


def _quieten() -> None:
    """The SDK logs messages it cannot read as they are, some of them by the root logger."""
    quiet_loggers("mcp", "mcp.server.lowlevel.server")
    quiet_loggers("root", "root")


@contextmanager
def _own_stdout() -> Iterator[io.TextIOWrapper]:
    """The original stdout, for the protocol alone. Libraries that print, also from C, write to stderr."""
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
        with suppress(OSError):  # an error that the caller knows already
            ours.close()


async def serve_http(
    config: MemslotConfig, port: int, ready: Callable[[str], None], *, read_only: bool = False
) -> None:
    """Serve this machine's clients at ``/mcp`` until SIGTERM or SIGINT, or cancelled.

    Raises:
        ConfigError: the port is taken; or the memory cannot be opened, as for :func:`serve_stdio`.
    """
    from mcp.server.transport_security import TransportSecuritySettings

    with listening_socket(HOST, port, field="--port") as listener:
        # A page in a browser may reach the loopback, under a name of its own.
        names = [f"{host}:{listener.getsockname()[1]}" for host in (HOST, "localhost")]
        security = TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=names,
            allowed_origins=[f"http://{name}" for name in names],
        )
        async with (
            _opened(config, read_only) as items,
            endpoint({(items.scope, read_only): items}, security) as app_for,
        ):
            answer = app_for(items.scope, read_only)

            async def app(scope: Any, receive: Any, send: Any) -> None:
                if scope["path"].rstrip("/") == "/mcp":
                    await answer(scope, receive, send)
                else:
                    await send({"type": "http.response.start", "status": 404, "headers": []})
                    await send({"type": "http.response.body", "body": b"MCP is at /mcp\n"})

            await serve_app(app, listener, lambda url: ready(f"{url}/mcp"), own=items.scope, grace_s=_GRACE_S)


@asynccontextmanager
async def endpoint(
    callers: Mapping[tuple[MemoryScope, bool], MemoryItems],
    security: TransportSecuritySettings | None = None,
) -> AsyncIterator[Callable[[MemoryScope, bool], Any]]:
    """For ``memslot serve``: an ASGI application for each scope, and one for callers who may only read it.

    Args:
        callers: a caller's scope, and whether it may only read -> the memories it reaches.
        security: the names and origins that are answered; None leaves that to the caller.

    The caller that mounts them checks who asks, from where, and for how much.
    """
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    _quieten()
    # Stateless: our tools need no session, so clients that end none cost nothing, and a restart loses none.
    managers = {
        caller: StreamableHTTPSessionManager(
            build_server(items, read_only=caller[1]), stateless=True, security_settings=security
        )
        for caller, items in callers.items()
    }
    async with AsyncExitStack() as stack:
        for manager in managers.values():
            await stack.enter_async_context(manager.run())
        yield lambda scope, read_only: managers[scope, read_only].handle_request
