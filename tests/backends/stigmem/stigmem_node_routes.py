"""The routes of the model node. Import adds them to ``stigmem_node_model.ROUTES``."""

import hashlib
import uuid
from collections import Counter

from stigmem_node_model import (
    SCOPES,
    TYPES,
    Answer,
    Refused,
    Unhandled,
    content_id,
    encoded,
    invalid,
    live,
    normalised,
    now,
    record,
    route,
)

Groups = tuple[str, ...]


@route("GET", "/.well-known/stigmem")
def well_known(node, caller, groups, request):
    namespaces = ["stigmem:", "rel:", "memory:", "intent:", "roadmap:", "preference:", "garden:"]
    body = {
        "version": "1.0",
        "node_id": node.node_id,
        "node_url": f"http://{request['headers'].get('host', 'localhost')}",
        "auth": "required" if node.auth else "none",
        "federation": "disabled",
        "source_attestation": "off",
        "namespaces": namespaces,
        "spec": "https://github.com/eidetic-labs/stigmem/blob/main/spec/stigmem-spec-v1.0.md",
        "cors": {"dev_localhost": False, "configured": False},
    }
    return Answer(200, body)


@route("GET", "/healthz")
def healthz(node, caller, groups, request):
    return Answer(200, {"status": "ok"})


@route("GET", "/v1/doctor")
def doctor(node, caller, groups, request):
    return Answer(200, {"status": "ok", "memory_garden_acl_filtering": "disabled"})


@route("GET", "/v1/me")
def me(node, caller, groups, request):
    who = {"entity_uri": caller.entity_uri, "permissions": list(caller.permissions)}
    return Answer(200, {**who, "oidc_sub": None, "tenant_id": caller.tenant_id})


@route("POST", "/v1/auth/keys")
def create_key(node, caller, groups, request):
    if "admin" not in caller.permissions:
        raise Refused(403, "admin permission required to mint API keys")
    body = request["json"]
    raw = body.get("raw_key", "")
    if len(raw) < 32:
        raise invalid("raw_key", "string_too_short", "String should have at least 32 characters", raw)
    tenant = body.get("tenant_id") or caller.tenant_id
    key = node.add_key(
        raw, body["entity_uri"], body.get("permissions", ["read", "write"]), tenant, body.get("description")
    )
    return Answer(201, key)


@route("GET", "/v1/auth/keys")
def list_keys(node, caller, groups, request):
    own = [key for key in node.keys.values() if key["entity_uri"] == caller.entity_uri]
    shown = [{name: value for name, value in key.items() if name != "tenant_id"} for key in own]
    return Answer(200, [{**key, "oidc_sub": None} for key in shown])


@route("DELETE", "/v1/auth/keys/([^/]+)")
def delete_key(node, caller, groups, request):
    raw = next((raw for raw, key in node.keys.items() if key["id"] == groups[0]), None)
    if raw is None:
        raise Refused(404, "Key not found")
    if node.keys[raw]["entity_uri"] != caller.entity_uri:
        raise Refused(403, "Cannot revoke another entity's key")
    del node.keys[raw]
    return Answer(204, "")


@route("POST", "/v1/facts")
def assert_fact(node, caller, groups, request):
    row = _checked(request["json"])
    if "write" not in caller.permissions:
        raise Refused(403, "write permission required")
    body = request["json"]
    if row["value"].get("interpret_as") == "instruction":
        details = {"code": "instruction_write_required", "message": "needs instruction:write permission"}
        raise Refused(403, details)
    if body.get("garden_id"):
        raise Refused(404, "garden not found")
    row["cid"] = content_id(row)
    known = next((fact for fact in node.of(caller.tenant_id) if fact["cid"] == row["cid"]), None)
    if known is not None:
        return Answer(201, record({**known, "contradicted": False}, read=False))
    siblings = [
        fact
        for fact in node.of(caller.tenant_id)
        if (fact["entity"], fact["relation"], fact["scope"]) == (row["entity"], row["relation"], row["scope"])
        and fact["confidence"] > 0
    ]
    stored = node.add(caller.tenant_id, **row)
    for sibling in siblings:
        _contradict(node, stored, sibling)
    return Answer(201, record(stored, read=False))


def _checked(body):
    body = body if isinstance(body, dict) else {}  # a client that gave up half-way has sent half a body
    missing = [name for name in ("entity", "relation", "value", "source") if name not in body]
    if missing:
        problems = [
            {"type": "missing", "loc": ["body", name], "msg": "Field required", "input": body}
            for name in missing
        ]
        raise Refused(422, problems)
    kind, v = body["value"].get("type"), body["value"].get("v")
    if kind not in TYPES:
        problem = {
            "type": "value_error",
            "loc": ["body", "value", "type"],
            "msg": "type must be one of",
            "input": kind,
        }
        raise Refused(422, [problem])
    scope, confidence = body.get("scope", "local"), body.get("confidence", 1.0)
    if scope not in SCOPES:
        raise invalid("scope", "value_error", "Value error, scope must be one of", scope)
    if confidence > 1:
        raise invalid("confidence", "less_than_equal", "Input should be less than or equal to 1", confidence)
    text = encoded(kind, v)
    if kind == "number":
        try:
            v = float(v)
        except (TypeError, ValueError):
            raise Unhandled from None
    if kind == "boolean" and not isinstance(v, bool):
        v = bool(v)
    if kind in ("string", "text", "ref", "datetime"):
        v = str(v)
    return {
        "entity": normalised(body["entity"], "entity"),
        "relation": body["relation"],
        "value": {**body["value"], "v": v},
        "text": text,
        "source": normalised(body["source"], "source"),
        "confidence": float(confidence),
        "scope": scope,
        "valid_until": body.get("valid_until"),
        "derived_from": body.get("derived_from") or [],
    }


def _contradict(node, newer, older):
    newer["contradicted"] = older["contradicted"] = True
    conflict = f"stigmem:conflict:{uuid.uuid4()}"
    system = {"entity": conflict, "source": "system:stigmem", "confidence": 1.0, "scope": newer["scope"]}
    pair = f"{older['id']},{newer['id']}"
    for relation, text in (("between", pair), ("status", "unresolved")):
        value = {"type": "string", "v": text}
        node.add(newer["tenant_id"], relation=f"stigmem:conflict:{relation}", value=value, **system)


@route("GET", "/v1/facts")
def query_facts(node, caller, groups, request):
    params = request["params"]
    scope = params.get("scope")
    if scope is not None and scope not in SCOPES:
        raise Refused(400, f"scope must be one of {set(SCOPES)}")
    limit = int(params.get("limit", 50))
    if not 1 <= limit <= 500:
        problem = {
            "type": "less_than_equal",
            "loc": ["query", "limit"],
            "msg": "out of range",
            "input": limit,
        }
        raise Refused(422, [problem])
    wanted = {name: params[name] for name in ("relation", "scope") if params.get(name)}
    wanted |= {name: normalised(params[name], name) for name in ("entity", "source") if params.get(name)}
    yes = {name for name in ("include_contradicted", "include_expired") if params.get(name) == "true"}
    least, after = float(params.get("min_confidence", 0)), params.get("after")
    rows = [
        row
        for row in node.of(caller.tenant_id)
        if all(row[name] == value for name, value in wanted.items())
        and row["confidence"] >= least
        and (after is None or row["timestamp"] > after)
        and (live(row) or "include_expired" in yes)
    ]
    # The node cuts first and looks for contradictions among what is left.
    rows = rows[::-1][:limit]
    cursor = rows[-1]["id"] if len(rows) == limit else None
    places = Counter((row["entity"], row["relation"], row["scope"]) for row in rows)
    contested = [places[row["entity"], row["relation"], row["scope"]] > 1 for row in rows]
    if "include_contradicted" not in yes:
        rows = [row for row, known in zip(rows, contested, strict=True) if not known]
        contested = [False] * len(rows)
    shown = [
        {**record(row, read=True), "contradicted": known} for row, known in zip(rows, contested, strict=True)
    ]
    body = {"facts": shown, "total": len(rows), "cursor": cursor, "tombstone_notices": []}
    return Answer(200, body, {"x-total-count": str(len(rows))})


@route("GET", "/v1/facts/([^/]+)")
def get_fact(node, caller, groups, request):
    row = _fact_named(node, caller, groups[0])
    return Answer(200, {**record(row, read=True), "contradicted": row["contradicted"]})


@route("GET", "/v1/facts/([^/]+)/provenance")
def provenance(node, caller, groups, request):
    row = _fact_named(node, caller, groups[0])
    sources = []
    for given in row["derived_from"]:
        source = next(
            (fact for fact in node.of(caller.tenant_id) if fact["id"] == given.get("fact_id")), None
        )
        reference = {"hash": given.get("hash", ""), "fact_id": given.get("fact_id")}
        sources.append(
            {**reference, "entity": source["entity"] if source else None, "exists": source is not None}
        )
    return Answer(200, {"fact_id": row["id"], "cid": row["cid"], "derived_from": sources})


def _fact_named(node, caller, name):
    row = next((fact for fact in node.of(caller.tenant_id) if name in (fact["id"], fact["cid"])), None)
    if row is None:
        raise Refused(404, "fact not found")
    return row


@route("POST", "/v1/recall")
def recall(node, caller, groups, request):
    body = request["json"]
    query, scope, limit = body.get("query", ""), body.get("scope", "local"), body.get("limit", 100)
    if not query:
        raise invalid("query", "string_too_short", "String should have at least 1 character", query)
    if scope not in SCOPES:
        raise Refused(400, f"invalid_scope: must be one of {sorted(SCOPES)}")
    if not 1 <= limit <= 500:
        raise invalid("limit", "less_than_equal", "Input should be less than or equal to 500", limit)
    least, budget = body.get("min_confidence", 0.1), body.get("token_budget", 4000)
    scores = node.search(
        query,
        lambda row: (
            row["tenant_id"] == caller.tenant_id
            and row["scope"] == scope
            and row["confidence"] >= least
            and live(row)
        ),
        limit,
    )
    found = [row for row in node.facts if row["id"] in scores]
    weights = {"lexical": 0.3, "semantic": 0.35, "graph": 0.15, "recency": 0.1, **(body.get("weights") or {})}
    hits = _scored(node, found, scores, weights, scope)
    hits.sort(key=lambda hit: -hit["score"])
    packed, used = [], 0
    for hit in hits:
        if used + hit["token_estimate"] <= budget:
            packed.append(hit)
            used += hit["token_estimate"]
    answer = {
        "recall_id": str(uuid.uuid4()),
        "query_hash": hashlib.sha256(query.encode()).hexdigest(),
        "facts": packed,
        "content": packed,
        "instructions": [],
        "total_scored": len(hits),
        "token_budget": budget,
        "tokens_used": used,
        "truncated": len(packed) < len(hits),
        "tombstone_notices": [],
        "chain_proof": None,
    }
    return Answer(200, answer, {"x-total-count": str(len(hits))})


def _scored(node, found, scores, weights, scope):
    hits, carded = [], set()
    total = weights["lexical"] + weights["semantic"] + weights["graph"] + weights["recency"] or 1.0
    for row in found:
        card = _card(node, row["entity"], scope, row["tenant_id"])
        if card is not None and card["confidence"] >= 0.5:
            if row["entity"] not in carded:
                trust = {"source_trust": card["confidence"], "recency": 0.0}
                hits.append(
                    _hit(card, card["confidence"], {"lexical": 0.0, "graph": 0.0, **trust}, card=True)
                )
            carded.add(row["entity"])
            continue
        lexical = scores[row["id"]]
        plain = (weights["lexical"] * lexical + weights["graph"] + weights["recency"]) / total
        score = round(plain * row["confidence"], 6)
        parts = {"lexical": round(lexical, 4), "graph": 1.0, "source_trust": 0.0, "recency": 1.0}
        hits.append(_hit(record(row, read=True), score, parts, card=False))
    return hits


def _hit(fact, score, parts, *, card):
    text = f"{fact['entity']} {fact['relation']} {fact['value']['v'] or ''} {fact['source']}"
    breakdown = {"semantic": 0.0, **parts, "weighted_total": score}
    return {
        "fact": fact,
        "score": score,
        "score_breakdown": breakdown,
        "hop_distance": 0,
        "token_estimate": max(1, len(text) // 4),
        "from_card": card,
    }


def _card(node, entity, scope, tenant):
    rows = [
        row
        for row in node.of(tenant)
        if row["entity"] == entity and row["scope"] == scope and row["confidence"] > 0 and live(row)
    ]
    relations = [row["relation"] for row in rows]
    if not rows or len(set(relations)) < len(relations):
        return None
    lines = [f"Entity: {entity}", "Facts:"]
    lines += [f"  {row['relation']}: {row['value']['v']} (conf={row['confidence']:.2f})" for row in rows]
    average = sum(row["confidence"] for row in rows) / len(rows)
    row = {
        **rows[0],
        "id": f"card:{entity}",
        "relation": "stigmem:card:summary",
        "value": {"type": "text", "v": "\n".join(lines)},
        "source": "system:stigmem:materializer",
        "hlc": None,
        "cid": None,
        "confidence": average,
        "derived_from": [],
        "contradicted": False,
    }
    return {**record(row, read=False), "warnings": []}


@route("GET", "/v1/cards/(.+)")
def card(node, caller, groups, request):
    scope = request["params"].get("scope", "local")
    found = _card(node, normalised(groups[0], "entity"), scope, caller.tenant_id)
    if found is None:
        raise Refused(404, "no facts found for entity")
    body = {"entity_uri": found["entity"], "scope": scope, "summary": found["value"]["v"], "fact_hashes": []}
    state = {"is_stale": False, "has_contradictions": False}
    return Answer(200, {**body, "avg_confidence": found["confidence"], "refreshed_at": now(), **state})
