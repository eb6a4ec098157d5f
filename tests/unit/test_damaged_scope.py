"""The way out that the errors of damaged files name: ``reset the scope``, through a slot that cannot set it up."""

from pathlib import Path

import pytest
from slot_support import ALICE

from memory import BackendError
from memory.plugins.opening import build_slot


@pytest.mark.parametrize("damage", [b"", b"\0" * 64], ids=["emptied", "zeroed"])
async def test_a_damaged_scope_can_be_reset_and_used_again(tmp_path: Path, damage: bytes):
    block = {"condition": "full_history", "conditions": {"full_history": {}}, "data_dir": str(tmp_path)}
    async with build_slot({"memory": block}, scope=ALICE) as slot:
        await slot.after_turn(session_id="s", user="I drink oolong.")
    [log] = tmp_path.rglob("*.jsonl")  # noqa: ASYNC240
    log.write_bytes(damage)
    async with build_slot({"memory": block}) as slot:
        with pytest.raises(BackendError, match="reset the scope"):
            await slot.setup_scope(ALICE)
        assert (await slot.reset_scope(ALICE)).verified
        await slot.setup_scope(ALICE)
        assert await slot.before_turn("tea", session_id="t", scope=ALICE) == ""
