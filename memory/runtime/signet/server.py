"""A Signet daemon over any memslot backend: the endpoints that harnesses call, by HTTP.

Bodies are parsed whatever their content type says, because real clients leave it out. What a body may not be is a
400 with one sentence; no error and no log line holds what a user said.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

import anyio
import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.routing import APIRoute
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
    Sent,
    TokenGrant,
    Who,
    Work,
    error_answer,
    refused_answer,
)
from memory.runtime.signet.secrets_exec import SecretCommands, SecretsExecSettings
from memory.runtime.signet.service import Refused, ServiceSettings, SignetService, text_of
from memory.runtime.signet.sessions import Caller, Isolate, Sessions
from memory.slot.host_store import HostStore

log = logging.getLogger("memslot.signet")

_STATUS: tuple[tuple[type[MemslotError], int], ...] = (
    (IsolationError, 500),
    (InputError, 400),
    (ScopeError, 400),
    (ReadOnlyError, 403),
    (CapabilityNotSupported, 501),
    (BackendError, 503),
    (StoreError, 503),
)
_OWN_SENTENCE = ("user-prompt-submit", "compaction-complete", "pre-compaction")
"""Hooks that say themselves what is missing."""


HOOKS: tuple[tuple[str, str, type[types.Wire]], ...] = (
    ("session-start", "session_start", types.SessionStartParams),
    ("user-prompt-submit", "prompt_submit", types.PromptSubmitParams),
    ("session-end", "session_end", types.SessionEndParams),
    ("session-checkpoint-extract", "checkpoint_extract", types.SessionEndParams),
    ("pre-compaction", "pre_compaction", types.PreCompactionParams),
    ("compaction-complete", "compaction_complete", types.CompactionCompleteParams),
)
"""Name below ``/api/hooks/``, method of :class:`SignetService`, body."""
ROUTES: tuple[tuple[str, str, str, type[types.Wire] | None], ...] = (
    ("POST", "/api/hooks/remember", "_hook_remember", types.HookRememberParams),
    ("POST", "/api/hooks/recall", "_hook_recall", types.RecallParams),
    ("POST", "/api/memory/recall", "_recall", types.RecallParams),
    ("POST", "/api/memory/remember", "_remember", types.RememberParams),
    ("POST", "/api/memory/modify", "_modify", types.ModifyParams),
    ("POST", "/api/memory/forget", "_forget", types.ForgetParams),
    ("POST", "/api/memory/feedback", "_feedback", types.FeedbackParams),
    ("POST", "/api/memory/{item_id:path}/recover", "_recover", types.PatchParams),
    ("GET", "/api/memory/{item_id:path}/history", "_history", None),
    ("GET", "/api/memory/{item_id:path}", "_get", None),
    ("PATCH", "/api/memory/{item_id:path}", "_patch", types.PatchParams),
    ("DELETE", "/api/memory/{item_id:path}", "_delete", None),
    ("GET", "/api/memories", "_list", None),
    ("GET", "/api/sessions", "_sessions", None),
    ("GET", "/api/sessions/{key:path}", "_session", None),
    ("POST", "/api/sessions/{key:path}/bypass", "_bypass", types.BypassParams),
    ("GET", "/api/secrets", "_secret_names", None),
    ("POST", "/api/secrets/exec", "_secrets_exec", types.SecretsExecParams),
    ("POST", "/api/chat", "_chat", types.ChatParams),
    ("GET", "/api/auth/whoami", "_whoami", None),
    ("GET", "/api/features", "_features", None),
    ("GET", "/api/status", "_status", None),
    ("GET", "/api/diagnostics", "_diagnostics", None),
    ("GET", "/health/ready", "_ready", None),
    ("GET", "/openapi.json", "_openapi", None),
)
"""HTTP method, path, method of :class:`RuntimeAdapterServer`, body; in this order, since ids may hold a slash."""


class _SignetRoute(APIRoute):
    """A request from its caller to its answer: admitted, checked, and every error one sentence."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answered(request: Request) -> Response:
            server: RuntimeAdapterServer = request.app.state.server
            try:
                request.state.caller = caller = server.caller(request)
                with server.work.request(caller):
                    if request.headers.get("x-signet-no-hooks") == "1" and "/hooks/" in request.url.path:
                        return JSONResponse({"inject": "", "memories": []})
                    return await answer(request)
            except Refused as refused:
                return refused_answer(refused)
            except MemslotError as error:
                status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
                log.warning("%s: %s", self.path, error)
                return error_answer(status, str(error))
            except ClientDisconnect:
                return error_answer(499, "the client went away")
            except Exception as error:
                log.error("%s: unexpected %s", self.path, type(error).__name__)
                return error_answer(500, "internal error")

        return answered


class RuntimeAdapterServer:
    """The daemon's endpoints as an ASGI application, :attr:`app`.

    Args:
        memory: the slot as hosts use it, open; whoever opened it closes it.
        tokens: bearer token -> whose memory it opens. Empty asks for none, and answers loopback clients only.
        read_only: of these tokens, those that may change nothing.
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
        memory: TurnMemory,
        *,
        tokens: Mapping[str, MemoryScope] | None = None,
        read_only: frozenset[str] = frozenset(),
        isolate: Isolate = "shared",
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
        grants = {token: TokenGrant(scope, token in read_only) for token, scope in (tokens or {}).items()}
        self._callers = Callers(grants, memory.slot.scope)
        self._started = datetime.now(UTC)
        max_requests = self.limits.at_once
        per_caller = self.limits.per_caller or (
            max(1, max_requests // 2) if len(grants) > 1 else max_requests
        )
        self.work = Work(max_requests, per_caller)
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

    def mount(self, path: str, app_for: Callable[[MemoryScope, bool], Any] | None) -> None:
        """Serve something else at ``path``: callers are checked here, and answered by their scope's application."""
        if app_for is not None:
            self.app.router.routes.append(
                Route(path, endpoint=Mounted(self.caller, self.limits, self.work, app_for))
            )

    # -- the endpoints ----------------------------------------------------------------------------------

    def _application(self) -> FastAPI:
        app = FastAPI(
            title="memslot: Signet's endpoints",
            version=version("memslot"),
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
        )
        app.state.server, app.state.limits = self, self.limits
        router = APIRouter(route_class=_SignetRoute)
        for name, hook, params in HOOKS:
            endpoint = _hook_endpoint(getattr(self.service, hook), name)
            _add(router, "POST", f"/api/hooks/{name}", endpoint, params)
        for method, path, handler, body in ROUTES:
            _add(router, method, path, getattr(self, handler), body)
        app.include_router(router)
        app.add_api_route("/health", self._health, methods=["GET"])
        app.exception_handler(HTTPException)(_not_here)
        return app

    async def _hook_remember(self, caller: Who, body: Sent) -> dict[str, Any]:
        """Store one memory, from a hook."""
        note, _ = await self.service.remember(caller, body, needs_harness=True)
        return {"saved": True, "id": note.id}

    async def _remember(self, caller: Who, body: Sent) -> dict[str, Any]:
        """Store one memory."""
        note, known = await self.service.remember(caller, body)
        row = {**note.short(), "tags": note.tags, "pinned": note.pinned, "embedded": False}
        return row | ({"deduped": True} if known else {})

    async def _hook_recall(self, caller: Who, body: Sent) -> dict[str, Any]:
        """Search, from a hook."""
        rows = await self.service.recall(caller, body)
        return {"results": rows, "count": len(rows)}

    async def _recall(self, caller: Who, body: Sent) -> dict[str, Any]:
        """Search."""
        rows = await self.service.recall(caller, body)
        return {
            "results": rows,
            "query": body.get("query") or body.get("keywordQuery"),
            "method": self.memory.slot.backend_name,
        }

    async def _feedback(self, caller: Who, body: Sent) -> dict[str, Any]:
        """Which injected memories were of use; only where the backend takes feedback."""
        given = body.get("feedback")
        if not text_of(body, "sessionKey") or not given:
            raise Refused(400, "sessionKey and feedback required")
        if not isinstance(given, Mapping) or not all(_is_rating(score) for score in given.values()):
            raise Refused(400, "Invalid feedback format: expected a map of ID to number (-1 to 1)")
        recorded = await self._changes.rated(caller, text_of(body, "sessionKey") or "", given)
        return {"ok": True, "recorded": recorded}

    async def _modify(self, caller: Who, body: Sent) -> dict[str, Any]:
        """Change several memories; every patch has a result of its own."""
        return await self._changes.modify(caller, body)

    async def _forget(self, caller: Who, body: Sent) -> dict[str, Any]:
        """Delete memories; a preview, unless ``mode`` is ``execute``."""
        return await self._changes.forget(caller, body)

    async def _get(self, caller: Who, item_id: str) -> dict[str, Any]:
        """One memory."""
        return await self._changes.get(caller, item_id)

    async def _history(self, caller: Who, item_id: str) -> dict[str, Any]:
        """Always 501: no backend keeps it alike."""
        raise Refused(
            501, "history is not kept here; what the backend has of it is its provenance, over /mcp"
        )

    async def _recover(self, caller: Who, item_id: str) -> dict[str, Any]:
        """Always 501: what is forgotten is gone."""
        raise Refused(501, "what is forgotten is deleted, not marked; store it again")

    async def _patch(self, caller: Who, item_id: str, body: Sent) -> dict[str, Any]:
        """Change one memory."""
        return _one_result(
            await self._changes.patched(caller, self.service.scope_of(caller, body), item_id, body)
        )

    async def _delete(self, caller: Who, item_id: str, request: Request) -> dict[str, Any]:
        """Delete one memory; ``reason`` is required."""
        query = request.query_params
        if not query.get("reason"):
            raise Refused(400, "reason is required")
        scope, force = self.service.scope_of(caller, query), query.get("force") in ("1", "true")
        return _one_result(await self._changes.forgotten(caller, scope, item_id, force=force))

    async def _list(self, caller: Who, request: Request) -> dict[str, Any]:
        """What was stored or served here, newest first."""
        return await anyio.to_thread.run_sync(self._changes.listed, caller, request.query_params)

    async def _sessions(self, caller: Who) -> dict[str, Any]:
        """The caller's sessions that are under way."""
        rows = [session.row() for session in self.service.sessions.of(caller)]
        return {"sessions": rows, "count": len(rows)}

    async def _session(self, caller: Who, key: str) -> dict[str, Any]:
        """One session, as it is or was."""
        session = self.service.sessions.find(caller, key)
        if session is None:
            raise Refused(404, "Session not found")
        return session.row()

    async def _bypass(self, caller: Who, key: str, body: Sent) -> dict[str, Any]:
        """Let the hooks of a session do nothing."""
        return self.service.bypass(caller, key, body)

    async def _secret_names(self, caller: Who) -> dict[str, Any]:
        """Names of the secrets that commands may be given."""
        return {"secrets": [] if self._commands is None else self._commands.names}

    async def _secrets_exec(self, caller: Who, body: Sent) -> dict[str, Any]:
        """Run a listed command with secrets in its environment."""
        if self._commands is None:
            raise Refused(403, "secrets/exec is off: this server runs no commands")
        return await self._commands.run(body)

    async def _chat(self, caller: Who, body: Sent) -> Response:
        """One turn with the agent; its answer comes as server-sent events."""
        if self._agent is None:
            raise Refused(404, "no agent answers here: give the configuration an agent: block")
        if caller.read_only:
            raise Refused(403, "this token may only read, and the agent records what is said")
        service, params = self.service, types.read(types.SessionParams, body)
        content = service.checked(body.get("content"))
        if content is None:
            raise Refused(400, "content is required")
        given = {name: body[name] for name in ("attachments", "metadata") if body.get(name) is not None}
        turn = UserTurn(content=content, **given)
        scope, key = service.scope_of(caller, body), params.session_key or uuid.uuid4().hex
        events = self._counted(caller, self._agent.turn(scope, key, turn, params.project or ""))
        headers = {"x-session-key": quote(key), "cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def _counted(self, caller: Caller, events: AsyncGenerator[str]) -> AsyncIterator[str]:
        """An answer that is being streamed is a request in work."""
        with self.work.request(caller, admitted=True):
            async with aclosing(events):
                async for event in events:
                    yield event

    async def _whoami(self) -> dict[str, Any]:
        """How callers are known."""
        asked = self._callers.by_token
        return {"authenticated": asked, "claims": None, "mode": "token" if asked else "local"}

    async def _features(self) -> dict[str, Any]:
        """Flags of the original daemon; it has none here."""
        return {}

    async def _openapi(self, request: Request) -> dict[str, Any]:
        """This description."""
        return dict(request.app.openapi())

    async def _status(self) -> dict[str, Any]:
        """The process, as the daemon words it; of the memory see ``/health/ready``."""
        return {
            **self._process(),
            "status": "running",
            "startedAt": self._started.isoformat().replace("+00:00", "Z"),
            "memoryDb": True,
            "backend": self.memory.slot.backend_name,
            "isolate": self.service.sessions.isolate,
        }

    async def _diagnostics(self) -> dict[str, Any]:
        """Whether the memory answers, and how writing goes."""
        return await self._readiness()

    async def _health(self) -> JSONResponse:
        """The process answers; what it says of the memory is at ``/health/ready``."""
        flags = {"db": True, "updateAvailable": False, "pendingRestart": False}
        return JSONResponse({**self._process(), "status": "healthy", **flags})

    async def _ready(self) -> JSONResponse:
        """Whether the memory answers; 503 where it does not."""
        readiness = await self._readiness()
        return JSONResponse(readiness, 503 if readiness["status"] == "unavailable" else 200)

    def _process(self) -> dict[str, Any]:
        uptime_s = (datetime.now(UTC) - self._started).total_seconds()
        return {"uptime": uptime_s, "pid": os.getpid(), "version": version("memslot"), "port": self.port}

    async def _readiness(self) -> dict[str, Any]:
        async with self._looking:  # whoever asks, the memory is asked once a second at most
            if self._looked is None or time.monotonic() - self._looked[0] > 1.0:
                self._looked = (time.monotonic(), await self.memory.health())
        health, turns = self._looked[1], self.memory.status()
        answer = {"status": health.status, "backend": health.backend_name, "queued": self.memory.queued_in}
        answer |= {name: turns[name] for name in ("waiting", "recall_circuit", "write_circuit")}
        answer["isolate"] = self.service.sessions.isolate
        answer["labels"] = f"kept in {self.store.place}"
        try:
            self.store.check()
        except StoreError as error:
            answer |= {"status": "unavailable", "labels": str(error)}
        return answer


def _add(
    router: APIRouter, method: str, path: str, endpoint: Callable[..., Any], params: type[types.Wire] | None
) -> None:
    extra: dict[str, Any] = {}
    if params is not None:  # read by hand, since real clients leave the content type out
        schema = params.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
        extra["requestBody"] = {"content": {"application/json": {"schema": schema}}, "required": True}
    router.add_api_route(
        path,
        endpoint,
        methods=[method],
        openapi_extra=extra,
        operation_id=f"{method} {path}",
        summary=(endpoint.__doc__ or path).partition("\n")[0],
        response_model=None,
    )


def _hook_endpoint(
    hook: Callable[[Caller, Body], Awaitable[dict[str, Any]]], name: str
) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def endpoint(caller: Who, body: Sent) -> dict[str, Any]:
        if name not in _OWN_SENTENCE and not text_of(body, "harness"):
            raise Refused(400, "harness is required")
        return await hook(caller, body)

    endpoint.__doc__ = hook.__doc__
    return endpoint


def _is_rating(score: Any) -> bool:
    return isinstance(score, (int, float)) and not isinstance(score, bool) and -1 <= score <= 1


def _one_result(result: dict[str, Any]) -> dict[str, Any]:
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
