"""Scopes never meet, on any path (spec 9.3, 9.6; DESIGN 5.2 and 7)."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio

from memory import (
    CapabilityNotSupported,
    MemoryScope,
    MemorySlot,
    MemslotError,
    Message,
    ProvenanceRequest,
    ScopeError,
    SupportsNativeMutation,
    SupportsProvenance,
)
from memory.testing.contract._kit import STORED, Kit, answer_or_refusal, raises, unique_word
from memory.testing.contract._spec import promise, shown

_ENCODER = "encode scopes with ScopeEncoder, which keeps any two apart"
_E = "ren\u00e9e"
LOOKALIKES: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
    ({"persona_id": "acme"}, {"persona_id": "acme-corp"}),
    ({"run_id": "acme", "persona_id": "x"}, {"run_id": "acme-corp", "persona_id": "x"}),
    ({"run_id": "a_b", "persona_id": "c"}, {"run_id": "a", "persona_id": "b_c"}),
    ({"run_id": "a:b", "persona_id": "c"}, {"run_id": "a", "persona_id": "b:c"}),
    ({"run_id": "a-b", "persona_id": "c"}, {"run_id": "a", "persona_id": "b-c"}),
    ({"persona_id": "User_A"}, {"persona_id": "user_a"}),
    ({"persona_id": unicodedata.normalize("NFC", _E)}, {"persona_id": unicodedata.normalize("NFD", _E)}),
    ({"persona_id": "a b"}, {"persona_id": "a%20b"}),
    ({"persona_id": "pad"}, {"persona_id": "pad "}),
    ({"persona_id": ".."}, {"persona_id": "."}),
    ({"persona_id": "l" * 511 + "a"}, {"persona_id": "l" * 511 + "b"}),
    ({"persona_id": "bob"}, {"persona_id": "bob", "agent_id": "bot"}),
    ({"persona_id": "bob"}, {"persona_id": "bob", "backend_namespace": "bot"}),
    ({"persona_id": "bob", "agent_id": "bot"}, {"persona_id": "bob", "backend_namespace": "bot"}),
)
"""Pairs that a prefix match, a careless separator, case folding, normalising or cutting would merge."""

WIDENING_FILTERS: tuple[dict[str, Any], ...] = (
    {"user_id": "bob"},
    {"run_id": {"in": ["a", "b"]}},
    {"agent_id": "*"},
    {"persona_id": "bob"},
    {"group_id": "g"},
    {"workspace_id": "w"},
    {"cube_id": "c"},
    {"namespace": "n"},
    {"User_ID": "bob"},
    {"metadata.user_id": "bob"},
    {"*": "x"},
    {"region": "*"},
    {"region": {"eq": "*"}},
    {"region": {"in": ["north", "*"]}},
    {"AND": [{"user_id": "bob"}]},
    {"OR": [{"region": "north"}, {"user_id": "bob"}]},
    {"NOT": {"region": "north"}},
    {"or": [{"region": "north"}]},
    {"$or": [{"region": "north"}]},
    {"region": {"OR": ["north", "south"]}},
    {"region": {"$not": "north"}},
)
"""Filters that could reach outside the scope on at least one of the supported backends."""


@promise(
    "send the scope's native id with every native call",
    "give every entry its scope_ids: the slot then refuses a foreign row, and says whose it is",
)
async def data_of_one_scope_never_appears_under_another(kit: Kit) -> None:
    """Spec 9.3, on every read path."""
    other = await kit.another_scope()
    await kit.remember("ada")
    await kit.remember("bob", scope=other)
    for scope, foreign in ((kit.scope, "bob"), (other, "ada")):
        readings = [reading async for reading in _all_readings(kit, scope, foreign)]
        for call, seen in readings:
            assert unique_word(foreign) not in seen, f"{call} of {scope.persona_id} shows {foreign}'s fact"


async def _all_readings(kit: Kit, scope: MemoryScope, foreign: str) -> AsyncIterator[tuple[str, str]]:
    """What every read path of a scope answers when asked for another scope's fact, by its name."""
    yield "retrieve", await kit.shown(foreign, scope=scope)
    asked = kit.question(foreign).query
    yield "before_turn", await kit.slot.before_turn(asked, session_id="s", scope=scope)
    provenance = kit.slot.capability(SupportsProvenance)
    owner = kit.scope if scope != kit.scope else kit.scope_of("bob")
    if provenance is not None:
        for native_id in await kit.native_ids(foreign, scope=owner):
            asked_for = ProvenanceRequest(scope=scope, native_id=native_id)
            yield "provenance", await answer_or_refusal(provenance.provenance(asked_for))
    yield "native_query", await kit.queried(scope)


@promise("send the scope's native id with every native call")
async def what_is_not_derived_yet_leaks_nowhere(kit: Kit) -> None:
    """Spec 9.3: other scopes see nothing of a write, neither before it is derived nor after."""
    other = await kit.another_scope()
    await kit.remember("bob", scope=other)
    await kit.write("ada")
    for when in ("before it was derived", "after it was derived"):
        shown = await kit.shown("ada", scope=other)
        assert unique_word("ada") not in shown, f"another scope was shown a write {when}"
        await kit.until_ready()


@promise(
    "look the record up by scope and id together, and raise BackendRejected where there is none",
    "leave native_mutation out",
)
async def a_mutation_cannot_reach_another_scope(kit: Kit) -> None:
    """DESIGN 5.2: a native id of scope A is worth nothing in scope B."""
    mutate = kit.needs(SupportsNativeMutation)
    other = await kit.another_scope()
    await kit.remember("ada")
    before = await kit.observe()
    for request in kit.declared.mutations(other, (await kit.ask("ada")).entries):
        with raises(MemslotError, f"{request.operation} of another scope's record"):
            await mutate.native_mutation(request)
    assert await kit.observe() == before, "a mutation addressed to another scope changed something"
    await kit.assert_recalled("ada", "a mutation addressed to another scope removed the record")


@promise(_ENCODER)
async def lookalike_scopes_never_meet(kit: Kit) -> None:
    """DESIGN 7: siblings, separators, case, unicode forms, over-long ids, absent optional fields."""
    for number, pair in enumerate(LOOKALIKES):
        first, second = (_in_run(kit, fields, number) for fields in pair)
        try:
            await kit.setup(first, second)
        except ScopeError:
            # Refusing an optional field that no id template uses is safe; refusing the others is not.
            assert {"agent_id", "backend_namespace"} & {*pair[0], *pair[1]}, f"{_named(pair)}: refused"
            continue
        assert kit.slot.native_scope(first) != kit.slot.native_scope(second), (
            f"{_named(pair)}: two scopes have one native id, {dict(kit.slot.native_scope(first))}"
        )
        await kit.remember(f"first {number}", scope=first)
        for scope, known in ((first, True), (second, False)):
            text = await kit.shown(f"first {number}", scope=scope)
            assert (unique_word(f"first {number}") in text) == (known and kit.recalls_writes), (
                f"{_named(pair)}: one sees what the other was told, or not what it was"
            )


@promise(_ENCODER)
async def native_ids_are_stable_strings(kit: Kit) -> None:
    """DESIGN 7: the map from scopes to native ids goes into the manifest."""
    ids = kit.slot.native_scope(kit.scope)
    assert ids == kit.slot.native_scope(MemoryScope(**kit.scope.model_dump())), "equal scopes differ natively"
    assert ids, "a provider that keeps scopes apart has at least one native id"
    assert all(isinstance(value, str) and value for value in ids.values()), (
        f"not all are texts, or some are empty: {ids}"
    )


@promise()
async def a_scope_must_be_set_up_first(kit: Kit) -> None:
    """DESIGN 5.2: no call for a scope that was never set up, and setting up twice is no error."""
    unknown = kit.scope_of("nobody")
    before = await kit.observe()
    for call in _calls(kit, kit.slot, unknown):
        with raises(ScopeError, "a call for a scope that was never set up"):
            await call
    assert await kit.observe() == before, "a refused call changed something"
    await kit.setup(unknown)
    await kit.setup(unknown)
    assert (await kit.ask("x", scope=unknown)).trace.error is None, "a scope set up twice cannot be asked"


@promise()
async def filters_that_widen_are_refused(kit: Kit) -> None:
    """DESIGN 5.2: scope keys, wildcards and logic operators never reach the adapter."""
    await kit.remember("ada")
    accepted = []
    for filters in WIDENING_FILTERS:
        try:
            await kit.ask("ada", filters=filters)
        except (ScopeError, CapabilityNotSupported):
            continue
        except MemslotError as error:
            accepted.append((filters, type(error).__name__))
        else:
            accepted.append((filters, "accepted"))
    assert not accepted, "these must be a ScopeError, or a filter that the provider does not have at all"


@promise("keep nothing of a call on the adapter: others run between its awaits")
async def concurrent_scopes_never_cross(kit: Kit) -> None:
    """DESIGN 5.5: 64 scopes at once, and each finds its own fact and no other."""
    names = [f"persona{number}" for number in range(kit.declared.concurrent_scopes)]
    found: dict[str, str] = {}

    async def live(name: str) -> None:
        scope = await kit.another_scope(name)
        await kit.remember(name, scope=scope)
        found[name] = await kit.shown(name, scope=scope)

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(live, name)
    for name in names:
        others = [other for other in names if other != name and unique_word(other) in found[name]]
        assert not others, f"{name} sees {others}"
        assert (unique_word(name) in found[name]) == kit.recalls_writes, f"{name} does not see its own"


@promise(
    "delete by the scope's native id, then look whether anything is left",
    "answer verified=False where the backend cannot tell",
)
async def reset_clears_this_scope_and_no_other(kit: Kit) -> None:
    """Spec 9.6: the bystander keeps everything, the scope is verified empty and can be used again."""
    bystander = await kit.another_scope("ada-2")
    await kit.remember("old")
    await kit.remember("kept", scope=bystander)
    kept = (await kit.ask("kept", scope=bystander)).entries
    receipt = await kit.slot.reset_scope(kit.scope)
    assert receipt.scope == kit.scope, "the receipt is of another scope"
    assert receipt.verified, "a reset must look again whether the scope is empty"
    assert not await kit.recalls("old"), "what was reset is still recalled"
    if kit.recalls_writes:
        assert (await kit.ask("old")).entries == (), "a reset scope is not empty"
    after = (await kit.ask("kept", scope=bystander)).entries
    assert [entry.text for entry in after] == [entry.text for entry in kept], (
        "the reset changed the bystander"
    )
    again = await kit.slot.reset_scope(kit.scope)
    assert again.verified, "a second reset is not verified"
    assert not again.removed, f"a second reset says that it removed {again.removed}"
    await kit.remember("new")
    await kit.assert_recalled("new", "a scope cannot be used after its reset")
    assert not await kit.recalls("old"), "what was reset came back"


@promise("delete by the scope's native id compared as a whole: not by LIKE, not by its beginning")
async def a_reset_spares_what_is_named_alike(kit: Kit) -> None:
    """Spec 9.6: neither a longer name nor another case nor a letter where this one has a sign is the scope's."""
    alike = ["Ada_1-2", "ada_1", "Adax1", "An Ada_1"]
    scope = await kit.another_scope("Ada_1")
    await kit.remember("old", scope=scope)
    scopes = {name: await kit.another_scope(name) for name in alike}
    for name, bystander in scopes.items():
        await kit.remember(name, scope=bystander)
    assert (await kit.slot.reset_scope(scope)).verified, "the reset was not verified"
    for name, bystander in scopes.items():
        await kit.assert_recalled(name, f"the reset of Ada_1 took what {name} was told", scope=bystander)


@promise(
    "delete page by page until nothing is left, whatever session it is of",
    "answer verified=False where not everything could be deleted",
)
async def a_reset_reaches_every_row(kit: Kit) -> None:
    """Spec 9.6: also those that a list of the backend shows on its second page, and those of other sessions."""
    other = kit.event("Hello.", session_id="session-9")
    few = [Message(role="user", content=f"This is line {number} of a long list.") for number in range(120)]
    last = Message(role="user", content=kit.fact("last"))
    for event in (
        kit.event(kit.fact("first"), session_id="session-0"),
        kit.event("unused", messages=(*few, last)),
        other,
    ):
        assert (await kit.slot.record_event(event)).status in STORED, "a plain write was not stored"
    await kit.until_ready()
    assert (await kit.slot.reset_scope(kit.scope)).verified, "the reset was not verified"
    for name in ("first", "last"):
        shown = await kit.shown(name) + await kit.queried(kit.scope)
        assert unique_word(name) not in shown, f"what was said {name} is still there after the reset"


@promise(
    "wait for the queue of the scope, or empty it, before the reset ends",
    "give the scope a new generation of native ids, and never read the old one",
)
async def a_reset_reaches_what_is_still_being_derived(kit: Kit) -> None:
    """Spec 9.6: what was accepted before the reset does not turn up after it."""
    await kit.write("old")
    receipt = await kit.slot.reset_scope(kit.scope)
    await kit.remember("new")
    assert not await kit.recalls("old"), "a write from before the reset turned up after it"
    await kit.assert_recalled("new", "a write from after the reset is gone")
    assert receipt.scope == kit.scope, "the receipt is of another scope"


@promise(
    "delete in the backend, not in the adapter's own memory of it",
    "close connections to files that a reset removes: an open one still shows the old rows",
)
async def a_reset_outlives_the_adapter(kit: Kit) -> None:
    """Spec 9.6: it removes natively, and does not just hide."""
    await kit.remember("old")
    receipt = await kit.slot.reset_scope(kit.scope)
    assert receipt.verified, "the reset was not verified"
    if kit.sees_native_state and not receipt.left:
        left = str(await kit.observe())
        assert unique_word("old") not in left, "what was reset is hidden, and still stored"
    await kit.slot.aclose()
    again = kit.another()
    async with again.slot:
        await again.setup(kit.scope)
        shown = await again.shown("old", scope=kit.scope)
    assert unique_word("old") not in shown, "another adapter still finds what was reset"


def _named(pair: tuple[dict[str, str], dict[str, str]]) -> str:
    """Two scopes that look alike, with the code points that tell them apart."""
    return " / ".join(", ".join(f"{name}={shown(value)}" for name, value in each.items()) for each in pair)


def _in_run(kit: Kit, fields: dict[str, str], number: int) -> MemoryScope:
    """A scope that no other test and no other pair uses; the pair's own difference stays."""
    run_id = f"{kit.run_id}.{number}.{fields.get('run_id', '')}"
    return MemoryScope(**{**fields, "run_id": run_id})


def _calls(kit: Kit, slot: MemorySlot, scope: MemoryScope) -> Iterator[Any]:
    yield slot.record_event(kit.event("I am here.", scope=scope))
    yield slot.retrieve(kit.request("Where am I?", scope=scope))
    yield slot.reset_scope(scope)
    yield slot.before_turn("Where am I?", session_id="s", scope=scope)
    yield slot.after_turn(user="I am here.", session_id="s", scope=scope)
