"""``context: {native_ids: true}`` shows the backend's own ids in sections (spec 6, rule 1); by default none."""

import pytest
from one_loop import anyio_backend as anyio_backend

from memory import ContextBudget, MemoryScope, MemorySlot, open_memory
from memory.testing import FakeBackend

SCOPE = MemoryScope(run_id="r", persona_id="p")


def config(data_dir, **memory):
    return {
        "memory": {
            "condition": "full_history",
            "data_dir": str(data_dir),
            "scope": {"run_id": "r", "persona_id": "p"},
            **memory,
        }
    }


@pytest.mark.parametrize("shown", [True, False])
async def test_a_section_shows_ids_where_the_file_says_so(shown, tmp_path):
    async with open_memory(config(tmp_path, context={"native_ids": shown})) as memory:
        receipt = await memory.after_turn(user="I like oolong.", session_id="s1")
        section = await memory.before_turn("oolong", session_id="s2")
    assert (f"id {receipt.native_ids[0]}" in section) == shown
    assert "I like oolong." in section


async def test_ids_count_against_the_budget():
    async with MemorySlot(FakeBackend(), scope=SCOPE, native_ids=True) as slot:
        for number in range(20):
            await slot.after_turn(user=f"oolong {number}", session_id="s1")
        budget = ContextBudget(max_tokens=150)
        section = await slot.before_turn("oolong", session_id="s2", budget=budget)
        assert 0 < slot.delivery.token_counter.count(section) <= 150
        assert section.count("(") == section.count("id ") > 0
