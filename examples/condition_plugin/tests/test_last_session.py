"""The kit on the condition, and what the kit cannot know: that older sessions are forgotten."""

import anyio

from memory import open_memory
from memory.testing import MemoryContract

CONFIG = {
    "memory": {
        "condition": "last_session",
        "scope": {"run_id": "r", "persona_id": "ada"},
        "conditions": {"last_session": {}},
    }
}


class TestLastSession(MemoryContract):
    config = CONFIG


async def _context() -> str:
    async with open_memory(CONFIG) as memory:
        await memory.after_turn(session_id="one", user="I drink coffee.")
        await memory.after_turn(session_id="two", user="I drink oolong.")
        return await memory.before_turn("What do I drink?", session_id="three")


def test_older_sessions_are_forgotten() -> None:
    context = anyio.run(_context)
    assert "oolong" in context
    assert "coffee" not in context
