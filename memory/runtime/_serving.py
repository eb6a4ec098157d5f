"""``memslot serve``: one process serves one memory to many users, each with a bearer token."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from memory.adapter._bounded import is_loopback
from memory.contract._surviving import Failures
from memory.contract.errors import ConfigError, PluginLoadError
from memory.contract.scope import MemoryScope
from memory.plugins.blocks import Problems, load_yaml, parse_block
from memory.plugins.config import MemslotConfig
from memory.plugins.hookspecs import PluginOptions
from memory.plugins.installed import entry_points
from memory.runtime._attach import open_shared
from memory.runtime._listening import listening_socket, stop_at_signals
from memory.runtime._policy import TurnMemory
from memory.runtime.signet.memories import only_read
from memory.runtime.signet.sessions import TokenGrant
from memory.runtime.signet.settings import ServeSettings, Tokens, TokenSettings
from memory.slot.slot import MemorySlot
from memory.slot.tracing import OpenTelemetrySink
from memory.storage.kept import HostStore

if TYPE_CHECKING:
    from starlette.types import ASGIApp


log = logging.getLogger(__name__)


class _TokensFile(PluginOptions):
    tokens: Tokens = Field(min_length=1)


def read_tokens(file: Path) -> list[TokenSettings]:
    """Read the tokens of a YAML file, below ``tokens:``. Errors never contain a value.

    Raises:
        ConfigError: the file cannot be read, or a token is invalid.
    """
    content, lines = load_yaml(file)
    if file.stat().st_mode & 0o077 and hasattr(os, "getuid"):
        log.warning(
            "serve.tokens_file: other users of this machine may open %s; run: chmod 600 %s", file, file
        )
    return parse_block(_TokensFile, content, "serve.tokens_file", Problems(file.name, lines)).tokens


# Entry points of applications that are served next to Signet's endpoints, each at the path ``/NAME``. An
# entry point is a function that takes the result of :meth:`RuntimeAdapterServer.reaches`. It returns a
# context manager that yields a function: (caller's scope, whether it may only read) -> ASGI application.
ENDPOINTS = "memslot.endpoints"
_GRACE_S = 10
# Options for :func:`anyio.run`. With uvloop, a prompt takes a tenth less time.
FAST_LOOP: dict[str, Any] = {"use_uvloop": find_spec("uvloop") is not None}


async def serve(config: MemslotConfig, settings: ServeSettings, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then finish running requests, send waiting events and close."""
    if not settings.tokens and not is_loopback(settings.host):
        raise ConfigError(f"serve.host: {settings.host} is not this machine's alone; set serve.tokens first")
    with listening_socket(settings.host, settings.port, field="serve.host, serve.port") as listener:
        async with AsyncExitStack() as stack:
            slot = await stack.enter_async_context(open_shared(config))
            await answer(slot, settings, listener, ready)


async def answer(
    slot: MemorySlot, settings: ServeSettings, listener: socket.socket, ready: Callable[[str], None]
) -> None:
    """Serve an open slot on a socket."""
    try:
        import uvicorn  # noqa: F401 (that it is missing is said before anything is begun)

        from memory.runtime.signet.http import Callers
        from memory.runtime.signet.server import RuntimeAdapterServer
    except ImportError as error:
        raise PluginLoadError(f"serve needs {error.name}: pip install 'memslot[signet]'") from error
    memory = TurnMemory(slot, settings.policy)
    grants = _grants(settings.tokens, slot.scope)
    async with AsyncExitStack() as stack:
        store = HostStore(slot.backend_name, slot.delivery.store)
        stack.callback(store.close)
        if settings.read_only:
            await only_read(slot, Callers(grants, slot.scope).known())
        await stack.enter_async_context(memory)
        server = RuntimeAdapterServer(memory, settings, tokens=grants, store=store)
        if settings.opentelemetry:
            slot.delivery.trace_to(OpenTelemetrySink())
        endpoints = Failures("serve", log)
        for point in sorted(entry_points(group=ENDPOINTS), key=lambda point: point.name):
            with endpoints.survived(f"/{point.name} is left out; opening it"):
                try:
                    opened = point.load()
                except (ImportError, PluginLoadError) as error:
                    if not isinstance(error.__cause__ or error, ImportError):
                        raise
                    log.info("/%s is left out: %s", point.name, error)  # its package is not installed
                    continue
                server.mount(f"/{point.name}", await stack.enter_async_context(opened(server.reaches())))
        server.endpoints.port = listener.getsockname()[1]
        await serve_app(server.app, listener, ready, settings)


async def serve_app(
    app: ASGIApp, listener: socket.socket, ready: Callable[[str], None], settings: ServeSettings
) -> None:
    """Serve an ASGI application until SIGTERM or SIGINT. ``ready`` gets the address when the server starts."""
    import uvicorn

    options = uvicorn.Config(
        app,
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_S,
        limit_concurrency=settings.max_requests,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the client's address decides nothing
        ws="none",
    )
    running = uvicorn.Server(options)
    stop_at_signals(running)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    ready(f"http://{host}:{listener.getsockname()[1]}")
    await running.serve(sockets=[listener])


def _grants(tokens: list[TokenSettings], default: MemoryScope | None) -> dict[str, TokenGrant]:
    return {
        token.token.get_secret_value(): TokenGrant(
            MemoryScope(
                run_id=token.run_id or (default.run_id if default else "serve"),
                persona_id=token.persona_id,
                backend_namespace=default.backend_namespace if default else None,
            ),
            token.read_only,
        )
        for token in tokens
    }


def settings_of(
    config: MemslotConfig, host: str | None, port: int | None, *, read_only: bool = False
) -> ServeSettings:
    """Return the ``serve:`` block with the command line's values and the tokens of its ``tokens_file``."""
    settings = config.section("serve", ServeSettings)
    tokens = read_tokens(settings.tokens_file) if settings.tokens_file else None
    given = {"host": host, "port": port, "read_only": read_only or None, "tokens": tokens}
    return settings.model_copy(update={name: value for name, value in given.items() if value is not None})
