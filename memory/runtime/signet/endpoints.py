"""The endpoints' answers to parsed requests of known callers, and the table of parity with Signet."""

from __future__ import annotations

import os
import re
import tomllib
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anyio
import anyio.to_thread
from fastapi.responses import JSONResponse

from memory.contract.errors import StoreError
from memory.contract.events import Message
from memory.contract.formatting import clean_text, strip_context, wrap_section
from memory.runtime._items import Item, MemoryItems, Part, fit_parts
from memory.runtime._policy import TurnMemory
from memory.runtime.signet import types
from memory.runtime.signet.book import Note
from memory.runtime.signet.http import Call, without_directories
from memory.runtime.signet.memories import Memories, id_of
from memory.runtime.signet.sessions import Caller, Session
from memory.runtime.signet.settings import ServeSettings
from memory.runtime.signet.types import Refused, SessionParams
from memory.slot.turns import RecallFields

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


GUIDELINES = """Summarize this session focusing on:
- decisions that were made, and why
- what was learned about the user and their preferences
- open threads and todos
- errors and problems met

Be concise but complete. Write in the first person, from the agent's perspective."""
_OPENING = "What is known about the user and this project?"
_TURN = re.compile(r"^(?P<role>User|Assistant): ", re.M)


class Endpoints:
    """The methods behind the routes. Each returns JSON-ready data, or raises :class:`Refused` or MemslotError."""

    def __init__(self, memory: TurnMemory, memories: Memories, settings: ServeSettings) -> None:
        self.memory = memory
        self.memories = memories
        self.sessions = memories.sessions
        self.book, self.settings = memories.book, settings
        self.port: int | None = None
        self._started = datetime.now(UTC)

    async def session_start(self, call: Call[types.SessionStartParams]) -> dict[str, Any]:
        """``POST /api/hooks/session-start``: what the memory has for a session that begins."""
        caller, params = call.caller, call.params
        session = self._entered(caller, params)
        opening = types.text_of(params.context) or _OPENING
        section, notes, warnings = await self._recall(caller, session, opening)
        section = "\n".join(filter(None, (self._checkpoint(session), section)))
        resumed, session.resumed = session.resumed, False
        self.sessions.keep(caller, session)
        return types.SessionStartResult(
            identity=dict(self.settings.identity),
            memories=[note.short() for note in notes],
            inject=section,
            stable_system_prompt=section,
            session_known=resumed,
            warnings=warnings,
        ).to_wire()

    async def user_prompt_submit(self, call: Call[types.PromptSubmitParams]) -> dict[str, Any]:
        """``POST /api/hooks/user-prompt-submit``: recall for a prompt, then record it."""
        caller, params = call.caller, call.params
        named = (params.user_message, params.user_prompt, params.prompt)
        said = next((text for given in named if (text := types.text_of(given))), None)
        if not params.harness or said is None:
            raise Refused(400, "harness and userMessage or userPrompt are required")
        session = self._entered(caller, params)
        section, notes, warnings = await self._recall(caller, session, said)
        again, kept = session.is_repeated(caller.client, said), False
        if not again:
            # Record the last answer, if the client sends it, before the prompt.
            answer = types.text_of(params.last_assistant_message)
            new = [Message(role="assistant", content=answer)] if answer and session.is_new(answer) else []
            session.heard, session.erased = session.heard + 1, False
            kept = await self._write(caller, session, [*new, Message(role="user", content=said)])
        self.sessions.keep(caller, session)
        if again:
            warnings.append("another client of this session has reported this prompt; it is recorded once")
        elif not kept and not self.memories.is_read_only(caller):
            warnings.append("this prompt could not be recorded; see health")
        return types.PromptSubmitResult(
            inject=section,
            memory_count=len(notes),
            engine=self.memory.slot.backend_name,
            warnings=warnings,
        ).to_wire()

    async def session_end(self, call: Call[types.SessionEndParams]) -> dict[str, Any]:
        """``POST /api/hooks/session-end``: record what of the transcript was not yet, and forget the session."""
        caller, params = call.caller, call.params
        params = params.model_copy(update={"session_key": params.session_key or params.session_id})
        session = self._entered(caller, params)
        queued, warnings = await self._record_transcript(caller, session, params)
        self.sessions.end(caller, session)
        return types.SessionEndResult(queued=queued, warnings=warnings).to_wire()

    async def pre_compaction(self, call: Call[types.PreCompactionParams]) -> dict[str, Any]:
        """``POST /api/hooks/pre-compaction``: what the host's model is asked to keep."""
        caller, params = call.caller, call.params
        session = self._entered(caller, params)
        asked = types.text_of(params.session_context) or _OPENING
        _, notes, _ = await self._recall(caller, session, asked)
        known = "\n".join(f"- {note.content}" for note in notes)
        prompt = f"Store durable memories now.\n\n{GUIDELINES}\n"
        if known:
            prompt += f"\nRecent memories for reference:\n{known}\n"
        return types.PreCompactionResult(summary_prompt=prompt, guidelines=GUIDELINES).to_wire()

    async def compaction_complete(self, call: Call[types.CompactionCompleteParams]) -> dict[str, Any]:
        """``POST /api/hooks/compaction-complete``: keep the summary."""
        caller, params = call.caller, call.params
        summary = types.text_of(params.summary)
        if not params.harness or not summary:
            raise Refused(400, "harness and summary are required")
        session = self._entered(caller, params)
        session.epoch += 1
        self.sessions.keep(caller, session)
        if self.memories.is_read_only(caller):
            return types.CompactionResult(success=False).to_wire()
        items = MemoryItems(self.memory.slot, session.scope)
        kind = {"type": "session_summary"}
        receipt = await items.store(f"Summary of the session: {summary}", metadata=kind)
        written = receipt.status in ("committed", "queued", "pending")
        if written:
            session.summary, session.words = id_of(receipt), []
            self.book.put(session.scope, Note(session.summary, summary, "session_summary", importance=0.8))
        self.sessions.keep(caller, session)
        memory_id = session.summary if written else None
        return types.CompactionResult(success=written, memory_id=memory_id).to_wire()

    def _entered(self, caller: Caller, params: SessionParams) -> Session:
        if not params.harness:
            raise Refused(400, "harness is required")
        return self.sessions.enter(caller, params)

    async def _recall(self, caller: Caller, session: Session, text: str) -> tuple[str, list[Note], list[str]]:
        """Recall for a text in the scope of the session. Returns a section, its notes and warnings."""
        # Without a session key, it is unknown what the host shows.
        fields: RecallFields = {} if session.key else {"exclude_session": False}
        recalled = await self.memory.recall(
            text, session_id=session.session_id, scope=session.scope, **fields
        )
        error = recalled.failure
        warnings = [f"recall failed: {type(error).__name__}: {error}"] if error else []
        if recalled.result is None:
            return "", [], warnings
        part = Part("user", recalled.result)
        gone = self.book.deleted(session.scope, (entry.native_id for entry in recalled.result.entries))
        section = fit_parts(self.memory.slot, [part], lambda _, entry: entry.native_id in gone)
        return section, self.book.of_items(session.scope, map(Item.of, part.entries)), warnings

    def _checkpoint(self, session: Session) -> str:
        """Return the last state of a resumed session, as a section that is never recorded."""
        if not session.resumed:
            return ""
        summary = self.book.get(session.scope, session.summary) if session.summary else None
        lines = [f"Summary: {summary.content}"] if summary and not summary.deleted else []
        lines += [f"- {clean_text(words)}" for words in session.words]
        title = "Where this session left off:"
        return wrap_section("checkpoint", "session", [title, *lines]) if lines else ""

    async def _record_transcript(
        self, caller: Caller, session: Session, params: types.SessionEndParams
    ) -> tuple[bool, list[str]]:
        """Record the unrecorded messages of a transcript. Returns whether any were recorded, and warnings.

        If the session's prompts were already recorded, only the last answer may be new.
        """
        warnings = []
        if params.transcript is None and params.transcript_path:
            warnings.append("transcriptPath is not read: this server opens no file that a client names")
        said = _turns_of(params.transcript or "")
        new = said[session.read :]
        if session.heard:
            new = [last for last in said[-1:] if last.role == "assistant" and session.is_new(last.content)]
        session.read = len(said)
        return bool(new) and await self._write(caller, session, new), warnings

    async def _write(self, caller: Caller, session: Session, messages: list[Message]) -> bool:
        if self.memories.is_read_only(caller):
            return False
        session.said(messages)
        said = [message for message in messages if strip_context(message.content).strip()]
        session_id, scope = session.session_id, session.scope
        return not said or await self.memory.record_turn(session_id=session_id, scope=scope, messages=said)

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
        return await self.memories.modify(call.caller, call.params)

    async def forget(self, call: Call[types.ForgetParams]) -> dict[str, Any]:
        """Delete memories; a preview, unless ``mode`` is ``execute``."""
        return await self.memories.forget(call.caller, call.params)

    async def get(self, call: Call[None]) -> dict[str, Any]:
        """One memory."""
        note = await self.memories.find(call.caller.scope, call.item_id)
        if note is None:
            raise Refused(404, "not found")
        return note.row()

    async def patch(self, call: Call[types.PatchParams]) -> dict[str, Any]:
        """Change one memory."""
        scope = self.memories.scope_of(call.caller, call.params)
        done = await self.memories.patched(call.caller, scope, call.item_id, call.params)
        return {**done, "success": True}

    async def delete(self, call: Call[types.DeleteParams]) -> dict[str, Any]:
        """Delete one memory; ``reason`` is required: in the query, or in a body as Signet's MCP server sends it."""
        scope, force = self.memories.scope_of(call.caller, call.params), bool(call.params.force)
        done = await self.memories.forgotten(call.caller, scope, call.item_id, force=force)
        return {**done, "success": True}

    async def list(self, call: Call[types.ListParams]) -> dict[str, Any]:
        """List the memories that were stored or served here, newest first."""
        return await anyio.to_thread.run_sync(self.memories.listed, call.caller, call.params)

    async def openapi(self, call: Call[None]) -> dict[str, Any]:
        """This description."""
        return dict(call.request.app.openapi())

    async def health(self) -> JSONResponse:
        """The process answers; what it says of the memory is at ``/health/ready``."""
        return JSONResponse(
            {
                "status": "healthy",
                "uptime": (datetime.now(UTC) - self._started).total_seconds(),
                "pid": os.getpid(),
                "version": version("memslot"),
                "port": self.port,
                "db": True,
                "updateAvailable": False,
                "pendingRestart": False,
            }
        )

    async def ready(self, call: Call[None]) -> JSONResponse:
        """Whether the memory answers; 503 where it does not."""
        health = await self.memory.health()
        turns: dict[str, Any] = self.memory.status()
        answer = {"status": health.status, "backend": health.backend_name}
        answer |= {name: turns[name] for name in _COUNTED}
        labels = f"kept in {without_directories(self.book.store.place)}"
        answer |= {"isolate": self.sessions.isolate, "labels": labels}
        try:
            self.book.store.check()
        except StoreError as error:
            answer |= {"status": "unavailable", "labels": without_directories(str(error))}
        return JSONResponse(answer, 503 if answer["status"] == "unavailable" else 200)


def _turns_of(transcript: str) -> list[Message]:
    """Convert ``User: ...`` and ``Assistant: ...`` paragraphs to messages."""
    parts = _TURN.split(transcript.encode("utf-8", "replace").decode())[1:]
    return [
        Message(role="user" if role == "User" else "assistant", content=text.strip())
        for role, text in zip(parts[::2], parts[1::2], strict=True)
        if text.strip()
    ]


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
