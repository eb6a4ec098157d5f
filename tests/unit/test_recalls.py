"""What a turn recalled is kept with the turn, and never outlives a reset of its scope."""

import anyio
from journals import open_journal, open_store
from slot_support import ALICE, Obedient

from memory import MemoryEvent, MemorySlot
from memory.plugins.opening import build_slot


async def asked(memory, number, between=None):
    """A turn that asks; the texts that were kept of its recall."""
    await memory.before_turn("Which tea?", session_id=f"s{number}")
    if between is not None:
        await between.reset_scope(ALICE)
    receipt = await memory.after_turn(user="Which tea?", session_id=f"s{number}")
    event = MemoryEvent.model_construct(scope=ALICE, event_id=receipt.event_id)
    return [row["text"] for row in memory.delivery.recalls.of(event) or ()]


async def test_a_reset_between_recall_and_record_leaves_no_recall(tmp_path):
    config = {"memory": {"condition": "full_history", "journal": True, "data_dir": str(tmp_path)}}
    async with build_slot(config, scope=ALICE) as memory, build_slot(config, scope=ALICE) as another:
        for number, resets in enumerate((None, another, None, memory, None)):
            await memory.after_turn(user="I like oolong.", session_id=f"told {number}")
            texts = await asked(memory, number, resets)
            assert ("oolong" in str(texts)) == (resets is None)


async def test_a_recall_during_a_reset_leaves_no_recall(tmp_path):
    adapter, reached, goes_on = Obedient(), anyio.Event(), anyio.Event()
    wipes = adapter.reset_scope

    async def reset_scope(scope):
        reached.set()
        await goes_on.wait()
        return await wipes(scope)

    adapter.reset_scope = reset_scope
    place = {"store": open_store(tmp_path), "journal": open_journal(tmp_path)}
    async with MemorySlot(adapter, scope=ALICE, **place) as memory:
        await memory.after_turn(user="I like oolong.", session_id="told")
        assert await asked(memory, 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(memory.reset_scope, ALICE)
            await reached.wait()
            assert "oolong" in await memory.before_turn("Which tea?", session_id="s2")
            goes_on.set()
        receipt = await memory.after_turn(user="Which tea?", session_id="s2")
        event = MemoryEvent.model_construct(scope=ALICE, event_id=receipt.event_id)
        assert memory.delivery.recalls.of(event) is None
