"""A client for intent envelopes: ``/v1/intents`` of a node, and the facts that recipients write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from memory import BackendError, CapabilityNotSupported, InputError
from memory.adapter import BackendProtocolError, BackendRejected
from memory.adapter.http import none_if_404
from memory.stigmem.client import MAX_LIMIT, StigmemNode
from memory.stigmem.facts import MAX_VALUE_BYTES, Fact, build_uri
from memory.stigmem.intents import IntentEnvelope
from memory.stigmem.writers import Surfaces, Write, carry_out, is_escalation

_FACT_URI = re.compile(r"stigmem://[^/]+/fact/(.+)")
_BRIEF = {"id", "entity", "relation", "value", "source", "confidence"}


@dataclass(frozen=True)
class IntentReceipt:
    """A stored envelope. ``entity`` is its id on the node, for :meth:`IntentClient.get`."""

    entity: str
    fact_ids: tuple[str, ...] = ()  # ids of the envelope's facts; empty if it existed before
    existed: bool = False


@dataclass(frozen=True)
class InFlight:
    envelopes: Mapping[str, IntentEnvelope]  # by entity, newest first
    unreadable: Mapping[str, str]  # entity -> the reason, such as a broken rule of section 4
    truncated: bool  # whether the node may hold more goals than one answer (500) shows


class IntentClient:
    """The envelopes of one node. The caller closes the node's client.

    If another agent's facts contradict an envelope, the envelope leaves the node's default queries and is no
    longer in flight.

    Raises:
        BackendError: the node failed. Every method may raise this.
    """

    def __init__(self, node: StigmemNode) -> None:
        self._node = node

    async def authority(self) -> str:
        """Return the node's authority, such as ``localhost:8765``, for the entities of recipients' facts."""
        stated = urlsplit((await self._node.well_known()).node_url or "").netloc
        return (stated or urlsplit(self._node.url).netloc).lower()

    async def submit(self, envelope: IntentEnvelope) -> IntentReceipt:
        """Send an envelope. Its goal fact exists when this returns. Sending it again changes nothing.

        Raises:
            InputError: the envelope has expired.
            CapabilityNotSupported: the node has no ``/v1/intents``, or the key is a tenant's. The route writes
                to the default tenant, where every key can read.
        """
        if envelope.is_expired():
            raise InputError("expires_at: has passed; the envelope would never be in flight")
        if (await self._node.me()).get("tenant_id") not in (None, "default"):
            why = "stigmem: /v1/intents writes to the node's default tenant; give a key of that tenant"
            raise CapabilityNotSupported(why)
        entity = f"intent:{envelope.id}"
        try:
            answer = await self._node.object("POST", "/v1/intents", json=_native_body(envelope))
        except BackendError as error:
            if isinstance(error, BackendRejected) and error.status in (404, 405):
                raise CapabilityNotSupported("stigmem: the node has no /v1/intents") from error
            uncertain = error.ambiguous or error.status == 409
            with suppress(BackendError):  # if the check fails, too, the first error is raised
                if uncertain and await self.get(entity) is not None:
                    return IntentReceipt(entity, existed=True)
            raise
        ids = answer.get("fact_ids")
        return IntentReceipt(entity, tuple(map(str, ids if isinstance(ids, list) else ())))

    async def get(self, entity: str) -> IntentEnvelope | None:
        """Find an envelope by the entity of its receipt or by its id; None if it is not in flight.

        Raises:
            BackendProtocolError: the envelope exists, but breaks a rule of section 4 or is not readable.
        """
        for name in dict.fromkeys((entity, f"intent:{entity.removeprefix('intent:')}")):
            answer = self._node.object("GET", f"/v1/intents/{quote(name, safe=':')}")
            if (body := await none_if_404(answer)) is not None:
                return _from_body(body)
        return None

    async def in_flight(
        self,
        *,
        goal: str | None = None,
        to: str | None = None,
        sender: str | None = None,
        now: datetime | None = None,
    ) -> InFlight:
        """Find the envelopes that have not expired, by their goal facts. ``goal`` is as the node keeps it."""
        goals = await self._node.query(relation="intent:goal", source=sender, scope="company")
        envelopes: dict[str, IntentEnvelope] = {}
        unreadable: dict[str, str] = {}
        for fact in goals:
            if is_escalation(fact.entity) or goal not in (None, fact.value.v):
                continue
            try:
                found = await self.get(fact.entity)
            except BackendProtocolError as error:
                unreadable[fact.entity] = str(error)
                continue
            if found is None or found.is_expired(now or datetime.now(UTC)):
                continue
            if (to is None or to in found.to) and sender in (None, found.from_):
                envelopes[fact.entity] = found
        return InFlight(envelopes, unreadable, truncated=len(goals) >= MAX_LIMIT)

    async def escalate(
        self, entity: str, envelope: IntentEnvelope, *, source: str, problem: str
    ) -> tuple[Fact, ...]:
        """Report to the envelope's ``escalate_to`` that the recipient ``source`` cannot satisfy it (4.5).

        The report is a set of facts, for every channel of the policy. If the policy includes the context, the
        report embeds the envelope and the facts that its handoff refers to, and names the refs without facts.

        Raises:
            InputError: the problem or the context is too large.
        """
        surfaces = Surfaces(source, await self.authority())
        policy = envelope.escalation
        context: dict[str, Any] = {
            "envelope_id": envelope.id,
            "query": {"entity": entity, "limit": MAX_LIMIT},
        }
        if policy.include_context:
            context = {"envelope": envelope.body(), "facts": [], "not_found": []}
            for ref in envelope.handoff.fact_refs if envelope.handoff else ():
                facts = await self._referred_to(ref)
                context["facts"] += [fact.model_dump(mode="json", include=_BRIEF) for fact in facts]
                context["not_found"] += [] if facts else [ref]
        text = json.dumps(context, ensure_ascii=False, sort_keys=True)
        if len(text.encode()) > MAX_VALUE_BYTES:
            raise InputError(
                f"escalation: the envelope and its facts are over {MAX_VALUE_BYTES} bytes; "
                "set include_context to False in the policy, or give fewer facts"
            )
        write = surfaces.escalation(policy.escalate_to, problem, policy.priority)
        about = (
            surfaces.fact(write.entity, "intent:escalation_of", "string", entity),
            surfaces.fact(write.entity, "intent:escalation_context", "text", text),
        )
        return await carry_out(self._node, Write(write.what, write.entity, (*about, *write.facts)))

    async def _referred_to(self, ref: str) -> list[Fact]:
        """Return the fact of a fact's URI, or all facts of an entity, without facts of another scope."""
        match = _FACT_URI.fullmatch(ref)
        if match is None:
            return await self._node.query(entity=ref, scope="company")
        fact = await none_if_404(self._node.get_fact(unquote(match[1])))
        return [fact] if fact is not None and fact.scope == "company" else []

    async def record_timeout(
        self, envelope: IntentEnvelope, rule: int, *, source: str, at: datetime | None = None
    ) -> Fact:
        """Record that a deference got no answer in time. Section 4.4 requires this for audits.

        The fact's entity is one per recipient, so that recipients do not contradict each other.

        Raises:
            InputError: the envelope has no such ``rule``, counted from 0, or ``at`` has no time zone.
        """
        if not 0 <= rule < len(envelope.deference):
            count = len(envelope.deference)
            raise InputError(f"rule: the envelope has {count} deference rules, counted from 0")
        surfaces = Surfaces(source, await self.authority())
        entity = build_uri(surfaces.authority, "deference", envelope.id, str(rule), source)
        moment = at or datetime.now(UTC)
        return await self._node.assert_fact(
            surfaces.fact(entity, "intent:deference_timeout", "datetime", moment)
        )


def _native_body(envelope: IntentEnvelope) -> dict[str, Any]:
    """Build the body of ``POST /v1/intents``. The node sets ``created_at`` itself."""
    body = envelope.body()
    del body["created_at"]
    # The node compares times as text, in the format of isoformat.
    body["expires_at"] = envelope.expires_at and envelope.expires_at.isoformat()
    return {**body, "id": f"intent:{envelope.id}"}


def _from_body(body: Mapping[str, Any]) -> IntentEnvelope:
    """Read the envelope in an answer of ``/v1/intents``, where typed values are text (``"50"``)."""
    names = [field.alias or name for name, field in IntentEnvelope.model_fields.items()]
    known = {name: body[name] for name in names if name in body}
    try:
        for field, name in (("constraint", "limit"), ("preference", "value")):
            known[field] = [{**row, name: _typed(row[name])} for row in known.get(field) or ()]
        return IntentEnvelope(**known)
    except (InputError, KeyError, TypeError) as error:
        why = f"stigmem: the envelope {body.get('id')} cannot be read: {error}"
        raise BackendProtocolError(why) from error


def _typed(value: Mapping[str, Any]) -> dict[str, Any]:
    kind, v = value["type"], value["v"]
    if isinstance(v, str) and kind in ("number", "boolean", "null"):
        with suppress(ValueError, RecursionError):
            v = None if kind == "null" else json.loads(v)
    return {"type": kind, "v": v}
