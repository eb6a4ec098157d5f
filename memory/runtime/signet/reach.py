"""The scopes that a token's calls write to and read: those of its projects and agents, and its own.

A call writes to one scope: that of its project, else the token's own. A call in a project reads that project and
what is outside of projects. A call that names no project reads everything of its token. ``strict`` separates them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

from memory.contract._model import MAX_ID_LENGTH
from memory.contract.errors import StoreError
from memory.contract.scope import MemoryScope
from memory.plugins.config import Isolate
from memory.slot.recent_keys import RecentKeys
from memory.storage.kept import HostStore, StoredObject

SCOPES_AT_ONCE = 32  # recalls of one request that run beside each other


@dataclass(frozen=True)
class TokenGrant:
    scope: MemoryScope
    read_only: bool = False


@dataclass(frozen=True)
class Caller:
    scope: MemoryScope  # whose memory; projects and agents divide it
    client: str = ""  # the program, as it calls itself
    runtime_path: str | None = None  # from the request's header, which wins over its body
    read_only: bool = False


class Reach:
    """The scopes of all tokens. The host store keeps which projects a token has written to."""

    def __init__(self, isolate: Isolate, store: HostStore) -> None:
        self.isolate = isolate
        self._store = store
        self._noted: RecentKeys[tuple[MemoryScope, str]] = RecentKeys()

    def scope(self, caller: Caller, project: str | None = None, agent_id: str | None = None) -> MemoryScope:
        """The scope of a project and agent; only ``strict`` keeps agents apart. Asking registers nothing."""
        agent_id = agent_id if self.isolate == "strict" else None
        if not project and not agent_id:
            return caller.scope
        label = f"{_escaped(project or '')}|{_escaped(agent_id or '')}"
        return caller.scope.model_copy(update={"agent_id": _within_limit(label, caller.scope.agent_id)})

    def note_written(self, caller: Caller, scope: MemoryScope) -> None:
        """Register the project that a caller writes to, so that calls outside of projects read it.

        Raises:
            StoreError: the host store cannot keep it.
        """
        minute = datetime.now(UTC).isoformat(timespec="minutes")
        if scope == caller.scope or caller.read_only or not self._noted.add((scope, minute)):
            return
        try:
            kept = {"scope": scope.model_dump(exclude_none=True), "used": minute}
            self._store.put(StoredObject("project", caller.scope, scope.agent_id or "", kept, scope))
        except StoreError:
            self._noted.discard((scope, minute))
            raise

    def reads(self, caller: Caller, scope: MemoryScope) -> tuple[MemoryScope, ...]:
        """Where a call in ``scope`` reads, the most specific first; in a project, and outside of them."""
        if self.isolate == "strict":
            return (scope,)
        return (scope, caller.scope) if scope != caller.scope else self.holders(caller, scope)

    def holders(self, caller: Caller, scope: MemoryScope) -> tuple[MemoryScope, ...]:
        """The scopes an id may belong to that was shown to this token, the most likely first."""
        if self.isolate == "strict":
            return (scope,)
        return tuple(dict.fromkeys((scope, *self.used(caller))))

    def used(self, caller: Caller) -> tuple[MemoryScope, ...]:
        """Every scope of a token: what is outside of projects, and the projects used last first."""
        kept: list[dict[str, Any]] = self._store.all("project", caller.scope)
        kept.sort(key=lambda row: row.get("used", ""), reverse=True)
        return (caller.scope, *(MemoryScope(**row["scope"]) for row in kept))


def project_of(own: MemoryScope, scope: MemoryScope) -> str | None:
    """The project that a scope of :meth:`Reach.scope` stands for.

    Args:
        own: the caller's scope, which its projects divide.
        scope: one of them.

    Returns:
        Its project; None outside of projects, or where its name was too long to keep.
    """
    before = "" if own.agent_id is None else f"{_escaped(own.agent_id)}|"
    label = (scope.agent_id or "").removeprefix(before)
    project, divided, agent = label.partition("|")
    if scope == own or not divided or agent.startswith("~"):
        return None
    return unquote(project, errors="surrogatepass") or None


def _escaped(part: str) -> str:
    return quote(part.encode("utf-8", "surrogatepass"), safe="").replace("~", "%7E")


def _within_limit(label: str, agent_id: str | None) -> str:
    """Injective: quoted parts hold no separator, and what is too long ends in its hash."""
    whole = label if agent_id is None else f"{_escaped(agent_id)}|{label}"
    if len(whole) <= MAX_ID_LENGTH:
        return whole
    return f"{whole[: MAX_ID_LENGTH - 66]}|~{hashlib.sha256(whole.encode()).hexdigest()}"
