"""Callers, and their sessions: what a host has said. The host store keeps their state for later calls."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter

from memory.contract._model import MAX_ID_LENGTH
from memory.contract.events import Message
from memory.contract.formatting import strip_context
from memory.contract.scope import MemoryScope
from memory.runtime.signet.settings import Isolate
from memory.runtime.signet.types import SessionParams
from memory.storage.kept import HostStore, StoredObject

_MAX_SESSIONS = 10_000
_LAST_WORDS, _MAX_WORD_LENGTH = 6, 300


@dataclass(frozen=True)
class TokenGrant:
    scope: MemoryScope
    read_only: bool = False


@dataclass(frozen=True)
class Caller:
    scope: MemoryScope  # the token's own scope
    client: str = ""  # the program's name for itself
    read_only: bool = False


def scope_of(caller: Caller, isolate: Isolate, project: str | None, agent_id: str | None) -> MemoryScope:
    """Return the scope of a call: the token's own or, with ``strict``, that of its project and agent."""
    if isolate == "shared" or not (project or agent_id):
        return caller.scope
    parts = [caller.scope.agent_id, project, agent_id]
    label = "|".join(quote((part or "").encode("utf-8", "surrogatepass"), safe="") for part in parts)
    label = label.replace("~", "%7E")  # a tilde marks the hash that ends an id that is too long
    if len(label) > MAX_ID_LENGTH:
        label = f"{label[: MAX_ID_LENGTH - 66]}|~{hashlib.sha256(label.encode()).hexdigest()}"
    return caller.scope.model_copy(update={"agent_id": label})


@dataclass(slots=True)
class Session:
    key: str  # empty if the client names no session
    scope: MemoryScope
    project: str | None = None  # of the first call, as the agent
    agent_id: str | None = None
    # Each compaction and resumption increments it, because the host then shows none of the earlier text.
    epoch: int = 1
    heard: int = 0  # prompts since the session began or was resumed
    read: int = 0  # recorded messages of the transcript
    answered: str | None = None  # hash of the last answer seen
    erased: bool = False  # the scope was reset, and no prompt has come since
    ended: bool = False
    resumed: bool = False
    summary: str | None = None  # id of the memory that holds the last compaction's summary
    words: list[str] = field(default_factory=list)  # the last messages, shortened
    # Client and digest of the last prompt. A host's hooks and its plugin may both send the same prompt.
    prompted_by: tuple[str, str] = ("", "")
    resets: int = 0  # resets of the scope, as this process counted them when the words were said

    @property
    def session_id(self) -> str:
        return (self.key if self.epoch == 1 else f"{self.key}~{self.epoch}") or "no-session"

    def is_new(self, answer: str) -> bool:
        """Note an answer. Returns whether it differs from the last one and was said after the last reset."""
        before, self.answered = self.answered, hashlib.sha256(answer.encode()).hexdigest()
        return self.answered != before and not self.erased

    def is_repeated(self, client: str, prompt: str) -> bool:
        """Note a prompt. Returns whether another client of this session has just reported the same one."""
        digest = hashlib.sha256(prompt.encode()).hexdigest()
        before, self.prompted_by = self.prompted_by, (client, digest)
        return before[1] == digest and before[0] != client

    def said(self, messages: Iterable[Message]) -> None:
        for message in messages:
            text = " ".join(strip_context(message.content).split())
            short = text if len(text) <= _MAX_WORD_LENGTH else f"{text[:_MAX_WORD_LENGTH]}…"
            self.words = [*self.words[1 - _LAST_WORDS :], f"{message.role}: {short}"]

    def kept(self) -> dict[str, Any]:
        """Return the JSON-ready state without ``words``, which are stored separately under their scope."""
        kept: dict[str, Any] = _SESSION.dump_python(self, mode="json", exclude={"words", "resets"})
        return kept

    @classmethod
    def taken_up(cls, kept: dict[str, Any]) -> Session:
        """Restore a session from the result of :meth:`kept`. A session that had ended begins a new epoch."""
        session = _SESSION.validate_python({**kept, "resumed": True})
        if session.ended:
            session.ended, session.answered = False, None
            session.epoch, session.heard, session.read = session.epoch + 1, 0, 0
        return session


_SESSION: TypeAdapter[Session] = TypeAdapter(Session)


class Sessions:
    """The sessions of all callers. No caller sees the sessions of another."""

    def __init__(
        self, isolate: Isolate, store: HostStore, resets: Callable[[MemoryScope], int] = lambda scope: 0
    ) -> None:
        self.isolate = isolate
        self._store = store
        self._resets = resets
        self._sessions: OrderedDict[tuple[MemoryScope, bool, str], Session] = OrderedDict()

    def find(self, caller: Caller, key: str) -> Session | None:
        """Find a session of this caller, open or ended, from any of its clients."""
        if not self._shared_with_others(caller) and (known := self._sessions.get(_place(caller, key))):
            return known
        row = self._store.get("session", caller.scope, key) if key and not caller.read_only else None
        if row is None:
            return None
        session = Session.taken_up(row)
        if self._store.on_server:  # another server may have continued the session, which is no resumption
            session.resumed = bool(row["ended"] or row["resumed"])
        kept: dict[str, Any] = self._store.get("words", session.scope, key) or {"words": []}
        session.words = kept["words"]
        session.resets = self._resets(session.scope)
        return session

    def _shared_with_others(self, caller: Caller) -> bool:
        """Whether another server may have continued this caller's sessions. Read-only ones are not stored."""
        return self._store.on_server and not caller.read_only

    def enter(self, caller: Caller, params: SessionParams) -> Session:
        key = params.session_key or ""
        known = self.find(caller, key) if key else None
        project, agent_id = params.project, params.agent_id if self.isolate == "strict" else None
        if known is None or project not in (None, known.project) or agent_id not in (None, known.agent_id):
            # A key that is used again for another project begins a new session.
            scope = scope_of(caller, self.isolate, project, agent_id)
            known = Session(key, scope, project, agent_id)
            known.resets = self._resets(known.scope)
        if known.resets != (resets := self._resets(known.scope)):
            known.words, known.resets, known.erased = [], resets, True
        if key:
            self._sessions[_place(caller, key)] = known
            self._sessions.move_to_end(_place(caller, key))
            if len(self._sessions) > _MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return known

    def keep(self, caller: Caller, session: Session) -> None:
        if session.key and not caller.read_only:
            self._store.put(
                StoredObject("session", caller.scope, session.key, session.kept(), session.scope),
                StoredObject("words", session.scope, session.key, {"words": session.words}),
            )

    def end(self, caller: Caller, session: Session) -> None:
        """End a session. The next call with its key resumes it."""
        self._sessions.pop(_place(caller, session.key), None)
        session.ended = True
        self.keep(caller, session)

    def forget_words(self, scope: MemoryScope) -> None:
        """Forget the last words of a scope's sessions, also on disk, because a memory of it was deleted."""
        for session in self._sessions.values():
            if session.scope == scope:
                session.words = []
        self._store.drop("words", scope)


def _place(caller: Caller, key: str) -> tuple[MemoryScope, bool, str]:
    return caller.scope, caller.read_only, key
