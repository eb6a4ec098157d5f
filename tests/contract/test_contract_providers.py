"""The kit on everything memslot ships: mem0 and the six control conditions, as a configuration names them."""

import pytest
from kit_selection import OF_THE_SLOT

from memory import BackendTimeout, Deadlines
from memory.backends.mem0.conformance import Mem0Conformance
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import MemoryContract, ScriptedLLM


def backend(name, **options):
    return {"memory": {"backend": name, "backends": {name: options}}}


def condition(name, **options):
    return {"memory": {"condition": name, "conditions": {name: options}}}


class Mem0Infer(Mem0Conformance):
    """mem0 with a model."""

    rewrites = "a model extracts facts"
    concurrent_scopes = 16


class Mem0Contract(MemoryContract):
    async def test_the_flip_waits_for_an_abandoned_native_call(self, kit, adapter, fault, profiled):
        """The fingerprint is read on the thread that writes, so it alone could not show the order."""
        profiled.late_s = 2.0
        slot = kit.make_slot(deadlines=Deadlines(write_s=0.3, query_s=0.3))
        await slot.setup_scope(kit.scope)
        with fault("late"):
            await self.gives_up(slot, kit.event(kit.fact("slow")))
            assert adapter.worker._running
            await kit.read_only()
            assert not adapter.worker._running

    async def gives_up(self, slot, event):
        assert (await slot.record_event(event)).status == "unknown"


class TestMem0(Mem0Contract):
    thorough = ("test_concurrent_scopes_never_cross",)  # the fake backend shows it
    config = backend("mem0")


@pytest.mark.thorough
class TestSimpleRag(Mem0Contract):
    config = condition("simple_rag")


@pytest.mark.thorough
class TestMem0Infer(Mem0Contract):
    """mem0 as its authors mean it: a model extracts; every answer is made of the request's own text."""

    profile = Mem0Infer
    config = backend("mem0", infer=True, llm={"base_url": "http://127.0.0.1:9/v1"})
    anyio_backends = ("asyncio",)

    async def gives_up(self, slot, event):
        """Before mem0 inserts what a model extracted, it searches. The search is late, so nothing is stored."""
        with pytest.raises(BackendTimeout, match="nothing was stored"):
            await slot.record_event(event)

    @pytest.fixture
    def adapter_factory(self, tmp_path):
        with ScriptedLLM() as llm:
            model = {"base_url": llm.base_url, "api_key": "unused"}
            settings = load_config(backend("mem0", infer=True, llm=model, embedder=model))
            yield lambda: MemoryAdapterRegistry().create(settings, data_dir=tmp_path)


class TestNoMemory(MemoryContract):
    config = condition("no_memory")


@pytest.mark.thorough
class TestNoMemoryNamed(MemoryContract):
    config = condition("no_memory", variant="named")
    anyio_backends = ("asyncio",)


class TestFullHistory(MemoryContract):
    thorough = OF_THE_SLOT
    config = condition("full_history")


class TestRollingSummary(MemoryContract):
    thorough = OF_THE_SLOT
    config = condition("rolling_summary")


@pytest.mark.thorough
class TestStaticProfile(MemoryContract):
    config = condition("static_profile", profile="Ada plays the oboe.\n\nShe dislikes small talk.")


@pytest.mark.thorough
class TestOracleIpas(MemoryContract):
    config = condition(
        "oracle_ipas", matrix={"ada": {"work": {"tone": "formal"}, "personal": {"tone": "warm"}}}
    )
