"""Who calls, and the scope of each call."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from urllib.parse import quote

from memory.contract._model import MAX_ID_LENGTH
from memory.contract.scope import MemoryScope
from memory.plugins.config import Isolate


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
    if len(label) > MAX_ID_LENGTH:  # a hash ends an id that is too long; quoted parts hold no tilde before it
        label = f"{label[: MAX_ID_LENGTH - 66]}|~{hashlib.sha256(label.encode()).hexdigest()}"
    return caller.scope.model_copy(update={"agent_id": label})
