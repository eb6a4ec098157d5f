"""DECAY and SYNTHESIS vectors, written here from the specification (sections 15.7 and 16) and marked as ours.

Spec-19 names both sets; the Stigmem project never published them. The scenarios are the specification's, the wire
is the one nodes have: a sweep takes query parameters, and a synthesis is ``POST /v1/synthesis`` or, where that is
absent, ``GET /v1/scopes/{scope}/synthesize``. Every run makes entities of its own. A sweep here has a confidence
floor far below any real fact's, so that it retires facts of this module alone.

And the gate of Spec-19 12.7, which asks each adapter for an integration test of its own writes: lifecycle facts
arrive, and wrong ones are caught before the node.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any

from memory import BackendError, InputError
from memory.stigmem.client import StigmemNode
from memory.stigmem.conformance.wire import NotRun, Problem, Row, Wire, listed, outcome, require
from memory.stigmem.facts import FACT_SCOPES, FactScope, FactValue, NewFact, build_uri
from memory.stigmem.writers import Surfaces, Write, carry_out

_AUTHORITY = "conformance.example"
_SOURCE = build_uri(_AUTHORITY, "agent", "conformance")
_FLOOR = 1e-6
_BELOW = 5e-7


async def _store(
    wire: Wire,
    confidence: float,
    scope: FactScope,
    *,
    entity: str = "",
    relation: str = "memory:role",
    text: str = "one",
    **more: Any,
) -> str:
    """Assert a fact about an entity, by default a new one, and return the entity."""
    entity = entity or build_uri(_AUTHORITY, "subject", str(uuid.uuid4()))
    fact = NewFact(
        entity=entity,
        relation=relation,
        value=FactValue(type="string", v=text),
        source=_SOURCE,
        scope=scope,
        confidence=confidence,
    )
    (await wire.send("POST", "/v1/facts", json={**fact.body(), **more})).expect_status(201)
    return entity


async def _live(wire: Wire, entity: str, scope: FactScope) -> list[dict[str, Any]]:
    answer = await wire.send("GET", "/v1/facts", params={"entity": entity, "scope": scope})
    return listed(answer.expect_status(200).object(), "facts")


async def _sweep(wire: Wire, scope: FactScope, **params: Any) -> dict[str, Any]:
    answer = await wire.send("POST", "/v1/decay/sweep", params={"scope": scope, **params})
    return await wire.finished(answer, "/v1/decay/jobs")


async def _decay_confidence_reduction(wire: Wire) -> None:
    low, high = await _store(wire, _BELOW, "team"), await _store(wire, 0.9, "team")
    await _sweep(wire, "team", min_confidence=_FLOOR)
    require(
        not any(fact.get("confidence", 0) >= _BELOW for fact in await _live(wire, low, "team")),
        "the fact below the floor is as live as before",
    )
    require(
        [fact.get("confidence") for fact in await _live(wire, high, "team")] == [0.9],
        "the fact above the floor has changed",
    )


async def _decay_retraction(wire: Wire) -> None:
    entity = await _store(wire, 1.0, "public")
    await _sweep(wire, "public", ttl_seconds=0)
    require(
        not any(fact.get("confidence", 0) > 0 for fact in await _live(wire, entity, "public")),
        "the fact is live though older than the TTL",
    )


async def _decay_scope_filter(wire: Wire) -> None:
    entity = await _store(wire, _BELOW, "public")
    await _sweep(wire, "team", min_confidence=_FLOOR)
    require(await _live(wire, entity, "public"), "a sweep of scope team retired a fact of scope public")


async def _decay_dry_run(wire: Wire) -> None:
    entity = await _store(wire, _BELOW, "team")
    swept = await _sweep(wire, "team", min_confidence=_FLOOR, dry_run="true")
    require(await _live(wire, entity, "team"), "the dry run retired the fact")
    would = swept.get("scanned", swept.get("dry_run_would_retract"))
    require(isinstance(would, int) and would >= 1, "the dry run does not count the fact")
    require(swept.get("decayed", swept.get("facts_retracted")) == 0, "the dry run claims to have written")


async def _decay_exempt(wire: Wire) -> None:
    entity = await _store(wire, _BELOW, "team", relation="stigmem:received_from")
    await _sweep(wire, "team", min_confidence=_FLOOR)
    require(await _live(wire, entity, "team"), "a fact of the stigmem: namespace was retired")


_MOST = 1000
"""Facts one ``GET /v1/scopes/{scope}/synthesize`` returns."""


async def _synthesis(wire: Wire, entity: str, min_confidence: float | None = None) -> list[Mapping[str, Any]]:
    """The entries about one entity of scope ``public``, in the node's order, by whichever shape it has."""
    body: dict[str, Any] = {"scope": "public", "entity": entity}
    if min_confidence is not None:
        body["min_confidence"] = min_confidence
    answer = await wire.send("POST", "/v1/synthesis", json=body)
    name = "summary"
    if answer.status in (404, 405):
        if min_confidence is not None:
            raise NotRun("the node has GET /v1/scopes/{scope}/synthesize, which takes no min_confidence")
        answer = await wire.send("GET", "/v1/scopes/public/synthesize", params={"limit": _MOST})
        name = "facts"
    entries = listed(answer.expect_status(200).object(), name)
    mine = [entry for entry in entries if entry.get("entity") == entity]
    if not mine and len(entries) >= _MOST:
        raise NotRun(f"scope public holds {_MOST} facts or more, and the node returns no further ones")
    return mine


async def _synthesis_basic(wire: Wire) -> None:
    entity = ""
    for relation, confidence in (("memory:b", 0.97), ("memory:a", 1.0), ("memory:c", 0.95)):
        entity = await _store(wire, confidence, "public", relation=relation, entity=entity)
    found = [(entry.get("relation"), entry.get("confidence")) for entry in await _synthesis(wire, entity)]
    require(
        found == [("memory:a", 1.0), ("memory:b", 0.97), ("memory:c", 0.95)],
        "the entries are not the three facts by descending confidence",
    )


async def _synthesis_contradicted(wire: Wire) -> None:
    entity = await _store(wire, 1.0, "public")
    await _store(wire, 1.0, "public", text="two", entity=entity)
    await _store(wire, 1.0, "public", relation="memory:undisputed", entity=entity)
    entries = await _synthesis(wire, entity)
    flags = {(entry.get("relation"), entry.get("contradicted")) for entry in entries}
    require(
        flags == {("memory:role", True), ("memory:undisputed", False)},
        "contradicted is not told for the two values, or told for the undisputed one",
    )


async def _synthesis_min_confidence(wire: Wire) -> None:
    entity = await _store(wire, 1.0, "public", relation="memory:sure")
    await _store(wire, 0.3, "public", relation="memory:unsure", entity=entity)
    relations = [entry.get("relation") for entry in await _synthesis(wire, entity, 0.8)]
    require(relations == ["memory:sure"], "min_confidence does not leave the sure fact alone")


async def _synthesis_empty(wire: Wire) -> None:
    entity = await _store(wire, 1.0, "public", valid_until="2020-01-01T00:00:00+00:00")
    require(not await _synthesis(wire, entity), "an entity with an expired fact alone has an entry")


_VECTORS: Mapping[str, tuple[Callable[[Wire], Coroutine[Any, Any, None]], ...]] = {
    "DECAY_VECTORS": (
        _decay_confidence_reduction,
        _decay_retraction,
        _decay_scope_filter,
        _decay_dry_run,
        _decay_exempt,
    ),
    "SYNTHESIS_VECTORS": (
        _synthesis_basic,
        _synthesis_contradicted,
        _synthesis_min_confidence,
        _synthesis_empty,
    ),
}
_IDS = {vector: vector.__name__[1:].replace("_", "-") for group in _VECTORS.values() for vector in group}
OWN_IDS = tuple(_IDS.values())


async def own_rows(wire: Wire, *, expire_scope: bool) -> AsyncIterator[Row]:
    """Run our vectors; ``expire_scope`` allows the one that expires all of scope ``public``."""
    for group, vectors in _VECTORS.items():
        for vector in vectors:
            run = vector(wire) if expire_scope or vector is not _decay_retraction else _refused()
            yield await outcome(_IDS[vector], group, run, ours=True)


async def _refused() -> None:
    raise NotRun("would expire every fact of scope public; allow it for a throw-away node with expire_scope")


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
    surfaces = Surfaces(_SOURCE, _AUTHORITY)
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
    for name, write in _writes().items():
        yield await outcome(name, "ADAPTER_GATE", _arrives(node, write, _EVENTS[name][1]), ours=True)
    for name, field, values in (
        ("gate-wrong-scope", "scope", FACT_SCOPES),
        ("gate-low-confidence", "confidence", (0.0, 0.49, 0.99)),
    ):
        yield await outcome(name, "ADAPTER_GATE", _is_caught(node, field, values), ours=True)
