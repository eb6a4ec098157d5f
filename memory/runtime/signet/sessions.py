"""Who calls, for whose memory: sessions, and the scope of each project and agent."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import quote

from memory.contract._model import MAX_ID_LENGTH
from memory.contract.scope import MemoryScope
from memory.runtime.signet.types import SessionParams

__all__ = ["Caller", "Conflict", "Session", "Sessions"]

_MOST = 10_000


@dataclass(frozen=True)
class Caller:
    """Who sent a request.

    Attributes:
        name: of the token, or of everyone where none is asked for.
        scope: whose memory that is; projects and agents divide it.
        client: the program, as it calls itself.
        runtime_path: from the request's header, which wins over its body.
    """

    name: str
    scope: MemoryScope
    client: str = ""
    runtime_path: str | None = None


@dataclass(slots=True)
class Session:
    """One conversation of one caller.

    Attributes:
        key: as the client names it; empty where it names none.
        named: project and agent, as its first call named them.
        epoch: one more after each compaction: the host does not show any more what was said before it.
        heard: prompts so far.
        last_assistant: the answer that was recorded last.
    """

    key: str
    scope: MemoryScope
    runtime_path: str | None = None
    named: tuple[str | None, str | None] = (None, None)
    claimed_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    bypassed: bool = False
    epoch: int = 1
    heard: int = 0
    last_assistant: str | None = None

    @property
    def session_id(self) -> str:
        """Of what is recorded and asked in it."""
        return (self.key if self.epoch == 1 else f"{self.key}~{self.epoch}") or "no-session"


class Conflict(Exception):
    """The session was claimed on the other runtime path."""


class Sessions:
    """The sessions of all callers; none sees another's.

    Args:
        isolate: what divides a caller's memory.
    """

    def __init__(self, isolate: tuple[Literal["project", "agent"], ...]) -> None:
        self._isolate = isolate
        self._sessions: OrderedDict[tuple[str, str, str], Session] = OrderedDict()
        self._scopes: OrderedDict[tuple[str, str], OrderedDict[MemoryScope, None]] = OrderedDict()

    def of(self, caller: Caller) -> list[Session]:
        """The caller's sessions, oldest first."""
        return [one for (name, _, _), one in self._sessions.items() if name == caller.name]

    def find(self, caller: Caller, key: str) -> Session | None:
        """A session of this caller and client; two clients may use one key."""
        return self._sessions.get((caller.name, caller.client, key))

    def enter(self, caller: Caller, params: SessionParams) -> Session:
        """The session a lifecycle call belongs to, begun where it is not known.

        Raises:
            Conflict: it was claimed on another runtime path.
        """
        path = caller.runtime_path or params.runtime_path
        key = params.session_key or ""
        place = (caller.name, caller.client, key)
        known = self._sessions.get(place) if key else None
        named = (params.project, params.agent_id)
        if known is not None and all(one in (None, its) for one, its in zip(named, known.named, strict=True)):
            if known.runtime_path and path and known.runtime_path != path:
                raise Conflict(f"session claimed by {known.runtime_path} path")
            known.runtime_path = known.runtime_path or path
            self._sessions.move_to_end(place)
            return known
        session = Session(
            key, self.scope(caller, *named), path, named
        )  # also where a key is used again, for another project
        if key:
            self._sessions[place] = session
            if len(self._sessions) > _MOST:
                self._sessions.popitem(last=False)
        return session

    def end(self, caller: Caller, key: str | None) -> None:
        """Forget a session; the next call with its key begins another."""
        self._sessions.pop((caller.name, caller.client, key or ""), None)

    def scope(self, caller: Caller, project: str | None = None, agent_id: str | None = None) -> MemoryScope:
        """Whose memory a call means.

        Tools of real plugins name neither project nor session. Such a call belongs to the project its client works
        on, where that is one alone; else to what the caller keeps outside of projects.
        """
        seen = self._scopes.setdefault((caller.name, caller.client), OrderedDict())
        self._scopes.move_to_end((caller.name, caller.client))
        if len(self._scopes) > _MOST:
            self._scopes.popitem(last=False)
        if not project and not agent_id:
            return next(iter(seen)) if len(seen) == 1 else caller.scope
        parts = {"project": project, "agent": agent_id}
        label = "|".join(_escaped(parts[one] or "") for one in self._isolate)
        scope = caller.scope
        if label.strip("|"):
            scope = scope.model_copy(update={"agent_id": _within_limit(label, scope.agent_id)})
        seen[scope] = None
        if len(seen) > 2:  # more than one is all that counts
            seen.popitem(last=False)
        return scope


def _escaped(part: str) -> str:
    return quote(part.encode("utf-8", "surrogatepass"), safe="").replace("~", "%7E")


def _within_limit(label: str, agent_id: str | None) -> str:
    """Injective: quoted parts hold no separator, and what is too long ends in its hash."""
    whole = label if agent_id is None else f"{_escaped(agent_id)}|{label}"
    if len(whole) <= MAX_ID_LENGTH:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()
    return f"{whole[: MAX_ID_LENGTH - 66]}|~{digest}"
