"""The names a scope has on a Stigmem node: its tenant, its mark, the source and the entities of its facts.

Facts are immutable and no route deletes them, so a reset begins a new generation, under new names.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from memory import MemoryScope

AUTHORITY = "memslot"
"""The host part of our URIs. Not the node's: its name and port would be words that a recall can match."""


def scope_id(scope: MemoryScope) -> str:
    """``s-`` and 160 bits of the scope's unambiguous label: fits tenant ids and host names alike."""
    return f"s-{_digest(scope.label, 40)}"


@dataclass(frozen=True)
class ScopeIds:
    """The names of one generation of a scope.

    Attributes:
        scope_id: the scope, whatever its generation.
        generation: how often it was reset.
        marked: a recall must ask for the mark, because a node without tenants may hold other facts: of earlier
            generations, of other clients, of other scopes. Where it holds none, the mark costs no rank (bm25).
    """

    scope_id: str
    generation: int
    marked: bool

    @property
    def name(self) -> str:
        """The tenant's id, and the label of every row."""
        return f"{self.scope_id}-g{self.generation}"

    @property
    def mark(self) -> str:
        """One word for FTS5 that stands in the entity of every fact of this generation, and in no other."""
        return _digest(self.name, 32)

    @property
    def source(self) -> str:
        return f"stigmem://{AUTHORITY}/scope/{self.mark}"

    def message(self, event_id: str, index: int) -> str:
        """The entity of a message. A hash: the node matches the words of entities like those of the text."""
        return f"stigmem://{AUTHORITY}/{self.mark}/{_digest(json.dumps([event_id, index]), 32)}"

    @property
    def counter(self) -> str:
        """The source of the facts that count the scope's generations."""
        return f"stigmem://{AUTHORITY}/generations/{self.scope_id}"

    @property
    def count(self) -> str:
        """The entity of the fact that begins this generation."""
        return f"stigmem://{AUTHORITY}/generation/{self.scope_id}-{self.generation}"


def _digest(text: str, letters: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:letters]
