"""Health is degraded after a failed call, with its reason, until a call of that kind succeeds."""

from __future__ import annotations

import pytest
from said import said, wanted

from memory import BackendUnavailable, MemoryScope, MemorySlot
from memory.testing import FakeBackend

SCOPE = MemoryScope(run_id="run", persona_id="ada")


class Failing(FakeBackend):
    """A backend whose model can be switched off."""

    down = False

    async def record_event(self, event):
        if self.down:
            raise BackendUnavailable("the prompt has 9,000 tokens, the model accepts 8,192", sent=False)
        return await super().record_event(event)


async def test_a_failed_write_degrades_health_until_one_succeeds():
    adapter = Failing()
    async with MemorySlot(adapter, scope=SCOPE) as slot:
        assert (await slot.health()).status == "ok"
        adapter.down = True
        with pytest.raises(BackendUnavailable):
            await slot.record_event(said(SCOPE, "tea"))
        await slot.retrieve(wanted("tea", SCOPE))
        health = await slot.health()
        assert health.status == "degraded"
        assert "the last record_event failed" in str(health.warnings)
        assert "9,000 tokens, the model accepts 8,192" in str(health.warnings)
        adapter.down = False
        await slot.record_event(said(SCOPE, "tea"))
        assert (await slot.health()).status == "ok"
