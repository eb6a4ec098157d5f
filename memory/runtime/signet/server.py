"""A Signet daemon over any memslot backend. Bodies are parsed whatever their content type says, because real
clients leave it out. No error and no log line holds what a user said.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp

from memory.contract import errors
from memory.contract._surviving import ends_the_task
from memory.contract.errors import ConfigError, MemslotError
from memory.contract.scope import MemoryScope
from memory.plugins.config import Isolate
from memory.runtime._conversations import Conversations
from memory.runtime._items import MemoryItems
from memory.runtime._policy import TurnMemory
from memory.runtime.signet import http, types
from memory.runtime.signet.changing import Changes, ReachItems
from memory.runtime.signet.endpoints import ROUTES, Endpoints
from memory.runtime.signet.lifecycle import LIFECYCLE, hook
from memory.runtime.signet.memories import Memories
from memory.runtime.signet.secrets_exec import SecretCommands, SecretsExecSettings
from memory.runtime.signet.service import ServiceSettings
from memory.runtime.signet.sessions import Caller, Sessions, TokenGrant
from memory.runtime.signet.types import Refused, RuntimeAdapter
from memory.slot.slot import MemorySlot
from memory.storage.kept import HostStore

log = logging.getLogger("memslot.signet")

Endpoint = Callable[[http.Call], Awaitable[Any]]

_STATUS: tuple[tuple[type[MemslotError], int], ...] = (
    (errors.IsolationError, 500),
    (errors.InputError, 400),
    (errors.ScopeError, 400),
    (errors.ReadOnlyError, 403),
    (errors.CapabilityNotSupported, 501),
    (errors.BackendError, 503),
    (errors.StoreError, 503),
)


class RuntimeAdapterServer:
    """The daemon's endpoints as an ASGI application, :attr:`app`.

    Args:
        memory: an open slot, bare or as hosts use it; whoever opened it closes it. Or a harness's own
            :class:`RuntimeAdapter`: the application then offers its five lifecycle calls and ``/health``, and only
            ``tokens`` and ``limits`` below mean something.
        tokens: bearer token -> what it opens. Empty asks for none, and answers loopback clients only.
        isolate: ``shared`` gives a token one memory over all its projects and agents, ``strict`` one for each.
        settings: identity, transcripts.
        limits: sizes, times and concurrency.
        store: keeps what clients say of single memories, and where sessions left off; None keeps it in this
            process alone. Whoever opened it closes it.
        agent: answers at ``/api/chat``, entered; None answers nobody there.
        secrets_exec: what may be run at ``secrets/exec``, by callers with a token; None runs nothing.

    Raises:
        ConfigError: neither tokens nor a scope of the slot say whose memory it is; or ``secrets_exec`` is given
            without tokens, or lists what cannot be run.
    """

    def __init__(
        self,
        memory: TurnMemory | MemorySlot | RuntimeAdapter,
        *,
        tokens: Mapping[str, TokenGrant] | None = None,
        isolate: Isolate = "shared",
        settings: ServiceSettings | None = None,
        limits: http.Limits | None = None,
        store: HostStore | None = None,
        agent: Conversations | None = None,
        secrets_exec: SecretsExecSettings | None = None,
    ) -> None:
        self.limits = limits or http.Limits()
        at_once = self.limits.at_once
        half = max(1, at_once // 2) if len(tokens or ()) > 1 else at_once
        self.work = http.Work(at_once, self.limits.per_caller or half)
        if isinstance(memory, RuntimeAdapter):
            self._serve_adapter(memory, tokens or {})
            return
        own: TurnMemory | None = None
        if isinstance(memory, MemorySlot):
            memory = own = TurnMemory(memory)
        if not tokens and memory.slot.scope is None:
            raise ConfigError("serve: whose memory is it? set memory.scope, or serve.tokens")
        if secrets_exec is not None and not tokens:
            why = "serve.secrets_exec: whoever is on this machine could run commands; set serve.tokens"
            raise ConfigError(why)
        settings = settings or ServiceSettings()
        self.store = store or HostStore(memory.slot.backend_name)
        sessions = Sessions(isolate, self.store, memory.slot.delivery.resets_of)
        self._changes = Changes(Memories(memory.slot, sessions, self.store, settings.longest_prompt))
        self._callers = http.Callers(tokens or {}, memory.slot.scope, read_only=memory.slot.read_only)
        self.grant = self._callers.grant
        commands = None if secrets_exec is None else SecretCommands(secrets_exec)
        self.endpoints = Endpoints(memory, self._changes, settings, self._callers, self.work, agent, commands)
        self._note_answer = self.endpoints.metrics.answered
        self.app = _application(own)
        for method, path, handler, body in ROUTES:
            self._add(method, path, getattr(self.endpoints, handler), body)
        self.app.add_api_route("/health", self.endpoints.health, methods=["GET"])
        self.app.exception_handler(HTTPException)(_not_here)

    def _serve_adapter(self, adapter: RuntimeAdapter, tokens: Mapping[str, TokenGrant]) -> None:
        """Answer lifecycle requests by the methods of a harness's adapter, which knows no scopes."""
        anybody = MemoryScope(run_id="adapter", persona_id="adapter")
        self._callers = http.Callers(tokens, anybody)
        self.grant = self._callers.grant
        self._note_answer = _ignore
        self.app = _application(None)
        for path, method, params in LIFECYCLE:
            self._add("POST", path, hook(adapter, method, params), params)
        self.app.add_api_route("/health", partial(_healthy, adapter.harness), methods=["GET"])
        self.app.exception_handler(HTTPException)(_not_here)

    def _add(self, method: str, path: str, endpoint: Endpoint, params: type[types.Wire] | None) -> None:
        """Route requests to an endpoint. Its parameters are described by hand, because bodies are read by hand."""
        described: dict[str, Any] = {
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in re.findall(r"{(\w+)", path)
            ]
        }
        if params is not None:
            schema = params.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
            described["requestBody"] = {"content": {"application/json": {"schema": schema}}, "required": True}

        async def answer(request: Request) -> Response:
            return await self._answer(
                request, path, endpoint, has_body=params is not None or method == "DELETE"
            )

        self.app.add_api_route(
            path,
            answer,
            methods=[method],
            openapi_extra=described,
            operation_id=f"{method} {path}",
            summary=(endpoint.__doc__ or path).partition("\n")[0],
            response_model=None,
        )

    async def _answer(self, request: Request, path: str, endpoint: Endpoint, *, has_body: bool) -> Response:
        """A request from its caller to its answer; whatever fails is an answer, too."""
        began = time.perf_counter()
        try:
            caller = self.caller(request)
            with self.work.request(caller):
                if request.headers.get("x-signet-no-hooks") == "1" and "/hooks/" in path:
                    found: Any = {"inject": "", "memories": []}
                else:
                    body = await http.body_of(request, self.limits) if has_body else {}
                    found = await endpoint(http.Call(caller, request, body))
            response: Response = found if isinstance(found, Response) else JSONResponse(found)
        except Refused as refused:
            response = http.refused_answer(refused)
        except MemslotError as error:
            status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
            log.warning("%s: %s", path, error)
            response = http.error_answer(status, str(error))
        except ClientDisconnect:
            response = http.error_answer(499, "the client went away")
        except BaseException as error:
            if ends_the_task(error):
                raise
            log.error("%s: unexpected %s", path, type(error).__name__)
            response = http.error_answer(500, "internal error")
        self._note_answer(path, response.status_code, time.perf_counter() - began)
        return response

    def caller(self, request: Request) -> Caller:
        """The sender of a request, see :meth:`Callers.of`; also for what is mounted beside these endpoints."""
        return self._callers.of(request)

    def reaches(self) -> dict[tuple[MemoryScope, bool], MemoryItems]:
        """A caller's scope, and whether it may only read -> the memories it reaches, for what is mounted."""
        return {
            (caller.scope, caller.read_only): ReachItems(self._changes, caller)
            for caller in self._callers.known()
        }

    def mount(self, path: str, app_for: Callable[[MemoryScope, bool], ASGIApp]) -> None:
        """Serve something else at ``path``: callers are checked here, and answered by their scope's application."""
        mounted = http.Mounted(self.caller, self.limits, self.work, app_for)
        self.app.router.routes.append(Route(path, endpoint=mounted))


def _application(own: TurnMemory | None) -> FastAPI:
    """An application without routes; ``own`` is closed, with what it has to write, when the application ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        if own is not None:
            await own.aclose()

    return FastAPI(
        title="memslot: Signet's endpoints",
        version=version("memslot"),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
    )


def _ignore(route: str, status: int, seconds: float) -> None:
    """Count nothing: an adapter of a harness has no figures."""


async def _healthy(harness: str) -> dict[str, str]:
    return {"status": "healthy", "harness": harness}


async def _not_here(request: Request, error: HTTPException) -> JSONResponse:
    what = "not found" if error.status_code == 404 else str(error.detail)
    return http.error_answer(error.status_code, what)
