"""An agent that takes envelopes from a Stigmem node: it keeps their limits, or escalates.

    STIGMEM_URL=http://127.0.0.1:8765 STIGMEM_SOURCE_ENTITY=agent:buyer python stigmem_agent.py 12.50 9/5

Its one skill is to take one of the offers given: a price, or a price and the days until delivery. It takes the
offer within the limits that the envelope's preferences rank first. ``IntentClient.submit`` sends it something to
do. See what it did:

    memslot tools stigmem boot stigmem://127.0.0.1:8765/user/me
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import anyio

from memory.stigmem.abi import StigmemAbi
from memory.stigmem.intent_client import IntentClient
from memory.stigmem.intents import Estimate, IntentEnvelope, broken_constraints, ranked_options
from memory.stigmem.writers import carry_out

Offers = Mapping[str, Mapping[str, float]]  # name -> cost in EUR, and days


def chosen(envelope: IntentEnvelope, offers: Offers) -> tuple[float, tuple[str, ...]]:
    """The price of the best offer, and which limits it breaks; none if any offer keeps all of them."""
    best: tuple[float, tuple[str, ...]] | None = None
    for name, _ in ranked_options(envelope, offers):
        price = offers[name]["cost"]
        broken = broken_constraints(envelope, {"budget": Estimate(price, "EUR"), "max_calls": 1})
        if not broken:
            return price, ()
        best = best or (price, broken)
    assert best is not None, "there is at least one offer"
    return best


async def handle(
    intents: IntentClient, abi: StigmemAbi, entity: str, envelope: IntentEnvelope, offers: Offers
) -> str:
    """One envelope: ``done`` or ``escalated``, and why."""
    source = abi.surfaces.source
    price, broken = chosen(envelope, offers)
    if broken:
        problem = f"{envelope.goal}: {'; '.join(broken)}"
        await intents.escalate(entity, envelope, source=source, problem=problem)
        return f"escalated: {problem}"
    notes = []
    for rule, deference in enumerate(envelope.deference):  # this agent has no way to ask anybody
        await intents.record_timeout(envelope, rule, source=source)
        notes.append(f"{deference.defer_to} was not asked")
    summary = "; ".join([f"{envelope.goal}: bought at {price:.2f} EUR", *notes])
    async with abi.open_node() as node:
        await carry_out(node, abi.surfaces.decision(f"intent-{envelope.id}", summary))
    return f"done: {summary}"


async def main(*given: str) -> None:
    """Handle every envelope to this agent that is in flight."""
    offers = {}
    for offer in given:
        cost, _, days = offer.partition("/")
        offers[offer] = {"cost": float(cost), **({"days": float(days)} if days else {})}
    abi = StigmemAbi.from_env("process")
    async with abi.open_node() as node:
        intents = IntentClient(node)
        found = await intents.in_flight(to=abi.surfaces.as_ref(abi.surfaces.source))
        for entity, envelope in found.envelopes.items():
            print(await handle(intents, abi, entity, envelope, offers))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
