"""Further routes of the model node: lint, decay, synthesis, intents.

Import adds them. Modelled on a live node: a retraction leaves its sibling live, a sweep takes query parameters and
ends facts by expiry, ``/v1/intents`` makes facts of an envelope itself and returns typed values as text.
"""

import uuid
from datetime import UTC, datetime, timedelta

from stigmem_node_model import Answer, Refused, invalid, live, now, route

Groups = tuple[str, ...]


_BETWEEN = "stigmem:conflict:between"
_CHECKS = ("contradiction", "stale", "orphan", "broken_ref", "namespacing")


@route("POST", "/v1/lint")
def lint(node, caller, groups, request):
    body = request["json"]
    rows = [
        row
        for row in node.facts
        if row["scope"] == body["scope"] and body.get("entity") in (None, row["entity"])
    ]
    checks = body.get("checks") or _CHECKS
    ahead = (datetime.now(UTC) + timedelta(seconds=body.get("stale_lookahead_s", 0))).isoformat()
    findings = [finding for check in checks for finding in _findings(node, check, rows, ahead)]
    report = {"findings": findings, "checked_at": now(), "scope": body["scope"]}
    return Answer(200, {**report, "checks_run": list(checks), "fact_count": len(rows)})


def _findings(node, check, rows, ahead):
    def finding(row, severity):
        where = {"entity": row["entity"], "relation": row["relation"], "fact_ids": [row["id"]]}
        return {"check": check, "severity": severity, **where, "detail": check}

    alive = [row for row in rows if row["confidence"] > 0]
    if check == "contradiction":
        conflict_of = {row["value"]["v"]: row["entity"] for row in node.facts if row["relation"] == _BETWEEN}
        known = {row["id"]: row for row in rows}
        return [
            {**finding(known[pair.split(",")[1]], "error"), "detail": f"unresolved conflict {conflict}"}
            for pair, conflict in conflict_of.items()
            if pair.split(",")[1] in known
        ]
    if check == "stale":
        ending = [row for row in alive if row["valid_until"] is not None and row["valid_until"] <= ahead]
        return [finding(row, "info" if live(row) else "warning") for row in ending]
    if check == "orphan":
        live_entities = {row["entity"] for row in alive if live(row)}
        return [finding(row, "info") for row in rows if row["entity"] not in live_entities]
    if check == "broken_ref":
        known = {row["entity"] for row in node.facts if row["confidence"] > 0 and live(row)}
        broken = [row for row in alive if row["value"]["type"] == "ref" and row["value"]["v"] not in known]
        routing = ("intent:handoff_to", "intent:context_ref")
        return [finding(row, "error" if row["relation"] in routing else "warning") for row in broken]
    return [finding(row, "warning") for row in alive if ":" not in row["relation"]]


@route("POST", "/v1/decay/sweep")
def decay_sweep(node, caller, groups, request):
    params = request["params"]
    scope, floor = params.get("scope"), float(params.get("min_confidence", 0))
    old = "ttl_seconds" in params
    before = (datetime.now(UTC) - timedelta(seconds=int(params.get("ttl_seconds", 0)))).isoformat()
    rows = [
        row
        for row in node.facts
        if scope in (None, row["scope"])
        and not row["relation"].startswith("stigmem:")
        and live(row)
        and (
            0 < row["confidence"] < floor
            or (old and row["valid_until"] is None and row["timestamp"] <= before)
        )
    ]
    dry = params.get("dry_run") == "true"
    for row in () if dry else rows:
        row["valid_until"] = now()
    return Answer(200, {"scanned": len(rows), "decayed": 0 if dry else len(rows), "dry_run": dry})


def _entries(node, scope):
    rows = [row for row in node.facts if row["scope"] == scope and live(row)]
    places = [(row["entity"], row["relation"]) for row in rows]
    rows.sort(key=lambda row: row["timestamp"], reverse=True)
    rows.sort(key=lambda row: row["confidence"], reverse=True)
    names = ("id", "entity", "relation", "value", "confidence", "timestamp", "valid_until", "source", "hlc")
    return [
        {
            **{name: row[name] for name in names},
            "is_expired": False,
            "contradicted": places.count((row["entity"], row["relation"])) > 1,
        }
        for row in rows
    ]


@route("GET", "/v1/scopes/([^/]+)/synthesize")
def synthesize(node, caller, groups, request):
    entries = _entries(node, groups[0])[: int(request["params"].get("limit", 200))]
    disputed = sum(entry["contradicted"] for entry in entries)
    synthesized = {"scope": groups[0], "fact_count": len(entries), "facts": entries, "synthesized_at": now()}
    return Answer(200, {**synthesized, "contradiction_count": disputed})


@route("POST", "/v1/intents")
def submit_intent(node, caller, groups, request):
    body = request["json"]
    for name in ("from", "to", "goal"):
        if not body.get(name):
            raise invalid(name, "missing", "Field required", body)
    intent_id = body.get("id") or f"intent:{uuid.uuid4()}"
    if intent_id in node.intents:
        raise Refused(
            409, f"intent {intent_id!r} already exists; supply a new id or omit for auto-generation"
        )
    envelope = {
        "constraint": [], "preference": [], "deference": [], "escalation": None, "scope": "company",
        "expires_at": None, **body, "id": intent_id, "created_at": now(), "handoff": body.get("handoff"),
    }  # fmt: skip
    node.intents[intent_id] = envelope
    rows = [
        node.add(
            "default", entity=entity, relation=relation, value={"type": kind, "v": v}, source=body["from"],
            scope=envelope["scope"], confidence=1.0, valid_until=envelope["expires_at"],
        )
        for entity, relation, kind, v in _decomposed(intent_id, envelope)
    ]  # fmt: skip
    return Answer(201, {**envelope, "fact_ids": [row["id"] for row in rows]})


def _decomposed(root, body):
    """An envelope as the facts the node makes of it, its own priority as ``intent:escalation`` among them."""
    yield root, "intent:from", "ref", body["from"]
    yield root, "intent:goal", "text", body["goal"]
    for to in body["to"]:
        yield root, "intent:to", "ref", to
    if escalation := body["escalation"]:
        yield root, "intent:escalation", "string", escalation.get("priority", "medium")
        yield root, "intent:escalate_to", "ref", escalation["escalate_to"]
        yield root, "intent:escalation:channel", "string", escalation.get("channel", "stigmem")
        context = "true" if escalation.get("include_context", True) else "false"
        yield root, "intent:escalation:context", "string", context
    if handoff := body["handoff"]:
        yield root, "intent:handoff_to", "ref", body["to"][0]
        yield root, "intent:handoff_summary", "text", handoff["summary"]
        for ref in handoff.get("fact_refs", ()):
            yield root, "intent:context_ref", "ref", ref
        if handoff.get("continuation"):
            yield root, "intent:continuation", "text", handoff["continuation"]
    for kind in ("constraint", "preference", "deference"):
        for index in range(len(body[kind])):
            yield root, f"intent:{kind}", "ref", f"{root}:{kind}:{index}"


@route("GET", "/v1/intents/(.+)")
def get_intent(node, caller, groups, request):
    envelope = node.intents.get(groups[0])
    if envelope is None or not live({"valid_until": envelope["expires_at"]}):
        raise Refused(404, "intent not found")
    shown = {name: [_as_text(entry) for entry in envelope[name]] for name in ("constraint", "preference")}
    return Answer(200, {**envelope, **shown, "fact_ids": []})


def _as_text(entry):
    name = "limit" if "limit" in entry else "value"
    kind, v = entry[name]["type"], entry[name].get("v")
    text = {"null": "null", "boolean": "true" if v else "false"}.get(kind, str(v))
    return {**entry, name: {"type": kind, "v": text, "interpret_as": "content"}}
