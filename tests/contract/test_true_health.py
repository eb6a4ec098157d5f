"""Over every memory: health is degraded after trouble until a success, and a reset that failed hides what it was to
erase from the next process, unless the backend refused it."""

import sys
from collections.abc import Callable
from contextlib import contextmanager, suppress
from functools import partial
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import anyio
import pytest
from backends import double
from variants import plain

from memory import BackendError, ConfigError, MemoryScope, MemslotError
from memory.adapter import BackendRejected
from memory.plugins.opening import build_slot
from memory.plugins.registry import MemoryAdapterRegistry
from memory.storage.entries import forget_entries, list_entries, retry_entries
from memory.testing import LoopbackProcess, ScriptedLLM

HonchoDouble = double("honcho_double", "HonchoDouble")
MemosDouble = double("memos_double", "MemosDouble")
StigmemDouble = double("stigmem_double", "StigmemDouble")
ADMIN_KEY = double("stigmem_node_model", "ADMIN_KEY")
ADA = MemoryScope(run_id="r", persona_id="ada")
Started = Callable[[], Any]


@contextmanager
def on(server, address, options, **arguments):
    with LoopbackProcess(server, **arguments) as process:
        yield {address: process.url, **options}


@contextmanager
def scripted():
    with ScriptedLLM() as llm:
        yield {"llm": {"base_url": llm.base_url, "model": "scripted"}}


@contextmanager
def embedded(**options):
    yield options


HURRY = {"quiet_period_s": 0.05, "poll_s": 0.005, "retry_pause_s": 0.01}
MEMORIES = {
    "mem0": ("backend", "mem0", embedded),
    "graphiti": ("backend", "graphiti_core", scripted),
    "honcho": ("backend", "honcho", partial(on, HonchoDouble, "base_url", HURRY)),
    "memos": ("backend", "httpx", partial(on, MemosDouble, "url", {"graph_db": "postgres"})),
    "stigmem": (
        "backend",
        "httpx",
        partial(on, StigmemDouble, "url", {"api_key": ADMIN_KEY}, auth=True, multi_tenant=True),
    ),
    "full_history": ("condition", "memory", embedded),
    "rolling_summary": ("condition", "memory", embedded),
}


@pytest.fixture(scope="module", params=plain("full_history", "memos", of=list(MEMORIES)))
def memory(request):
    """The name of a memory, and what stands below ``memory`` in its configuration."""
    name = request.param
    group, module, start = MEMORIES[name]
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    with start() as options:
        deadlines = {"write_s": 10.0, "reset_s": 10.0}
        yield name, {group: name, f"{group}s": {name: options}, "deadlines": deadlines}


@contextmanager
def failing(name, slot, directory):
    profile = MemoryAdapterRegistry().conformance(name)
    assert profile is not None
    with profile(directory).native_fault(slot._adapter, "500"):
        yield


def opened(block, directory, run, **options):
    scope = ADA.model_copy(update={"run_id": run})
    return build_slot({"memory": {**block, **options}}, scope=scope, data_dir=directory)


@pytest.mark.parametrize("journal", [False, True])
async def test_health_is_degraded_after_trouble_and_ok_after_a_success(memory, tmp_path, journal):
    name, block = memory
    async with opened(block, tmp_path, f"health-{journal}", journal=journal) as slot:
        await slot.after_turn(session_id="1", user="I like tea.")
        well = (await slot.health()).status
        with failing(name, slot, tmp_path):
            try:
                receipt = await slot.after_turn(session_id="1", user="I like oolong.", event_id="e")
                assert receipt.status in ("queued", "unknown")
                await slot.delivery.deliver(slot.delivery.scope_or_default())  # where a turn does not wait
            except MemslotError:
                pass
        health = await slot.health()
        assert health.status == "degraded", health.warnings
        assert any("write" in said or "wait" in said or "record_event" in said for said in health.warnings)
        with anyio.fail_after(60):
            while (await slot.health()).status != well:  # what waits has a pause before it is sent again
                await anyio.sleep(0.1)
                await slot.after_turn(session_id="1", user="I like mate.")


async def test_health_counts_what_was_set_aside_until_it_is_delivered_or_forgotten(
    memory, tmp_path, monkeypatch
):
    async def refuse(event):
        raise BackendRejected("it is refused")

    async with opened(memory[1], tmp_path, "aside", journal=True) as slot:
        scope, store = slot.delivery.scope_or_default(), slot.delivery.journal.store
        await slot.after_turn(session_id="1", user="I like tea.")
        await slot.delivery.deliver(scope)
        well = (await slot.health()).status
        for settle in (retry_entries, forget_entries):
            with monkeypatch.context() as refusing, suppress(BackendRejected):
                refusing.setattr(slot._adapter, "record_event", refuse)
                await slot.after_turn(session_id="1", user="I like oolong.", event_id=settle.__name__)
                await slot.delivery.deliver(scope)  # where a turn does not wait
            await slot.after_turn(session_id="1", user="I like mate.")
            await slot.delivery.deliver(scope)
            health = await slot.health()
            assert health.status == "degraded"
            assert "1 entry is set aside" in str(health.warnings)
            [aside] = list_entries(store, "state = 'aside'")
            assert settle(store, [aside.seq]) == [aside.seq]
            await slot.delivery.deliver(scope)
            assert (await slot.health()).status == well


async def test_health_is_degraded_while_the_encoder_of_keywords_is_dead(tmp_path, monkeypatch):
    pytest.importorskip("mem0")

    def dead(*given, **named):
        raise ConfigError("the files of Qdrant/bm25 are gone")

    installed = ModuleType("fastembed")
    installed.__spec__ = ModuleSpec("fastembed", None)
    installed.SparseTextEmbedding = None
    monkeypatch.setitem(sys.modules, "fastembed", installed)
    for loads, status in ((dead, "degraded"), (lambda *given, **named: None, "ok")):
        monkeypatch.setattr("memory.adapter.models.load_model", loads)
        async with opened({"backend": "mem0"}, tmp_path, "keywords") as slot:
            await slot.health()
            health = await slot.health()
            assert health.status == status, health.warnings
            assert ("the files of Qdrant/bm25 are gone" in str(health.warnings)) == (status == "degraded")


@pytest.mark.parametrize("journal", [False, True])
async def test_what_a_failed_reset_was_to_erase_is_not_shown_by_the_next_process(memory, tmp_path, journal):
    name, block = memory
    again = partial(opened, block, tmp_path, f"reset-{journal}", journal=journal)
    async with again() as slot:
        await slot.after_turn(session_id="1", user="The erased word is oboe.")
        with failing(name, slot, tmp_path), pytest.raises(MemslotError) as failed:
            await slot.reset_scope(slot.delivery.scope_or_default())
        perhaps_gone = isinstance(failed.value, BackendError) and failed.value.ambiguous
        assert ((await slot.health()).status == "degraded") or not perhaps_gone
    async with again() as fresh:
        shown = await fresh.before_turn("Which word was erased?", session_id="1")
        assert "oboe" not in shown or not perhaps_gone
