"""The contract as the reference adapter meets it; the mutants are measured by the same class."""

from contextlib import contextmanager

import pytest

from memory.adapter import PluginInfo
from memory.contract.adapter import capabilities_of
from memory.testing import FakeBackend, FakeNativeStore, MemoryContract


class FakeContract(MemoryContract):
    adapter_type = FakeBackend
    derivation_s = 0.0
    native_query = ("list", {})
    lists_in_order = True
    native_mutations = {"delete": {}, "update": {"text": "I have no passport."}}  # noqa: RUF012

    @pytest.fixture
    def store(self):
        return FakeNativeStore(latency_s=0.001, derivation_s=self.derivation_s)

    @pytest.fixture
    def adapter_factory(self, store):
        return lambda: self.adapter_type(store)

    @pytest.fixture
    def described(self):
        return PluginInfo(
            name="fake", kind="architecture", summary="for tests", capabilities=capabilities_of(FakeBackend())
        )

    @pytest.fixture
    def fingerprint(self, store):
        return store.fingerprint

    @pytest.fixture
    def native_fault(self, store):
        @contextmanager
        def inject(kind):
            store.faults.add(kind, times=None, delay_s=0.5)
            try:
                yield
            finally:
                store.faults.clear()

        return inject
