"""Envelopes as facts, as the node's ``/v1/intents`` bodies, and back again. Nothing here does I/O.

The node's own decomposition puts several facts under one entity and relation, which facts asserted over
``POST /v1/facts`` may not be: they contradict each other and vanish from queries. So the second and later entries
of a list carry their number in the relation (``intent:to``, ``intent:to:1``), and one query by entity gives all.
``intent:goal`` is asserted last: an envelope is in flight when it is whole. The policy's priority stands under
``intent:escalation:priority``, because ``intent:escalation`` says that somebody *has* escalated (Spec-19 12.3.2).
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from memory import InputError
from memory.adapter import BackendProtocolError
from memory.stigmem.facts import MAX_VALUE_BYTES, Fact, FactValue, NewFact, StoredValue, ValueType, build_uri
from memory.stigmem.intents import IntentEnvelope, IntentRecord
from memory.stigmem.writers import Surfaces, Write, check_write

__all__ = [
    "GOAL",
    "MAX_FACTS",
    "envelope_write",
    "escalation_write",
    "from_body",
    "from_facts",
    "names_envelope",
    "native_body",
    "timeout_fact",
]

GOAL = "intent:goal"
MAX_FACTS = 500
"""What one answer of a node can hold; there is no second page that is complete."""
_COUNT = "intent:fact_count"
_KIND = re.compile(r"(?:stigmem://[^/]*/)?(intent|escalation)[:/]", re.I)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)

_LISTS: Mapping[str, tuple[tuple[str, str, ValueType | None], ...]] = {
    # field -> (attribute, relation, value type; None: the attribute is a typed value itself)
    "constraint": (
        ("kind", "intent:constraint:kind", "string"),
        ("limit", "intent:constraint:limit", None),
        ("unit", "intent:constraint:unit", "string"),
    ),
    "preference": (
        ("kind", "intent:preference:kind", "string"),
        ("value", "intent:preference:value", None),
        ("weight", "intent:preference:weight", "number"),
    ),
    "deference": (
        ("condition", "intent:deference:condition", "text"),
        ("defer_to", "intent:deference:defer_to", "ref"),
        ("timeout_s", "intent:deference:timeout_s", "number"),
    ),
    "artifacts": (
        ("name", "intent:artifact:name", "string"),
        ("ref", "intent:artifact:ref", "ref"),
    ),
}
_ESCALATION: tuple[tuple[str, str, ValueType], ...] = (
    ("escalate_to", "intent:escalation:to", "ref"),
    ("channel", "intent:escalation:channel", "string"),
    ("priority", "intent:escalation:priority", "string"),
    ("include_context", "intent:escalation:context", "boolean"),
)


def names_envelope(entity: str) -> bool | None:
    """Whether an entity is an envelope, by its name, rather than an escalation (Spec-19 12.4.4).

    Both have a goal, and the node's ``/v1/intents`` writes an envelope's own priority as ``intent:escalation``.
    None where the name does not tell, because that route takes any id; only envelopes have an ``intent:from``.
    """
    kind = _KIND.match(entity)
    if kind is not None:
        return kind[1].lower() == "intent"
    return True if _UUID.fullmatch(entity) else None


def _numbered(relation: str, position: int) -> str:
    return relation if position == 0 else f"{relation}:{position}"


def _list_values(rows: Iterable[Any], field: str) -> Iterable[tuple[str, FactValue]]:
    for position, row in enumerate(rows):
        for attribute, relation, kind in _LISTS[field]:
            value = getattr(row, attribute)
            if value is not None:
                typed = value if kind is None else FactValue(type=kind, v=value)
                yield _numbered(relation, position), typed


def _values(envelope: IntentEnvelope) -> Iterable[tuple[str, FactValue]]:
    yield "intent:from", FactValue(type="ref", v=envelope.from_)
    for position, recipient in enumerate(envelope.to):
        yield _numbered("intent:to", position), FactValue(type="ref", v=recipient)
    yield "intent:created_at", FactValue(type="datetime", v=envelope.created_at)
    if envelope.expires_at is not None:
        yield "intent:expires_at", FactValue(type="datetime", v=envelope.expires_at)
    for field in ("constraint", "preference", "deference"):
        yield from _list_values(getattr(envelope, field), field)
    for attribute, relation, kind in _ESCALATION:
        yield relation, FactValue(type=kind, v=getattr(envelope.escalation, attribute))
    handoff = envelope.handoff
    if handoff is not None:
        yield "intent:handoff_summary", FactValue(type="text", v=handoff.summary)
        for position, ref in enumerate(handoff.fact_refs):
            yield _numbered("intent:context_ref", position), FactValue(type="ref", v=ref)
        if handoff.continuation is not None:
            yield "intent:continuation", FactValue(type="text", v=handoff.continuation)
        yield from _list_values(handoff.artifacts, "artifacts")
        yield "intent:handoff_to", FactValue(type="ref", v=envelope.to[0])


def envelope_write(envelope: IntentEnvelope, authority: str) -> Write:
    """The envelope as facts about ``stigmem://{authority}/intent/{id}``, the goal last.

    Raises:
        InputError: it makes more facts than one answer can hold.
    """
    entity = build_uri(authority, "intent", envelope.id)
    values = list(_values(envelope))
    total = len(values) + 2
    if total > MAX_FACTS:
        raise InputError(
            f"IntentEnvelope: makes {total} facts; a node returns at most {MAX_FACTS} at once, so shorten its lists"
        )
    values += [(_COUNT, FactValue(type="number", v=total)), (GOAL, FactValue(type="text", v=envelope.goal))]
    facts = tuple(
        NewFact(
            entity=entity,
            relation=relation,
            value=value,
            source=envelope.from_,
            scope=envelope.scope,
            valid_until=envelope.expires_at,
        )
        for relation, value in values
    )
    return check_write(Write("intent", entity, facts))


def from_facts(facts: Iterable[Fact]) -> IntentRecord | None:
    """The envelope that facts of one entity tell, or None where its goal is not among them.

    Raises:
        BackendProtocolError: facts are missing, or one does not hold what its relation says.
    """
    facts = list(facts)
    goal = next((fact for fact in facts if fact.relation == GOAL), None)
    if goal is None:
        return None
    # Anyone may say something about an envelope; what it is, only its sender says.
    by_relation = {fact.relation: fact for fact in facts if fact.source == goal.source}
    count = by_relation.get(_COUNT)
    told = _plain(count) if count is not None else "an unknown number of"
    if told != len(by_relation):
        raise BackendProtocolError(
            f"stigmem: the envelope {goal.entity} is not whole: {len(by_relation)} of {told} facts can be read"
        )
    body: dict[str, Any] = {
        "id": goal.entity.rsplit("/", 1)[-1],
        "from": _plain(by_relation.get("intent:from")),
        "to": _sequence(by_relation, "intent:to"),
        "goal": _plain(goal),
        "scope": goal.scope,
        "created_at": _plain(by_relation.get("intent:created_at")),
        "expires_at": _plain(by_relation.get("intent:expires_at")),
        "escalation": {name: _plain(by_relation.get(relation)) for name, relation, _ in _ESCALATION},
        "handoff": _handoff(by_relation),
        **{field: _rows(by_relation, field) for field in ("constraint", "preference", "deference")},
    }
    return _record(body, goal.entity)


def _plain(fact: Fact | None) -> Any:
    return None if fact is None else fact.value.v


def _sequence(by_relation: Mapping[str, Fact], relation: str) -> list[Any]:
    found: list[Any] = []
    while (fact := by_relation.get(_numbered(relation, len(found)))) is not None:
        found.append(fact.value.v)
    return found


def _rows(by_relation: Mapping[str, Fact], field: str) -> list[dict[str, Any]]:
    columns = _LISTS[field]
    rows: list[dict[str, Any]] = []
    while _numbered(columns[0][1], len(rows)) in by_relation:
        row: dict[str, Any] = {}
        for attribute, relation, kind in columns:
            fact = by_relation.get(_numbered(relation, len(rows)))
            if fact is not None:
                row[attribute] = _typed(fact.value) if kind is None else _whole(fact.value.v)
        rows.append(row)
    return rows


def _handoff(by_relation: Mapping[str, Fact]) -> dict[str, Any] | None:
    if "intent:handoff_summary" not in by_relation:
        return None
    return {
        "summary": _plain(by_relation["intent:handoff_summary"]),
        "fact_refs": _sequence(by_relation, "intent:context_ref"),
        "continuation": _plain(by_relation.get("intent:continuation")),
        "artifacts": _rows(by_relation, "artifacts"),
    }


def native_body(envelope: IntentEnvelope) -> dict[str, Any]:
    """The body of ``POST /v1/intents``. The node sets ``created_at`` itself."""
    body = envelope.body()
    del body["created_at"]
    # The node compares times as text, in the form that isoformat gives.
    body["expires_at"] = envelope.expires_at and envelope.expires_at.isoformat()
    return {**body, "id": f"intent:{envelope.id}"}


def from_body(body: Mapping[str, Any]) -> IntentRecord:
    """The envelope in an answer of ``/v1/intents``, whose typed values come back as text (``"50"``, ``"true"``).

    Raises:
        BackendProtocolError: a field is missing or does not hold what section 4 says.
    """
    known = {name: body[name] for name in _FIELDS if name in body}
    for field, name in (("constraint", "limit"), ("preference", "value")):
        rows = known.get(field)
        if isinstance(rows, list):
            known[field] = [_retyped(row, name) for row in rows]
    return _record(known, str(body.get("id")))


_FIELDS = tuple(field.alias or name for name, field in IntentRecord.model_fields.items())


def _retyped(row: Any, name: str) -> Any:
    if not isinstance(row, dict) or not isinstance(row.get(name), dict):
        return row
    value = row[name]
    return {**row, name: _typed(StoredValue(type=str(value.get("type")), v=value.get("v")))}


def _typed(value: StoredValue) -> dict[str, Any]:
    v: Any = value.v
    if isinstance(v, str):
        if value.type == "number":
            v = _number(v)
        elif value.type == "boolean":
            v = {"true": True, "false": False}.get(v, v)
        elif value.type == "null":
            v = None
    return {"type": value.type, "v": v}


def _whole(value: Any) -> Any:
    """A node returns every number as a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _record(body: Mapping[str, Any], entity: str) -> IntentRecord:
    try:
        record = IntentRecord(**body)
    except InputError as error:
        raise BackendProtocolError(f"stigmem: the envelope {entity} cannot be read: {error}") from error
    return record.model_copy(update={"id": _bare(record.id)})


def _bare(intent_id: str) -> str:
    """``intent:<uuid>``, the node's form, as the UUID of section 4; any other id as it is."""
    try:
        return str(uuid.UUID(intent_id.removeprefix("intent:")))
    except ValueError:
        return intent_id


def escalation_write(
    envelope: IntentRecord,
    entity: str,
    surfaces: Surfaces,
    problem: str,
    referred: Mapping[str, Sequence[Fact]] = MappingProxyType({}),
) -> Write:
    """What a recipient asserts that cannot satisfy an envelope (4.5 with Spec-19 12.4.4).

    Args:
        entity: the envelope's own URI or id.
        surfaces: of the recipient, who is the source.
        problem: what could not be done, at most 2048 bytes of UTF-8.
        referred: the envelope's refs -> the facts behind each; embedded only where the policy includes the context,
            which names the refs that lead nowhere.

    Raises:
        InputError: the envelope has no escalation policy, or ``problem`` or the embedded context are too long.
    """
    policy = envelope.escalation
    if policy is None:
        raise InputError("escalation: the envelope names nobody to escalate to")
    write = surfaces.escalation(policy.escalate_to, problem, policy.priority)
    if policy.include_context:
        context: dict[str, Any] = {
            "envelope": envelope.body(),
            "facts": [_brief(fact) for facts in referred.values() for fact in facts],
            "not_found": [ref for ref, facts in referred.items() if not facts],
        }
    else:
        context = {"envelope_id": envelope.id, "query": {"entity": entity, "limit": MAX_FACTS}}
    text = json.dumps(context, ensure_ascii=False, sort_keys=True)
    if len(text.encode()) > MAX_VALUE_BYTES:
        raise InputError(
            f"escalation: the envelope and its facts are over {MAX_VALUE_BYTES} bytes; "
            "set include_context to False in the policy, or give fewer facts"
        )
    extra = (
        surfaces.fact(write.entity, "intent:escalation_of", "string", entity),
        surfaces.fact(write.entity, "intent:escalation_context", "text", text),
    )
    return check_write(Write(write.what, write.entity, (*extra, *write.facts)))


def timeout_fact(envelope: IntentRecord, surfaces: Surfaces, rule: int, at: datetime) -> NewFact:
    """The record of a deference that was not answered in time, which section 4.4 wants for audit.

    Args:
        surfaces: of the recipient, who is the source.
        rule: the rule's position in ``deference``.
        at: when the recipient stopped waiting, timezone-aware.

    Raises:
        InputError: the envelope has no such rule, or ``at`` is naive.
    """
    if not 0 <= rule < len(envelope.deference):
        raise InputError(f"rule: the envelope has {len(envelope.deference)} deference rules, counted from 0")
    entity = build_uri(surfaces.authority, "deference", envelope.id, str(rule))
    return surfaces.fact(entity, "intent:deference_timeout", "datetime", at)


def _brief(fact: Fact) -> dict[str, Any]:
    return fact.model_dump(mode="json", include={"id", "entity", "relation", "value", "source", "confidence"})
