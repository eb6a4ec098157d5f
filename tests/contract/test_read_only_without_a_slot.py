"""An adapter keeps the promise of read-only mode by itself, as spec 4.2 asks; nothing here has a slot."""

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from installed import installed
from said import said

from memory import (
    AdapterMode,
    ContextBudget,
    MemoryFeedback,
    MemoryScope,
    Message,
    NativeMutationRequest,
    ReadOnlyError,
    RetrieveRequest,
)
from memory.adapter import BaseAdapter, Utf8TokenCounter
from memory.contract.adapter import capabilities_of
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import FakeBackend

NOWHERE = "http://127.0.0.1:9"
MODEL = {"model": "m", "base_url": f"{NOWHERE}/v1"}
PROVIDERS = {
    "mem0": {},
    "stigmem": {"url": NOWHERE, "isolation": "node", "allow_sharing": True},
    "graphiti": {"llm": MODEL},
    "honcho": {"base_url": NOWHERE},
    "memos": {"url": NOWHERE, "graph_db": "neo4j-community"},
    "mirror": {"primary": "mem0", "shadows": ["full_history"]},
    "no_memory": {},
    "full_history": {},
    "rolling_summary": {},
    "simple_rag": {},
    "static_profile": {"profiles": {"p": "Ada likes tea."}},
    "oracle_ipas": {"matrix": {"p": {"work": {"style": "brief"}}}},
}
SCOPE = MemoryScope(run_id="r", persona_id="p")


def event(event_id, text="I like oolong."):
    return said(SCOPE, text, Message(role="assistant", content="Noted."), event_id=event_id)


def create(name, tmp_path):
    registry = MemoryAdapterRegistry()
    word = (
        "backend"
        if name in [row.name for row in registry.rows() if row.kind == "architecture"]
        else "condition"
    )
    content = {"memory": {word: name, f"{word}s": {name: PROVIDERS[name]}}}
    return registry.create(content, data_dir=tmp_path)


def test_every_provider_that_memslot_ships_is_listed_here():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    points = project["entry-points"]
    assert PROVIDERS.keys() >= {*points["memslot.backends"], *points["memslot.conditions"]}


@pytest.mark.parametrize("name", PROVIDERS)
async def test_every_write_path_of_an_adapter_alone_is_skipped_while_read_only(name, tmp_path):
    try:
        adapter = create(name, tmp_path)
    except Exception as error:
        if "not installed" in str(error):
            pytest.skip(str(error))
        raise
    try:
        await adapter.set_mode(AdapterMode(read_only=True))
        assert (await adapter.record_event(event("e1"))).status == "skipped_read_only"
        offered = capabilities_of(adapter)
        if "bulk_ingest" in offered:
            statuses = [receipt.status for receipt in await adapter.record_events([event("e2"), event("e3")])]
            assert statuses == ["skipped_read_only"] * 2
        if "feedback" in offered:
            feedback = MemoryFeedback(
                feedback_id="f", scope=SCOPE, session_id="s", content="No.",
                timestamp=datetime(2026, 1, 1, tzinfo=UTC),
            )  # fmt: skip
            assert (await adapter.apply_feedback(feedback)).status == "skipped_read_only"
        if "native_mutation" in offered:
            request = NativeMutationRequest(scope=SCOPE, operation="delete", native_id="n")
            assert (await adapter.native_mutation(request)).status == "skipped_read_only"
        with pytest.raises(ReadOnlyError, match="set_mode first"):
            await adapter.reset_scope(SCOPE)
    finally:
        await adapter.aclose()


@pytest.mark.parametrize("name", ["mem0", "simple_rag", "full_history", "rolling_summary", "mirror"])
async def test_what_is_said_while_read_only_is_not_stored(name: str, tmp_path: Path) -> None:
    # Importing mem0 here would be before its backend has switched its telemetry off.
    if not installed("mem0"):
        pytest.skip("needs mem0ai")
    adapter = create(name, tmp_path)
    try:
        await adapter.setup_scope(SCOPE)
        await adapter.record_event(event("e1", "I like oolong."))
        for read_only, said in ((True, "I like gyokuro."), (False, "I like sencha.")):
            await adapter.set_mode(AdapterMode(read_only=read_only))
            await adapter.record_event(event(f"e{read_only}", said))
        await adapter.set_mode(AdapterMode(read_only=True))  # a summary is made of what was said by now
        asked = RetrieveRequest(query="Which tea do I like?", scope=SCOPE, session_id="s2")
        section = adapter.format_context(await adapter.retrieve(asked))
        assert "oolong" in section
        assert "sencha" in section
        assert "gyokuro" not in section
    finally:
        await adapter.aclose()


class Slow(FakeBackend):
    """Writes take as long as the test says."""

    def __init__(self):
        super().__init__()
        self.may_end = anyio.Event()

    async def record_event(self, event):
        await self.may_end.wait()
        return await super().record_event(event)


async def test_the_switch_waits_for_a_write_under_way():
    adapter = Slow()
    await adapter.setup_scope(SCOPE)
    order = []

    async def write():
        order.append((await adapter.record_event(event("e1"))).status)

    async def switch():
        await adapter.set_mode(AdapterMode(read_only=True))
        order.append("read-only")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await anyio.wait_all_tasks_blocked()
        for _ in range(2):
            tasks.start_soon(switch)
        await anyio.wait_all_tasks_blocked()
        adapter.may_end.set()
    assert order == ["committed", "read-only", "read-only"]


async def test_an_adapter_that_cannot_finish_what_it_writes_is_read_only_all_the_same():
    class Stuck(FakeBackend):
        async def join_abandoned(self):
            raise RuntimeError("it goes on")

    adapter = Stuck()
    with pytest.raises(RuntimeError):
        await adapter.set_mode(AdapterMode(read_only=True))
    assert (await adapter.record_event(event("e1"))).status == "skipped_read_only"


def test_a_method_that_comes_from_a_mixin_is_guarded_too():
    class Mutations:
        async def native_mutation(self, request):
            return "done"

    class Adapter(Mutations, BaseAdapter):
        """Has the method by inheritance alone."""

    async def mutate():
        adapter = Adapter()
        await adapter.set_mode(AdapterMode(read_only=True))
        return await adapter.native_mutation(NativeMutationRequest(scope=SCOPE, operation="delete"))

    assert anyio.run(mutate).status == "skipped_read_only"


async def test_the_section_of_an_adapter_alone_fits_the_budget(tmp_path):
    adapter = create("full_history", tmp_path)
    try:
        await adapter.setup_scope(SCOPE)
        for number in range(20):
            await adapter.record_event(event(f"e{number}", f"Sentence {number}. " * 20))
        budget = ContextBudget(max_tokens=300, max_items=3)
        asked = RetrieveRequest(query="Which?", scope=SCOPE, session_id="s2", budget=budget)
        result = await adapter.retrieve(asked)
        section = adapter.format_context(result)
        assert section
        assert Utf8TokenCounter().count(section) <= 300
    finally:
        await adapter.aclose()
