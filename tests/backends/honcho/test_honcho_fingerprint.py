"""The kit's look into the server's database."""

from __future__ import annotations

import anyio
import pytest

from memory.backends.honcho.conformance import HonchoConformance


class _Later(HonchoConformance):
    """A server that queues a message after its answer, and then derives from it."""

    def __init__(self, at_work: list[str]) -> None:
        self.at_work = at_work

    def rows(self, query: str) -> list[tuple[int]]:
        if query.startswith("SELECT 1"):
            asked = "not queued" if "NOT EXISTS" in query else "queued"
            return [(1,)] if self.at_work and self.at_work[0] == asked and self.at_work.pop(0) else []
        return [(len(self.at_work),)]


async def test_a_fingerprint_is_taken_once_every_message_was_queued_and_derived_from() -> None:
    """Else a conclusion that comes later looks like a write that landed while the memory was read-only."""
    with anyio.fail_after(20):
        assert await _Later(["not queued", "queued"]).fingerprint(None) == [[(0,)]] * 4


async def test_a_message_that_was_never_queued_is_waited_for_no_longer_than_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("memory.backends.honcho.conformance._QUEUED_S", 0.5)
    with anyio.fail_after(20):
        await _Later(["not queued"] * 1000).fingerprint(None)
