"""The answers of each endpoint, once its caller is known and its body is read, and their parity with Signet."""

from __future__ import annotations

import os
import time
import tomllib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import anyio
import anyio.to_thread
from fastapi.responses import JSONResponse, Response, StreamingResponse
from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from memory.contract.errors import StoreError
from memory.contract.receipts import BackendHealth, Trace
from memory.runtime._channel import UserTurn
from memory.runtime._conversations import Conversations
from memory.runtime._policy import TurnMemory
from memory.runtime.signet import types
from memory.runtime.signet.book import number_of
from memory.runtime.signet.changing import Changes
from memory.runtime.signet.http import Call, Callers, Work, without_directories
from memory.runtime.signet.secrets_exec import SecretCommands
from memory.runtime.signet.service import ServiceSettings, SignetService
from memory.runtime.signet.sessions import Caller, Session
from memory.runtime.signet.types import Refused, text_of

_COUNTED = {
    "recalls": "Recalls for a turn.",
    "recalls_failed": "Recalls that failed, or were late.",
    "recorded": "Events that went into the outbox.",
    "not_recorded": "Events that could not be kept.",
}


class Metrics(Collector):
    """Figures of one server. Also a trace sink."""

    def __init__(self, memory: TurnMemory) -> None:
        self._memory = memory
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self._requests = self._seconds("request", "Requests by route and status.", "route", "status")
        self._calls = self._seconds("memory_call", "Calls of the memory.", "operation", "error")

    def _seconds(self, what: str, help_text: str, *labels: str) -> Histogram:
        return Histogram(f"memslot_{what}_seconds", help_text, labels, registry=self.registry)

    def emit(self, trace: Trace) -> None:
        if trace.latency_ms is not None:
            self._calls.labels(trace.operation or "call", trace.error or "").observe(trace.latency_ms / 1000)

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield the figures that are counted elsewhere, for prometheus_client."""
        status: dict[str, Any] = self._memory.status()
        for name, what in _COUNTED.items():
            yield CounterMetricFamily(f"memslot_{name}", what, value=status[name])
        yield GaugeMetricFamily("memslot_waiting", "Events not delivered yet.", value=status["waiting"])
        left_alone = float(status["recall_circuit"] != "closed")
        yield GaugeMetricFamily("memslot_left_alone", "1 while recall is left alone.", value=left_alone)


ROUTES: tuple[tuple[str, str, str, type[types.Wire] | None], ...] = (
    ("POST", "/api/hooks/session-start", "session_start", types.SessionStartParams),
    ("POST", "/api/hooks/user-prompt-submit", "prompt_submit", types.PromptSubmitParams),
    ("POST", "/api/hooks/session-end", "session_end", types.SessionEndParams),
    ("POST", "/api/hooks/session-checkpoint-extract", "checkpoint_extract", types.SessionEndParams),
    ("POST", "/api/hooks/pre-compaction", "pre_compaction", types.PreCompactionParams),
    ("POST", "/api/hooks/compaction-complete", "compaction_complete", types.CompactionCompleteParams),
    ("POST", "/api/hooks/remember", "hook_remember", types.HookRememberParams),
    ("POST", "/api/hooks/recall", "hook_recall", types.RecallParams),
    ("POST", "/api/memory/recall", "recall", types.RecallParams),
    ("POST", "/api/memory/remember", "remember", types.RememberParams),
    ("POST", "/api/memory/modify", "modify", types.ModifyParams),
    ("POST", "/api/memory/forget", "forget", types.ForgetParams),
    ("POST", "/api/memory/feedback", "feedback", types.FeedbackParams),
    ("POST", "/api/memory/{item_id:path}/recover", "recover", types.PatchParams),
    ("GET", "/api/memory/{item_id:path}/history", "history", None),
    ("GET", "/api/memory/{item_id:path}", "get", None),
    ("PATCH", "/api/memory/{item_id:path}", "patch", types.PatchParams),
    ("DELETE", "/api/memory/{item_id:path}", "delete", None),
    ("GET", "/api/memories", "list", None),
    ("GET", "/api/sessions", "listed_sessions", None),
    ("GET", "/api/sessions/{key:path}", "session", None),
    ("POST", "/api/sessions/{key:path}/bypass", "bypass", types.BypassParams),
    ("GET", "/api/secrets", "secret_names", None),
    ("POST", "/api/secrets/exec", "secrets_exec", types.SecretsExecParams),
    ("POST", "/api/chat", "chat", types.ChatParams),
    ("GET", "/api/auth/whoami", "whoami", None),
    ("GET", "/api/features", "features", None),
    ("GET", "/api/status", "status", None),
    ("GET", "/api/diagnostics", "diagnostics", None),
    ("GET", "/health/ready", "ready", None),
    ("GET", "/metrics", "figures", None),
    ("GET", "/openapi.json", "openapi", None),
)
"""HTTP method, path, method of :class:`Endpoints`, body; in this order, since ids may hold a slash."""


class Endpoints(SignetService):
    """Methods that routes lead to: the hooks, and everything else."""

    def __init__(
        self,
        memory: TurnMemory,
        changes: Changes,
        settings: ServiceSettings,
        callers: Callers,
        work: Work,
        agent: Conversations | None,
        commands: SecretCommands | None,
    ) -> None:
        super().__init__(memory, changes.memories, settings)
        self.port: int | None = None
        self.leaving = False
        self.metrics = Metrics(memory)
        self._changes, self._callers, self._work = changes, callers, work
        self._agent, self._commands = agent, commands
        self._started = datetime.now(UTC)
        self._looking = anyio.Lock()
        self._looked: tuple[float, BackendHealth] | None = None

    async def hook_remember(self, call: Call) -> dict[str, Any]:
        """Store one memory, from a hook."""
        caller, body = call.caller, call.body
        note, _ = await self.memories.remember(caller, body, needs_harness=True)
        return {"saved": True, "id": note.id}

    async def remember(self, call: Call) -> dict[str, Any]:
        """Store one memory."""
        caller, body = call.caller, call.body
        note, receipt = await self.memories.remember(caller, body)
        row = {**note.short(), "tags": note.tags, "pinned": note.pinned, "embedded": False}
        return row | ({} if receipt else {"deduped": True})

    async def hook_recall(self, call: Call) -> dict[str, Any]:
        """Search, from a hook."""
        caller, body = call.caller, call.body
        rows = await self.memories.recall(caller, body)
        return {"results": rows, "count": len(rows)}

    async def recall(self, call: Call) -> dict[str, Any]:
        """Search."""
        caller, body = call.caller, call.body
        rows = await self.memories.recall(caller, body)
        query = body.get("query") or body.get("keywordQuery")
        return {"results": rows, "query": query, "method": self.memory.slot.backend_name}

    async def feedback(self, call: Call) -> dict[str, Any]:
        """Which injected memories were of use; only where the backend takes feedback."""
        caller, body = call.caller, call.body
        given = body.get("feedback")
        if not text_of(body, "sessionKey") or not given:
            raise Refused(400, "sessionKey and feedback required")
        if not isinstance(given, Mapping) or any(number_of(score) is None for score in given.values()):
            raise Refused(400, "Invalid feedback format: expected a map of ID to number (-1 to 1)")
        ratings = {item_id: max(-1.0, min(1.0, score)) for item_id, score in given.items()}
        recorded = await self._changes.rated(caller, text_of(body, "sessionKey") or "", ratings)
        return {"ok": True, "recorded": recorded}

    async def modify(self, call: Call) -> dict[str, Any]:
        """Change several memories; every patch has a result of its own."""
        caller, body = call.caller, call.body
        return await self._changes.modify(caller, body)

    async def forget(self, call: Call) -> dict[str, Any]:
        """Delete memories; a preview, unless ``mode`` is ``execute``."""
        caller, body = call.caller, call.body
        return await self._changes.forget(caller, body)

    async def get(self, call: Call) -> dict[str, Any]:
        """One memory."""
        caller, item_id = call.caller, call.path("item_id")
        found = await self.memories.find(caller, self.sessions.scope(caller), item_id)
        if found is None:
            raise Refused(404, "not found")
        return found[1].row()

    async def history(self, call: Call) -> dict[str, Any]:
        """Always 501: no backend keeps it alike."""
        why = "history is not kept here; what the backend has of it is its provenance, over /mcp"
        raise Refused(501, why)

    async def recover(self, call: Call) -> dict[str, Any]:
        """Always 501: what is forgotten is gone."""
        raise Refused(501, "what is forgotten is deleted, not marked; store it again")

    async def patch(self, call: Call) -> dict[str, Any]:
        """Change one memory."""
        caller, body, item_id = call.caller, call.body, call.path("item_id")
        scope = self.memories.scope_of(caller, body)
        return _one_result(await self._changes.patched(caller, scope, item_id, body))

    async def delete(self, call: Call) -> dict[str, Any]:
        """Delete one memory; ``reason`` is required: in the query, or in a body as Signet's MCP server sends it."""
        caller, body, item_id, request = call.caller, call.body, call.path("item_id"), call.request
        given = {**body, **request.query_params}
        if not text_of(given, "reason"):
            raise Refused(400, "reason is required")
        scope, force = self.memories.scope_of(caller, given), given.get("force") in ("1", "true", True)
        return _one_result(await self._changes.forgotten(caller, scope, item_id, force=force))

    async def list(self, call: Call) -> dict[str, Any]:
        """What was stored or served here, newest first."""
        caller, request = call.caller, call.request
        return await anyio.to_thread.run_sync(self.memories.listed, caller, request.query_params)

    async def listed_sessions(self, call: Call) -> dict[str, Any]:
        """The caller's sessions that are under way."""
        caller = call.caller
        rows = [session.row() for session in self.sessions.of(caller)]
        return {"sessions": rows, "count": len(rows)}

    async def session(self, call: Call) -> dict[str, Any]:
        """One session, as it is or was."""
        caller, key = call.caller, call.path("key")
        return self._session(caller, key).row()

    async def bypass(self, call: Call) -> dict[str, Any]:
        """Let the hooks of a session do nothing."""
        caller, body, key = call.caller, call.body, call.path("key")
        session = self._session(caller, key)
        if not isinstance(body.get("enabled"), bool):
            raise Refused(400, "enabled must be true or false")
        session.bypassed = bool(body["enabled"])
        self.sessions.keep(caller, session)
        return {"key": key, "bypassed": session.bypassed}

    def _session(self, caller: Caller, key: str) -> Session:
        session = self.sessions.find(caller, key)
        if session is None:
            raise Refused(404, "Session not found")
        return session

    async def secret_names(self, call: Call) -> dict[str, Any]:
        """Names of the secrets that commands may be given."""
        return {"secrets": [] if self._commands is None else self._commands.names}

    async def secrets_exec(self, call: Call) -> dict[str, Any]:
        """Run a listed command with secrets in its environment."""
        caller, body = call.caller, call.body
        if self._commands is None:
            raise Refused(403, "secrets/exec is off: this server runs no commands")
        if caller.read_only:
            raise Refused(403, "this memory is read-only, and a command may change anything")
        return await self._commands.run(body)

    async def chat(self, call: Call) -> Response:
        """One turn with the agent; its answer comes as server-sent events."""
        caller, body = call.caller, call.body
        if self._agent is None:
            raise Refused(404, "no agent answers here: give the configuration an agent: block")
        if caller.read_only:
            raise Refused(403, "this memory is read-only, and the agent records what is said")
        params = types.read(types.SessionParams, body)
        content = self.memories.checked(body.get("content"))
        if content is None:
            raise Refused(400, "content is required")
        given = {name: body[name] for name in ("attachments", "metadata") if body.get(name) is not None}
        turn = UserTurn(content=content, **given)
        scope, key = self.memories.scope_of(caller, body), params.session_key or uuid.uuid4().hex
        self.book.store.check()  # before the model answers a turn that could not be kept
        self.sessions.note_written(caller, scope)
        events = self._counted(caller, self._agent.turn(scope, key, turn, params.project or ""))
        headers = {"x-session-key": quote(key), "cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def _counted(self, caller: Caller, events: AsyncGenerator[str]) -> AsyncIterator[str]:
        """An answer that is being streamed is a request in work."""
        with self._work.request(caller, admitted=True):
            async with aclosing(events):
                async for event in events:
                    yield event

    async def whoami(self, call: Call) -> dict[str, Any]:
        """How callers are known."""
        asked = self._callers.by_token
        return {"authenticated": asked, "claims": None, "mode": "token" if asked else "local"}

    async def features(self, call: Call) -> dict[str, Any]:
        """Flags of the original daemon; it has none here."""
        return {}

    async def openapi(self, call: Call) -> dict[str, Any]:
        """This description."""
        return dict(call.request.app.openapi())

    async def status(self, call: Call) -> dict[str, Any]:
        """The process, as the daemon words it; of the memory see ``/health/ready``."""
        return {
            **self._process(),
            "status": "running",
            "startedAt": self._started.isoformat().replace("+00:00", "Z"),
            "memoryDb": True,
            "backend": self.memory.slot.backend_name,
            "isolate": self.sessions.isolate,
        }

    async def health(self) -> JSONResponse:
        """The process answers; what it says of the memory is at ``/health/ready``."""
        flags = {"db": True, "updateAvailable": False, "pendingRestart": False}
        return JSONResponse({**self._process(), "status": "healthy", **flags})

    async def ready(self, call: Call) -> JSONResponse:
        """Whether the memory answers; 503 where it does not."""
        readiness = await self._diagnosed()
        return JSONResponse(readiness, 503 if readiness["status"] == "unavailable" else 200)

    def leave(self) -> None:
        self.leaving = True  # ready for nothing new

    async def figures(self, call: Call) -> Response:
        """What this server does, in Prometheus' form."""
        text = generate_latest(self.metrics.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    def _process(self) -> dict[str, Any]:
        uptime_s = (datetime.now(UTC) - self._started).total_seconds()
        return {"uptime": uptime_s, "pid": os.getpid(), "version": version("memslot"), "port": self.port}

    async def diagnostics(self, call: Call) -> dict[str, Any]:
        """Whether the memory answers, and how writing goes."""
        return await self._diagnosed()

    async def _diagnosed(self) -> dict[str, Any]:
        async with self._looking:  # ask the memory at most once a second
            if self._looked is None or time.monotonic() - self._looked[0] > 1.0:
                self._looked = (time.monotonic(), await self.memory.health())
        health = self._looked[1]
        turns: dict[str, Any] = self.memory.status()
        answer = {"status": health.status, "backend": health.backend_name}
        answer |= {name: turns[name] for name in ("waiting", "recall_circuit")}
        answer |= {
            "isolate": self.sessions.isolate,
            "labels": f"kept in {without_directories(self.book.store.place)}",
        }
        try:
            self.book.store.check()
        except StoreError as error:
            answer |= {"status": "unavailable", "labels": without_directories(str(error))}
        return answer | ({"status": "unavailable", "leaving": True} if self.leaving else {})


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


Cover = Literal["covered", "partial", "absent"]


class Row(NamedTuple):
    action: str
    endpoint: str  # HTTP method and path
    sdk: str  # methods of Signet's SDK that call it, by comma
    method: str  # of :class:`AdapterClient`
    client: Cover  # by :class:`AdapterClient`
    server: Cover  # by :class:`RuntimeAdapterServer`
    reason: str = ""  # why one of them is not covered


def _names() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("parity.toml").read_text("utf-8"))


def parity() -> list[Row]:
    """Every endpoint that is served, then what of the SDK and of real clients is not."""
    names = _names()
    served = {
        f"{method} {path.replace(':path', '')}": getattr(Endpoints, handler).__doc__ or path
        for method, path, handler, _ in ROUTES
    }
    rows = []
    for endpoint, purpose in {**served, "GET /health": ""}.items():
        action = purpose.partition("\n")[0].rstrip(".")
        row: dict[str, Any] = {"action": action, "sdk": "", "method": "", "reason": ""}
        row |= names["served"].get(endpoint, {})
        server: Cover = "absent" if row.pop("refused", False) else "partial" if row["reason"] else "covered"
        client: Cover = "covered" if row["method"] else "absent"
        row["reason"] = row["reason"] or ("" if row["method"] else "no method of ours calls it")
        rows.append(Row(**row, endpoint=endpoint, client=client, server=server))
    return rows + [Row(**row, method="", client="absent", server="absent") for row in names["absent"]]
