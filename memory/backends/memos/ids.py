"""Scopes as MemOS' cubes."""

from __future__ import annotations

import string
from dataclasses import dataclass

from memory import MemoryScope
from memory.adapter import IdAlphabet

__all__ = ["CUBE_IDS", "MemosScope", "home_of"]

# Cube ids stand in SQL and Cypher text, and ":" separates the parts of the scheduler's Redis keys.
CUBE_IDS = IdAlphabet(safe=string.ascii_uppercase + "-", escape="_", separator=".", max_length=128)


@dataclass(frozen=True, slots=True)
class MemosScope:
    """A scope's place in MemOS. The user is the cube: where MemOS takes one for the other, nothing changes."""

    cube_id: str

    @property
    def user_id(self) -> str:
        return self.cube_id


def home_of(scope: MemoryScope) -> MemosScope:
    """The scope's cube, injectively."""
    return MemosScope(
        CUBE_IDS.encode(scope.run_id, scope.persona_id, scope.backend_namespace, scope.agent_id)
    )
