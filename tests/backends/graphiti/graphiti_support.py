"""Shared by the tests of the Graphiti backend: configurations, slots, events, faults of the graph."""

import sys
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from said import said, wanted

from memory import (
    MemoryScope,
    NativeMutationRequest,
    NativeQueryRequest,
    ProvenanceRequest,
    SupportsNativeMutation,
    SupportsNativeQuery,
    SupportsProvenance,
    open_memory,
)
from memory.testing import FAKE_KEY

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))
from memory.backends.graphiti.conformance import graph_fault

ALICE = MemoryScope(run_id="run1", persona_id="alice")
BOB = MemoryScope(run_id="run1", persona_id="bob")
NEEDS_GRAPHITI = pytest.mark.skipif(
    find_spec("graphiti_core") is None or find_spec("kuzu") is None,
    reason="graphiti-core[kuzu] is not installed",
)


def config(base_url, data_dir=None, *, deadlines=None, **options):
    """A configuration with the block's options as given. Without a journal, a write that fails raises."""
    options = {"llm": {"model": "scripted", "base_url": base_url, "api_key": FAKE_KEY}, **options}
    memory = {"backend": "graphiti", "journal": False, "backends": {"graphiti": options}}
    if data_dir is not None:
        memory["data_dir"] = str(data_dir)
    return {"memory": {**memory, **({"deadlines": deadlines} if deadlines else {})}}


@asynccontextmanager
async def opened(llm, data_dir, /, *scopes, **options):
    """An open slot with Alice's scope, and others, set up."""
    async with open_memory(config(llm.base_url, data_dir, **options), scope=ALICE) as slot:
        for scope in scopes:
            await slot.setup_scope(scope)
        yield slot


def event(*texts, at=None, **fields):
    """An event of user messages, a minute after the one before unless told otherwise."""
    given = {"scope": ALICE, **({"timestamp": at} if at else {}), **fields}
    return said(given.pop("scope"), *texts, **given)


def ask(query, scope=ALICE, max_items=None, **fields):
    """A request without a token limit."""
    return wanted(query, scope, max_items, **fields)


async def found(slot, query, **fields):
    """Facts retrieved, best first."""
    return [entry.text for entry in (await slot.retrieve(ask(query, **fields))).entries]


async def listed(slot, operation, scope=ALICE, **arguments):
    query = slot.capability(SupportsNativeQuery)
    return (
        await query.native_query(NativeQueryRequest(scope=scope, operation=operation, arguments=arguments))
    ).raw


async def mutate(slot, operation, native_id, scope=ALICE, **arguments):
    capability = slot.capability(SupportsNativeMutation)
    return await capability.native_mutation(
        NativeMutationRequest(scope=scope, operation=operation, native_id=native_id, arguments=arguments)
    )


async def sources(slot, **fields):
    capability = slot.capability(SupportsProvenance)
    return await capability.provenance(ProvenanceRequest(**{"scope": ALICE, **fields}))


async def reset_leaves_the_bystander(slot):
    """Alice's scope is reset, Bob's stays; both are set up and empty."""
    for scope in (ALICE, BOB):
        await slot.record_event(event("I keep my passport in the drawer.", scope=scope))
    before = await listed(slot, "count", BOB)
    receipt = await slot.reset_scope(ALICE)
    assert (receipt.verified, receipt.removed) == (True, 4)
    assert set((await listed(slot, "count")).values()) == {0}
    assert (await listed(slot, "edges"))["edges"] == []
    assert await listed(slot, "count", BOB) == before
    assert await found(slot, "passport", scope=BOB) == ["I keep my passport in the drawer."]


graph_faults = partial(graph_fault, "memory.backends.graphiti.kuzu:ScopeDriver")
