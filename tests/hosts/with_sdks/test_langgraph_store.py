"""A slot as LangGraph's store: its own tests where they are at hand, langmem, deep agents, and what a memory adds.

``MEMSLOT_LANGGRAPH_TESTS`` names a copy of ``libs/checkpoint/tests/test_store.py`` of LangGraph's repository; its
tests of stores without an index run on ours.
"""

import dataclasses
import inspect
import os
import sys
import types
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from langgraph.store.base import InvalidNamespaceError, PutOp

from memory import (
    AdapterMode,
    BackendUnavailable,
    CapabilityNotSupported,
    InputError,
    MemoryScope,
    MemorySlot,
    open_memory_sync,
)
from memory.adapter import FILTER_OPERATORS
from memory.hosts.langgraph_store import SlotStore
from memory.testing import FakeBackend, FakeNativeStore

THEIRS = os.environ.get("MEMSLOT_LANGGRAPH_TESTS")


@pytest.mark.parametrize("value", [datetime.now(UTC), b"tea", "\ud800"])
async def test_a_value_that_json_cannot_say_is_refused_before_the_memory_is_told(store, native, value):
    good = PutOp(("ada",), "good", {"text": "She likes oolong."})
    with pytest.raises(InputError, match="JSON"):
        await store.abatch([good, PutOp(("ada",), "bad", {"text": "Tea.", "more": value})])
    assert not native.rows
    assert await store.asearch(("ada",)) == []


@pytest.fixture
def native() -> FakeNativeStore:
    return FakeNativeStore()


@pytest.fixture
async def store(native: FakeNativeStore) -> AsyncIterator[SlotStore]:
    scope = MemoryScope(run_id="app", persona_id="ada")
    async with MemorySlot(FakeBackend(native), scope=scope) as memory:
        made = SlotStore(memory)
        yield made
        made.close()


async def test_items_are_kept_as_they_are_and_found_by_what_they_say(store):
    value = {"kind": "Memory", "content": {"content": "Ada likes oolong tea."}, "rating": 5}
    await store.aput(("memories", "ada"), "tea", value)
    await store.aput(("memories", "ada"), "car", {"content": "Ada drives a small car."})
    item = await store.aget(("memories", "ada"), "tea")
    assert item is not None
    assert item.value == value
    found = await store.asearch(("memories",), query="Which tea does Ada like?")
    assert found[0].key == "tea"
    assert found[0].score is not None
    assert [
        hit.key for hit in await store.asearch(("memories",), query="tea", filter={"rating": {"$gte": 5}})
    ] == ["tea"]
    assert await store.asearch(("memories",), query="tea", filter={"rating": {"$gt": 5}}) == []
    assert [hit.key for hit in await store.asearch(("memories", "ada"))] == ["tea", "car"]
    assert [hit.key for hit in await store.asearch(("memories", "ada"), limit=1, offset=1)] == ["car"]
    with pytest.raises(InputError, match="unknown"):
        await store.asearch(("memories",), filter={"rating": {"$like": 5}})


async def test_an_item_that_is_put_again_is_found_by_its_new_words_alone(store, native):
    await store.aput(("ada",), "drink", {"text": "She likes oolong."})
    first = await store.aget(("ada",), "drink")
    await store.aput(("ada",), "drink", {"text": "She likes coffee."})
    second = await store.aget(("ada",), "drink")
    assert first is not None
    assert second is not None
    assert second.created_at == first.created_at < second.updated_at
    assert await store.asearch(("ada",), query="oolong") == []
    assert [row.text for row in native.rows.values()] == ["She likes coffee."]
    await store.adelete(("ada",), "drink")
    assert await store.aget(("ada",), "drink") is None
    assert not native.rows
    assert await store.alist_namespaces() == []


async def test_what_was_put_again_is_deleted_with_all_it_ever_said(store, native):
    """A process may be gone, or the memory fail, between the new words and the end of the old ones."""
    await store.aput(("ada",), "drink", {"text": "She likes oolong."})
    native.faults.add("500", endpoint="delete")
    with pytest.raises(BackendUnavailable, match="did not say"):
        await store.aput(("ada",), "drink", {"text": "She likes coffee."})
    item = await store.aget(("ada",), "drink")
    assert item is not None
    assert item.value == {"text": "She likes coffee."}
    await store.adelete(("ada",), "drink")
    assert not native.rows


async def test_a_deletion_that_ended_in_its_middle_is_finished(store, native):
    await store.aput(("ada",), "drink", {"text": "She likes oolong."})
    (native_id,) = native.rows
    await store._items._memories(("ada",)).forget(native_id)
    await store.adelete(("ada",), "drink")
    assert await store.aget(("ada",), "drink") is None


@pytest.mark.parametrize("read_only", [False, True])
async def test_an_item_stays_whose_deletion_the_memory_does_not_confirm(store, native, read_only):
    await store.aput(("ada",), "drink", {"text": "She likes oolong."})
    slot = store._items._slot
    if read_only:
        await slot.set_mode(AdapterMode(read_only=True))
        await store.adelete(("ada",), "drink")
        await slot.set_mode(AdapterMode(read_only=False))
    else:
        native.faults.add("lost", endpoint="delete")
        with pytest.raises(BackendUnavailable, match="did not say whether it has deleted"):
            await store.adelete(("ada",), "drink")
    assert await store.aget(("ada",), "drink") is not None
    await store.adelete(("ada",), "drink")
    assert await store.aget(("ada",), "drink") is None
    assert not native.rows


async def test_namespaces_are_walls_whose_labels_never_meet(store, native):
    for namespace in (("a", "b"), ("a_b",), ("ab",), ("A", "b"), ("a",)):
        await store.aput(namespace, "k", {"text": f"tea of {namespace}"})
    assert len({row.space for row in native.rows.values()}) == 5
    assert [hit.namespace for hit in await store.asearch(("a_b",), query="tea")] == [("a_b",)]
    assert {hit.namespace for hit in await store.asearch(("a",), query="tea")} == {("a",), ("a", "b")}
    assert len(await store.asearch((), query="tea")) == 5


async def test_what_the_backend_derived_is_found_too(store, native):
    await store.aput(("ada",), "tea", {"text": "She likes oolong."})
    when = "2026-01-01T00:00:00+00:00"
    (space,) = {row.space for row in native.rows.values()}
    labels = {"event_id": None, "session_id": "x"}
    await native.insert(
        space,
        [{"text": "Ada is a friend of oolong.", "kind": "message", "created_at": when, "labels": labels}],
    )
    found = await store.asearch(("ada",), query="oolong")
    assert {tuple(hit.value.items()) for hit in found} == {
        (("text", "She likes oolong."),),
        (("text", "Ada is a friend of oolong."),),
    }
    assert [
        hit.key for hit in await store.asearch(("ada",), query="oolong", filter={"text": "She likes oolong."})
    ] == ["tea"]


@pytest.mark.parametrize("operators", [FILTER_OPERATORS, frozenset({"eq"})])
async def test_a_filter_finds_the_few_that_fit_among_many(store, native, operators, monkeypatch):
    """By the backend's own filter, and by asking it for more where it has none."""
    slot = store._items._slot
    traits = dataclasses.replace(slot.traits, filter_operators=operators)
    monkeypatch.setattr(type(slot), "traits", property(lambda _: traits))
    puts = [
        PutOp(("ada",), f"k{at}", {"text": f"tea number {at}", "rare": at in (150, 290)}) for at in range(300)
    ]
    await store.abatch([*puts, PutOp(("bob",), "other", {"text": "tea of another kind", "rare": True})])
    found = await store.asearch(("ada",), query="tea", filter={"rare": True}, limit=2)
    assert {hit.key for hit in found} == {"k150", "k290"}
    best = await store.asearch((), query="tea number 290", filter={"rare": True}, limit=1)
    assert [hit.key for hit in best] == ["k290"]
    assert await store.asearch(("ada",), query="tea", filter={"rare": "no"}) == []
    await store.aput(("ada",), "long\n" * 200, {"text": "tea of a long key"})
    assert (await store.asearch(("ada",), query="tea of a long key", limit=1))[0].key == "long\n" * 200


async def test_a_time_to_live_and_bad_namespaces_are_refused_before_anything_is_written(store, native):
    with pytest.raises(NotImplementedError, match="TTL"):
        await store.aput(("ada",), "k", {"text": "x"}, ttl=5)
    with pytest.raises(NotImplementedError, match="leave ttl out"):
        await store.abatch(
            [PutOp(("ada",), "a", {"text": "x"}), PutOp(("ada",), "b", {"text": "x"}, ttl=5.0)]
        )
    with pytest.raises(InvalidNamespaceError):
        await store.abatch([PutOp(("a.b",), "k", {"text": "x"})])
    assert not native.rows


async def test_a_failed_memory_is_raised_and_nothing_is_kept(store, native):
    native.faults.add("500", times=None)
    with pytest.raises(Exception, match=r"did not say|failed|500"):
        await store.aput(("ada",), "k", {"text": "x"})
    with pytest.raises(Exception, match=r"did not say|failed|500"):
        await store.asearch(("ada",), query="x") or await store.aput(("ada",), "k", {"text": "x"})
    native.faults.clear()
    assert await store.aget(("ada",), "k") is None


def test_it_survives_a_restart_and_says_what_a_backend_cannot(tmp_path):
    config = {
        "memory": {
            "backend": "full_history",
            "scope": {"run_id": "a", "persona_id": "b"},
            "data_dir": str(tmp_path),
        }
    }
    with open_memory_sync(config) as memory:
        store = SlotStore(memory)
        store.put(("ada",), "tea", {"text": "She likes oolong."})
        store.put(("ada",), "note", {"text": "not for the memory"}, index=False)
        store.close()
    with open_memory_sync(config) as memory:
        store = SlotStore(memory)
        assert [hit.key for hit in store.search(("ada",), query="What does she like?")] == ["tea"]
        assert {hit.key for hit in store.search(("ada",))} == {"tea", "note"}
        store.delete(("ada",), "note")
        with pytest.raises(CapabilityNotSupported, match="cannot delete a single memory"):
            store.delete(("ada",), "tea")
        assert store.get(("ada",), "tea") is not None
        store.close()


async def test_langmem_stores_and_searches_by_its_own_tools(store):
    langmem = pytest.importorskip("langmem")
    manage = langmem.create_manage_memory_tool(namespace=("memories", "ada"), store=store)
    search = langmem.create_search_memory_tool(namespace=("memories", "ada"), store=store)
    await manage.ainvoke({"content": "Ada likes oolong tea.", "action": "create"})
    assert "oolong" in str(await search.ainvoke({"query": "Which tea does Ada like?"}))


async def test_a_deep_agents_files_are_items_of_a_memory(store):
    backends = pytest.importorskip("deepagents.backends")
    files = backends.StoreBackend(store=store, namespace=lambda runtime: ("ada", "files"))
    assert (await files.awrite("/memories/tea.md", "Ada likes oolong tea.")).error is None
    assert (await files.aedit("/memories/tea.md", "oolong", "sencha")).error is None
    assert (await files.aread("/memories/tea.md")).file_data["content"] == "Ada likes sencha tea."
    assert [match["path"] for match in (await files.agrep("sencha")).matches] == ["/memories/tea.md"]
    (found,) = await store.asearch(("ada", "files"), query="Which tea does Ada like?")
    assert found.key == "/memories/tea.md"


@asynccontextmanager
async def _over_a_fake() -> AsyncIterator[MemorySlot]:
    scope = MemoryScope(run_id="app", persona_id="ada")
    async with MemorySlot(FakeBackend(), scope=scope) as memory:
        yield memory


class Embeddings:
    """In place of theirs, which only a store with an index of its own uses."""

    dims = 1


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Their module, in which every store is one of ours."""
    support = types.ModuleType("tests.embed_test_utils")
    support.CharacterEmbeddings = Embeddings  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tests.embed_test_utils", support)
    mock = types.ModuleType("pytest_mock")
    mock.MockerFixture = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pytest_mock", mock)
    module = types.ModuleType("their_store_tests")
    exec(compile(Path(str(THEIRS)).read_text("utf-8"), str(THEIRS), "exec"), module.__dict__)
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())

        class InMemoryStore(SlotStore):
            __slots__ = ()

            def __init__(self, index: Any = None) -> None:  # whatever embeds is the memory's
                super().__init__(stack.enter_context(portal.wrap_async_context_manager(_over_a_fake())))
                stack.callback(self.close)

        module.InMemoryStore = InMemoryStore  # type: ignore[attr-defined]
        yield module


RANKS_ALL = "their index ranks every item, however far; a memory answers what it recalls"
CANNOT = {
    "test_vector_store_initialization": "looks at the index of vectors that their store was given",
    "test_vector_search_with_filters": RANKS_ALL,
    "test_async_vector_search_with_filters": RANKS_ALL,
    "test_async_batched_vector_search_concurrent": RANKS_ALL,
    "test_embed_with_path": "compares scores of their embeddings",
    "test_async_batch_store": "a mock in place of a store",
    "test_async_batch_store_deduplication": "a mock in place of a store",
    "test_get_text_at_path": "a function of theirs, no store",
}


@pytest.mark.skipif(not THEIRS, reason="MEMSLOT_LANGGRAPH_TESTS names no copy of LangGraph's tests")
async def test_their_own_tests_pass(theirs):
    tests = {name: test for name, test in vars(theirs).items() if name.startswith("test_")}
    assert set(CANNOT) < set(tests)
    for name, test in tests.items():
        if name not in CANNOT:
            done = test(*[Embeddings() for _ in inspect.signature(test).parameters])
            if done is not None:
                await done
    assert len(tests) - len(CANNOT) == 16
