"""The scopes that a token's calls read and write: its own scope, and those of its projects and agents.

A call writes to the scope of its project, or to the token's own scope. A call in a project reads that
project's scope and the token's own. A call without a project reads all scopes of the token. With ``strict``,
a call reads only one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import anyio

from memory.contract._model import MAX_ID_LENGTH
from memory.contract.errors import MemslotError, StoreError
from memory.contract.scope import MemoryScope
from memory.plugins.config import Isolate
from memory.runtime._policy import first_of
from memory.slot.recent_keys import RecentKeys
from memory.storage.kept import HostStore, StoredObject

_SCOPES_AT_ONCE = 32  # concurrent recalls of one request
T = TypeVar("T")


@dataclass(frozen=True)
class TokenGrant:
    scope: MemoryScope
    read_only: bool = False


@dataclass(frozen=True)
class Caller:
    scope: MemoryScope  # the token's own scope, which projects and agents divide
    client: str = ""  # the program's name for itself
    read_only: bool = False


class Reach:
    """The scopes of all tokens. The host store keeps the projects that each token has written to."""

    def __init__(self, isolate: Isolate, store: HostStore) -> None:
        self.isolate = isolate
        self._store = store
        self._noted: RecentKeys[tuple[MemoryScope, str]] = RecentKeys()

    def scope(self, caller: Caller, project: str | None = None, agent_id: str | None = None) -> MemoryScope:
        """Return the scope of a project and agent. Only ``strict`` separates agents. It is not registered."""
        agent_id = agent_id if self.isolate == "strict" else None
        if not project and not agent_id:
            return caller.scope
        label = f"{_escaped(project or '')}|{_escaped(agent_id or '')}"
        return caller.scope.model_copy(update={"agent_id": _within_limit(label, caller.scope.agent_id)})

    def note_written(self, caller: Caller, scope: MemoryScope) -> None:
        """Register the project that a caller writes to, so that calls without a project read it, too.

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
        """Return the scopes that a call in ``scope`` reads, the most specific first."""
        if self.isolate == "strict":
            return (scope,)
        return (scope, caller.scope) if scope != caller.scope else self.holders(caller, scope)

    def holders(self, caller: Caller, scope: MemoryScope) -> tuple[MemoryScope, ...]:
        """Return the scopes that a memory id of this token may belong to, the most likely first."""
        if self.isolate == "strict":
            return (scope,)
        return tuple(dict.fromkeys((scope, *self.used(caller))))

    def used(self, caller: Caller) -> tuple[MemoryScope, ...]:
        """Return every scope of a token: its own, then its projects, the most recently used first."""
        kept: list[dict[str, Any]] = self._store.all("project", caller.scope)
        kept.sort(key=lambda row: row.get("used", ""), reverse=True)
        return (caller.scope, *(MemoryScope(**row["scope"]) for row in kept))


async def in_each(
    scopes: Sequence[MemoryScope], call: Callable[[MemoryScope], Awaitable[T]]
) -> dict[MemoryScope, T]:
    """Call for each scope, 32 at a time. Returns the results by scope.

    Raises:
        MemslotError: the first error of a call. The other calls are cancelled.
    """
    found: dict[MemoryScope, T] = {}
    limiter = anyio.CapacityLimiter(_SCOPES_AT_ONCE)

    async def one(scope: MemoryScope) -> None:
        async with limiter:
            found[scope] = await call(scope)

    try:
        async with anyio.create_task_group() as tasks:
            for scope in scopes[1:]:
                tasks.start_soon(one, scope)
            await one(scopes[0])
    except* MemslotError as errors:
        raise first_of(errors) from None
    return found


def project_of(own: MemoryScope, scope: MemoryScope) -> str | None:
    """Return the project of a scope that :meth:`Reach.scope` made.

    Args:
        own: the caller's own scope.
        scope: a scope of the caller.

    Returns:
        The project; None if the scope has no project or the project's name was too long to keep.
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
    """Return a unique agent id. Quoted parts hold no separator, and a hash ends an id that is too long."""
    whole = label if agent_id is None else f"{_escaped(agent_id)}|{label}"
    if len(whole) <= MAX_ID_LENGTH:
        return whole
    return f"{whole[: MAX_ID_LENGTH - 66]}|~{hashlib.sha256(whole.encode()).hexdigest()}"
