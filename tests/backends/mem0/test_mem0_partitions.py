"""The embedded store's partitions: apart on the disk, a few of them open, made and dropped as a whole."""

import gc
import shutil
import threading
from contextlib import suppress
from types import SimpleNamespace

import anyio
import pytest
from mem0_killing import killed_at_every_step
from mem0_support import ALICE, BOB, NEEDS_MEM0, config, event, found, mutate, native, on_disk, opened, stored

from memory import BackendError, IsolationError, MemoryScope, open_memory
from memory.backends.mem0.adapter import set_environment

pytestmark = NEEDS_MEM0


def partitions(data_dir):
    return sorted(data_dir.glob("mem0/qdrant/scopes/memslot/*"))


def partition(data_dir, persona="alice"):
    (directory,) = data_dir.glob(f"mem0/qdrant/scopes/memslot/{persona}_xrun1")
    return directory


def people(count):
    return [MemoryScope(run_id="run1", persona_id=f"p{number}") for number in range(count)]


async def test_what_a_scope_remembers_lies_in_its_own_directory(tmp_path):
    agent = MemoryScope(run_id="run1", persona_id="alice", agent_id="agent")
    async with opened(tmp_path, BOB, agent) as slot:
        for scope in (ALICE, BOB, agent):
            await slot.record_event(event(f"the secret of {scope.label};", scope=scope))
        assert len(partitions(tmp_path)) == 3
        for scope in (ALICE, BOB, agent):
            text = f"the secret of {scope.label};"
            assert len({path.relative_to(tmp_path).parts[:5] for path in on_disk(tmp_path, text)}) == 1


async def test_a_row_of_another_scope_is_never_shown_wherever_it_lies(tmp_path):
    async with opened(tmp_path, BOB) as slot:
        await slot.record_event(event("Alice's tea"))
        memory = native(slot)
        vector = memory.embedding_model.embed("Bob's tea")
        row = {"data": "Bob's tea", "user_id": "bob", "run_id": "run1"}
        memory.vector_store.insert([vector], [row], ["00000000-0000-4000-8000-000000000000"])
        for call in (found(slot, "tea"), stored(slot), slot.reset_scope(ALICE)):
            with pytest.raises(IsolationError):
                await call
        assert partition(tmp_path).exists(), "nothing was done"


@pytest.mark.thorough
async def test_few_stay_open_and_all_answer(tmp_path):
    scopes = people(9)
    async with opened(tmp_path, *scopes, open_partitions=3) as slot:
        for turn in range(3):
            for number, scope in enumerate(scopes):
                await slot.record_event(event(f"tea {number} in turn {turn}", scope=scope))
        for number, scope in enumerate(scopes):
            texts = await found(slot, "tea", scope=scope)
            assert sorted(texts) == [f"tea {number} in turn {turn}" for turn in range(3)]
        details = (await slot.health()).details
    assert (details["partitions"], details["open_partitions"]) == (10, 3)


async def test_reset_removes_the_directory_and_every_trace(tmp_path):
    async with opened(tmp_path, BOB) as slot:
        for scope in (ALICE, BOB):
            for number in range(3):
                receipt = await slot.record_event(
                    event(f"the secret {scope.persona_id} {number}", scope=scope)
                )
        await mutate(slot, "delete", (await stored(slot))[0]["id"])
        receipt = await slot.reset_scope(ALICE)
        assert (receipt.verified, receipt.removed, receipt.left) == (True, 2, ())
        assert on_disk(tmp_path, "the secret alice") == []
        assert [path.name for path in partitions(tmp_path)] == ["bob_xrun1"]
        assert len(await stored(slot, BOB)) == 3
        assert await stored(slot) == []
        await slot.record_event(event("a fresh start"))
        assert await found(slot, "start") == ["a fresh start"]


class Slow:
    """An embedder that waits for its questions to be let through."""

    def __init__(self, embedder, action="search"):
        self.embedder, self.config, self.action = embedder, embedder.config, action
        self.asked, self.go_on = threading.Event(), threading.Event()

    def embed(self, text, action=None):
        if action == self.action:
            self.asked.set()
            self.go_on.wait(60)
        vector = self.embedder.embed(text, action)
        return vector

    def embed_batch(self, texts, action):
        return [self.embed(text, action) for text in texts]


def answer_slowly(monkeypatch, slow):
    """The adapter's own embedder is slow; mem0 gets it from its configuration, as ever."""
    from mem0.utils.factory import EmbedderFactory

    known = EmbedderFactory.provider_to_class
    made = SimpleNamespace(create=lambda *_: slow, provider_to_class=known)
    monkeypatch.setattr("memory.backends.mem0.models.EmbedderFactory", made)


@pytest.mark.thorough
async def test_a_call_that_waits_for_a_model_keeps_its_partition_open(tmp_path, monkeypatch):
    """Others use more partitions meanwhile than stay open, and its own is dropped."""
    set_environment(tmp_path)  # before mem0 is imported
    from memory.backends.mem0.models import lexical_embedding

    slow = Slow(lexical_embedding())
    answer_slowly(monkeypatch, slow)
    scopes = people(4)
    model = {"base_url": "http://127.0.0.1:9/v1"}
    async with opened(tmp_path, *scopes, embedder=model, dimensions=1024, open_partitions=1) as slot:
        for scope in (*scopes, ALICE):
            await slot.record_event(event(f"tea of {scope.persona_id}", scope=scope))
        answers = []

        async def search():
            answers.append(await found(slot, "tea"))

        async with anyio.create_task_group() as group:
            group.start_soon(search)
            await anyio.to_thread.run_sync(slow.asked.wait)
            for scope in scopes:
                assert len(await stored(slot, scope)) == 1
            assert (await slot.reset_scope(ALICE)).verified
            slow.go_on.set()
        assert answers == [["tea of alice"]], "it began before the reset"
        assert await stored(slot) == []


async def test_a_write_that_waits_for_a_model_leaves_nothing_in_the_partition_made_after_a_reset(
    tmp_path, monkeypatch
):
    set_environment(tmp_path)  # before mem0 is imported
    from memory.backends.mem0.models import lexical_embedding

    slow = Slow(lexical_embedding(), "add")
    answer_slowly(monkeypatch, slow)
    model = {"base_url": "http://127.0.0.1:9/v1"}
    async with opened(tmp_path, embedder=model, dimensions=1024) as slot:
        adapter = slot._adapter

        async def add():
            with suppress(BackendError):  # or the reset has erased it
                await adapter.record_event(event("too late"))

        async with anyio.create_task_group() as group:
            group.start_soon(add)
            await anyio.to_thread.run_sync(slow.asked.wait)
            assert (await adapter.reset_scope(ALICE)).verified
            await adapter.setup_scope(ALICE)
            slow.go_on.set()
        assert await stored(slot) == []
        assert (await slot.health()).status == "ok"


def emptied(path):
    path.write_bytes(b"")


def zeroed(path):
    path.write_bytes(bytes(path.stat().st_size))


def torn(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def removed(path):
    path.unlink()


@pytest.mark.filterwarnings(
    "ignore:unclosed database:ResourceWarning"
)  # Qdrant's, of a file that it cannot read
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("collection/memslot/storage.sqlite", emptied),
        ("collection/memslot/storage.sqlite", zeroed),
        ("collection/memslot/storage.sqlite", removed),
        ("meta.json", emptied),
        ("meta.json", torn),
        ("meta.json", removed),
        ("", shutil.rmtree),
    ],
)
async def test_a_listed_partition_never_reads_as_empty(tmp_path, name, damage):
    """Never empty and healthy: a partition was complete when it got its place. The other scopes go on."""
    async with opened(tmp_path, BOB) as slot:
        for number in range(20):
            await slot.record_event(event(f"tea {number} " + "and more " * 100))
        await slot.record_event(event("Bob's tea", scope=BOB))
    damage(partition(tmp_path) / name)
    async with open_memory(config(tmp_path)) as slot:
        for _ in range(2):
            with pytest.raises(
                BackendError, match=r"alice_xrun1 is (damaged: |listed in ).*, or reset the scope"
            ) as raised:
                await slot.setup_scope(ALICE)
            assert not raised.value.ambiguous
        await slot.setup_scope(BOB)
        assert await found(slot, "tea", scope=BOB) == ["Bob's tea"]
        receipt = await slot._adapter.reset_scope(ALICE)
        assert (receipt.verified, receipt.removed) == (True, None)
        await slot.setup_scope(ALICE)
        assert await stored(slot) == []
    gc.collect()  # here, where that warning is known, and not in another test


@pytest.mark.thorough
async def test_killed_while_a_partition_is_made(tmp_path):
    """At every operation on a file: what is there afterwards is whole, or not there at all."""
    killed = killed_at_every_step(tmp_path)
    for data_dir in killed:
        async with opened(data_dir, BOB) as slot:
            assert await found(slot, "tea", scope=BOB) in ([], ["Bob's tea"])
            await slot.record_event(event("more tea", scope=BOB))
            assert "more tea" in await found(slot, "tea", scope=BOB)
        assert not [path for path in partitions(data_dir) if path.name.startswith(".")], "nothing lies about"
    assert len(killed) > 5
