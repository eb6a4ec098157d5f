"""A Signet daemon over any memslot backend: the endpoints that harnesses call, by HTTP.

Bodies are parsed whatever their content type says, because real clients leave it out. What a body may not be is a
400 with one sentence; no error and no log line holds what a user said.
"""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from importlib.metadata import version
from typing import Any, Literal
from urllib.parse import quote

import anyio
import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from memory.contract.errors import (
    BackendError,
    CapabilityNotSupported,
    ConfigError,
    InputError,
    IsolationError,
    MemslotError,
    ReadOnlyError,
    ScopeError,
    StoreError,
)
from memory.contract.receipts import BackendHealth
from memory.contract.scope import MemoryScope
from memory.runtime._channel import UserTurn
from memory.runtime._conversations import Conversations
from memory.runtime._policy import TurnMemory
from memory.runtime.signet import types
from memory.runtime.signet.changing import Changes
from memory.runtime.signet.http import (
    Body,
    Callers,
    Limits,
    Mounted,
    Work,
    body_of,
    error_answer,
    refused_answer,
)
from memory.runtime.signet.secrets_exec import SecretCommands, SecretsExecSettings
from memory.runtime.signet.service import Refused, ServiceSettings, SignetService, text_of
from memory.runtime.signet.sessions import Caller, Sessions
from memory.slot.host_store import HOST_FILE, HostStore

log = logging.getLogger("memslot.signet")

Handler = Callable[[Caller, Body, Request], Awaitable[dict[str, Any] | Response]]
_STATUS: tuple[tuple[type[MemslotError], int], ...] = (
    (IsolationError, 500),
    (InputError, 400),
    (ScopeError, 400),
    (ReadOnlyError, 403),
    (CapabilityNotSupported, 501),
    (BackendError, 503),
    (StoreError, 503),
)


class RuntimeAdapterServer:
    """The daemon's endpoints as an ASGI application, :attr:`app`.

    Args:
        memory: the slot as hosts use it, open; whoever opened it closes it.
        tokens: bearer token -> whose memory it opens. Empty asks for none, and answers loopback clients only.
        isolate: what divides a caller's memory into scopes of their own.
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
        memory: TurnMemory,
        *,
        tokens: Mapping[str, MemoryScope] | None = None,
        isolate: tuple[Literal["project", "agent"], ...] = ("project", "agent"),
        settings: ServiceSettings | None = None,
        limits: Limits | None = None,
        store: HostStore | None = None,
        agent: Conversations | None = None,
        secrets_exec: SecretsExecSettings | None = None,
    ) -> None:
        if not tokens and memory.slot.scope is None:
            raise ConfigError("serve: whose memory is it? set memory.scope, or serve.tokens")
        if secrets_exec is not None and not tokens:
            raise ConfigError(
                "serve.secrets_exec: whoever is on this machine could run commands; set serve.tokens"
            )
        self._commands = None if secrets_exec is None else SecretCommands(secrets_exec)
        self.memory = memory
        self.limits = limits or Limits()
        self.store = store or HostStore(memory.slot.backend_name)
        self.service = SignetService(memory, Sessions(isolate, self.store), self.store, settings)
        self._agent = agent
        self._changes = Changes(self.service)
        self._callers = Callers(tokens or {}, memory.slot.scope)
        self._started = time.monotonic()
        self._work = Work(self.limits.at_once)
        self._looking = anyio.Lock()
        self._looked: tuple[float, BackendHealth] | None = None
        self.port: int | None = None
        self.app = self._application()

    # -- who, and what ----------------------------------------------------------------------------------

    def caller(self, request: Request) -> Caller:
        """Who sent a request; also for what is mounted beside these endpoints, see :meth:`Callers.of`."""
        return self._callers.of(request)

    @property
    def scopes(self) -> tuple[MemoryScope, ...]:
        """The memories that callers may be given, before projects divide them."""
        return self._callers.scopes

    def mount(self, path: str, of_scope: Callable[[MemoryScope], Any] | None) -> None:
        """Serve something else at ``path``: callers are checked here, and answered by their scope's application."""
        if of_scope is not None:
            self.app.router.routes.append(
                Route(path, endpoint=Mounted(self.caller, self.limits, self._work, of_scope))
            )

    async def _answer(self, handler: Handler, request: Request) -> Response:
        """One request from its caller to its answer."""
        try:
            with self._work.request():
                caller = self.caller(request)
                body = await body_of(request, self.limits)
                if request.headers.get("x-signet-no-hooks") == "1" and "/hooks/" in request.url.path:
                    return JSONResponse({"inject": "", "memories": []})
                told = await handler(caller, body, request)
                return told if isinstance(told, Response) else JSONResponse(told)
        except Refused as refused:
            return refused_answer(refused)
        except MemslotError as error:
            status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
            log.warning("%s: %s", request.scope["route"].path, error)
            return error_answer(status, str(error))
        except ClientDisconnect:
            return error_answer(499, "the client went away")
        except Exception as error:
            log.error("%s: unexpected %s", request.scope["route"].path, type(error).__name__)
            return error_answer(500, "internal error")

    # -- the endpoints ----------------------------------------------------------------------------------

    def _application(self) -> FastAPI:
        app = FastAPI(
            title="memslot: Signet's endpoints", version=version("memslot"), docs_url=None, redoc_url=None
        )
        service = self.service
        hooks: dict[str, tuple[Callable[[Caller, Body], Awaitable[dict[str, Any]]], type[types.Wire]]] = {
            "session-start": (service.session_start, types.SessionStartParams),
            "user-prompt-submit": (service.prompt_submit, types.PromptSubmitParams),
            "session-end": (service.session_end, types.SessionEndParams),
            "session-checkpoint-extract": (service.checkpoint_extract, types.SessionEndParams),
            "pre-compaction": (service.pre_compaction, types.PreCompactionParams),
            "compaction-complete": (service.compaction_complete, types.CompactionCompleteParams),
        }
        for name, (hook, model) in hooks.items():
            self._route(app, "POST", f"/api/hooks/{name}", _named(hook, name), model)
        for method, path, handler in (
            ("POST", "/api/hooks/remember", self._hook_remember),
            ("POST", "/api/hooks/recall", self._hook_recall),
            ("POST", "/api/memory/recall", self._recall),
            ("POST", "/api/memory/remember", self._remember),
            ("POST", "/api/memory/modify", self._modify),
            ("POST", "/api/memory/forget", self._forget),
            ("GET", "/api/memory/{item_id:path}", self._get),
            ("PATCH", "/api/memory/{item_id:path}", self._patch),
            ("DELETE", "/api/memory/{item_id:path}", self._delete),
            ("GET", "/api/memories", self._list),
            ("GET", "/api/sessions", self._sessions),
            ("POST", "/api/sessions/{key:path}/bypass", self._bypass),
            ("POST", "/api/secrets/exec", self._secrets),
            ("POST", "/api/chat", self._chat),
            ("GET", "/api/auth/whoami", self._whoami),
            ("GET", "/api/features", self._features),
        ):
            self._route(app, method, path, handler)
        app.add_api_route("/health", self._health, methods=["GET"])
        app.add_api_route("/health/ready", self._ready, methods=["GET"])
        app.exception_handler(HTTPException)(_not_here)
        return app

    def _route(
        self, app: FastAPI, method: str, path: str, handler: Handler, model: type[types.Wire] | None = None
    ) -> None:
        async def endpoint(request: Request) -> Response:
            return await self._answer(handler, request)

        named = re.findall(r"{(\w+)", path)
        told = {"in": "path", "required": True, "schema": {"type": "string"}}
        extra: dict[str, Any] = {"parameters": [{"name": name, **told} for name in named]}
        if method != "GET" and method != "DELETE":
            bare = types.BODIES.get(path, {"type": "object"})
            schema = model.model_json_schema(by_alias=True) if model else bare
            extra["requestBody"] = {"content": {"application/json": {"schema": schema}}, "required": True}
        app.add_api_route(
            path,
            endpoint,
            methods=[method],
            openapi_extra=extra,
            operation_id=f"{method} {path}",
            summary=(handler.__doc__ or path).partition("\n")[0],
            response_model=None,
        )

    async def _hook_remember(self, caller: Caller, body: Body, _: Request) -> dict[str, Any]:
        note = await self.service.remember(caller, body, needs_harness=True)
        return {"saved": True, "id": note.id}

    async def _remember(self, caller: Caller, body: Body, _: Request) -> dict[str, Any]:
        note = await self.service.remember(caller, body)
        return {**note.short(), "tags": note.tags, "pinned": note.pinned, "embedded": False}

    async def _hook_recall(self, caller: Caller, body: Body, _: Request) -> dict[str, Any]:
        rows = await self.service.recall(caller, body)
        return {"results": rows, "count": len(rows)}

    async def _recall(self, caller: Caller, body: Body, _: Request) -> dict[str, Any]:
        rows = await self.service.recall(caller, body)
        return {
            "results": rows,
            "query": body.get("query") or body.get("keywordQuery"),
            "method": self.memory.slot.backend_name,
        }

    async def _modify(self, caller: Caller, body: Body, _: Request) -> dict[str, Any]:
        return await self._changes.modify(caller, body)

    async def _forget(self, caller: Caller, body: Body, _: Request) -> dict[str, Any]:
        return await self._changes.forget(caller, body)

    async def _get(self, caller: Caller, _: Body, request: Request) -> dict[str, Any]:
        return await self._changes.get(caller, request.path_params["item_id"])

    async def _patch(self, caller: Caller, body: Body, request: Request) -> dict[str, Any]:
        item_id, scope = request.path_params["item_id"], self.service.sessions.scope(caller)
        return _one(await self._changes.patched(scope, item_id, body))

    async def _delete(self, caller: Caller, _: Body, request: Request) -> dict[str, Any]:
        item_id, query = request.path_params["item_id"], request.query_params
        if not query.get("reason"):
            raise Refused(400, "reason is required")
        scope = self.service.sessions.scope(caller)
        return _one(await self._changes.forgotten(scope, item_id, force=query.get("force") in ("1", "true")))

    async def _list(self, caller: Caller, _: Body, request: Request) -> dict[str, Any]:
        return await anyio.to_thread.run_sync(self._changes.listed, caller, request.query_params)

    async def _sessions(self, caller: Caller, _: Body, request: Request) -> dict[str, Any]:
        rows = [
            {
                "key": one.key,
                "runtimePath": one.runtime_path,
                "claimedAt": one.claimed_at.isoformat(),
                "bypassed": one.bypassed,
            }
            for one in self.service.sessions.of(caller)
        ]
        return {"sessions": rows, "count": len(rows)}

    async def _bypass(self, caller: Caller, body: Body, request: Request) -> dict[str, Any]:
        return self.service.bypass(caller, request.path_params["key"], body)

    async def _secrets(self, caller: Caller, body: Body, _: Request) -> dict[str, Any]:
        if self._commands is None:
            raise Refused(403, "secrets/exec is off: this server runs no commands")
        return await self._commands.run(body)

    async def _chat(self, caller: Caller, body: Body, _: Request) -> Response:
        """One turn with the agent; its answer comes as server-sent events."""
        if self._agent is None:
            raise Refused(404, "no agent answers here: give the configuration an agent: block")
        service, params = self.service, types.read(types.SessionParams, body)
        content = service.checked(body.get("content"))
        if content is None:
            raise Refused(400, "content is required")
        given = {name: body[name] for name in ("attachments", "metadata") if body.get(name) is not None}
        turn = UserTurn(content=content, **given)
        scope, key = service.scope_of(caller, body), params.session_key or uuid.uuid4().hex
        events = self._counted(self._agent.turn(scope, key, turn, params.project or ""))
        headers = {"x-session-key": quote(key), "cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def _counted(self, events: AsyncGenerator[str]) -> AsyncIterator[str]:
        """An answer that is being streamed is a request in work."""
        with self._work.request(admitted=True):
            async with aclosing(events):
                async for event in events:
                    yield event

    async def _whoami(self, caller: Caller, _: Body, request: Request) -> dict[str, Any]:
        asked = self._callers.by_token
        return {"authenticated": asked, "claims": None, "mode": "token" if asked else "local"}

    async def _features(self, caller: Caller, _: Body, request: Request) -> dict[str, Any]:
        return {}

    async def _health(self) -> JSONResponse:
        """The process answers; what it says of the memory is at ``/health/ready``."""
        return JSONResponse(
            {
                "status": "healthy",
                "uptime": time.monotonic() - self._started,
                "pid": os.getpid(),
                "version": version("memslot"),
                "port": self.port,
                "db": True,
                "updateAvailable": False,
                "pendingRestart": False,
            }
        )

    async def _ready(self) -> JSONResponse:
        """Whether the memory answers; 503 where it does not."""
        async with self._looking:  # whoever asks, the memory is asked once a second at most
            if self._looked is None or time.monotonic() - self._looked[0] > 1.0:
                self._looked = (time.monotonic(), await self.memory.health())
        health = self._looked[1]
        turns = self.memory.status()
        told = {"status": health.status, "backend": health.backend_name}
        told |= {name: turns[name] for name in ("waiting", "recall_circuit", "write_circuit")}
        told["labels"] = f"kept in {HOST_FILE}" if self.store.durable else "kept until this process ends"
        try:
            self.store.check()
        except StoreError as error:
            told |= {"status": "unavailable", "labels": str(error)}
        return JSONResponse(told, 503 if told["status"] == "unavailable" else 200)


def _named(hook: Callable[[Caller, Body], Awaitable[dict[str, Any]]], name: str) -> Handler:
    async def handler(caller: Caller, body: Body, _: Request) -> dict[str, Any]:
        # The prompt and the summary have a sentence of their own for what is missing.
        if name not in ("user-prompt-submit", "compaction-complete", "pre-compaction") and not text_of(
            body, "harness"
        ):
            raise Refused(400, "harness is required")
        return await hook(caller, body)

    handler.__doc__ = hook.__doc__
    return handler


def _one(result: dict[str, Any]) -> dict[str, Any]:
    """The result of one change as an answer of its own: ``success``, or an error with its status."""
    status = result["status"]
    if status in ("updated", "deleted"):
        return {**result, "success": True}
    codes = {
        "not_found": 404,
        "version_conflict": 409,
        "pinned_requires_force": 409,
        "read_only": 403,
        "not_supported": 501,
        "unknown": 503,
    }
    raise Refused(codes.get(status, 400), result.get("error") or status.replace("_", " "), result)


async def _not_here(request: Request, error: HTTPException) -> JSONResponse:
    return error_answer(error.status_code, "not found" if error.status_code == 404 else str(error.detail))
