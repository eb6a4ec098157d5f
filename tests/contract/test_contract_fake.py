"""The kit on the reference adapter, as a plugin author would run it, immediate and derived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from memory import MemoryAdapter
from memory.testing import FakeBackend, FakeNativeStore
from memory.testing.contract import Fingerprint, MemoryContract, NativeFault


class TestFakeBackend(MemoryContract):
    native_query = ("list", {})
    native_mutations = {"delete": {}, "update": {"text": "I have no passport."}}  # noqa: RUF012

    @pytest.fixture
    def store(self) -> FakeNativeStore:
        return FakeNativeStore(latency_s=0.001)

    @pytest.fixture
    def adapter_factory(self, store: FakeNativeStore) -> Callable[[], MemoryAdapter]:
        return lambda: FakeBackend(store)

    @pytest.fixture
    def fingerprint(self, store: FakeNativeStore) -> Fingerprint:
        return store.fingerprint

    @pytest.fixture
    def native_fault(self, store: FakeNativeStore) -> NativeFault:
        @contextmanager
        def inject(kind: str) -> Iterator[Any]:
            store.faults.add("500" if kind == "down" else "late", times=None, delay_s=1.0)
            yield
            store.faults.clear()
            assert store.faults.fired, "a fault that never fired proves nothing"

        return inject


class TestFakeDerived(TestFakeBackend):
    """What is written can be found only after a while."""

    @pytest.fixture
    def store(self) -> FakeNativeStore:
        return FakeNativeStore(derivation_s=0.02)
