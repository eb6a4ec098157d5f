"""A run begins with the doctor's checks, and its manifest holds what they saw."""

from __future__ import annotations

import pytest
from bench_support import config_of, registry_with
from both_loops import anyio_backend as anyio_backend

from memory.bench import comparison_configs, run_benchmark, run_many
from memory.bench.engine.run_manifest import read_manifest
from memory.doctor.report import CHECKS
from memory.testing import FakeBackend, FakeNativeStore


class Leaky(FakeBackend):
    """Carries everybody's rows along."""

    async def retrieve(self, request):
        rows = [row for space in self.store.spaces for row in await self.store.search(space, request.query)]
        return (await super().retrieve(request)).model_copy(update={"raw": rows})


@pytest.fixture
def go(tmp_path):
    """Runs a backend over a small quickstart; ``doctor`` is asked unless told otherwise."""

    async def go(adapter, store, **settings):
        block = {"users": 1, "sessions": 8, "output": str(tmp_path / "out"), "doctor": True, **settings}
        config = config_of(run=block)
        registry = registry_with(lambda: adapter(store))
        return await run_benchmark(config, registry=registry)

    return go


async def test_the_checks_stand_in_the_manifest_and_leave_nothing_in_the_store(go):
    store = FakeNativeStore()
    outcome = await go(FakeBackend, store)
    manifest = read_manifest(outcome.directory)
    assert manifest.status == "completed"
    assert [check.name for check in manifest.doctor] == list(CHECKS)
    assert {check.status for check in manifest.doctor} == {"passed", "skipped"}
    assert manifest.timings.doctor_ms > 0
    assert not [row for row in store.rows.values() if "doctor" in row.space]
    assert store.rows


async def test_a_run_whose_backend_fails_a_check_ends_there(go):
    store = FakeNativeStore()
    outcome = await go(Leaky, store)
    manifest = outcome.manifest
    assert manifest.status == "failed"
    assert manifest.error.message == "doctor: isolation: doctor-a was shown what was written for doctor-b"
    assert [cell.status for cell in manifest.cells] == ["not_run"]
    assert not store.rows
    assert outcome.metrics.probes == 0


async def test_what_could_not_be_seen_is_a_warning(go):
    outcome = await go(FakeBackend, FakeNativeStore(derivation_s=60), wait_timeout_s=0.05)
    warnings = " ".join(outcome.manifest.warnings)
    assert "doctor: isolation could not be seen in time" in warnings
    assert outcome.manifest.cells[0].probes > 0


async def test_without_the_doctor_the_manifest_says_so_and_the_hash_is_the_same(go):
    without = await go(FakeBackend, FakeNativeStore(), doctor=False)
    assert without.manifest.doctor is None
    assert without.manifest.timings.doctor_ms == 0
    assert without.manifest.config_hash == (await go(FakeBackend, FakeNativeStore())).manifest.config_hash


async def test_each_provider_of_a_comparison_is_examined(tmp_path):
    content = {
        "memory": {"condition": "no_memory", "conditions": {"no_memory": {}, "full_history": {}}},
        "run": {"users": 1, "sessions": 8, "output": str(tmp_path), "compare": ["no_memory", "full_history"]},
    }
    comparison = await run_many(comparison_configs(content))
    assert [len(outcome.manifest.doctor) for outcome in comparison.outcomes] == [len(CHECKS)] * 2


async def test_a_wait_is_told_with_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("memory.doctor.waiting._FIRST_NOTICE_S", 0.04)
    told = []
    config = config_of(run={"users": 1, "sessions": 8, "output": str(tmp_path), "wait_timeout_s": 0.3})
    store = FakeNativeStore(derivation_s=60)
    await run_benchmark(config, registry=registry_with(FakeBackend(store)), on_wait=told.append)
    waits = {one.limit_s for one in told if one.what == "what was written to be processed"}
    assert waits == {0.3}
