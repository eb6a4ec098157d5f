"""A Signet daemon over any memslot backend.

Bodies are parsed for any content type, as real clients send none. Errors and log lines hold no user text.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from memory.contract._surviving import ends_the_task
from memory.contract.errors import ConfigError
from memory.contract.scope import MemoryScope
from memory.runtime._items import MemoryItems
from memory.runtime._policy import TurnMemory
from memory.runtime.signet import http, types
from memory.runtime.signet.endpoints import ROUTES, Endpoints
from memory.runtime.signet.memories import Memories
from memory.runtime.signet.sessions import Caller, Sessions, TokenGrant
from memory.runtime.signet.settings import ServeSettings
from memory.runtime.signet.types import Refused, RuntimeAdapter
from memory.slot.slot import MemorySlot
from memory.storage.kept import HostStore

log = logging.getLogger("memslot.signet")

Endpoint = Callable[[http.Call[Any]], Awaitable[Any]]


class RuntimeAdapterServer:
    """The daemon's endpoints as an ASGI application, :attr:`app`.

    Args:
        memory: an open slot or its :class:`TurnMemory`. The code that opened it closes it. A harness's own
            :class:`RuntimeAdapter` is also possible: its application has the five lifecycle calls and
            ``/health``.
        settings: the ``serve:`` block. Its tokens and the settings of the process are ignored.
        tokens: bearer token -> its scope and rights. If empty, only loopback clients are answered.
        store: keeps labels of memories and the state of sessions. None keeps them in this process only. The
            code that opened it closes it.

    Raises:
        ConfigError: neither tokens nor the slot name a scope.
    """

    def __init__(
        self,
        memory: TurnMemory | MemorySlot | RuntimeAdapter,
        settings: ServeSettings | None = None,
        *,
        tokens: Mapping[str, TokenGrant] | None = None,
        store: HostStore | None = None,
    ) -> None:
        self.settings = settings = settings or ServeSettings()
        tokens = tokens or {}
        if isinstance(memory, RuntimeAdapter):
            # A harness's adapter has no scopes, so all callers share this one.
            self._callers = http.Callers(tokens, MemoryScope(run_id="adapter", persona_id="adapter"))
            self.app = _application(None)
            self.app.add_api_route("/health", partial(_healthy, memory.harness), methods=["GET"])
            for method, path, name, params in ROUTES:
                if (answer := getattr(memory, f"on_{name}", None)) is not None:
                    self._add(method, path, partial(_by_adapter, answer), params)
            return
        own = None
        if isinstance(memory, MemorySlot):
            memory = own = TurnMemory(memory)
        if not tokens and memory.slot.scope is None:
            raise ConfigError("serve: whose memory is it? set memory.scope, or serve.tokens")
        self.store = store or HostStore(memory.slot.backend_name)
        sessions = Sessions(settings.isolate, self.store, memory.slot.delivery.resets_of)
        memories = Memories(memory.slot, sessions, self.store)
        self._callers = http.Callers(tokens, memory.slot.scope, read_only=memory.slot.read_only)
        self.endpoints = Endpoints(memory, memories, settings)
        self.app = _application(own)
        self.app.add_api_route("/health", self.endpoints.health, methods=["GET"])
        for method, path, name, params in ROUTES:
            self._add(method, path, getattr(self.endpoints, name), params)

    def _add(self, method: str, path: str, endpoint: Endpoint, params: type[types.Wire] | None) -> None:
        """Route requests to an endpoint. FastAPI reads no bodies here, because clients name no content type."""

        async def answer(request: Request) -> Response:
            return await self._answer(request, path, endpoint, params)

        self.app.add_api_route(
            path,
            answer,
            methods=[method],
            operation_id=f"{method} {path}",
            summary=(endpoint.__doc__ or path).partition("\n")[0],
            response_model=None,
        )

    async def _answer(
        self, request: Request, path: str, endpoint: Endpoint, params: type[types.Wire] | None
    ) -> Response:
        """Identify the caller, run the endpoint and return its answer. A failure becomes an answer, too."""
        try:
            caller = self.caller(request)
            asked = params and types.parse(params, await http.given_in(request, self.settings))
            found = await endpoint(http.Call(caller, request, asked))
            return found if isinstance(found, Response) else JSONResponse(found)
        except BaseException as error:
            if ends_the_task(error):
                raise
            return http.failure_answer(path, error)

    def caller(self, request: Request) -> Caller:
        """Identify the sender of a request, see :meth:`Callers.of`. Mounted applications use this, too."""
        return self._callers.of(request)

    def reaches(self) -> dict[tuple[MemoryScope, bool], MemoryItems]:
        """Return (a caller's scope, whether it may only read) -> its memories, for mounted applications."""
        slot = self.endpoints.memory.slot
        return {
            (caller.scope, caller.read_only): MemoryItems(slot, caller.scope)
            for caller in self._callers.known()
        }

    def mount(self, path: str, app_for: Callable[[MemoryScope, bool], ASGIApp]) -> None:
        """Serve other applications at ``path``. Each caller is checked and gets its scope's application."""
        mounted = http.Mounted(self.caller, self.settings, app_for)
        self.app.router.routes.append(Route(path, endpoint=mounted))


def _application(own: TurnMemory | None) -> FastAPI:
    """Create an application without routes. When it ends, it closes ``own``, which sends waiting events."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        if own is not None:
            await own.aclose()

    app = FastAPI(
        title="memslot: Signet's endpoints",
        version=version("memslot"),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
    )
    app.exception_handler(HTTPException)(_not_here)
    return app


async def _by_adapter(answer: Callable[[Any], Awaitable[types.Wire | None]], call: http.Call[Any]) -> Any:
    """Answer a lifecycle request by the method of a harness's adapter."""
    if not call.params.harness:
        raise Refused(400, "harness is required")
    found = await answer(call.params)
    return {} if found is None else found.to_wire()


async def _healthy(harness: str) -> dict[str, str]:
    return {"status": "healthy", "harness": harness}


async def _not_here(request: Request, error: HTTPException) -> JSONResponse:
    what = "not found" if error.status_code == 404 else str(error.detail)
    return http.error_answer(error.status_code, what)
