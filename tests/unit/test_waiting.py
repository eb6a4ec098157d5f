"""``BaseAdapter.wait_until_ready``: an adapter that tells its readiness can be waited for."""

from functools import partial

import anyio
import pytest

from memory import BackendReadiness, BackendUnavailable, MemoryScope, SupportsReadiness
from memory.adapter import BaseAdapter, SynchronousWrites

SCOPE = MemoryScope(run_id="r", persona_id="p")


class ScriptedReadiness(BaseAdapter):
    readiness_pauses_s = (0.001, 0.002)

    def __init__(self, *states):
        self.left = list(states)

    async def readiness(self, scope):
        return BackendReadiness(state=self.left.pop(0))


@pytest.mark.parametrize(
    ("max_unclear_looks", "states", "answer", "left"),
    [
        (1, ["pending", "pending", "ready", "failed"], "ready", 1),
        (1, ["pending", "unknown", "ready"], "unknown", 1),
        (2, ["unknown", "pending", "failed", "ready"], "failed", 1),
        (3, ["unknown", "failed", "ready"], "ready", 0),
    ],
)
async def test_it_asks_until_the_answer_stands(max_unclear_looks, states, answer, left):
    adapter = ScriptedReadiness(*states)
    adapter.max_unclear_looks = max_unclear_looks
    assert (await adapter.wait_until_ready(SCOPE, 5)).state == answer
    assert len(adapter.left) == left


async def test_late_is_pending_whatever_was_heard_last():
    adapter = ScriptedReadiness(*["pending"] * 1000)
    answer = await adapter.wait_until_ready(SCOPE, 0.02)
    assert answer.state == "pending"

    class Silent(ScriptedReadiness):
        async def readiness(self, scope):
            await anyio.sleep_forever()
            raise AssertionError

    answer = await Silent().wait_until_ready(SCOPE, 0.02)
    assert (answer.state, answer.detail) == ("pending", "no answer within 0.02 s")


async def test_an_adapter_that_tells_no_readiness_does_not_pretend_to_it():
    assert not isinstance(BaseAdapter(), SupportsReadiness)
    assert isinstance(ScriptedReadiness(), SupportsReadiness)


async def test_a_store_that_does_not_answer_is_not_ready():
    class Own(SynchronousWrites):
        backend_name = "own"

        async def probe_scope(self, scope):
            if scope.persona_id == "gone":
                raise BackendUnavailable("no answer")

    own = Own.__new__(Own)
    for ask in (own.readiness, partial(own.wait_until_ready, timeout_s=1.0)):
        assert (await ask(MemoryScope(run_id="r", persona_id="p"))).state == "ready"
        with pytest.raises(BackendUnavailable):
            await ask(MemoryScope(run_id="r", persona_id="gone"))
