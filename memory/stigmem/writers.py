"""What an adapter writes on an agent's lifecycle events (Spec-19 12.4), checked before the node sees it.

The node accepts these relations with any scope, any confidence and any length; agents that route by them do not.
A builder here returns a whole :class:`Write` or raises; :func:`carry_out` sends it fact by fact, because a node
has no batch, and says what exists where that fails half-way.

Two things a node does shape the order and the number of facts. Agents look for ``intent:handoff_to`` and
``intent:escalation``, so that fact goes last: a write that failed half-way is never picked up. And facts that
share entity, relation and scope contradict each other: readers of ``paperclip:issue_status`` and of several
``intent:context_ref`` must ask with ``include_contradicted``, and the number of refs is limited.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from memory import BackendError, InputError
from memory.adapter import normalise_error
from memory.stigmem.answers import BACKEND
from memory.stigmem.facts import (
    MAX_GOAL_BYTES,
    MAX_SUMMARY_BYTES,
    Fact,
    FactScope,
    FactValue,
    NewFact,
    ValueType,
    build_uri,
    check_entity,
    check_goal,
    check_ref,
    check_summary,
    fold,
)
from memory.stigmem.intents import PRIORITIES, Priority

__all__ = [
    "MAX_FACT_REFS",
    "PING_LIFETIME",
    "IncompleteWrite",
    "Surfaces",
    "Write",
    "carry_out",
    "check_fact",
    "check_write",
]

log = logging.getLogger("memslot.stigmem")

MAX_FACT_REFS = 64
"""Context facts a handoff may refer to. Ours: a node stores three rows for every pair of them."""
PING_LIFETIME = timedelta(minutes=5)
"""How long an activity ping is valid, and none is sent again. A query shows the newest one, because expired ones
contradict none there; but a node keeps three rows for every pair of a task's pings, expired or not."""


@dataclass(frozen=True)
class _Rule:
    """What Spec-19 12.4 demands of a relation."""

    type: ValueType
    scope: FactScope = "company"
    max_bytes: int | None = None
    values: tuple[str, ...] = ()


_RULES: Mapping[str, _Rule] = {
    "paperclip:checkout": _Rule("string", values=("in_progress",)),
    "paperclip:issue_status": _Rule("string", values=("done", "blocked")),
    "paperclip:blocked_by": _Rule("ref"),
    "paperclip:last_active": _Rule("datetime", scope="local"),
    "intent:handoff_to": _Rule("ref"),
    "intent:handoff_summary": _Rule("text", max_bytes=MAX_SUMMARY_BYTES),
    "intent:context_ref": _Rule("ref"),
    "intent:continuation": _Rule("text"),
    "roadmap:decision": _Rule("text", max_bytes=MAX_SUMMARY_BYTES),
    "intent:escalation": _Rule("string", values=PRIORITIES),
    "intent:escalate_to": _Rule("ref"),
    "intent:goal": _Rule("text", max_bytes=MAX_GOAL_BYTES),
}
_REQUIRED: Mapping[str, frozenset[str]] = {
    "checkout": frozenset({"paperclip:checkout"}),
    "done": frozenset({"paperclip:issue_status"}),
    "blocked": frozenset({"paperclip:issue_status"}),
    "activity": frozenset({"paperclip:last_active"}),
    "handoff": frozenset({"intent:handoff_to", "intent:handoff_summary"}),
    "decision": frozenset({"roadmap:decision"}),
    "escalation": frozenset({"intent:escalation", "intent:escalate_to", "intent:goal"}),
    "intent": frozenset({"intent:from", "intent:to", "intent:goal"}),
}
_FULL_CONFIDENCE = ("paperclip:", "intent:")
"""Namespaces agents route by; ``roadmap:decision`` has a rule of its own."""


@dataclass(frozen=True)
class Write:
    """The facts of one lifecycle event, in the order they are sent.

    Attributes:
        what: ``checkout``, ``done``, ``blocked``, ``activity``, ``handoff``, ``decision``,
            ``escalation``, or ``intent`` for an envelope.
        entity: the URI all of them are about.
        facts: one or more.
    """

    what: str
    entity: str
    facts: tuple[NewFact, ...]


class IncompleteWrite(BackendError):
    """A write failed after some of its facts were stored; facts cannot be taken back.

    Sending the same :class:`Write` again completes it: a node stores equal facts once.

    Attributes:
        existing: the facts that exist.
        uncertain: the fact that was sent and not answered, which may exist; else None.
        missing: the facts that do not exist.
    """

    def __init__(
        self, write: Write, existing: Sequence[Fact], uncertain: NewFact | None, error: BackendError
    ) -> None:
        super().__init__(
            f"{error}; {_account(write, existing, uncertain)}",
            backend_name=error.backend_name,
            operation=error.operation,
            diagnostics=error.diagnostics,
        )
        self.existing = tuple(existing)
        self.uncertain = uncertain
        self.missing = _missing(write, existing, uncertain)


def _missing(write: Write, existing: Sequence[Fact], uncertain: NewFact | None) -> tuple[NewFact, ...]:
    return write.facts[len(existing) + (uncertain is not None) :]


def _account(write: Write, existing: Sequence[Fact], uncertain: NewFact | None) -> str:
    """Which facts of a write exist, may exist and do not."""
    present = ", ".join(f"{fact.relation} as {fact.id}" for fact in existing) or "none"
    unsure = f"; {uncertain.relation} may exist" if uncertain is not None else ""
    missing = ", ".join(fact.relation for fact in _missing(write, existing, uncertain))
    absent = f"; missing: {missing}" if missing else ""
    return f"of the {write.what} {write.entity} these facts exist: {present}{unsure}{absent}"


def check_fact(fact: NewFact) -> NewFact:
    """Hold a fact to its relation's rule (12.4.5); relations without one pass.

    Raises:
        InputError: wrong scope, confidence below 1.0, wrong value type or size; names relation, field and fix.
    """
    relation = fact.relation
    rule = _RULES.get(relation)
    if (rule or relation.startswith(_FULL_CONFIDENCE)) and fact.confidence < 1.0:
        raise InputError(f"{relation}: confidence must be 1.0, because other agents route by this relation")
    if rule is None:
        return fact
    if fact.scope != rule.scope:
        raise InputError(f"{relation}: scope must be {rule.scope}, not {fact.scope}")
    if fact.value.type != rule.type:
        raise InputError(f"{relation}: value must be of type {rule.type}, not {fact.value.type}")
    if rule.values and fact.value.v not in rule.values:
        raise InputError(f"{relation}: must be one of {', '.join(rule.values)}")
    if rule.type == "text" and not fact.value.v.strip():
        raise InputError(f"{relation}: must not be blank")
    if rule.max_bytes is not None and (size := len(fact.value.v.encode())) > rule.max_bytes:
        raise InputError(
            f"{relation}: is {size} bytes of UTF-8; at most {rule.max_bytes} are allowed, so shorten it"
        )
    return fact


def check_write(write: Write) -> Write:
    """Hold a write made by hand to the same rules as those built here.

    Raises:
        InputError: a fact breaks its rule, is about another entity, or a required fact is absent.
    """
    for fact in write.facts:
        check_fact(fact)
        if fact.entity != write.entity:
            raise InputError(f"{write.what}: every fact must be about the write's entity")
    required = _REQUIRED.get(write.what)
    if required is None:
        raise InputError(f"what: must be one of {', '.join(_REQUIRED)}")
    absent = sorted(required - {fact.relation for fact in write.facts})
    if absent:
        raise InputError(f"{write.what}: the required fact {absent[0]} is missing")
    return write


class Surfaces:
    """Builds the writes of one agent. Nothing here does I/O.

    Args:
        source: the agent's URI, the source of every fact.
        authority: the node authority of the entities minted here; by default that of ``source``.

    Every method raises InputError, naming the argument and the fix, for what Spec-19 or the node would not bear.
    Where an id is taken, a URI is taken as well.
    """

    def __init__(self, source: str, authority: str) -> None:
        self.source = source
        self.authority = authority

    def checkout(self, task: str) -> Write:
        """The agent claimed a task."""
        return self._lifecycle("checkout", task, ("paperclip:checkout", "in_progress"))

    def done(self, task: str) -> Write:
        """The agent completed a task."""
        return self._lifecycle("done", task, ("paperclip:issue_status", "done"))

    def blocked(self, task: str, blocked_by: str | None = None) -> Write:
        """The agent is stuck on a task, if known because of another one."""
        write = self._lifecycle("blocked", task, ("paperclip:issue_status", "blocked"))
        if blocked_by is None:
            return write
        uri = self._shared("blocked_by", "issue", blocked_by)
        if "://" not in uri:  # a node reads an informal ref back as null
            uri = f"stigmem://{self.authority}/issue/{uri.removeprefix('issue:')}"
        ref = self._fact(write.entity, "paperclip:blocked_by", "ref", uri)
        return check_write(Write(write.what, write.entity, (*write.facts, ref)))

    def activity(
        self, task: str, at: datetime | None = None, *, lifetime: timedelta = PING_LIFETIME
    ) -> Write:
        """The agent works on a task: a heartbeat that stays on the node (scope ``local``).

        Args:
            task: the task's id or URI.
            at: timezone-aware; now, if None.
            lifetime: how long the ping counts, a positive time.
        """
        if lifetime <= timedelta(0):
            raise InputError("lifetime: must be positive")
        at = datetime.now(UTC) if at is None else at
        if at.utcoffset() is None:
            raise InputError("at: must be timezone-aware; write e.g. datetime.now(timezone.utc)")
        entity = self._shared("task", "issue", task)
        ping = NewFact(
            entity=entity,
            relation="paperclip:last_active",
            value=FactValue(type="datetime", v=at),
            source=self.source,
            scope="local",
            valid_until=at + lifetime,
        )
        return check_write(Write("activity", entity, (ping,)))

    def handoff(
        self,
        to: str,
        summary: str,
        fact_refs: Iterable[str | Fact] = (),
        continuation: str | None = None,
    ) -> Write:
        """The agent hands its work to another one.

        Args:
            to: the other agent's URI.
            summary: at most 4096 bytes of UTF-8.
            fact_refs: facts it needs, as facts, ids or URIs; at most ``MAX_FACT_REFS``, each once.
            continuation: how to go on, if there is something to say.
        """
        if isinstance(fact_refs, str):
            raise InputError("fact_refs: must be a list of facts, ids or URIs, not one string")
        refs = list(dict.fromkeys(self._fact_uri(ref) for ref in fact_refs))
        if len(refs) > MAX_FACT_REFS:
            raise InputError(f"fact_refs: holds {len(refs)} facts; at most {MAX_FACT_REFS} are allowed")
        entity = self._minted("handoff")
        facts = [
            self._fact(entity, "intent:handoff_summary", "text", check_summary(_text(summary, "summary")))
        ]
        facts += [self._fact(entity, "intent:context_ref", "ref", ref) for ref in refs]
        if continuation is not None:
            facts.append(self._fact(entity, "intent:continuation", "text", continuation))
        facts.append(self._fact(entity, "intent:handoff_to", "ref", check_ref(_text(to, "to"), "to")))
        return check_write(Write("handoff", entity, tuple(facts)))

    def decision(self, decision: str, summary: str) -> Write:
        """The agent made a significant choice.

        Args:
            decision: a slug such as ``use-sqlite``, or the decision's URI.
            summary: at most 4096 bytes of UTF-8.
        """
        entity = self._shared("decision", "decision", decision)
        summary = check_summary(_text(summary, "summary"))
        return check_write(
            Write("decision", entity, (self._fact(entity, "roadmap:decision", "text", summary),))
        )

    def escalation(self, to: str, goal: str, priority: Priority) -> Write:
        """The agent cannot go on without somebody else.

        Args:
            to: URI of the agent or user it turns to.
            goal: what could not be completed, at most 2048 bytes of UTF-8.
            priority: ``low``, ``medium``, ``high`` or ``critical``.
        """
        if priority not in PRIORITIES:
            raise InputError(f"priority: must be one of {', '.join(PRIORITIES)}")
        entity = self._minted("escalation")
        facts = (
            self._fact(entity, "intent:goal", "text", check_goal(_text(goal, "goal"))),
            self._fact(entity, "intent:escalate_to", "ref", check_ref(_text(to, "to"), "to")),
            self._fact(entity, "intent:escalation", "string", priority),
        )
        return check_write(Write("escalation", entity, facts))

    def _lifecycle(self, what: str, task: str, status: tuple[str, str]) -> Write:
        entity = self._shared("task", "issue", task)
        return check_write(Write(what, entity, (self._fact(entity, status[0], "string", status[1]),)))

    def _fact(self, entity: str, relation: str, kind: ValueType, value: Any) -> NewFact:
        return NewFact(
            entity=entity,
            relation=relation,
            value=FactValue(type=kind, v=value),
            source=self.source,
            scope="company",
        )

    def _shared(self, where: str, kind: str, value: str) -> str:
        """The URI under which other agents look for a task or a decision: folded as the node folds it for all.

        A task's is informal, as Spec-19 12.4.1 and the reference hook write it: the formal one would depend on what
        each agent takes for the node's authority.
        """
        text = fold(_text(value, where))
        if not text:
            raise InputError(f"{where}: must not be blank; give an id or a URI")
        if "://" not in text:
            bare = text.removeprefix(f"{kind}:")
            text = f"issue:{bare}" if kind == "issue" else f"stigmem://{self.authority}/{kind}/{bare}"
        return check_entity(text, where)

    def _fact_uri(self, ref: str | Fact) -> str:
        if isinstance(ref, str) and "://" in ref:
            return check_ref(ref, "fact_refs")
        return self._shared("fact_refs", "fact", ref.id if isinstance(ref, Fact) else ref)

    def _minted(self, kind: str) -> str:
        return build_uri(self.authority, kind, str(uuid.uuid4()))


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where}: must be text, not {type(value).__name__}")
    return value


class _Asserts(Protocol):
    async def assert_fact(self, fact: NewFact) -> Fact: ...


async def carry_out(
    node: _Asserts, write: Write, on_fact: Callable[[Fact], None] | None = None
) -> tuple[Fact, ...]:
    """Assert a write's facts in order; the first failure ends it.

    Args:
        node: where to.
        write: checked again, so that nothing wrong reaches a node whoever made it.
        on_fact: told of each fact as soon as it exists.

    Raises:
        InputError: the write breaks a rule; nothing was sent.
        IncompleteWrite: the node failed, and facts exist or may exist.
        BackendError: the node failed, and none exists.
    """
    check_write(write)
    existing: list[Fact] = []
    for fact in write.facts:
        try:
            stored = await node.assert_fact(fact)
        except Exception as error:
            failure = normalise_error(error, backend_name=BACKEND, operation="POST /v1/facts")
            # An unreadable or failed answer does not tell whether the node stored the fact first.
            uncertain = fact if failure.ambiguous else None
            if existing or uncertain is not None:
                raise IncompleteWrite(write, existing, uncertain, failure) from error
            raise
        except BaseException:  # cancelled: whoever waits no longer is told all the same
            log.warning("stigmem: abandoned half-way; %s", _account(write, existing, fact))
            raise
        existing.append(stored)
        if on_fact is not None:
            on_fact(stored)
    return tuple(existing)
