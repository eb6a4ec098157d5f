"""Further readable cubes: what the configuration names is searched, and nothing else is."""

import pytest
from memos_support import ALICE, BOB, ask, event, opened, options

from memory import IsolationError, NativeMutationRequest, ScopeError, SupportsNativeMutation

TEXT = "The handbook praises green tea."


def fill(double, cube, text, user=None):
    """Store a text in a cube, by the user of its name; returns the row's id."""
    body = {"user_id": user or cube, "writable_cube_ids": [cube], "async_mode": "sync"}
    status, answer = double.model.add(
        {**body, "mode": "fast", "messages": [{"role": "user", "content": text}]}
    )
    assert status == 200
    return str(answer["data"][0]["memory_id"])


async def test_a_named_cube_is_read_beside_the_scopes_own_and_says_which_it_is(double):
    fill(double, "handbook", TEXT)
    fill(double, "diary", "A secret tea.")
    async with opened(double, BOB, async_mode="sync", mode="fast", readable_cubes=["handbook"]) as slot:
        await slot.record_event(event("I like black tea."))
        mine, others = await ask(slot, "tea"), await ask(slot, "tea", scope=BOB)
    assert "black tea" in mine.formatted_context
    assert "secret" not in mine.formatted_context
    (shared,) = others.entries
    assert "handbook praises" in shared.text
    assert (shared.scope_ids, shared.labels) == (None, (("cube", "handbook"),))
    assert "black tea" not in others.formatted_context


async def test_a_row_of_another_user_in_it_is_not_shown(double):
    fill(double, "handbook", TEXT, user="run1.bob")
    async with opened(double, async_mode="sync", readable_cubes=["handbook"]) as slot:
        with pytest.raises(IsolationError):
            await ask(slot, "tea")


async def test_a_readable_cube_is_neither_changed_nor_reset(double):
    native_id = fill(double, "handbook", TEXT)
    async with opened(double, async_mode="sync", readable_cubes=["handbook"]) as slot:
        mutate = slot.capability(SupportsNativeMutation)
        assert mutate is not None
        with pytest.raises(ScopeError):
            await mutate.native_mutation(
                NativeMutationRequest(scope=ALICE, operation="delete", native_id=native_id)
            )
        await slot.reset_scope(ALICE)
        assert len((await ask(slot, "tea")).entries) == 1


@pytest.mark.parametrize("cubes", [["a:b"], [""], ["*"], ["handbook", "handbook"], ["x" * 129]])
def test_what_is_no_cube_or_stands_twice_is_refused(cubes):
    with pytest.raises(ValueError, match="readable_cubes"):
        options(readable_cubes=cubes)
