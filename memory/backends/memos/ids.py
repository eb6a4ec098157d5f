"""Scopes as MemOS' cubes, by their ids. A cube's user has its name, because MemOS takes one for the other."""

from __future__ import annotations

import string

from memory import MemoryScope
from memory.adapter import IdAlphabet

# Cube ids stand in SQL and Cypher text, and ":" separates the parts of the scheduler's Redis keys.
CUBE_IDS = IdAlphabet(safe=string.ascii_uppercase + "-", escape="_", separator=".", max_length=128)


def cube_of(scope: MemoryScope) -> str:
    return CUBE_IDS.encode(scope.run_id, scope.persona_id, scope.backend_namespace, scope.agent_id)
