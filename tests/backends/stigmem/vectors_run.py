"""Conformance vectors against a node, with a result for each id (Spec-19 12.7).

The caller provides the Stigmem project's vectors as data. The DECAY and SYNTHESIS sets of Spec-19 were never
published, so memslot's own follow the specification (sections 15.7 and 16) and the routes of real nodes.
memslot also has its own gate of 12.7, an integration test that each adapter must provide for its writes.
"""

import uuid

from vectors_wire import NotRun, Problem, Wire, check_findings, filled, listed, outcome, require, retagged

from memory import BackendError, InputError
from memory.adapter.http import bearer, http_client
from memory.stigmem.client import StigmemNode
from memory.stigmem.facts import FACT_SCOPES, build_uri
from memory.stigmem.writers import Surfaces, Write, carry_out

_AUTHORITY = "conformance.example"
_SOURCE = build_uri(_AUTHORITY, "agent", "conformance")
# Far below any real fact's confidence, so that a sweep retires only this module's facts.
_FLOOR = 1e-6
_BELOW = 5e-7
_MAX_ENTRIES = 1000  # the most entries of one ``GET /v1/scopes/{scope}/synthesize``


async def _store(wire, confidence, scope, *, entity="", relation="memory:role", text="one", **more):
    entity = entity or build_uri(_AUTHORITY, "subject", str(uuid.uuid4()))
    value = {"type": "string", "v": text}
    fact = {"entity": entity, "relation": relation, "value": value, "source": _SOURCE, "scope": scope}
    answer = await wire.send("POST", "/v1/facts", json={**fact, "confidence": confidence, **more})
    answer.expect_status(201)
    return entity


async def _live(wire, entity, scope):
    """Return the confidences of an entity's facts."""
    answer = await wire.send("GET", "/v1/facts", params={"entity": entity, "scope": scope})
    return [fact.get("confidence", 0.0) for fact in listed(answer.expect_status(200).object(), "facts")]


async def _sweep(wire, scope, **params):
    answer = await wire.send("POST", "/v1/decay/sweep", params={"scope": scope, **params})
    return await wire.finished(answer, "/v1/decay/jobs")


async def _decay_confidence_reduction(wire):
    low, high = await _store(wire, _BELOW, "team"), await _store(wire, 0.9, "team")
    await _sweep(wire, "team", min_confidence=_FLOOR)
    left = max(await _live(wire, low, "team"), default=0.0)
    require(left < _BELOW, "the fact below the floor is as live as before")
    require(await _live(wire, high, "team") == [0.9], "the fact above the floor has changed")


async def _decay_retraction(wire):
    entity = await _store(wire, 1.0, "public")
    await _sweep(wire, "public", ttl_seconds=0)
    left = max(await _live(wire, entity, "public"), default=0.0)
    require(left <= 0, "the fact is live though older than the TTL")


async def _decay_scope_filter(wire):
    entity = await _store(wire, _BELOW, "public")
    await _sweep(wire, "team", min_confidence=_FLOOR)
    require(await _live(wire, entity, "public"), "a sweep of scope team retired a fact of scope public")


async def _decay_dry_run(wire):
    entity = await _store(wire, _BELOW, "team")
    swept = await _sweep(wire, "team", min_confidence=_FLOOR, dry_run="true")
    require(await _live(wire, entity, "team"), "the dry run retired the fact")
    would = swept.get("scanned", swept.get("dry_run_would_retract"))
    require(isinstance(would, int) and would >= 1, "the dry run does not count the fact")
    require(swept.get("decayed", swept.get("facts_retracted")) == 0, "the dry run claims to have written")


async def _decay_exempt(wire):
    entity = await _store(wire, _BELOW, "team", relation="stigmem:received_from")
    await _sweep(wire, "team", min_confidence=_FLOOR)
    require(await _live(wire, entity, "team"), "a fact of the stigmem: namespace was retired")


async def _synthesis(wire, entity, min_confidence=None):
    """Return the entries about one entity of scope ``public``, in the node's order, by its route."""
    body = {"scope": "public", "entity": entity}
    if min_confidence is not None:
        body["min_confidence"] = min_confidence
    answer = await wire.send("POST", "/v1/synthesis", json=body)
    name = "summary"
    if answer.status in (404, 405):
        if min_confidence is not None:
            raise NotRun("the node has GET /v1/scopes/{scope}/synthesize, which takes no min_confidence")
        answer = await wire.send("GET", "/v1/scopes/public/synthesize", params={"limit": _MAX_ENTRIES})
        name = "facts"
    entries = listed(answer.expect_status(200).object(), name)
    mine = [entry for entry in entries if entry.get("entity") == entity]
    if not mine and len(entries) >= _MAX_ENTRIES:
        raise NotRun(f"scope public holds {_MAX_ENTRIES} facts or more, and the node returns no further ones")
    return mine


async def _synthesis_basic(wire):
    entity = ""
    for relation, confidence in (("memory:b", 0.97), ("memory:a", 1.0), ("memory:c", 0.95)):
        entity = await _store(wire, confidence, "public", relation=relation, entity=entity)
    found = [(entry.get("relation"), entry.get("confidence")) for entry in await _synthesis(wire, entity)]
    require(
        found == [("memory:a", 1.0), ("memory:b", 0.97), ("memory:c", 0.95)],
        "the entries are not the three facts by descending confidence",
    )


async def _synthesis_contradicted(wire):
    entity = await _store(wire, 1.0, "public")
    await _store(wire, 1.0, "public", text="two", entity=entity)
    await _store(wire, 1.0, "public", relation="memory:undisputed", entity=entity)
    entries = await _synthesis(wire, entity)
    flags = {(entry.get("relation"), entry.get("contradicted")) for entry in entries}
    require(
        flags == {("memory:role", True), ("memory:undisputed", False)},
        "contradicted is not told for the two values, or told for the undisputed one",
    )


async def _synthesis_min_confidence(wire):
    entity = await _store(wire, 1.0, "public", relation="memory:sure")
    await _store(wire, 0.3, "public", relation="memory:unsure", entity=entity)
    relations = [entry.get("relation") for entry in await _synthesis(wire, entity, 0.8)]
    require(relations == ["memory:sure"], "min_confidence does not leave the sure fact alone")


async def _synthesis_empty(wire):
    entity = await _store(wire, 1.0, "public", valid_until="2020-01-01T00:00:00+00:00")
    require(not await _synthesis(wire, entity), "an entity with an expired fact alone has an entry")


_VECTORS = {
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


async def own_rows(wire, *, expire_scope):
    for group, vectors in _VECTORS.items():
        for vector in vectors:
            run = vector(wire) if expire_scope or vector is not _decay_retraction else _refused()
            yield await outcome(_IDS[vector], group, run, ours=True)


async def _refused():
    raise NotRun("would expire every fact of scope public; allow it for a throw-away node with expire_scope")


_REVIEWER = build_uri(_AUTHORITY, "agent", "reviewer")
_FACT = build_uri(_AUTHORITY, "fact", "context")

_EVENTS = {
    "gate-checkout": (lambda build, task: build.checkout(task), {"paperclip:checkout"}),
    "gate-done": (lambda build, task: build.done(task), {"paperclip:issue_status"}),
    "gate-blocked": (
        lambda build, task: build.blocked(task, f"{task}-other"),
        {"paperclip:issue_status", "paperclip:blocked_by"},
    ),
    "gate-activity": (lambda build, task: build.activity(task), {"paperclip:last_active"}),
    "gate-handoff": (
        lambda build, task: build.handoff(_REVIEWER, "Done but for the tests.", [_FACT], "page 3"),
        {"intent:handoff_to", "intent:handoff_summary", "intent:context_ref", "intent:continuation"},
    ),
    "gate-decision": (lambda build, task: build.decision(task, "SQLite."), {"roadmap:decision"}),
    "gate-escalation": (
        lambda build, task: build.escalation(_REVIEWER, "cannot reach the store", "high"),
        {"intent:escalation", "intent:escalate_to", "intent:goal"},
    ),
}
GATE_IDS = (*_EVENTS, "gate-wrong-scope", "gate-low-confidence")


def _writes():
    surfaces = Surfaces(_SOURCE, _AUTHORITY)
    return {name: build(surfaces, str(uuid.uuid4())) for name, (build, _) in _EVENTS.items()}


async def _arrives(node, write, relations):
    await carry_out(node, write)
    found = await node.query(entity=write.entity, scope=write.facts[0].scope)
    missing = sorted(relations - {fact.relation for fact in found})
    require(not missing, f"{', '.join(missing)} cannot be read after the event")
    sent, read = ({(fact.relation, fact.value.v) for fact in facts} for facts in (write.facts, found))
    require(sent <= read, "a value is not what was sent")
    require(all(fact.confidence == 1.0 for fact in found), "a fact's confidence is not 1.0")


async def _is_caught(node, field, values):
    """Spoil each fact of each event in turn. Every such write must be refused before it reaches the node."""
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
        require(not await node.query(entity=write.entity), f"{name}: a refused write left facts behind")


async def gate_rows(node):
    for name, write in _writes().items():
        yield await outcome(name, "ADAPTER_GATE", _arrives(node, write, _EVENTS[name][1]), ours=True)
    wrong = (
        ("gate-wrong-scope", "scope", FACT_SCOPES),
        ("gate-low-confidence", "confidence", (0.0, 0.49, 0.99)),
    )
    for name, field, values in wrong:
        yield await outcome(name, "ADAPTER_GATE", _is_caught(node, field, values), ours=True)


_TIMEOUT_S = 30.0
_HIDDEN = (
    "no fact is returned",
    "the set's own retract vector contradicts the fact, and contradicted facts leave default queries; "
    "the specification lets a retraction replace it",
)
# Vectors that the project's own node fails: id -> the exact problem, and its cause.
KNOWN_DEVIATIONS = {
    "query-by-entity": _HIDDEN,
    "query-by-entity-relation": _HIDDEN,
    "lint-orphan": (
        "0 findings of orphan instead of 1 or more",
        "a retraction does not retract its sibling, so the entity is no orphan to the node",
    ),
}


async def run_conformance(url, vectors=None, *, api_key=None, tag="", expire_scope=False):
    """Run every vector in order. If the node fails during the run, the affected rows fail.

    Args:
        url: the node.
        vectors: the specification's vectors; None runs only memslot's own.
        api_key: the bearer token.
        tag: a part of the vectors' entities. It separates runs, because a node cannot delete facts.
        expire_scope: whether to run the vector that expires *every* fact of scope ``public``. Use it only on
            a throw-away node.
    """
    async with (
        StigmemNode(url, api_key, timeout_s=_TIMEOUT_S, retry_pause_s=0.1) as node,
        http_client(node.url, backend="stigmem", timeout_s=_TIMEOUT_S, headers=bearer(api_key)) as http,
    ):
        wire = Wire(http)
        rows = [row async for row in _given_rows(wire, retagged(vectors or {}, tag))]
        rows += [row async for row in own_rows(wire, expire_scope=expire_scope)]
        rows += [row async for row in gate_rows(node)]
    return rows


async def _given_rows(wire, vectors):
    for group, run in (
        ("ASSERT_VECTORS", _assert), ("QUERY_VECTORS", _query), ("NODE_INFO_VECTOR", _node_info),
        ("LINT_VECTORS", _lint),
    ):  # fmt: skip
        found = vectors.get(group, [])
        for vector in [found] if isinstance(found, dict) else found:
            known = KNOWN_DEVIATIONS.get(vector["id"])
            yield await outcome(vector["id"], group, run(wire, vector), deviation=known)


async def _assert(wire, vector):
    answer = await wire.send("POST", "/v1/facts", json=filled(vector["request"]))
    body = answer.expect_status(vector["expected_status"]).object()
    stored = {"value_type": body.get("value", {}).get("type"), "confidence": body.get("confidence")}
    for name, found in stored.items():
        wanted = vector.get(f"expected_{name}", found)
        require(found == wanted, f"{name.replace('_', '.')} is not {wanted}")


async def _query(wire, vector):
    answer = await wire.send("GET", "/v1/facts", params=vector["params"])
    facts = listed(answer.expect_status(200).object(), "facts")
    require(facts or not vector.get("expect_non_empty"), "no fact is returned")
    for name in vector.get("expect_fields", ()):
        require(all(name in fact for fact in facts), f"a fact has no {name}")


async def _node_info(wire, vector):
    body = (await wire.send("GET", "/.well-known/stigmem")).expect_status(200).object()
    missing = [name for name in vector["expected_fields"] if name not in body]
    require(not missing, f"has no {', '.join(missing)}")


async def _lint(wire, vector):
    for fact in vector.get("setup", []):
        (await wire.send("POST", "/v1/facts", json=filled(fact))).expect_status(201)
    answer = await wire.send("POST", "/v1/lint", json=vector["request"])
    check_findings(await wire.finished(answer, "/v1/lint/jobs"), vector["expected"])
