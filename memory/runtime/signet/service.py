"""The lifecycle of Signet's protocol over a memory slot: what each hook answers, without HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import anyio
from pydantic.alias_generators import to_camel

from memory.contract._model import MAX_ID_LENGTH
from memory.contract.errors import MemslotError
from memory.contract.events import Message
from memory.contract.formatting import clean_text, strip_context, wrap_section
from memory.contract.receipts import ContextEntry, WriteReceipt
from memory.contract.scope import MemoryScope
from memory.runtime._items import Item, MemoryItems
from memory.runtime._policy import Recall, TurnMemory
from memory.runtime._sections import Part, digest_of, fit_parts
from memory.runtime.signet.book import Book, Filters, Note, importance_of, labelled, tags_of
from memory.runtime.signet.sessions import Caller, Conflict, Session, Sessions
from memory.runtime.signet.transcripts import transcript_in, turns_of
from memory.runtime.signet.types import (
    CompactionCompleteParams,
    CompactionResult,
    PreCompactionParams,
    PreCompactionResult,
    PromptSubmitParams,
    PromptSubmitResult,
    SessionEndParams,
    SessionEndResult,
    SessionParams,
    SessionStartParams,
    SessionStartResult,
    read,
)
from memory.slot.host_store import HostStore
from memory.slot.turns import RecallFields

GUIDELINES = """Summarize this session focusing on:
- decisions that were made, and why
- what was learned about the user and their preferences
- open threads and todos
- errors and problems met

Be concise but complete. Write in the first person, from the agent's perspective."""
_OPENING = "What is known about the user and this project?"
_WRITTEN = ("committed", "queued", "pending")
_DEFAULT_LIMIT, _MAX_LIMIT = 10, 1000


class Refused(Exception):
    """A request that is answered with an error.

    Args:
        status: HTTP status.
        why: what is wrong and the fix; never user text.
        more: further fields of the answer.
    """

    def __init__(self, status: int, why: str, more: Mapping[str, Any] | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.more = dict(more or {})


@dataclass(frozen=True)
class ServiceSettings:
    """How the daemon's part is played.

    Attributes:
        identity: ``name`` and ``description`` of the agent, told at a session's start.
        transcripts: directory whose files ``transcriptPath`` may name; None reads none.
        longest_prompt: characters.
    """

    identity: Mapping[str, str] = field(default_factory=lambda: {"name": "Agent"})
    transcripts: Path | None = None
    longest_prompt: int = 200_000


class SignetService:
    """The hooks over one slot.

    Args:
        memory: the slot as hosts use it.
        sessions: who is in which conversation.
        store: keeps what the protocol knows of single memories.
        settings: see :class:`ServiceSettings`.

    Every hook takes the caller and the request's body, answers JSON-ready, and raises :class:`Refused`,
    :class:`Conflict` or a :class:`MemslotError`.
    """

    def __init__(
        self,
        memory: TurnMemory,
        sessions: Sessions,
        store: HostStore,
        settings: ServiceSettings | None = None,
    ) -> None:
        self.memory = memory
        self.sessions = sessions
        self.settings = settings or ServiceSettings()
        self.book = Book(store)
        self._locks: WeakValueDictionary[tuple[MemoryScope, str], anyio.Lock] = WeakValueDictionary()

    async def session_start(self, caller: Caller, body: Mapping[str, Any]) -> dict[str, Any]:
        """``POST /api/hooks/session-start``: what the memory has for a session that begins."""
        params = read(SessionStartParams, body)
        session = self._entered(caller, params)
        if session.bypassed:
            return {"inject": "", "memories": [], "bypassed": True}
        session.shown = []  # a host that begins, or resumes, shows nothing yet
        recalled = await self._recall(caller, session, self.checked(params.context) or _OPENING)
        section = "\n".join(filter(None, (self._checkpoint(session), recalled.section)))
        resumed, session.resumed = session.resumed, False
        self.sessions.keep(caller, session)
        return SessionStartResult(
            identity=dict(self.settings.identity),
            memories=[note.short() for note in recalled.notes],
            inject=section,
            stable_system_prompt=section,
            session_known=resumed,
            warnings=recalled.warnings,
        ).to_wire()

    async def prompt_submit(self, caller: Caller, body: Mapping[str, Any]) -> dict[str, Any]:
        """``POST /api/hooks/user-prompt-submit``: recall for a prompt, then record it."""
        params = read(PromptSubmitParams, body)
        said = self._prompt(params, body)
        if not params.harness or said is None:
            raise Refused(400, "harness and userMessage or userPrompt are required")
        session = self._entered(caller, params)
        if session.bypassed:
            return {"inject": "", "memoryCount": 0, "bypassed": True}
        recalled = await self._recall(caller, session, said)
        again = session.is_repeated(caller.client, said)
        kept = not again and await self._record(caller, session, said, params)
        self.sessions.keep(caller, session)
        warnings = recalled.warnings
        if again:
            warnings.append("another client of this session has reported this prompt; it is recorded once")
        elif not kept and not self._read_only(caller):
            warnings.append("too many writes wait; this prompt was not recorded")
        return PromptSubmitResult(
            inject=recalled.section,
            memory_count=len(recalled.notes),
            engine=self.memory.slot.backend_name,
            queued=self.memory.queued_in if kept else None,
            warnings=warnings,
        ).to_wire()

    async def session_end(self, caller: Caller, body: Mapping[str, Any]) -> dict[str, Any]:
        """``POST /api/hooks/session-end``: record what of the transcript was not yet, and forget the session."""
        params = read(SessionEndParams, body)
        if not params.session_key and isinstance(body.get("sessionId"), str):
            params = params.model_copy(update={"session_key": body["sessionId"]})
        session = self._entered(caller, params)
        if session.bypassed:
            self.sessions.end(caller, session)
            return {"memoriesSaved": 0, "bypassed": True}
        queued, warnings = await self._record_transcript(caller, session, params)
        self.sessions.end(caller, session)
        return SessionEndResult(queued=queued, warnings=warnings).to_wire()

    async def checkpoint_extract(self, caller: Caller, body: Mapping[str, Any]) -> dict[str, Any]:
        """``POST /api/hooks/session-checkpoint-extract``: record what is new in a transcript."""
        params = read(SessionEndParams, body)
        if not params.harness or not params.session_key:
            raise Refused(400, "harness and sessionKey are required")
        session = self._entered(caller, params)
        if session.bypassed:
            return {"skipped": True}
        queued, warnings = await self._record_transcript(caller, session, params)
        self.sessions.keep(caller, session)
        return {"queued": queued, "warnings": warnings} if queued or warnings else {"skipped": True}

    async def pre_compaction(self, caller: Caller, body: Mapping[str, Any]) -> dict[str, Any]:
        """``POST /api/hooks/pre-compaction``: what the host's model is asked to keep."""
        params = read(PreCompactionParams, body)
        if not params.harness:
            raise Refused(400, "harness is required")
        session = self._entered(caller, params)
        if session.bypassed:
            return {"instructions": "", "bypassed": True}
        recalled = await self._recall(
            caller, session, self.checked(params.session_context) or _OPENING, afresh=True
        )
        known = "\n".join(f"- {note.content}" for note in recalled.notes)
        prompt = f"Store durable memories now.\n\n{GUIDELINES}\n"
        if known:
            prompt += f"\nRecent memories for reference:\n{known}\n"
        return PreCompactionResult(summary_prompt=prompt, guidelines=GUIDELINES).to_wire()

    async def compaction_complete(self, caller: Caller, body: Mapping[str, Any]) -> dict[str, Any]:
        """``POST /api/hooks/compaction-complete``: keep the summary."""
        params = read(CompactionCompleteParams, body)
        summary = self.checked(params.summary)
        if not params.harness or not summary:
            raise Refused(400, "harness and summary are required")
        session = self._entered(caller, params)
        if session.bypassed:
            return {"success": True, "bypassed": True}
        session.epoch, session.shown = session.epoch + 1, []
        if self._read_only(caller):
            return CompactionResult(success=False).to_wire()
        items = MemoryItems(self.memory.slot, session.scope)
        receipt = await items.store(
            f"Summary of the session: {summary}",
            metadata={"type": "session_summary"},
        )
        written = receipt.status in _WRITTEN
        if written:
            session.summary, session.words = _id_of(receipt), []
            self.book.put(session.scope, Note(session.summary, summary, "session_summary", importance=0.8))
        self.sessions.keep(caller, session)
        return CompactionResult(success=written, memory_id=session.summary if written else None).to_wire()

    def bypass(self, caller: Caller, key: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """``POST /api/sessions/:key/bypass``: hooks of this session do nothing, or do again."""
        under_way = (session for session in self.sessions.of(caller) if session.key == key)
        session = next(under_way, None) or self.sessions.find(caller, key)
        if session is None:
            raise Refused(404, "Session not found")
        if not isinstance(body.get("enabled"), bool):
            raise Refused(400, "enabled must be true or false")
        session.bypassed = bool(body["enabled"])
        self.sessions.keep(caller, session)
        return {"key": key, "bypassed": session.bypassed}

    async def remember(
        self, caller: Caller, body: Mapping[str, Any], *, needs_harness: bool = False
    ) -> tuple[Note, bool]:
        """Store one memory; whether it was stored before.

        Of two calls with one ``idempotencyKey``, or the same words for one scope, the second answers as the first.
        """
        content = self.checked(body.get("content"))
        if not content or (needs_harness and not text_of(body, "harness")):
            raise Refused(400, f"{'harness and content are' if needs_harness else 'content is'} required")
        if self._read_only(caller):
            raise Refused(403, "this memory is read-only; nothing was stored")
        scope, key = self.scope_of(caller, body), text_of(body, "idempotencyKey")
        words, critical, tags = labelled(content)
        if not words.strip():
            raise Refused(400, "content is required: there is nothing behind its labels")
        digest = f"words {sha256(' '.join(words.split()).encode()).hexdigest()}"
        async with self.alone(scope, "remember"):
            known = self.book.by_key(scope, key) if key else None
            if known is None:
                known = await self.known(scope, self.book.id_of(scope, digest))
                if known is not None and known.content.split() != words.split():
                    known = None  # it was corrected since
            if known is not None:
                return known, True
            note = _note_of(body, words, critical, tags)
            return await self._store(scope, note, key, digest), False

    async def _store(self, scope: MemoryScope, note: Note, key: str | None, digest: str) -> Note:
        kept = {"type": note.type, "tags": note.tags, "who": note.who}
        self.book.store.check()  # before there is a memory whose labels could not be kept
        receipt = await MemoryItems(self.memory.slot, scope).store(
            note.content,
            event_id=None if key is None else f"signet-{sha256(key.encode()).hexdigest()}",
            metadata={name: value for name, value in kept.items() if value},
        )
        if receipt.status == "skipped_read_only":
            raise Refused(403, "this memory is read-only; nothing was stored")
        if receipt.status == "unknown":
            raise Refused(503, "the backend did not answer; the memory may or may not be stored")
        note.id = _id_of(receipt)
        return self.book.put(scope, note, *filter(None, (key, digest)))

    async def recall(self, caller: Caller, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Memories for a question, filtered by what is kept beside them."""
        query = self.checked(body.get("query") or body.get("keywordQuery"))
        if not query:
            raise Refused(400, "query is required")
        limit = _limit_of(body.get("limit"))
        try:
            filters = Filters.of(body)
        except ValueError as error:
            raise Refused(400, str(error)) from None
        # Filters are ours, so there must be enough to choose from.
        enough = limit * 5 if filters else limit
        found: dict[MemoryScope, list[Item]] = {}

        async def search(scope: MemoryScope) -> None:
            found[scope] = await MemoryItems(self.memory.slot, scope).search(query, enough)

        scopes = self.sessions.reach(caller, self.scope_of(caller, body))
        try:
            async with anyio.create_task_group() as tasks:
                for scope in scopes:
                    tasks.start_soon(search, scope)
        except* MemslotError as errors:
            raise _first(errors) from None
        rows: list[list[dict[str, Any]]] = []
        for scope in scopes:
            notes = zip(found[scope], self.book.of_items(scope, found[scope]), strict=True)
            rows.append(
                [
                    note.found(item.score)
                    for item, note in notes
                    if not note.deleted and filters.fit(note, item.score)
                ]
            )
        return _merged(rows)[:limit]

    async def known(self, scope: MemoryScope, item_id: str | None) -> Note | None:
        """A memory as it is now, where the backend can tell, else as it was last seen here."""
        note = self.book.get(scope, item_id) if item_id else None
        if not item_id or (note is not None and note.deleted):
            return None
        items = MemoryItems(self.memory.slot, scope)
        if "get" not in items.offered:
            return note
        item = await items.get(item_id)
        return None if item is None else self.book.of_items(scope, [item])[0]

    # -- inside -----------------------------------------------------------------------------------------

    def alone(self, scope: MemoryScope, name: str) -> anyio.Lock:
        """Of two changes of one memory, or stores by one key, the second sees what the first has made of it."""
        return self._locks.setdefault((scope, name), anyio.Lock())

    def _entered(self, caller: Caller, params: SessionParams) -> Session:
        try:
            return self.sessions.enter(caller, self._sound(params))
        except Conflict as error:
            raise Refused(409, str(error)) from None

    def _sound(self, params: SessionParams) -> SessionParams:
        for name, longest in (
            ("session_key", MAX_ID_LENGTH - 12),
            ("project", 4096),
            ("agent_id", MAX_ID_LENGTH),
        ):
            given = getattr(params, name)
            if given is not None and len(given) > longest:
                raise Refused(400, f"{to_camel(name)} is longer than {longest} characters")
        return params

    def scope_of(self, caller: Caller, body: Mapping[str, Any]) -> MemoryScope:
        """Of a call that begins no session: that of the one it names, else of its project."""
        params = self._sound(read(SessionParams, body))
        session = self.sessions.find(caller, params.session_key or "")
        return session.scope if session else self.sessions.scope(caller, params.project, params.agent_id)

    def checked(self, text: Any) -> str | None:
        """A text a client sent, if it is one and not blank."""
        if not isinstance(text, str) or not text.strip():
            return None
        if len(text) > self.settings.longest_prompt:
            raise Refused(
                413, f"the text is longer than {self.settings.longest_prompt} characters; shorten it"
            )
        return text.encode("utf-8", "replace").decode()

    def _prompt(self, params: PromptSubmitParams, body: Mapping[str, Any]) -> str | None:
        """What the user said, under any of the names that clients use."""
        named = (params.user_message, body.get("userPrompt"), body.get("prompt"))
        return next((text for given in named if (text := self.checked(given))), None)

    async def _recall(
        self, caller: Caller, session: Session, text: str, *, afresh: bool = False
    ) -> _Recalled:
        """What the session's reach has for a text, without what its host still shows unless ``afresh``."""
        # Of a call without a session nobody knows what the host shows.
        fields: RecallFields = {} if session.key else {"exclude_session": False}
        recalls: dict[MemoryScope, Recall] = {}

        async def recall(scope: MemoryScope) -> None:
            recalls[scope] = await self.memory.recall(
                text, session_id=session.session_id, scope=scope, **fields
            )

        scopes = self.sessions.reach(caller, session.scope)
        async with anyio.create_task_group() as tasks:
            for scope in scopes:
                tasks.start_soon(recall, scope)
        failures = (recalls[scope].failure for scope in scopes)
        warnings = [
            f"recall failed: {type(error).__name__}: {error}" for error in failures if error is not None
        ]
        answered = [(scope, result) for scope in scopes if (result := recalls[scope].result) is not None]
        parts = [Part(self.sessions.label(caller, scope), result) for scope, result in answered]
        shown = frozenset() if afresh else frozenset(session.shown)

        def hidden(number: int, entry: ContextEntry) -> bool:
            if digest_of(entry) in shown:
                return True
            note = self.book.get(answered[number][0], entry.native_id) if entry.native_id else None
            return note is not None and note.deleted

        section = fit_parts(self.memory.slot, parts, self.memory.slot.budget, hidden)
        notes: list[Note] = []
        for (scope, _), part in zip(answered, parts, strict=True):
            notes += self.book.of_items(scope, map(Item.of, part.entries))
            if session.key and not afresh:
                session.show(map(digest_of, part.entries))
        return _Recalled(section, notes, list(dict.fromkeys(warnings)))

    def _read_only(self, caller: Caller) -> bool:
        return caller.read_only or self.memory.slot.read_only

    def _checkpoint(self, session: Session) -> str:
        """Where a session that is taken up again left off, as a section that no memory is made of."""
        if not session.resumed:
            return ""
        summary = self.book.get(session.scope, session.summary) if session.summary else None
        lines = [f"Summary: {summary.content}"] if summary and not summary.deleted else []
        lines += [f"- {clean_text(words)}" for words in session.words]
        return (
            wrap_section("checkpoint", "session", ["Where this session left off:", *lines]) if lines else ""
        )

    async def _record(self, caller: Caller, session: Session, said: str, params: PromptSubmitParams) -> bool:
        """The last answer, where the client tells it, and the prompt, in the order they were said."""
        answer = self.checked(params.last_assistant_message)
        messages: list[Message] = []
        if answer and session.is_new(answer):
            messages.append(Message(role="assistant", content=answer))
        messages.append(Message(role="user", content=said))
        session.heard += 1
        return await self._write(caller, session, messages)

    async def _record_transcript(
        self, caller: Caller, session: Session, params: SessionEndParams
    ) -> tuple[bool, list[str]]:
        """What of a transcript was not recorded; of a session whose prompts were heard, its last answer at most."""
        transcript, warnings = params.transcript, []
        if transcript is None and params.transcript_path:
            transcript = transcript_in(self.settings.transcripts, params.transcript_path)
            if transcript is None:
                warnings.append("transcriptPath is not read here: configure a directory of transcripts")
        said = turns_of(transcript or "")
        new = said[session.read :]
        if session.heard:
            new = [last for last in said[-1:] if last.role == "assistant" and session.is_new(last.content)]
        session.read = len(said)
        return bool(new) and await self._write(caller, session, new), warnings

    async def _write(self, caller: Caller, session: Session, messages: list[Message]) -> bool:
        if self._read_only(caller):
            return False
        session.said(messages)
        said = [message for message in messages if strip_context(message.content).strip()]
        return not said or await self.memory.record_turn(
            session_id=session.session_id, scope=session.scope, messages=said
        )


def text_of(body: Any, name: str) -> str | None:
    """A field that is a text and not blank, else None."""
    value = body.get(name) if isinstance(body, Mapping) else None
    return value if isinstance(value, str) and value.strip() else None


def _id_of(receipt: WriteReceipt) -> str:
    return receipt.native_ids[0] if receipt.native_ids else receipt.event_id


def _note_of(body: Mapping[str, Any], words: str, critical: bool, tags: str | None) -> Note:
    importance = importance_of(body.get("importance"))
    return Note(
        id="",
        content=words,
        type=text_of(body, "type") or ("rule" if critical else "fact"),
        tags=tags_of(body.get("tags")) or tags,
        importance=1.0 if critical else 0.5 if importance is None else importance,
        pinned=critical or body.get("pinned") is True,
        who=text_of(body, "who"),
        project=text_of(body, "project"),
    )


def _limit_of(given: Any) -> int:
    """How many memories are asked for, as the daemon reads it: a number or its digits; 0 is the default."""
    if isinstance(given, str) and given.strip().isdecimal():
        given = int(given[:6])
    if given in (None, 0):
        return _DEFAULT_LIMIT
    if not isinstance(given, int) or isinstance(given, bool) or not 0 < given <= _MAX_LIMIT:
        raise Refused(400, f"limit must be a number from 1 to {_MAX_LIMIT}")
    return given


def _merged(rows: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Rows of several scopes: by score where all have one, else one of each in turn."""
    if all(row["scored"] for found in rows for row in found):
        return sorted((row for found in rows for row in found), key=lambda row: -row["score"])
    return [row for turn in zip_longest(*rows) for row in turn if row is not None]


def _first(errors: BaseExceptionGroup[MemslotError]) -> MemslotError:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


@dataclass(frozen=True, slots=True)
class _Recalled:
    section: str
    notes: list[Note]
    warnings: list[str]
