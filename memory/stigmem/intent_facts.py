"""Envelopes as bodies of ``/v1/intents``, and recipients' reports on them as facts. There is no I/O here."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from types import MappingProxyType
from typing import Any

from memory import InputError
from memory.adapter import BackendProtocolError
from memory.stigmem.client import MAX_LIMIT
from memory.stigmem.facts import MAX_VALUE_BYTES, Fact, NewFact, StoredValue, build_uri
from memory.stigmem.intents import IntentEnvelope, IntentRecord
from memory.stigmem.writers import Surfaces, Write, check_write

GOAL = "intent:goal"
_BRIEF = {"id", "entity", "relation", "value", "source", "confidence"}
_KIND = re.compile(r"(?:stigmem://[^/]*/)?(intent|escalation)[:/]", re.I)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)


def names_envelope(entity: str) -> bool | None:
    """Whether an entity's name is that of an envelope rather than an escalation (Spec-19 12.4.4).

    Both have a goal, and the node's ``/v1/intents`` writes an envelope's priority as ``intent:escalation``.

    Returns:
        None if the name does not tell, because the route accepts any id. Only envelopes have ``intent:from``.
    """
    kind = _KIND.match(entity)
    if kind is not None:
        return kind[1].lower() == "intent"
    return True if _UUID.fullmatch(entity) else None


def native_body(envelope: IntentEnvelope) -> dict[str, Any]:
    """Build the body of ``POST /v1/intents``. The node sets ``created_at`` itself."""
    body = envelope.body()
    del body["created_at"]
    # The node compares times as text, in the format of isoformat.
    body["expires_at"] = envelope.expires_at and envelope.expires_at.isoformat()
    return {**body, "id": f"intent:{envelope.id}"}


def from_body(body: Mapping[str, Any]) -> IntentRecord:
    """Read the envelope in an answer of ``/v1/intents``, where typed values are text (``"50"``)."""
    names = [field.alias or name for name, field in IntentRecord.model_fields.items()]
    known = {name: body[name] for name in names if name in body}
    for field, name in (("constraint", "limit"), ("preference", "value")):
        rows = known.get(field)
        if isinstance(rows, list):
            known[field] = [_retyped(row, name) for row in rows]
    return _record(known, str(body.get("id")))


def _retyped(row: Any, name: str) -> Any:
    if not isinstance(row, dict) or not isinstance(row.get(name), dict):
        return row
    value = row[name]
    return {**row, name: _typed(StoredValue(type=str(value.get("type")), v=value.get("v")))}


def _typed(value: StoredValue) -> dict[str, Any]:
    v: Any = value.v
    if isinstance(v, str) and value.type in ("number", "boolean", "null"):
        with suppress(ValueError, RecursionError):
            v = None if value.type == "null" else json.loads(v)
    return {"type": value.type, "v": v}


def _record(body: Mapping[str, Any], entity: str) -> IntentRecord:
    try:
        record = IntentRecord(**body)
    except InputError as error:
        raise BackendProtocolError(f"stigmem: the envelope {entity} cannot be read: {error}") from error
    with suppress(ValueError):  # normalise a UUID; other ids stay unchanged
        record = record.model_copy(update={"id": str(uuid.UUID(record.id.removeprefix("intent:")))})
    return record


def escalation_write(
    envelope: IntentRecord,
    entity: str,
    surfaces: Surfaces,
    problem: str,
    referred: Mapping[str, Sequence[Fact]] = MappingProxyType({}),
) -> Write:
    """Build the report of a recipient that cannot satisfy an envelope (4.5 with Spec-19 12.4.4).

    Args:
        envelope: the envelope.
        entity: its URI or id.
        surfaces: the recipient's builders.
        problem: what could not be completed.
        referred: the facts behind each ref of the envelope. If the policy includes the context, the report
            embeds them, and names the refs without facts.

    Raises:
        InputError: the envelope has no escalation policy, or the context is too large.
    """
    policy = envelope.escalation
    if policy is None:
        raise InputError("escalation: the envelope names nobody to escalate to")
    write = surfaces.escalation(policy.escalate_to, problem, policy.priority)
    if policy.include_context:
        shown = [fact.model_dump(mode="json", include=_BRIEF) for fact in chain(*referred.values())]
        absent = [ref for ref, facts in referred.items() if not facts]
        context: dict[str, Any] = {"envelope": envelope.body(), "facts": shown, "not_found": absent}
    else:
        context = {"envelope_id": envelope.id, "query": {"entity": entity, "limit": MAX_LIMIT}}
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


def deference_entity(envelope: IntentRecord, rule: int, surfaces: Surfaces) -> str:
    """Return the entity of a deference, one per recipient, so that recipients do not contradict each other."""
    if not 0 <= rule < len(envelope.deference):
        raise InputError(f"rule: the envelope has {len(envelope.deference)} deference rules, counted from 0")
    return build_uri(surfaces.authority, "deference", envelope.id, str(rule), surfaces.source)


def timeout_fact(envelope: IntentRecord, surfaces: Surfaces, rule: int, at: datetime) -> NewFact:
    """Build the record of a deference without an answer in time. Section 4.4 requires it for audits."""
    entity = deference_entity(envelope, rule, surfaces)
    return surfaces.fact(entity, "intent:deference_timeout", "datetime", at)
