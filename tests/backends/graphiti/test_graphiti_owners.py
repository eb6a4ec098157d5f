"""Who may have an embedded graph, what becomes of it when its file is destroyed, and writes given up in a save."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from graphiti_support import (
    ALICE,
    NEEDS_GRAPHITI,
    ask,
    config,
    event,
    found,
    listed,
    opened,
)
from variants import plain

from memory import BackendError, BackendUnavailable, MemorySlot, SupportsBulkIngest, open_memory
from memory.adapter import FileLock
from memory.backends.graphiti.opening import import_sdk
from memory.testing import ScriptedLLM

pytestmark = NEEDS_GRAPHITI

HERE = Path(__file__).parent


def keeps(thing: str, who: str = "Ada") -> Any:
    """An event of one fact, written without a model."""
    fact = {"source": who, "relation": "KEEPS", "target": thing, "fact": f"{who} keeps the {thing}"}
    return event("unused", metadata={"triplets": [fact]})


async def kept(slot: MemorySlot) -> set[str]:
    """Things kept, as the tables say, each of which a search for its word must find."""
    things = {row["fact"].rpartition(" ")[2] for row in (await listed(slot, "edges"))["edges"]}
    for thing in things:
        facts = await found(slot, thing, max_items=3)
        assert any(fact.endswith(thing) for fact in facts), f"{thing} is stored and not found"
    return things


def graph_file(data_dir: Path, slot: MemorySlot) -> Path:
    return data_dir / "graphiti" / slot.native_scope(ALICE)["group_id"] / "graph.kuzu"


# -- one owner ----------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("first_to_close", [0, 1])
async def test_two_slots_of_a_process_share_a_graph(
    tmp_path: Path, llm: ScriptedLLM, first_to_close: int
) -> None:
    """Each with a database of its own destroyed it for good, also where the second only read."""
    base = config(llm.base_url, tmp_path, ingest="triplet")
    everything = {"teapot", "violin", "kayak", "lantern", "atlas"}
    async with open_memory(base, scope=ALICE) as first, open_memory(base, scope=ALICE) as second:
        slots = (first, second)
        await first.record_event(keeps("teapot"))
        assert await kept(second) == {"teapot"}
        async with anyio.create_task_group() as tasks:
            for slot, things in zip(slots, (("violin", "kayak"), ("lantern", "atlas")), strict=True):
                for thing in things:
                    tasks.start_soon(slot.record_event, keeps(thing))
        assert [await kept(slot) for slot in slots] == [everything] * 2
        await slots[first_to_close].aclose()
        assert in_another_process(tmp_path).startswith("BackendUnavailable"), "the other slot still has it"
        last = slots[1 - first_to_close]
        await last.record_event(keeps("camera"))
        assert (await last.health()).status == "ok"
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        assert await kept(slot) == {*everything, "camera"}


async def test_a_slot_may_reset_what_another_one_of_the_process_has_open(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    async with (
        opened(llm, tmp_path, ingest="triplet") as first,
        opened(llm, tmp_path, ingest="triplet") as second,
    ):
        await second.record_event(keeps("teapot"))
        assert (await first.reset_scope(ALICE)).verified
        assert await kept(second) == set()
        await second.record_event(keeps("violin"))
        assert await kept(first) == {"violin"}


@pytest.mark.parametrize("left", ["as it is", pytest.param("removed", marks=pytest.mark.thorough)])
async def test_a_reset_lets_nobody_in_between(
    tmp_path: Path, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """Another process that waits for the graph took it in the middle of a reset."""
    release, let_in = FileLock.release, []

    def released(lock: FileLock) -> None:
        release(lock)
        if left == "as it is":  # else it was nobody's
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


def test_a_graph_removed_and_made_anew_by_another_keeps_their_log(tmp_path: Path) -> None:
    """Who had the old one open removed it as it closed: what the other one had saved was lost with its process."""
    import_sdk()
    from memory.backends.graphiti.database import Database

    save = [("CREATE (:Episodic {uuid: 'tea'})", {})]
    first, second = (Database(tmp_path / "graph", 64) for _ in range(2))
    first.open()
    first.save(save)
    shutil.rmtree(tmp_path / "graph")
    second.open()
    second.save(save)
    log = tmp_path / "graph" / "graph.kuzu.wal"
    left = log.read_bytes()
    assert left
    first.close()
    assert log.read_bytes() == left
    second.close()


async def test_another_event_loop_is_refused(tmp_path: Path, llm: ScriptedLLM) -> None:
    refusals: list[str] = []

    def other() -> None:
        async def run() -> None:
            async with opened(llm, tmp_path, ingest="triplet"):
                pass

        try:
            asyncio.run(run())
        except BackendUnavailable as error:
            refusals.append(str(error))

    async with opened(llm, tmp_path, ingest="triplet") as slot:
        await slot.record_event(keeps("teapot"))
        thread = threading.Thread(target=other)
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        assert await kept(slot) == {"teapot"}
        await slot.record_event(keeps("violin"))
        directory = graph_file(tmp_path, slot).parent
    (message,) = refusals
    assert f"the graph at {directory} is open elsewhere in this process; close the other user" in message
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        assert await kept(slot) == {"teapot", "violin"}


OTHER = """
import asyncio, sys
from pathlib import Path
from memory import MemslotError
from graphiti_support import ScriptedLLM, opened
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


def start(data_dir: Path, *things: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OTHER, str(data_dir), *things],
        cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def in_another_process(data_dir: Path, *things: str) -> str:
    """What another process that opens the scope says last."""
    with start(data_dir, *things) as other:
        said, _ = other.communicate("go\n")
    return said.splitlines()[-1]


@pytest.mark.thorough
async def test_another_process_is_refused_and_told_why(tmp_path: Path, llm: ScriptedLLM) -> None:
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        said = in_another_process(tmp_path)
        directory = graph_file(tmp_path, slot).parent
        assert said.startswith(f"BackendUnavailable the graph at {directory} is open elsewhere in process ")
        assert "one process at a time owns an embedded graph" in said
        await slot.record_event(keeps("teapot"))
    assert in_another_process(tmp_path, "violin") == "found teapot violin"


@pytest.mark.thorough
async def test_two_processes_that_make_the_same_scope_lose_nothing(tmp_path: Path) -> None:
    """One replaced the file under the other, whose writes went on into a file without a name."""
    others = [start(tmp_path, f"thing{letter}", f"item{letter}") for letter in "ab"]
    for other in others:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
    for other in others:
        assert other.stdin is not None
        other.stdin.write("go\n")
        other.stdin.flush()
    said = "".join(other.communicate()[0] for other in others)
    stored_things = {line.removeprefix("kept ") for line in said.splitlines() if line.startswith("kept ")}
    assert stored_things, said
    assert set(in_another_process(tmp_path).split()[1:]) == stored_things


# -- a file that was destroyed ------------------------------------------------------------------------------


def _hole(file: Path) -> None:
    good = file.read_bytes()
    third = len(good) // 3
    file.write_bytes(good[:third] + bytes(third) + good[2 * third :])


def _one_byte(file: Path) -> None:
    with file.open("r+b") as opened_file:
        opened_file.seek(file.stat().st_size // 2 - 5000)
        byte = opened_file.read(1)
        opened_file.seek(-1, os.SEEK_CUR)
        opened_file.write(bytes([byte[0] ^ 1]))


DESTROYED: dict[str, Callable[[Path], object]] = {
    "emptied": lambda file: file.write_bytes(b""),
    "zeroed": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "torn": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "with a hole": _hole,
    "by one bit": _one_byte,
    "removed": lambda file: file.unlink(),
    "another file": lambda file: file.write_bytes(b"hello"),
    "without its end": lambda file: file.write_bytes(file.read_bytes()[:-4096]),
}


# There is no file, or one whose bytes are not those that were closed.
@pytest.mark.parametrize("how", plain("removed", "by one bit", of=DESTROYED))
async def test_a_destroyed_graph_is_never_empty_and_healthy(
    tmp_path: Path, llm: ScriptedLLM, how: str
) -> None:
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        await slot.record_event(keeps("teapot"))
        file = graph_file(tmp_path, slot)
    DESTROYED[how](file)
    left = file.read_bytes() if file.exists() else None
    async with open_memory(
        config(llm.base_url, tmp_path, ingest="triplet", deadlines={"setup_s": 9})
    ) as slot:
        for _ in range(2):
            with pytest.raises(BackendError, match="reset_scope") as raised:
                await slot.setup_scope(ALICE)
            assert str(file.parent) in str(raised.value)
        assert (file.read_bytes() if file.exists() else None) == left, "whoever restores it may need it"
        assert (await slot.reset_scope(ALICE)).verified
        await slot.setup_scope(ALICE)
        assert await kept(slot) == set()
        await slot.record_event(keeps("violin"))
        assert (await slot.health()).status == "ok"
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        assert await kept(slot) == {"violin"}


LOOK = """
import kuzu, sys
database = kuzu.Database(sys.argv[1], max_db_size=1 << 30)
connection = kuzu.Connection(database)
query = "CALL QUERY_FTS_INDEX('RelatesToNode_', 'edge_name_and_fact', 'teapot') RETURN count(*)"
print(connection.execute(query).get_next()[0])
connection.close()
database.close()
"""


@pytest.mark.thorough
async def test_a_look_of_another_program_is_no_change(tmp_path: Path, llm: ScriptedLLM) -> None:
    """Kuzu writes a word of its header anew for a search by words, whatever its memory held."""
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        await slot.record_event(keeps("teapot"))
        file = graph_file(tmp_path, slot)
    before = file.read_bytes()
    looked = await anyio.run_process([sys.executable, "-c", LOOK, str(file)])
    assert looked.stdout.strip() == b"1"
    changed = [at for at, (old, new) in enumerate(zip(before, file.read_bytes(), strict=True)) if old != new]
    assert changed, "or this test proves nothing"
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        assert await kept(slot) == {"teapot"}


# -- its log ------------------------------------------------------------------------------------------------

THINGS = [f"thing{number}" for number in range(4)]


async def left_by_a_kill(data_dir: Path, llm: ScriptedLLM) -> tuple[Path, Path]:
    """A data directory as a killed process leaves it, with four things kept; and the log in it."""
    left = data_dir / "left"
    async with opened(llm, data_dir / "open", ingest="triplet") as slot:
        for thing in THINGS:
            await slot.record_event(keeps(thing))
        await anyio.to_thread.run_sync(shutil.copytree, data_dir / "open", left)
        return left, graph_file(left, slot).with_name("graph.kuzu.wal")


async def test_a_graph_left_by_a_kill_holds_all_that_was_acknowledged(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    left, _ = await left_by_a_kill(tmp_path, llm)
    for _ in range(2):
        async with opened(llm, left, ingest="triplet") as slot:
            assert await kept(slot) == set(THINGS)
            assert (await slot.health()).status == "ok"


@pytest.mark.parametrize(
    "how", plain("removed", of=["removed", "emptied", "cut at the end of a save", "flipped"])
)
async def test_a_log_that_is_missing_or_changed_never_reads_as_healthy(
    tmp_path: Path, llm: ScriptedLLM, how: str
) -> None:
    """Without its log, a graph of three facts had none, and health was ok."""
    left, log = await left_by_a_kill(tmp_path, llm)
    content = log.read_bytes()
    if how == "removed":
        log.unlink()
    elif how == "emptied":
        log.write_bytes(b"")
    elif how == "flipped":
        at = content.index(b"thing2")
        log.write_bytes(content[:at] + b"T" + content[at + 1 :])
    else:
        ends = [int(line.split()[0]) for line in log.with_name("saves").read_text().splitlines()]
        log.write_bytes(content[: ends[len(ends) // 2]])
    advice = "restore it from a copy, or (empty it and )?remove saves"
    with pytest.raises(BackendUnavailable, match=advice) as raised:
        async with opened(llm, left, ingest="triplet"):
            pass
    assert str(raised.value).startswith("graph.kuzu.wal is ")
    log.write_bytes(content)
    async with opened(llm, left, ingest="triplet") as slot:
        assert await kept(slot) == set(THINGS), "what is sound is still there"


@pytest.mark.thorough
async def test_a_log_that_was_changed_can_be_given_up_as_its_error_says(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    """Kuzu ends the process over such a log, so that removing the notes of it alone would be bad advice."""
    left, log = await left_by_a_kill(tmp_path, llm)
    log.write_bytes(bytes(byte ^ 255 for byte in log.read_bytes()))
    with pytest.raises(BackendUnavailable, match=r"or empty it and remove saves and saves\.count"):
        async with opened(llm, left, ingest="triplet"):
            pass
    log.write_bytes(b"")
    for name in ("saves", "saves.count"):
        log.with_name(name).unlink()
    async with opened(llm, left, ingest="triplet") as slot:
        await slot.record_event(keeps("violin"))
        assert await kept(slot) == {"violin"}


@pytest.mark.thorough
async def test_a_reset_after_a_mending_that_was_killed_leaves_no_word_on_disk(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    """Killed once the files were copied; then the graph cannot be opened, and no mending clears them away."""
    left, log = await left_by_a_kill(tmp_path, llm)
    shutil.copyfile(log, log.with_name("new.kuzu.wal"))
    DESTROYED["emptied"](log.with_suffix(""))
    async with open_memory(config(llm.base_url, left, ingest="triplet")) as slot:
        with pytest.raises(BackendError, match="start anew with reset_scope"):
            await slot.setup_scope(ALICE)
        assert (await slot.reset_scope(ALICE)).verified
        assert [file.name for file in log.parent.iterdir() if b"thing2" in file.read_bytes()] == []


async def test_acknowledged_saves_that_are_torn_off_are_counted_until_that_is_acknowledged(
    tmp_path: Path, llm: ScriptedLLM
) -> None:
    left, log = await left_by_a_kill(tmp_path, llm)
    content = log.read_bytes()
    ends = [int(line.split()[0]) for line in log.with_name("saves").read_text().splitlines()]
    log.write_bytes(content[: ends[-2] - 20])
    for _ in range(2):
        async with opened(llm, left, ingest="triplet") as slot:
            health = await slot.health()
            assert health.status == "degraded"
            assert "2 acknowledged saves are gone with its torn end" in str(health.warnings)
            assert await kept(slot) < set(THINGS)
    log.with_name("saves.missing").unlink()
    async with opened(llm, left, ingest="triplet") as slot:
        assert (await slot.health()).status == "ok"


async def test_a_graph_killed_while_its_log_is_moved_into_it_opens(tmp_path: Path, llm: ScriptedLLM) -> None:
    async with opened(llm, tmp_path / "open", ingest="triplet") as slot:
        await slot.record_event(keeps("teapot"))
        file = graph_file(tmp_path / "open", slot)
        before = file.with_name("saves").read_bytes(), file.with_name("saves.count").read_bytes()
    state = json.loads(file.with_name("state").read_bytes())
    file.with_name("state").write_text(json.dumps({**state, "state": "checkpoint"}))
    for name, content in zip(("saves", "saves.count"), before, strict=True):
        file.with_name(name).write_bytes(content)
    async with opened(llm, tmp_path / "open", ingest="triplet") as slot:
        assert await kept(slot) == {"teapot"}


def test_saves_of_two_event_loops_are_noted_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may share a server of falkordblite; of a graph that was left by a kill nothing would be found wrong."""
    from memory.backends.graphiti import files

    native = files.zlib.crc32

    def slow(*given: Any) -> int:
        time.sleep(0.001)
        return native(*given)

    wal = tmp_path / "wal"
    wal.touch()
    log = files.SaveLog(wal, tmp_path / "saves")
    log.begin()

    def write() -> None:
        for _ in range(20):
            with wal.open("ab") as file:
                file.write(b"a save")
            log.record()

    monkeypatch.setattr(files.zlib, "crc32", slow)
    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = files.SaveLog(wal, tmp_path / "saves")
    left.check()
    assert not left.warnings()


# -- an event of many facts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("saved", plain(3, of=[1, 3, 5]))
async def test_half_an_event_is_found_incomplete_and_a_repeat_stores_it_once(
    tmp_path: Path, llm: ScriptedLLM, saved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after some of its saves."""
    facts = [{"source": "Ada", "relation": "KEEPS", "target": thing} for thing in THINGS]
    whole = event("unused", metadata={"triplets": facts})
    import_sdk()
    from memory.backends.graphiti.database import Database

    saves = 0
    native = Database.save

    def counted(self: Any, statements: Any) -> Any:
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
        adapter: Any = slot._adapter
        assert await adapter.find_event(whole) is None
        receipt = await slot.record_event(whole)
        assert receipt.status == "committed"
        assert await adapter.find_event(whole) == receipt.native_ids
        assert await kept(slot) == {"teapot", *THINGS}
        assert len((await listed(slot, "edges"))["edges"]) == 5
        assert len((await listed(slot, "episodes"))["episodes"]) == 2


@pytest.mark.parametrize("how", plain("emptied", of=["emptied", "removed", "replaced"]))
async def test_a_graph_destroyed_while_it_is_open(tmp_path: Path, llm: ScriptedLLM, how: str) -> None:
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        await slot.record_event(keeps("teapot"))
        file = graph_file(tmp_path, slot)
        if how == "replaced":
            other = file.with_name("other")
            other.write_bytes(bytes(10_000))
            other.replace(file)
        else:
            DESTROYED[how](file)
        health = await slot.health()
        assert health.status == "unavailable"
        assert "reset_scope" in health.warnings[0]
        with pytest.raises(BackendError, match="reset_scope") as raised:
            await slot.record_event(keeps("violin"))
        assert not raised.value.ambiguous
        assert (await slot.reset_scope(ALICE)).verified
        assert (await slot.health()).status == "ok"
        await slot.record_event(keeps("kayak"))
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        assert await kept(slot) == {"kayak"}


@pytest.mark.parametrize("left", plain("new.kuzu", of=["new.kuzu", ""]))
async def test_a_reset_that_was_killed_is_carried_out(tmp_path: Path, llm: ScriptedLLM, left: str) -> None:
    """Before or after the blank file took its place, and before the old one's log was gone."""
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        await slot.record_event(keeps("teapot"))
        directory = graph_file(tmp_path, slot).parent
        kept_log = (directory / "graph.kuzu.wal").read_bytes()
        assert kept_log, "or this test proves nothing"
        await slot.reset_scope(ALICE)
    blank = directory / "graph.kuzu"
    if left:
        blank = blank.rename(directory / left)
        (directory / "graph.kuzu").write_bytes(b"KUZU, an old one")
    (directory / "graph.kuzu.wal").write_bytes(kept_log)
    state = directory / "state"
    indexed = json.loads(state.read_bytes())["indexed"]
    state.write_text(json.dumps({"state": "replace", "indexed": indexed}))
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        assert await kept(slot) == set()
        await slot.record_event(keeps("violin"))
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        assert await kept(slot) == {"violin"}


# -- given up while it saves --------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
async def test_no_write_suffers_from_one_that_was_given_up(
    tmp_path: Path, llm: ScriptedLLM, seed: int
) -> None:
    """A save that was interrupted left rows that could not be written again, while health was well."""
    chance = random.Random(seed)
    things = ["teapot", "violin", "kayak", "lantern", "atlas", "camera"]
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        committed = set()
        for at in range(24):
            two = chance.sample(things, 2)
            facts = [
                {"source": "Ada", "relation": "KEEPS", "target": thing, "fact": f"Ada keeps {thing}"}
                for thing in two
            ]
            with anyio.move_on_after(chance.uniform(0, 0.4) if at % 4 else None):
                receipt = await slot.record_event(event("unused", metadata={"triplets": facts}))
                assert receipt.status == "committed"
                committed.update(two)
        assert await kept(slot) >= committed


@pytest.mark.parametrize("ingest", plain("message", of=["message", "triplet"]))
async def test_what_follows_a_save_that_failed(tmp_path: Path, llm: ScriptedLLM, ingest: str) -> None:
    """Kuzu's rollback leaves updated rows that cannot be written again: the database is opened anew."""
    from memory.backends.graphiti.database import Connection

    native = Connection.rows

    def fails_late(self: Any, query: str, parameters: Any) -> Any:
        if "RelatesToNode_" in query and "MERGE" in query:
            native(self, query, parameters)
            raise RuntimeError("disk full")
        return native(self, query, parameters)

    def event_about(thing: str) -> Any:
        return keeps(thing) if ingest == "triplet" else event(f"I keep my {thing} at home.")

    async with opened(llm, tmp_path, ingest=ingest) as slot:
        await slot.record_event(event_about("teapot"))
        before = await listed(slot, "count")
        for _ in range(3):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Connection, "rows", fails_late)
                with pytest.raises(BackendError) as raised:
                    await slot.record_event(event_about("violin"))
            assert not raised.value.sent
            assert await listed(slot, "count") == before
            assert (await slot.health()).status == "ok"
        await slot.record_event(event_about("kayak"))
        assert len(await found(slot, "teapot kayak violin")) == 2
    async with opened(llm, tmp_path, ingest=ingest) as slot:
        assert len(await found(slot, "teapot kayak violin")) == 2


async def test_an_event_of_many_facts_is_stored_whole_or_not_at_all(tmp_path: Path, llm: ScriptedLLM) -> None:
    """Each fact is saved by itself: one that fails takes the ones before it back."""
    from memory.backends.graphiti.database import Connection

    native, saved = Connection.rows, []

    def fails_third(self: Any, query: str, parameters: Any) -> Any:
        if "RelatesToNode_" in query and "MERGE" in query:
            saved.append(query)
            if len(saved) == 3:
                raise RuntimeError("disk full")
        return native(self, query, parameters)

    facts = [
        {"source": "Ada", "relation": "KEEPS", "target": thing} for thing in ("teapot", "violin", "kayak")
    ]
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        await slot.record_event(keeps("teapot"))
        before = await listed(slot, "count")
        triplet_event = event("unused", metadata={"triplets": facts})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Connection, "rows", fails_third)
            with pytest.raises(BackendError) as raised:
                await slot.record_event(triplet_event)
        assert not raised.value.sent
        assert await listed(slot, "count") == before
        receipt = await slot.record_event(triplet_event)
        assert len(receipt.native_ids) == 4


async def test_a_batch_given_up_is_taken_back_or_whole(tmp_path: Path, llm: ScriptedLLM) -> None:
    chance = random.Random(7)
    async with opened(llm, tmp_path, bulk="native") as slot:
        bulk = slot.capability(SupportsBulkIngest)
        assert bulk is not None
        for at in range(6):
            batch = [event(f"I keep my {thing} in room {at}.") for thing in ("teapot", "violin")]
            with anyio.move_on_after(chance.uniform(0, 0.5)):
                await bulk.record_events(batch)
            await bulk.record_events([event(f"I own my boat number {at} gladly.")])
            names = {row["name"] for row in (await listed(slot, "episodes"))["episodes"]}
            assert len(names & {event.event_id for event in batch}) in (0, 2)


async def test_a_batch_killed_before_its_facts_are_saved_is_found_incomplete_and_a_repeat_stores_it_once(
    tmp_path: Path, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphiti saves the episodes of a batch before it extracts their facts."""
    import_sdk()
    from memory.backends.graphiti.database import Database

    native = Database.save

    def copied(self: Any, statements: Any) -> Any:
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
        adapter: Any = slot._adapter
        assert len((await listed(slot, "episodes"))["episodes"]) == 2, "or this test proves nothing"
        assert [await adapter.find_event(each) for each in batch] == [None, None]
        receipts = await slot.capability(SupportsBulkIngest).record_events(batch)
        assert await adapter.find_event(batch[0]) == receipts[0].native_ids
        assert await found(slot, "passport") == ["I keep my passport in the drawer."]
        assert len((await listed(slot, "episodes"))["episodes"]) == 2


async def test_closing_that_is_cancelled_still_frees_the_graph(tmp_path: Path, llm: ScriptedLLM) -> None:
    async with opened(llm, tmp_path, ingest="triplet") as slot:
        await slot.record_event(keeps("teapot"))
        adapter: Any = slot._adapter
        closing = asyncio.ensure_future(adapter.aclose())
        await anyio.lowlevel.checkpoint()
        closing.cancel()
        await asyncio.wait([closing])
        with anyio.fail_after(10):
            async with opened(llm, tmp_path, ingest="triplet") as again:
                assert (await again.retrieve(ask("teapot"))).entries


async def test_opening_that_is_given_up_frees_the_graph(
    tmp_path: Path, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_sdk()
    from memory.backends.graphiti.database import Database

    def slowly(self: Database, tables: Any = ()) -> None:
        time.sleep(0.3)
        native(self, tables)

    async with open_memory(config(llm.base_url, tmp_path, ingest="triplet")) as slot:
        native = Database.open
        monkeypatch.setattr(Database, "open", slowly)
        with anyio.move_on_after(0.1):
            await slot.setup_scope(ALICE)
        monkeypatch.undo()

    async def elsewhere() -> None:
        async with opened(llm, tmp_path, ingest="triplet") as other:
            await other.record_event(keeps("teapot"))

    await anyio.to_thread.run_sync(asyncio.run, elsewhere())


@pytest.mark.parametrize("at", ["its connection", "its first call"])
def test_a_graph_that_fails_as_it_opens_is_closed_before_it_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Another may open it as soon as the lock is free."""
    import_sdk()
    import kuzu

    from memory.backends.graphiti.database import Connection, Database

    Database(tmp_path / "graph", 64).open()
    opened: list[Any] = []
    native = Connection.rows

    def fails(connection: Any, query: str, parameters: Any) -> Any:
        if "force_checkpoint_on_close" in query:
            opened.append(connection._database)
            raise RuntimeError("no memory")
        return native(connection, query, parameters)

    def unconnected(database: Any) -> Any:
        opened.append(database)
        raise RuntimeError("no memory")

    if at == "its connection":
        monkeypatch.setattr(kuzu, "Connection", unconnected)
    else:
        monkeypatch.setattr(Connection, "rows", fails)
    with pytest.raises(BackendError):
        Database(tmp_path / "second", 64).open()
    assert opened[0].is_closed
