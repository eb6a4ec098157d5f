"""The boot handshake (Spec-19 12.3): is the node there, and what should the agent know before it starts?"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory import BackendError
from memory.adapter import BackendAuthError, BackendProtocolError
from memory.stigmem.client import MAX_LIMIT, NodeInfo, StigmemNode
from memory.stigmem.facts import Fact, render_context
from memory.stigmem.intent_facts import names_envelope

_ESCALATIONS = 10
_HANDOFFS_IN_DETAIL = 10
_HANDOFF_DETAILS = frozenset({"intent:handoff_summary", "intent:context_ref", "intent:continuation"})
_LONGEST_VALUE_CHARS = 4096

log = logging.getLogger("memslot.stigmem")


@dataclass(frozen=True)
class BootContext:
    """What the boot handshake found (12.3.3).

    Attributes:
        facts: in the order of the context pulls, each once; empty where there are none or the node failed.
        summary: the facts as markdown for the system prompt (12.5); empty where there are none.
        problems: one line for each part of the handshake that failed, so that empty and failed differ.
    """

    facts: list[Fact] = field(default_factory=list)
    summary: str = ""
    problems: tuple[str, ...] = ()


@dataclass
class ContextPulls:
    """The context pulls of one boot, for an agent known by ``addresses``: what was found, and what went wrong."""

    node: StigmemNode
    addresses: frozenset[str] = frozenset()
    facts: dict[str, Fact] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    _handoffs: list[Fact] = field(default_factory=list)

    def note(self, what: str, problem: str, level: int = logging.WARNING) -> None:
        self.problems.append(f"{what}: {problem}")
        log.log(level, "stigmem: %s: %s", what, problem)

    async def run(self, user: str, projects: Sequence[str], namespaces: Iterable[str] | None) -> None:
        """The four pulls of 12.3.2, in their order; none that fails keeps the next from being tried."""
        wanted = None if namespaces is None else frozenset(namespaces)
        for fact in await self._pull("user facts", entity=user, min_confidence=0.7):
            if wanted is None or fact.relation.partition(":")[0] in wanted:
                self.facts.setdefault(fact.id, fact)
        for project in projects:
            wanted_here = {"entity": project, "relation": "roadmap:constraint", "min_confidence": 0.7}
            for fact in await self._pull("project constraints", **wanted_here):
                self.facts.setdefault(fact.id, fact)
        for fact in await self._pull("handoffs", relation="intent:handoff_to", min_confidence=0.8):
            if fact.value.v in self.addresses:
                self._handoffs.append(fact)
                self.facts.setdefault(fact.id, fact)
        for fact in (await self._escalations())[:_ESCALATIONS]:
            self.facts.setdefault(fact.id, fact)

    async def _escalations(self) -> list[Fact]:
        """What somebody raised. The priorities of envelopes stand under the same relation and may outnumber it, so
        the cut to the newest ten of 12.3.2 is ours and comes after they are gone.
        """
        found = await self._pull("escalations", relation="intent:escalation", min_confidence=0.8)
        envelopes: set[str] = set()
        if any(names_envelope(fact.entity) is None for fact in found):
            envelopes = {fact.entity for fact in await self._pull("envelopes", relation="intent:from")}
        return [fact for fact in found if not (names_envelope(fact.entity) or fact.entity in envelopes)]

    async def details(self) -> None:
        """What the newest handoffs to this agent say, because by itself a handoff is only a URI."""
        for handoff in self._handoffs[:_HANDOFFS_IN_DETAIL]:
            # Several refs of a handoff contradict each other in the node's eyes.
            asked = {"entity": handoff.entity, "include_contradicted": True}
            for fact in await self._pull("handoff details", **asked):
                if fact.relation in _HANDOFF_DETAILS:
                    self.facts.setdefault(fact.id, fact)

    def context(self, user: str) -> BootContext:
        facts = list(self.facts.values())
        summary = render_context(facts, user, max_value_chars=_LONGEST_VALUE_CHARS)
        return BootContext(facts, summary, tuple(self.problems))

    async def _pull(self, what: str, **query: Any) -> list[Fact]:
        entity = query.get("entity", "given")
        if not entity.strip():
            self.note(what, "the entity is blank, and a node would answer with everybody's facts")
            return []
        if entity != entity.lower() or " " in entity:
            # Folding it as the node did when it was written would show one user what is another's.
            self.note(what, "the entity holds capitals or spaces, and a node knows none such; escape them")
            return []
        try:
            found = await self.node.query(scope="company", **query)
        except BackendError as error:
            # 12.6: 4xx is an empty answer; but a wrong key would make every boot empty, and nobody would know.
            refused = (error.status or 500) < 500 and not isinstance(error, BackendAuthError)
            self.note(what, str(error), logging.DEBUG if refused else logging.WARNING)
            return []
        if len(found) >= MAX_LIMIT:
            self.note(what, f"the node answered with its most, {MAX_LIMIT} facts; older ones are left out")
        return found


async def probe(node: StigmemNode) -> NodeInfo:
    """What the node says of itself.

    Raises:
        BackendError: it cannot be reached, or leaves out a field that 12.3.1 requires.
    """
    info = await node.well_known()
    absent = ", ".join(name for name, value in vars(info).items() if value is None)
    if absent:
        raise BackendProtocolError(f"stigmem: the node does not state {absent}", backend_name="stigmem")
    return info
