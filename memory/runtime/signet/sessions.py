"""Who calls, for whose memory: sessions, and the scope of each project and agent.

What a session has come to is kept in the host store, so that one that ended, or whose server was started again, is
resumed from there.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote

from memory.contract._model import MAX_ID_LENGTH
from memory.contract.events import Message
from memory.contract.formatting import strip_context
from memory.contract.scope import MemoryScope
from memory.runtime.signet.types import SessionParams
from memory.slot.host_store import HostStore

_MOST = 10_000
_LAST_WORDS, _LONGEST_WORD = 6, 300


@dataclass(frozen=True)
class Caller:
    """Who sent a request.

    Attributes:
        scope: whose memory that is; projects and agents divide it.
        client: the program, as it calls itself.
        runtime_path: from the request's header, which wins over its body.
    """

    scope: MemoryScope
    client: str = ""
    runtime_path: str | None = None


@dataclass(slots=True)
class Session:
    """One conversation of one caller.

    Attributes:
        key: as the client names it; empty where it names none.
        named: project and agent, as its first call named them.
        epoch: one more after each compaction, and each time it is taken up after its end: what was said before is
            not shown by the host any more.
        heard: prompts since then.
        read: messages of its transcript that were recorded.
        answered: hash of the answer that was recorded last.
        ended: its client has ended it.
        resumed: it was taken up from what was kept of it.
        summary: id of the memory that holds the last compaction's summary.
        words: the last things said, shortened: where it left off.
    """

    key: str
    scope: MemoryScope
    runtime_path: str | None = None
    named: tuple[str | None, str | None] = (None, None)
    claimed_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    bypassed: bool = False
    epoch: int = 1
    heard: int = 0
    read: int = 0
    answered: str | None = None
    ended: bool = False
    resumed: bool = False
    summary: str | None = None
    words: list[str] = field(default_factory=list)

    @property
    def session_id(self) -> str:
        """Of what is recorded and asked in it."""
        return (self.key if self.epoch == 1 else f"{self.key}~{self.epoch}") or "no-session"

    def is_new(self, answer: str) -> bool:
        """Whether an answer is not the one recorded last; it is from then on."""
        before, self.answered = self.answered, hashlib.sha256(answer.encode()).hexdigest()
        return self.answered != before

    def said(self, messages: Iterable[Message]) -> None:
        """Note where the session has come to."""
        for one in messages:
            text = " ".join(strip_context(one.content).split())
            short = text if len(text) <= _LONGEST_WORD else f"{text[:_LONGEST_WORD]}…"
            self.words = [*self.words[1 - _LAST_WORDS :], f"{one.role}: {short}"]

    def kept(self) -> dict[str, Any]:
        """JSON-ready, without words, which go with the memories of them."""
        return {
            **asdict(self),
            "words": [],
            "scope": self.scope.model_dump(exclude_none=True),
            "claimed_at": self.claimed_at.isoformat(),
        }

    @classmethod
    def taken_up(cls, kept: dict[str, Any]) -> Session:
        """The session that :meth:`kept` told of, where it goes on."""
        session = cls(**kept)
        session.scope = MemoryScope(**kept["scope"])
        session.named = (kept["named"][0], kept["named"][1])
        session.claimed_at = datetime.fromisoformat(kept["claimed_at"])
        session.resumed = True
        if session.ended:
            session.ended = session.bypassed = False
            session.runtime_path, session.answered = None, None
            session.epoch, session.heard, session.read = session.epoch + 1, 0, 0
        return session


class Conflict(Exception):
    """The session was claimed on the other runtime path."""


class Sessions:
    """The sessions of all callers; none sees another's.

    Args:
        isolate: what divides a caller's memory.
        store: keeps them.
    """

    def __init__(self, isolate: tuple[Literal["project", "agent"], ...], store: HostStore) -> None:
        self._isolate = isolate
        self._store = store
        self._sessions: OrderedDict[tuple[MemoryScope, str, str], Session] = OrderedDict()
        self._scopes: OrderedDict[tuple[MemoryScope, str], list[MemoryScope]] = OrderedDict()

    def of(self, caller: Caller) -> list[Session]:
        """The caller's sessions that are under way, oldest first."""
        return [one for (scope, _, _), one in self._sessions.items() if scope == caller.scope]

    def find(self, caller: Caller, key: str) -> Session | None:
        """A session of this caller and client, as it is or was; two clients may use one key."""
        return self._sessions.get(_place(caller, key)) or self._kept(caller, key)

    def enter(self, caller: Caller, params: SessionParams) -> Session:
        """The session a lifecycle call belongs to, begun where it is not known.

        Raises:
            Conflict: it was claimed on another runtime path.
            StoreError: what is kept cannot be read.
        """
        path = caller.runtime_path or params.runtime_path
        key = params.session_key or ""
        place = _place(caller, key)
        known = self.find(caller, key) if key else None
        named = (params.project, params.agent_id)
        if known is None or any(one not in (None, its) for one, its in zip(named, known.named, strict=True)):
            # Also where a key is used again, for another project.
            known = Session(key, self.scope(caller, *named), path, named)
        elif known.runtime_path and path and known.runtime_path != path:
            raise Conflict(f"session claimed by {known.runtime_path} path")
        known.runtime_path = known.runtime_path or path
        if key:
            self._sessions[place] = known
            self._sessions.move_to_end(place)
            if len(self._sessions) > _MOST:
                self._sessions.popitem(last=False)
        return known

    def keep(self, caller: Caller, session: Session) -> None:
        """Keep what a session has come to.

        Raises:
            StoreError: it cannot be kept.
        """
        if session.key:
            name = _name(caller, session.key)
            self._store.put("session", caller.scope, [(name, session.kept())], session.scope)
            self._store.put("words", session.scope, [(name, {"words": session.words})])

    def end(self, caller: Caller, session: Session) -> None:
        """A session's client has ended it; the next call with its key takes it up again.

        Raises:
            StoreError: it cannot be kept.
        """
        self._sessions.pop(_place(caller, session.key), None)
        session.ended = True
        self.keep(caller, session)

    def forget_words(self, scope: MemoryScope) -> None:
        """A memory of a scope was deleted: so are the words its sessions left off with. Flushes to the disk."""
        for one in self._sessions.values():
            if one.scope == scope:
                one.words = []
        self._store.drop("words", scope)

    def scope(self, caller: Caller, project: str | None = None, agent_id: str | None = None) -> MemoryScope:
        """Whose memory a call means.

        Tools of real plugins name neither project nor session. Such a call belongs to the project its client works
        on, where that is one alone; else to what the caller keeps outside of projects.
        """
        place = (caller.scope, caller.client)
        seen = self._scopes.get(place)
        if seen is None:
            kept = self._store.get("projects", caller.scope, caller.client) or {"scopes": []}
            seen = self._scopes[place] = [MemoryScope(**one) for one in kept["scopes"]]
            if len(self._scopes) > _MOST:
                self._scopes.popitem(last=False)
        if not project and not agent_id:
            return seen[0] if len(seen) == 1 else caller.scope
        parts = {"project": project, "agent": agent_id}
        label = "|".join(_escaped(parts[one] or "") for one in self._isolate)
        scope = caller.scope
        if label.strip("|"):
            scope = scope.model_copy(update={"agent_id": _within_limit(label, scope.agent_id)})
        if scope not in seen and len(seen) < 2:  # more than one is all that counts
            seen.append(scope)
            kept = {"scopes": [one.model_dump(exclude_none=True) for one in seen]}
            self._store.put("projects", caller.scope, [(caller.client, kept)])
        return scope

    def _kept(self, caller: Caller, key: str) -> Session | None:
        name = _name(caller, key)
        row = self._store.get("session", caller.scope, name) if key else None
        if row is None:
            return None
        session = Session.taken_up(row)
        session.words = (self._store.get("words", session.scope, name) or {"words": []})["words"]
        return session


def _place(caller: Caller, key: str) -> tuple[MemoryScope, str, str]:
    return caller.scope, caller.client, key


def _name(caller: Caller, key: str) -> str:
    return json.dumps([caller.client, key])


def _escaped(part: str) -> str:
    return quote(part.encode("utf-8", "surrogatepass"), safe="").replace("~", "%7E")


def _within_limit(label: str, agent_id: str | None) -> str:
    """Injective: quoted parts hold no separator, and what is too long ends in its hash."""
    whole = label if agent_id is None else f"{_escaped(agent_id)}|{label}"
    if len(whole) <= MAX_ID_LENGTH:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()
    return f"{whole[: MAX_ID_LENGTH - 66]}|~{digest}"
