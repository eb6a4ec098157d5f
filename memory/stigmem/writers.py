"""An adapter's writes on an agent's lifecycle events (Spec-19 12.4).

This module checks the writes, because a node accepts any scope, confidence and length, but agents that route
by these facts do not. A node has no batches. Agents look for ``intent:handoff_to`` and ``intent:escalation``,
so that fact goes last, and no agent sees an incomplete write. Facts that share entity, relation and scope
contradict each other. So readers must query with ``include_contradicted``, and the number of refs is limited.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from memory import BackendError, InputError
from memory.stigmem.client import StigmemNode
from memory.stigmem.facts import (
    MAX_GOAL_BYTES,
    MAX_SUMMARY_BYTES,
    MAX_VALUE_BYTES,
    Fact,
    FactScope,
    FactValue,
    NewFact,
    ValueType,
    build_uri,
    check_entity,
    checked,
    fold,
    limited,
)
from memory.stigmem.intents import PRIORITIES, Priority

log = logging.getLogger("memslot.stigmem")

MAX_FACT_REFS = 64  # per handoff; memslot's limit, because a node stores three rows for every pair of refs
# No second ping is sent within this time, because a node keeps three rows for every pair of a task's pings.
PING_LIFETIME = timedelta(minutes=5)


@dataclass(frozen=True)
class _Rule:
    """The requirements of Spec-19 12.4 for a relation."""

    type: ValueType
    scope: FactScope = "company"
    max_bytes: int = MAX_VALUE_BYTES
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

_ESCALATION = re.compile(r"(?:stigmem://[^/]*/)?escalation[:/]", re.I)


def is_escalation(entity: str) -> bool:
    """Whether an entity is an escalation (12.4.4). An envelope uses the same relations for its own goal."""
    return _ESCALATION.match(entity) is not None


@dataclass(frozen=True)
class Write:
    """The facts of one lifecycle event, in the order of sending."""

    what: str  # such as ``handoff``
    entity: str
    facts: tuple[NewFact, ...]


def check_fact(fact: NewFact, where: str | None = None) -> NewFact:
    """Check a fact by its relation's rule (12.4.5). Relations without a rule pass.

    Raises:
        InputError: the fact breaks the rule. The message names ``where``, else the relation.
    """
    rule, where = _RULES.get(fact.relation), where or fact.relation
    if (rule or fact.relation.startswith(("paperclip:", "intent:"))) and fact.confidence < 1.0:
        raise InputError(f"{where}: confidence must be 1.0, because other agents route by this relation")
    if rule is None:
        return fact
    if fact.scope != rule.scope:
        raise InputError(f"{where}: scope must be {rule.scope}, not {fact.scope}")
    if fact.value.type != rule.type:
        raise InputError(f"{where}: value must be of type {rule.type}, not {fact.value.type}")
    if rule.values and fact.value.v not in rule.values:
        raise InputError(f"{where}: must be one of {', '.join(rule.values)}")
    if rule.type == "text" and not checked(limited(rule.max_bytes), fact.value.v, where).strip():
        raise InputError(f"{where}: must not be blank")
    return fact


@dataclass(frozen=True)
class Surfaces:
    """Builds the writes of one agent, without I/O.

    Every method accepts a URI in place of an id. ``to`` may also be an informal URI.

    Raises:
        InputError: an argument is invalid by Spec-19 or for the node. The message names it and the fix.
    """

    source: str  # the agent's URI
    authority: str  # the node authority of new entities

    def checkout(self, task: str) -> Write:
        """The agent claimed a task."""
        return self._write("checkout", self._task(task), ("paperclip:checkout", "in_progress", "task"))

    def done(self, task: str) -> Write:
        """The agent completed a task."""
        return self._write("done", self._task(task), ("paperclip:issue_status", "done", "task"))

    def blocked(self, task: str, blocked_by: str | None = None) -> Write:
        """The agent is stuck on a task. ``blocked_by`` is the task that blocks it, if known."""
        facts = [("paperclip:issue_status", "blocked", "task")]
        if blocked_by is not None:
            uri = self.as_ref(self._task(blocked_by, "blocked_by"))
            facts.append(("paperclip:blocked_by", uri, "blocked_by"))
        return self._write("blocked", self._task(task), *facts)

    def activity(self, task: str, at: datetime | None = None) -> Write:
        """The agent works on a task. This heartbeat stays on the node (scope ``local``) and expires."""
        at = datetime.now(UTC) if at is None else at
        ping = ("paperclip:last_active", at, "at")
        return self._write("activity", self._task(task), ping, valid_until=at + PING_LIFETIME)

    def handoff(
        self,
        to: str,
        summary: str,
        fact_refs: Iterable[str | Fact] = (),
        continuation: str | None = None,
    ) -> Write:
        """The agent hands its work to another one. ``fact_refs`` are facts, ids or URIs, without repeats."""
        if isinstance(fact_refs, str):
            raise InputError("fact_refs: must be a list of facts, ids or URIs, not one string")
        refs = list(dict.fromkeys(self._fact_uri(ref) for ref in fact_refs))
        if len(refs) > MAX_FACT_REFS:
            raise InputError(f"fact_refs: holds {len(refs)} facts; at most {MAX_FACT_REFS} are allowed")
        more = () if continuation is None else (("intent:continuation", continuation, "continuation"),)
        return self._write(
            "handoff",
            build_uri(self.authority, "handoff", str(uuid.uuid4())),
            ("intent:handoff_summary", summary, "summary"),
            *(("intent:context_ref", ref, "fact_refs") for ref in refs),
            *more,
            ("intent:handoff_to", self.as_ref(to), "to"),
        )

    def decision(self, decision: str, summary: str) -> Write:
        """The agent made a significant choice. ``decision`` is a slug such as ``use-sqlite`` or a URI."""
        entity = self._shared("decision", "decision", decision)
        return self._write("decision", entity, ("roadmap:decision", summary, "summary"))

    def escalation(self, to: str, goal: str, priority: Priority) -> Write:
        """The agent cannot continue without help. ``goal`` is what it could not complete."""
        return self._write(
            "escalation",
            build_uri(self.authority, "escalation", str(uuid.uuid4())),
            ("intent:goal", goal, "goal"),
            ("intent:escalate_to", self.as_ref(to), "to"),
            ("intent:escalation", priority, "priority"),
        )

    def as_ref(self, uri: str, authority: str = "") -> str:
        """Return a URI for a ref. Informal ones become formal, because a node reads ``agent:x`` as null."""
        kind, informal, name = uri.partition(":") if isinstance(uri, str) else ("", "", "")
        formal = not (kind and informal and name) or name.startswith("//")
        return uri if formal else fold(f"stigmem://{authority or self.authority}/{kind}/{name}")

    def addresses(self, authority: str) -> frozenset[str]:
        """Return the refs that name this agent on a node with this ``authority``."""
        return frozenset({self.source, self.as_ref(self.source), self.as_ref(self.source, authority)})

    def fact(self, entity: str, relation: str, kind: ValueType, value: Any, **more: Any) -> NewFact:
        """Build a fact of this agent. The scope is ``company`` unless ``more`` sets another."""
        typed = FactValue(type=kind, v=value)
        given = {"source": self.source, "scope": "company", **more}
        return NewFact(entity=entity, relation=relation, value=typed, **given)

    def _write(self, what: str, entity: str, *given: tuple[str, Any, str], **more: Any) -> Write:
        """Build a write. Each of ``given`` is a relation, its value and the argument that errors name."""
        facts = []
        for relation, value, where in given:
            rule = _RULES[relation]
            try:
                fact = self.fact(entity, relation, rule.type, value, scope=rule.scope, **more)
            except InputError as error:
                raise InputError(str(error).replace("FactValue.v:", f"{where}:")) from None
            facts.append(check_fact(fact, where))
        return Write(what, entity, tuple(facts))

    def _task(self, task: str, where: str = "task") -> str:
        return self._shared(where, "issue", task)

    def _shared(self, where: str, kind: str, value: str) -> str:
        """Return the URI under which all agents find a task or a decision, folded as the node folds it.

        A task's URI is informal, as in Spec-19 12.4.1 and the reference hook. A formal one would depend on
        each agent's notion of the node's authority.
        """
        if not isinstance(value, str):
            raise InputError(f"{where}: must be text, not {type(value).__name__}")
        text = fold(value)
        if not text:
            raise InputError(f"{where}: must not be blank; give an id or a URI")
        if "://" not in text:
            bare = text.removeprefix(f"{kind}:")
            text = f"issue:{bare}" if kind == "issue" else f"stigmem://{self.authority}/{kind}/{bare}"
        return check_entity(text, where)

    def _fact_uri(self, ref: str | Fact) -> str:
        if isinstance(ref, str) and "://" in ref:
            return ref
        return self._shared("fact_refs", "fact", ref.id if isinstance(ref, Fact) else ref)


async def carry_out(node: StigmemNode, write: Write) -> tuple[Fact, ...]:
    """Assert a write's facts in order, until the first failure.

    Raises:
        InputError: a fact breaks its rule. Nothing was sent.
        BackendError: the node failed. The message tells how many facts are stored. Send the same write again to
            complete it, because a node stores equal facts once.
    """
    for fact in write.facts:
        check_fact(fact)
    stored: list[Fact] = []
    for fact in write.facts:
        try:
            stored.append(await node.assert_fact(fact))
        except BackendError as error:
            if stored:
                progress = f"{len(stored)} of {len(write.facts)} facts are stored"
                error.args = (f"{error}; of the {write.what} {write.entity}, {progress}; send it again",)
            raise
    return tuple(stored)
