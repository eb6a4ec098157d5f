"""Scopes as Graphiti's groups."""

from __future__ import annotations

from functools import lru_cache

from memory import MemoryScope
from memory.adapter import IdAlphabet

# Graphiti allows [a-zA-Z0-9_-]. Capitals would meet on file systems that fold case, and full-text indexes split
# a name at "-".
GROUP_IDS = IdAlphabet(safe="", escape="_", separator="_x", max_length=120, prefix="ms_")


@lru_cache(maxsize=1024)
def group_of(scope: MemoryScope) -> str:
    """The scope's ``group_id``, injectively; also the name of its directory."""
    return GROUP_IDS.encode(scope.run_id, scope.persona_id, scope.backend_namespace, scope.agent_id)
