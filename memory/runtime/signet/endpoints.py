"""The endpoints' answers to parsed requests of known callers, and the table of parity with Signet."""

from __future__ import annotations

import os
import time
import tomllib
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anyio
import anyio.to_thread
from fastapi.responses import JSONResponse

from memory.contract.errors import StoreError
from memory.contract.receipts import BackendHealth
from memory.runtime._policy import TurnMemory
from memory.runtime.signet import types
from memory.runtime.signet.changing import Changes
from memory.runtime.signet.http import Call, without_directories
from memory.runtime.signet.service import SignetService
from memory.runtime.signet.settings import ServeSettings
from memory.runtime.signet.types import Refused

_COUNTED = ("recalls", "recalls_failed", "recorded", "not_recorded", "waiting", "recall_circuit")
ROUTES: tuple[tuple[str, str, str, type[types.Wire] | None], ...] = (
    ("POST", "/api/hooks/session-start", "session_start", types.SessionStartParams),
    ("POST", "/api/hooks/user-prompt-submit", "user_prompt_submit", types.PromptSubmitParams),
    ("POST", "/api/hooks/session-end", "session_end", types.SessionEndParams),
    ("POST", "/api/hooks/pre-compaction", "pre_compaction", types.PreCompactionParams),
    ("POST", "/api/hooks/compaction-complete", "compaction_complete", types.CompactionCompleteParams),
    ("POST", "/api/hooks/remember", "hook_remember", types.HookRememberParams),
    ("POST", "/api/hooks/recall", "recall", types.RecallParams),
    ("POST", "/api/memory/recall", "recall", types.RecallParams),
    ("POST", "/api/memory/remember", "remember", types.RememberParams),
    ("POST", "/api/memory/modify", "modify", types.ModifyParams),
    ("POST", "/api/memory/forget", "forget", types.ForgetParams),
    ("GET", "/api/memory/{item_id:path}", "get", None),
    ("PATCH", "/api/memory/{item_id:path}", "patch", types.PatchParams),
    ("DELETE", "/api/memory/{item_id:path}", "delete", types.DeleteParams),
    ("GET", "/api/memories", "list", types.ListParams),
    ("GET", "/health/ready", "ready", None),
    ("GET", "/openapi.json", "openapi", None),
)
"""HTTP method, path, method of :class:`Endpoints`, body. The order matters, because ids may hold a slash."""


class Endpoints(SignetService):
    """The methods behind the routes: the inherited hooks and all other endpoints."""

    def __init__(self, memory: TurnMemory, changes: Changes, settings: ServeSettings) -> None:
        super().__init__(memory, changes.memories, settings)
        self.port: int | None = None
        self._changes = changes
        self._started = datetime.now(UTC)
        self._looking = anyio.Lock()
        self._looked: tuple[float, BackendHealth] | None = None

    async def hook_remember(self, call: Call[types.HookRememberParams]) -> dict[str, Any]:
        """Store one memory, from a hook."""
        note, _ = await self.memories.remember(call.caller, call.params)
        return {"saved": True, "id": note.id}

    async def remember(self, call: Call[types.RememberParams]) -> dict[str, Any]:
        """Store one memory."""
        note, receipt = await self.memories.remember(call.caller, call.params)
        row = {**note.short(), "tags": note.tags, "pinned": note.pinned, "embedded": False}
        return row | ({} if receipt else {"deduped": True})

    async def recall(self, call: Call[types.RecallParams]) -> dict[str, Any]:
        """Search."""
        rows = await self.memories.recall(call.caller, call.params)
        query = call.params.query or call.params.keyword_query
        return {"results": rows, "count": len(rows), "query": query, "method": self.memory.slot.backend_name}

    async def modify(self, call: Call[types.ModifyParams]) -> dict[str, Any]:
        """Change several memories; every patch has a result of its own."""
        return await self._changes.modify(call.caller, call.params)

    async def forget(self, call: Call[types.ForgetParams]) -> dict[str, Any]:
        """Delete memories; a preview, unless ``mode`` is ``execute``."""
        return await self._changes.forget(call.caller, call.params)

    async def get(self, call: Call[None]) -> dict[str, Any]:
        """One memory."""
        note = await self.memories.find(call.caller.scope, call.path("item_id"))
        if note is None:
            raise Refused(404, "not found")
        return note.row()

    async def patch(self, call: Call[types.PatchParams]) -> dict[str, Any]:
        """Change one memory."""
        scope = self.memories.scope_of(call.caller, call.params)
        done = await self._changes.patched(call.caller, scope, call.path("item_id"), call.params)
        return {**done, "success": True}

    async def delete(self, call: Call[types.DeleteParams]) -> dict[str, Any]:
        """Delete one memory; ``reason`` is required: in the query, or in a body as Signet's MCP server sends it."""
        scope, force = self.memories.scope_of(call.caller, call.params), bool(call.params.force)
        done = await self._changes.forgotten(call.caller, scope, call.path("item_id"), force=force)
        return {**done, "success": True}

    async def list(self, call: Call[types.ListParams]) -> dict[str, Any]:
        """List the memories that were stored or served here, newest first."""
        return await anyio.to_thread.run_sync(self.memories.listed, call.caller, call.params)

    async def openapi(self, call: Call[None]) -> dict[str, Any]:
        """This description."""
        return dict(call.request.app.openapi())

    async def health(self) -> JSONResponse:
        """The process answers; what it says of the memory is at ``/health/ready``."""
        flags = {"db": True, "updateAvailable": False, "pendingRestart": False}
        return JSONResponse({**self._process(), "status": "healthy", **flags})

    async def ready(self, call: Call[None]) -> JSONResponse:
        """Whether the memory answers; 503 where it does not."""
        answer = await self._readiness()
        return JSONResponse(answer, 503 if answer["status"] == "unavailable" else 200)

    def _process(self) -> dict[str, Any]:
        uptime_s = (datetime.now(UTC) - self._started).total_seconds()
        return {"uptime": uptime_s, "pid": os.getpid(), "version": version("memslot"), "port": self.port}

    async def _readiness(self) -> dict[str, Any]:
        async with self._looking:  # ask the memory at most once a second
            if self._looked is None or time.monotonic() - self._looked[0] > 1.0:
                self._looked = (time.monotonic(), await self.memory.health())
        health = self._looked[1]
        turns: dict[str, Any] = self.memory.status()
        answer = {"status": health.status, "backend": health.backend_name}
        answer |= {name: turns[name] for name in _COUNTED}
        answer |= {
            "isolate": self.sessions.isolate,
            "labels": f"kept in {without_directories(self.book.store.place)}",
        }
        try:
            self.book.store.check()
        except StoreError as error:
            answer |= {"status": "unavailable", "labels": without_directories(str(error))}
        return answer


Cover = Literal["covered", "partial", "absent"]


class Row(NamedTuple):
    action: str
    endpoint: str  # HTTP method and path
    sdk: str  # methods of Signet's SDK that call it, separated by commas
    method: str  # method of :class:`AdapterClient` that calls it
    client: Cover  # coverage by :class:`AdapterClient`
    server: Cover  # coverage by :class:`RuntimeAdapterServer`
    reason: str = ""  # why the client or the server does not cover it


def parity() -> list[Row]:
    """List every served endpoint, then the endpoints of the SDK and of real clients that are not served."""
    names = tomllib.loads(Path(__file__).with_name("parity.toml").read_text("utf-8"))
    rows = []
    for endpoint, given in names["served"].items():
        row = {"sdk": "", "method": "", "reason": "", **given}
        server: Cover = "partial" if row["reason"] else "covered"
        client: Cover = "covered" if row["method"] else "absent"
        row["reason"] = row["reason"] or ("" if row["method"] else "no method of ours calls it")
        rows.append(Row(**row, endpoint=endpoint, client=client, server=server))
    for absent in names["absent"]:
        row = {"method": "", **absent}
        client = "covered" if row["method"] else "absent"
        rows.append(Row(**row, client=client, server="absent"))
    return rows
