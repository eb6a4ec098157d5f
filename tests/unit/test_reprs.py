"""What a developer sees in a prompt or a log line: short, and never what users said."""

from typing import Any

from slot_support import ALICE, event

from memory import AdapterMode, MemorySlot, RetrieveRequest
from memory.testing import FakeBackend


async def test_receipts_and_results_are_short_and_hold_nothing_that_was_said():
    slot = MemorySlot(FakeBackend())
    async with slot:
        await slot.setup_scope(ALICE)
        receipt: Any = await slot.record_event(event(1, text="my secret tea"))
        found: Any = await slot.retrieve(RetrieveRequest(query="secret tea", scope=ALICE, session_id="s"))
        answers = [receipt, found, found.trace, await slot.health()]
        assert (
            repr(slot), str(receipt)
        ) == (
            "<MemorySlot of fake>",
            f"WriteReceipt(event_id={receipt.event_id!r}, status='committed', native_ids={receipt.native_ids!r})",
        )  # fmt: skip
        await slot.set_mode(AdapterMode(read_only=True))
        assert repr(slot) == "<MemorySlot of fake, read-only>"
    assert found.entries, "there was something to show"
    for answer in answers:
        assert "secret" not in repr(answer) + str(answer)
        assert "=None" not in repr(answer).replace(repr(ALICE), "")
    assert len(repr(found)) < 100
