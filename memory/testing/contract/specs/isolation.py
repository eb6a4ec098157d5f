"""Scopes never meet, on any path (spec 9.3, 9.6; DESIGN 5.2 and 7)."""

from __future__ import annotations

import unicodedata

import anyio

from memory import (
    MemoryScope,
    MemslotError,
    ScopeError,
    SupportsNativeMutation,
)
from memory.adapter import ContextEntry
from memory.testing.contract._kit import STORED, Kit, long_list, messages, raises, unique_word
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
"""Pairs that prefix matches, separators, case folding, normalisation or truncation would merge."""


@promise(
    "send the scope's native id with every native call",
    "give every entry its scope_ids: the slot then refuses a foreign row, and says whose it is",
)
async def data_of_one_scope_never_appears_under_another(kit: Kit) -> None:
    """Spec 9.3: this holds on every read path."""
    other = await kit.another_scope()
    await kit.remember("ada")
    await kit.remember("bob", scope=other)
    for scope, owner, foreign in ((kit.scope, other, "bob"), (other, kit.scope, "ada")):
        asked, ids = kit.question(foreign).query, await kit.native_ids(foreign, scope=owner)
        readings = {
            "retrieve": await kit.shown(foreign, scope=scope),
            "before_turn": await kit.slot.before_turn(asked, session_id="s", scope=scope),
            "provenance": "".join([await kit.history(scope, native_id=native_id) for native_id in ids]),
            "native_query": await kit.queried(scope),
        }
        for call, seen in readings.items():
            assert unique_word(foreign) not in seen, f"{call} of {scope.persona_id} shows {foreign}'s fact"


@promise("send the scope's native id with every native call")
async def underived_writes_leak_nowhere(kit: Kit) -> None:
    """Spec 9.3: other scopes see nothing of a write, neither before nor after derivation."""
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
    """DESIGN 5.2: a native id of scope A has no effect in scope B."""
    mutate = kit.needs(SupportsNativeMutation)
    other = await kit.another_scope()
    await kit.remember("ada")
    before = await kit.observe()
    nobodys = kit.declared.mutations(kit.scope, [ContextEntry("", native_id="no-such-record")])
    for request in (*kit.declared.mutations(other, (await kit.ask("ada")).entries), *nobodys):
        with raises(MemslotError, f"{request.operation} of a record that is not in the scope"):
            await mutate.native_mutation(request)
    assert await kit.observe() == before, "a mutation addressed to another scope changed something"
    await kit.assert_recalled("ada", "a mutation addressed to another scope removed the record")


@promise(_ENCODER)
async def lookalike_scopes_never_meet(kit: Kit) -> None:
    """DESIGN 7: the scopes differ in separators, case, Unicode forms, length or optional fields."""
    for number, pair in enumerate(LOOKALIKES):
        run_id = f"{kit.run_id}.{number}."  # unique to this spec and this pair
        first, second = (MemoryScope(**{**each, "run_id": run_id + each.get("run_id", "")}) for each in pair)
        named = " / ".join(", ".join(f"{key}={shown(text)}" for key, text in each.items()) for each in pair)
        try:
            await kit.setup(first, second)
        except ScopeError:
            # An adapter may refuse an optional field that no id template uses, and no other.
            assert {"agent_id", "backend_namespace"} & {*pair[0], *pair[1]}, f"{named}: refused"
            continue
        native = [dict(kit.slot.native_scope(scope)) for scope in (first, second)]
        assert native[0] != native[1], f"{named}: two scopes have one native id, {native[0]}"
        await kit.remember(f"first {number}", scope=first)
        for scope, known in ((first, kit.recalls_writes), (second, False)):
            seen = unique_word(f"first {number}") in await kit.shown(f"first {number}", scope=scope)
            assert seen == known, f"{named}: one sees what the other was told, or not what it was"


@promise(_ENCODER)
async def native_ids_are_stable_strings(kit: Kit) -> None:
    """DESIGN 7: the map from scopes to native ids goes into the manifest."""
    ids, equal = kit.slot.native_scope(kit.scope), MemoryScope(**kit.scope.model_dump())
    assert ids == kit.slot.native_scope(equal), "equal scopes have different native ids"
    assert ids, "a provider that keeps scopes apart has at least one native id"
    texts = all(isinstance(value, str) and value for value in ids.values())
    assert texts, f"native ids must be texts that are not empty: {ids}"


@promise("keep nothing of a call on the adapter: others run between its awaits")
async def concurrent_scopes_never_cross(kit: Kit) -> None:
    """DESIGN 5.5: 64 concurrent scopes each find their own fact and no other."""
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
        seen = [each for each in names if unique_word(each) in found[name]]
        assert seen == [name] * kit.recalls_writes, f"{name} sees {seen}, and its own must be as declared"


@promise(
    "delete by the scope's native id, then look whether anything is left",
    "answer verified=False where the backend cannot tell",
)
async def reset_clears_this_scope_and_no_other(kit: Kit) -> None:
    """Spec 9.6: another scope keeps everything. The reset scope is verified empty and usable again."""
    bystander = await kit.another_scope("ada-2")
    event_id = f"again-{kit.run_id}"
    await kit.remember("old", event_id=event_id)
    await kit.remember("kept", scope=bystander)
    kept = [entry.text for entry in (await kit.ask("kept", scope=bystander)).entries]
    assert (await kit.reset()).scope == kit.scope, "the receipt is of another scope"
    assert not await kit.recalls("old"), "what was reset is still recalled"
    left = (await kit.ask("old")).entries
    assert not (left and kit.recalls_writes), "a reset scope is not empty"
    after = [entry.text for entry in (await kit.ask("kept", scope=bystander)).entries]
    assert after == kept, "the reset changed another scope"
    removed = (await kit.reset()).removed
    assert not removed, f"a second reset says that it removed {removed}"
    await kit.remember("new")
    await kit.assert_recalled("new", "a scope cannot be used after its reset")
    assert not await kit.recalls("old"), "what was reset came back"
    await kit.remember("old", event_id=event_id)
    await kit.assert_recalled("old", "an event that is written again after a reset was taken for a repeat")


@promise("delete by the scope's native id compared as a whole: not by LIKE, not by its beginning")
async def a_reset_spares_what_is_named_alike(kit: Kit) -> None:
    """Spec 9.6: a longer name, another case, or a letter instead of a separator names another scope."""
    alike = ["Ada_1-2", "ada_1", "Adax1", "An Ada_1"]
    scope = await kit.another_scope("Ada_1")
    await kit.remember("old", scope=scope)
    scopes = {name: await kit.another_scope(name) for name in alike}
    for name, bystander in scopes.items():
        await kit.remember(name, scope=bystander)
    await kit.reset(scope)
    for name, bystander in scopes.items():
        await kit.assert_recalled(name, f"the reset of Ada_1 took what {name} was told", scope=bystander)


@promise(
    "delete page by page until nothing is left, whatever session it is of",
    "answer verified=False where not everything could be deleted",
)
async def a_reset_reaches_every_row(kit: Kit) -> None:
    """Spec 9.6: the reset reaches every page of a list and every session."""
    first = kit.event(kit.fact("first"), session_id="session-0")
    many = kit.event("unused", messages=messages(*long_list(120), ("user", kit.fact("last"))))
    for event in (first, many, kit.event(kit.fact("other"), session_id="session-9")):
        assert (await kit.slot.record_event(event)).status in STORED, "a plain write was not stored"
    await kit.until_ready()
    await kit.reset()
    for name in ("first", "last", "other"):
        shown = await kit.shown(name) + await kit.queried(kit.scope)
        assert unique_word(name) not in shown, f"what was said {name} is still there after the reset"


@promise(
    "wait for the queue of the scope, or empty it, before the reset ends",
    "give the scope a new generation of native ids, and never read the old one",
)
async def a_reset_reaches_what_is_still_being_derived(kit: Kit) -> None:
    """Spec 9.6: a write accepted before the reset never appears after it."""
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
    """Spec 9.6: the reset removes native rows. It does not just hide them."""
    await kit.remember("erased")
    receipt = await kit.reset()
    if kit.sees_native_state and not receipt.left:
        left = str(await kit.observe())
        assert unique_word("erased") not in left, "what was reset is hidden, and still stored"
    await kit.slot.aclose()
    again = kit.another()
    async with again.slot:
        await again.setup(kit.scope)
        shown = await again.shown("erased", scope=kit.scope)
    assert unique_word("erased") not in shown, "another adapter still finds what was reset"
