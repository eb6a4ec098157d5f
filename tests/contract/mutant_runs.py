"""Plays specs against the reference adapter and its mutants, each on a store of its own; no pytest inside."""

from contextlib import contextmanager

import anyio

from memory.adapter import PluginInfo
from memory.contract.adapter import capabilities_of
from memory.testing import ConformanceProfile, FakeBackend, FakeNativeStore
from memory.testing.contract._run import opened, run_spec
from memory.testing.contract._spec import specs

DESCRIBED = PluginInfo(
    name="fake", kind="architecture", summary="for tests", capabilities=capabilities_of(FakeBackend())
)


class FakeProfile(ConformanceProfile):
    """What the reference adapter shows of itself."""

    native_query = ("list", {})
    lists_in_order = True
    native_mutations = {"delete": {}, "update": {"text": "I have no passport."}}  # noqa: RUF012

    def fingerprint(self, adapter):
        return adapter.store.fingerprint()

    @contextmanager
    def native_fault(self, adapter, kind):
        adapter.store.faults.add(kind, times=None, delay_s=0.5)
        try:
            yield
        finally:
            adapter.store.faults.clear()


def play(spec, loop, adapter=FakeBackend, *, derivation_s=0.0, profile=FakeProfile):
    """How a spec ends on one event loop."""
    store = FakeNativeStore(latency_s=0.001, derivation_s=derivation_s)

    async def run():
        return await run_spec(specs()[spec], lambda: opened(lambda: adapter(store), profile, DESCRIBED), 30.0)

    return anyio.run(run, backend=loop)
