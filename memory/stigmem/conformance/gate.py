"""The adapter-specific gate of Spec-19 12.7: lifecycle facts arrive, and wrong ones are caught before the node.

The specification asks each adapter for an integration test of its own writes; these are ours, marked so.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from memory import BackendError, InputError
from memory.stigmem.client import StigmemNode
from memory.stigmem.conformance.wire import Problem, Row, outcome, require
from memory.stigmem.facts import FACT_SCOPES, build_uri
from memory.stigmem.writers import Surfaces, Write, carry_out

__all__ = ["GATE_IDS", "gate_rows"]

_AUTHORITY = "conformance.example"
_REVIEWER = build_uri(_AUTHORITY, "agent", "reviewer")
_FACT = build_uri(_AUTHORITY, "fact", "context")

_EVENTS: Mapping[str, tuple[Callable[[Surfaces, str], Write], frozenset[str]]] = {
    "gate-checkout": (lambda build, task: build.checkout(task), frozenset({"paperclip:checkout"})),
    "gate-done": (lambda build, task: build.done(task), frozenset({"paperclip:issue_status"})),
    "gate-blocked": (
        lambda build, task: build.blocked(task, f"{task}-other"),
        frozenset({"paperclip:issue_status", "paperclip:blocked_by"}),
    ),
    "gate-activity": (lambda build, task: build.activity(task), frozenset({"paperclip:last_active"})),
    "gate-handoff": (
        lambda build, task: build.handoff(_REVIEWER, "Done but for the tests.", [_FACT], "page 3"),
        frozenset(
            {"intent:handoff_to", "intent:handoff_summary", "intent:context_ref", "intent:continuation"}
        ),
    ),
    "gate-decision": (lambda build, task: build.decision(task, "SQLite."), frozenset({"roadmap:decision"})),
    "gate-escalation": (
        lambda build, task: build.escalation(_REVIEWER, "cannot reach the store", "high"),
        frozenset({"intent:escalation", "intent:escalate_to", "intent:goal"}),
    ),
}
GATE_IDS = (*_EVENTS, "gate-wrong-scope", "gate-low-confidence")


def _writes() -> Mapping[str, Write]:
    surfaces = Surfaces(build_uri(_AUTHORITY, "agent", "conformance"), _AUTHORITY)
    return {name: build(surfaces, str(uuid.uuid4())) for name, (build, _) in _EVENTS.items()}


async def _arrives(node: StigmemNode, write: Write, relations: frozenset[str]) -> None:
    try:
        await carry_out(node, write)
        found = await node.query(entity=write.entity, scope=write.facts[0].scope)
    except BackendError as error:
        raise Problem(str(error)) from error
    missing = sorted(relations - {fact.relation for fact in found})
    require(not missing, f"{', '.join(missing)} cannot be read after the event")
    sent, read = ({(fact.relation, fact.value.v) for fact in facts} for facts in (write.facts, found))
    require(sent <= read, "a value is not what was sent")
    require(all(fact.confidence == 1.0 for fact in found), "a fact's confidence is not 1.0")


async def _is_caught(node: StigmemNode, field: str, values: Sequence[Any]) -> None:
    """Every fact of every event, spoiled one at a time, must be refused, and must not reach the node."""
    for name, write in _writes().items():
        for position, fact in enumerate(write.facts):
            for value in values:
                if value == getattr(fact, field):
                    continue
                wrong = fact.model_copy(update={field: value})
                facts = (*write.facts[:position], wrong, *write.facts[position + 1 :])
                try:
                    await carry_out(node, Write(write.what, write.entity, facts))
                except InputError:
                    continue
                except BackendError as error:
                    raise Problem(f"{name} with a wrong {wrong.relation} reached the node") from error
                raise Problem(f"{name} with a wrong {wrong.relation} was sent")
        try:
            found = await node.query(entity=write.entity)
        except BackendError as error:
            raise Problem(str(error)) from error
        require(not found, f"{name}: a refused write left facts behind")


async def gate_rows(node: StigmemNode) -> AsyncIterator[Row]:
    """Run the gate with our own write surfaces against a node."""
    for name, write in _writes().items():
        yield await outcome(name, "ADAPTER_GATE", _arrives(node, write, _EVENTS[name][1]), ours=True)
    for name, field, values in (
        ("gate-wrong-scope", "scope", FACT_SCOPES),
        ("gate-low-confidence", "confidence", (0.0, 0.49, 0.99)),
    ):
        yield await outcome(name, "ADAPTER_GATE", _is_caught(node, field, values), ours=True)
