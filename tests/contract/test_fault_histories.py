"""Concurrent writers through faults: nothing acknowledged is lost, nothing crosses, nothing is there unasked."""

from contextlib import contextmanager

import anyio
import pytest
from fault_history import play
from mutants import MUTANTS

from memory.adapter import ContextEntry
from memory.testing import FakeBackend, FakeNativeStore

pytestmark = pytest.mark.thorough

KINDS = ("500", "refused", "lost", "truncated", "unreadable", "429", "slow", "late")


def over(adapter, seed, loop="asyncio", **settings):
    """The history of an adapter over one store."""
    store = FakeNativeStore()

    @contextmanager
    def fault(_, kind):
        """Every call fails; of slowness two, so that those that follow overtake them."""
        store.faults.add(kind, times=2 if kind in ("slow", "late") else None, delay_s=0.02)
        yield
        store.faults.clear()

    async def run():
        return await play(lambda: adapter(store, **settings), fault, KINDS, operations=300, seed=seed)

    return anyio.run(run, backend=loop)


@pytest.mark.parametrize("loop", ["asyncio", pytest.param("trio", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_invented_or_in_another_scope(seed, loop):
    history = over(FakeBackend, seed, loop, write_retries=1)
    assert (history.lost, history.invented, history.foreign, history.doubled) == ([], [], [], [])
    assert history.outcomes["committed"] > 100
    assert history.outcomes["refused"] > 10, "no fault was met, and nothing is shown"


def test_an_adapter_that_swallows_write_errors_is_seen():
    assert over(MUTANTS["swallows_write_errors"].adapter, 0).lost


class WritesTwice(FakeBackend):
    """Sends each event again, as a proxy does that got no answer in time."""

    async def record_event(self, event):
        await super().record_event(event)
        return await super().record_event(event)


def test_rows_that_are_there_twice_are_seen():
    assert over(WritesTwice, 0).doubled


class StoresEverywhere(FakeBackend):
    """Reads every space."""

    async def retrieve(self, request):
        result = await super().retrieve(request)
        rows = [
            row
            for space in sorted(self.store.spaces)
            for row in await self.store.search(space, request.query)
        ]
        entries = tuple(ContextEntry(row["text"]) for row in rows)
        return result.model_copy(update={"entries": entries})


def test_rows_of_another_scope_are_seen():
    assert over(StoresEverywhere, 0).foreign
