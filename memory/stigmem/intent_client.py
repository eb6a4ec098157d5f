"""Sending and finding intent envelopes by a node's ``/v1/intents``, and what recipients do about them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import anyio

from memory import BackendError, CapabilityNotSupported, InputError
from memory.adapter import BackendProtocolError, BackendRejected
from memory.adapter.fields import normalise
from memory.adapter.http import none_if_404
from memory.stigmem.client import MAX_LIMIT, StigmemNode
from memory.stigmem.facts import Fact, FactScope, FactValue
from memory.stigmem.intent_facts import (
    ANSWER,
    DEFER_TO,
    GOAL,
    asked_at,
    deference_write,
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
    """A stored envelope. The node holds it under ``entity``, the id for :meth:`IntentClient.get`."""

    entity: str
    fact_ids: tuple[str, ...] = ()  # of the facts it became; empty where it was there before
    existed: bool = False


@dataclass(frozen=True)
class InFlight:
    envelopes: Mapping[str, IntentRecord]  # by entity, newest first
    unreadable: Mapping[str, str]  # entity -> why
    truncated: bool  # whether the node may hold more goals than one answer carries (500)


@dataclass(frozen=True)
class Consultation:
    """The result of a question by a deference rule. ``audit`` is the fact that records a timeout."""

    entity: str
    answer: Fact | None
    audit: Fact | None = None  # None as well where the node did not take it


class IntentClient:
    """The envelopes of one node; its client is not closed here. An envelope that somebody contradicts by facts of
    their own leaves the node's default queries, and so is no longer in flight. Where the node fails, every method
    raises BackendError; where it takes no envelopes from us, those about envelopes raise CapabilityNotSupported."""

    def __init__(self, node: StigmemNode) -> None:
        self._node = node
        self._offered = False
        self._authority: str | None = None

    async def _check_offered(self) -> None:
        """Probe the route once, by an empty envelope, which no node accepts. A tenant's key is refused: the route
        writes to the node's default tenant, for every key to read."""
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
        """The node's authority, such as ``localhost:8765``, which names the entities of what recipients say."""
        if self._authority is None:
            stated = urlsplit((await self._node.well_known()).node_url or "").netloc
            self._authority = (stated or urlsplit(self._node.url).netloc).lower()
        return self._authority

    async def submit(self, envelope: IntentEnvelope) -> IntentReceipt:
        """Send an envelope; its goal fact exists when this returns. Sending the same one again changes nothing.
        Raises InputError where it has expired, or has another envelope's id."""
        if envelope.is_expired():
            raise InputError("expires_at: has passed; the envelope would never be in flight")
        await self._check_offered()
        entity = f"intent:{envelope.id}"
        try:
            answer = await self._node.object("POST", "/v1/intents", json=native_body(envelope))
        except BackendError as error:
            uncertain = error.ambiguous or error.status == 409
            with suppress(BackendError):  # a node that cannot be asked has not told: the first error counts
                if uncertain and await self._is_there(entity, envelope):
                    return IntentReceipt(entity, existed=True)
            raise
        ids = answer.get("fact_ids")
        return IntentReceipt(entity, tuple(map(str, ids if isinstance(ids, list) else ())))

    async def _is_there(self, entity: str, envelope: IntentEnvelope) -> bool:
        found = await self.get(entity)
        if found is None:
            return False
        if _comparable(found) != _comparable(envelope):
            raise InputError("id: belongs to another envelope already; leave it out to get a new one")
        return True

    async def get(self, entity: str) -> IntentRecord | None:
        """One envelope, by the entity of its receipt or by its id; None where none is in flight.
        BackendProtocolError where it is there, but not readable."""
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
        """The envelopes that have not expired, found by their goal facts; ``goal`` is compared as a whole."""
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
            if goal is not None and _folded(fact.value.v) != _folded(goal):
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
        """Tell whom the envelope names that it cannot be satisfied (4.5). Delivered as facts, whatever the channel.
        ``source`` is the recipient that gives up."""
        surfaces = Surfaces(source, await self.authority())
        context: dict[str, list[Fact]] = {}
        if envelope.escalation is not None and envelope.escalation.include_context and envelope.handoff:
            for ref in envelope.handoff.fact_refs:
                context[ref] = await self._referred_to(ref, envelope.scope)
        return await carry_out(self._node, escalation_write(envelope, entity, surfaces, problem, context))

    async def _referred_to(self, ref: str, scope: FactScope) -> list[Fact]:
        """The fact of a fact's URI, or all facts of an entity; none of a narrower scope, which would leave it."""
        match = _FACT_URI.fullmatch(ref)
        if match is None:
            return await self._node.query(entity=ref, scope=scope)
        fact = await none_if_404(self._node.get_fact(unquote(match[1])))
        return [fact] if fact is not None and fact.scope == scope else []

    async def consult(
        self,
        envelope: IntentRecord,
        rule: int,
        question: str,
        *,
        source: str,
        timeout_s: float = 60.0,
        poll_s: float = 1.0,
    ) -> Consultation:
        """Ask whom a deference rule names, and wait for the answer as long as the rule allows (4.4), or
        ``timeout_s``. A node that fails while we wait is asked again until the time is up. Then the timeout is
        recorded, and the recipient decides by itself. Asked again, as by a recipient that was started anew, the
        same question waits until the time of the first is up, and finds the answer that came meanwhile."""
        surfaces = Surfaces(source, await self.authority())
        now = datetime.now(UTC)
        write = deference_write(envelope, rule, surfaces, question, now)
        whom, wait_s = envelope.deference[rule].defer_to, envelope.deference[rule].timeout_s
        goal, _ = await carry_out(self._node, write)
        deadline = asked_at(goal, now) + timedelta(seconds=timeout_s if wait_s is None else wait_s)

        async def look() -> Fact | None:
            with suppress(BackendError):
                for fact in await self._node.query(
                    entity=write.entity, relation=ANSWER, scope="company", include_contradicted=True
                ):
                    if surfaces.as_ref(fact.source, urlsplit(whom).netloc) == whom:
                        return fact
            return None

        answer = await look()
        with anyio.move_on_after((deadline - datetime.now(UTC)).total_seconds()):
            while answer is None:
                await anyio.sleep(poll_s)
                answer = await look()
        if answer is not None:
            return Consultation(write.entity, answer)
        audit = None
        with suppress(BackendError):
            audit = await self.record_timeout(envelope, rule, source=source, at=deadline)
        return Consultation(write.entity, None, audit)

    async def questions(self, to: str) -> dict[str, str]:
        """Questions to the agent ``to`` without an answer: entity -> question, newest first."""
        found = {}
        for fact in await self._node.query(relation=DEFER_TO, scope="company"):
            if fact.value.v == to:
                about = await self._node.query(entity=fact.entity, scope="company", include_contradicted=True)
                values = {said.relation: said.value.v for said in reversed(about)}
                if ANSWER not in values:
                    found[fact.entity] = str(values.get(GOAL, ""))
        return found

    async def answer(self, entity: str, value: FactValue, *, source: str) -> Fact:
        """Answer a question of :meth:`questions`; ``source`` is the agent that was asked."""
        surfaces = Surfaces(source, await self.authority())
        return await self._node.assert_fact(surfaces.fact(entity, ANSWER, value.type, value.v))

    async def record_timeout(
        self, envelope: IntentRecord, rule: int, *, source: str, at: datetime | None = None
    ) -> Fact:
        """Record that nobody answered a deference in time, which 4.4 wants for audit."""
        surfaces = Surfaces(source, await self.authority())
        return await self._node.assert_fact(timeout_fact(envelope, surfaces, rule, at or datetime.now(UTC)))


def _comparable(envelope: IntentRecord) -> Any:
    """The identity of an envelope. The node's native route sets ``created_at`` and orders lists itself."""
    body = envelope.body()
    del body["created_at"]
    body["to"] = sorted(body["to"])
    if body["handoff"]:
        body["handoff"]["fact_refs"] = sorted(body["handoff"]["fact_refs"])
    return _folded(body)


def _folded(value: Any) -> Any:
    """Text as the node's sanitizer returns it: compatibility forms folded, invisible characters gone."""
    if isinstance(value, str):
        folded = normalise("NFKC", value)
        return "".join(char for char in folded if unicodedata.category(char) not in ("Cc", "Cf"))
    if isinstance(value, dict):
        return {name: _folded(item) for name, item in value.items()}
    return [_folded(item) for item in value] if isinstance(value, list) else value
