"""A client for intent envelopes: ``/v1/intents`` of a node, and the facts that recipients write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, unquote, urlsplit

from memory import BackendError, CapabilityNotSupported, InputError
from memory.adapter import BackendProtocolError, BackendRejected
from memory.adapter.http import none_if_404
from memory.stigmem.client import MAX_LIMIT, StigmemNode
from memory.stigmem.facts import Fact, FactScope
from memory.stigmem.intent_facts import (
    GOAL,
    escalation_write,
    from_body,
    names_envelope,
    native_body,
    timeout_fact,
)
from memory.stigmem.intents import IntentEnvelope, IntentRecord
from memory.stigmem.writers import Surfaces, carry_out

_FACT_URI = re.compile(r"stigmem://[^/]+/fact/(.+)")


@dataclass(frozen=True)
class IntentReceipt:
    """A stored envelope. ``entity`` is its id on the node, for :meth:`IntentClient.get`."""

    entity: str
    fact_ids: tuple[str, ...] = ()  # ids of the envelope's facts; empty if it existed before
    existed: bool = False


@dataclass(frozen=True)
class InFlight:
    envelopes: Mapping[str, IntentRecord]  # by entity, newest first
    unreadable: Mapping[str, str]  # entity -> the reason
    truncated: bool  # whether the node may hold more goals than one answer (500) shows


class IntentClient:
    """The envelopes of one node. The caller closes the node's client.

    If another agent's facts contradict an envelope, the envelope leaves the node's default queries and is no
    longer in flight.

    Raises:
        BackendError: the node failed. Every method may raise this.
        CapabilityNotSupported: the node accepts no envelopes from this key. Methods about envelopes raise it.
    """

    def __init__(self, node: StigmemNode) -> None:
        self._node = node
        self._offered = False
        self._authority: str | None = None

    async def _check_offered(self) -> None:
        """Probe the route once, by an empty envelope, which no node accepts.

        A tenant's key is refused, because the route writes to the default tenant, where every key can read.
        """
        if self._offered:
            return
        try:
            await self._node.request("POST", "/v1/intents", json={})
        except BackendRejected as error:
            if error.status not in (400, 422):
                raise CapabilityNotSupported("stigmem: the node has no /v1/intents") from error
        if (await self._node.me()).get("tenant_id") not in (None, "default"):
            why = "stigmem: /v1/intents writes to the node's default tenant; give a key of that tenant"
            raise CapabilityNotSupported(why)
        self._offered = True

    async def authority(self) -> str:
        """Return the node's authority, such as ``localhost:8765``, for the entities of recipients' facts."""
        if self._authority is None:
            stated = urlsplit((await self._node.well_known()).node_url or "").netloc
            self._authority = (stated or urlsplit(self._node.url).netloc).lower()
        return self._authority

    async def submit(self, envelope: IntentEnvelope) -> IntentReceipt:
        """Send an envelope. Its goal fact exists when this returns. Sending it again changes nothing.

        Raises:
            InputError: the envelope has expired.
        """
        if envelope.is_expired():
            raise InputError("expires_at: has passed; the envelope would never be in flight")
        await self._check_offered()
        entity = f"intent:{envelope.id}"
        try:
            answer = await self._node.object("POST", "/v1/intents", json=native_body(envelope))
        except BackendError as error:
            uncertain = error.ambiguous or error.status == 409
            with suppress(BackendError):  # if the check fails, too, the first error is raised
                if uncertain and await self.get(entity) is not None:
                    return IntentReceipt(entity, existed=True)
            raise
        ids = answer.get("fact_ids")
        return IntentReceipt(entity, tuple(map(str, ids if isinstance(ids, list) else ())))

    async def get(self, entity: str) -> IntentRecord | None:
        """Find an envelope by the entity of its receipt or by its id; None if it is not in flight.

        Raises:
            BackendProtocolError: the envelope exists, but is not readable.
        """
        await self._check_offered()
        for name in dict.fromkeys((entity, f"intent:{entity.removeprefix('intent:')}")):
            answer = self._node.object("GET", f"/v1/intents/{quote(name, safe=':')}")
            if (body := await none_if_404(answer)) is not None:
                return from_body(body)
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
        await self._check_offered()
        goals = await self._node.query(relation=GOAL, source=sender, scope="company")
        envelopes: dict[str, IntentRecord] = {}
        unreadable: dict[str, str] = {}
        senders: set[str] = set()
        if any(names_envelope(fact.entity) is None for fact in goals):
            sent = await self._node.query(relation="intent:from", source=sender, scope="company")
            senders = {fact.entity for fact in sent}
        for fact in goals:
            if not (names_envelope(fact.entity) or fact.entity in senders):
                continue
            if goal is not None and fact.value.v != goal:
                continue
            try:
                found = await self.get(fact.entity)
            except BackendProtocolError as error:
                unreadable[fact.entity] = str(error)
                continue
            if found is None or found.is_expired(now or datetime.now(UTC)):
                continue
            if (to is None or to in found.to) and (sender is None or sender == found.from_):
                envelopes[fact.entity] = found
        return InFlight(envelopes, unreadable, truncated=len(goals) >= MAX_LIMIT)

    async def escalate(
        self, entity: str, envelope: IntentRecord, *, source: str, problem: str
    ) -> tuple[Fact, ...]:
        """Report to the envelope's ``escalate_to`` that the recipient ``source`` cannot satisfy it (4.5).

        The report is a set of facts, for every channel of the policy.
        """
        surfaces = Surfaces(source, await self.authority())
        context: dict[str, list[Fact]] = {}
        if envelope.escalation is not None and envelope.escalation.include_context and envelope.handoff:
            for ref in envelope.handoff.fact_refs:
                context[ref] = await self._referred_to(ref, envelope.scope)
        return await carry_out(self._node, escalation_write(envelope, entity, surfaces, problem, context))

    async def _referred_to(self, ref: str, scope: FactScope) -> list[Fact]:
        """Return the fact of a fact's URI, or all facts of an entity, without facts of another scope."""
        match = _FACT_URI.fullmatch(ref)
        if match is None:
            return await self._node.query(entity=ref, scope=scope)
        fact = await none_if_404(self._node.get_fact(unquote(match[1])))
        return [fact] if fact is not None and fact.scope == scope else []

    async def record_timeout(
        self, envelope: IntentRecord, rule: int, *, source: str, at: datetime | None = None
    ) -> Fact:
        """Record that a deference got no answer in time. Section 4.4 requires this for audits."""
        surfaces = Surfaces(source, await self.authority())
        return await self._node.assert_fact(timeout_fact(envelope, surfaces, rule, at or datetime.now(UTC)))
