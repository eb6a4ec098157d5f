"""Embedded FalkorDB (``driver: falkordblite``): owners, kills, its log, resets. Needs Python 3.12 or newer.

make live-falkordb        # makes an environment of such a Python, and runs these with the kit on a server
"""

import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest
from graphiti_support import (
    ALICE,
    BOB,
    NEEDS_GRAPHITI,
    event,
    found,
    listed,
    opened,
    reset_leaves_the_bystander,
)

from memory import BackendError, BackendUnavailable, ConfigError

pytestmark = [
    NEEDS_GRAPHITI,
    pytest.mark.skipif(
        find_spec("redislite") is None,
        reason="falkordblite is not installed: it needs Python 3.12 (make live-falkordb)",
    ),
]
LITE = {"driver": "falkordblite", "ingest": "triplet"}
THINGS = [f"thing{number}" for number in range(4)]


def keeps(thing, who="Ada", **fields):
    fact = {"source": who, "relation": "KEEPS", "target": thing, "fact": f"{who} keeps the {thing}"}
    return event("unused", metadata={"triplets": [fact]}, **fields)


async def kept(slot):
    return {row["fact"].rpartition(" ")[2] for row in (await listed(slot, "edges"))["edges"]}


def server_of(slot):
    return slot._adapter._store.server


async def test_what_was_written_is_there_again_and_nothing_runs_afterwards(tmp_path, llm):
    for number in range(3):
        async with opened(llm, tmp_path, **LITE) as slot:
            server = server_of(slot)
            assert await kept(slot) == {f"thing{earlier}" for earlier in range(number)}
            await slot.record_event(keeps(f"thing{number}"))
            assert (await slot.health()).status == "ok"
            sockets = server._sockets
        assert not server.running
        assert not sockets.exists()


async def test_extraction_and_search(tmp_path, llm):
    async with opened(llm, tmp_path, driver="falkordblite") as slot:
        await slot.record_event(event("I keep my passport in the drawer."))
        assert await found(slot, "passport") == ["I keep my passport in the drawer."]


async def test_another_owner_is_refused(tmp_path, llm):
    async with opened(llm, tmp_path, **LITE) as slot:
        with pytest.raises(BackendUnavailable, match="is open elsewhere in this process"):
            async with opened(llm, tmp_path, **LITE):
                pass
        with killed_writer(tmp_path, llm) as process:
            _, said = process.communicate(timeout=60)
        assert f"is open elsewhere in process {os.getpid()}" in said
        await slot.record_event(keeps("violin"))


async def test_a_server_that_was_killed_is_started_again_and_nothing_acknowledged_is_lost(tmp_path, llm):
    async with opened(llm, tmp_path, **LITE) as slot:
        for thing in THINGS:
            await slot.record_event(keeps(thing))
        server = server_of(slot)
        os.killpg(server._process.pid, signal.SIGKILL)
        server._process.wait()
        assert await kept(slot) == set(THINGS)
        await slot.record_event(keeps("violin"))
    async with opened(llm, tmp_path, **LITE) as slot:
        assert await kept(slot) == {*THINGS, "violin"}
        assert (await slot.health()).status == "ok"


WRITER = """
import sys, anyio
sys.path.insert(0, sys.argv[1])
import graphiti_support
from test_graphiti_falkordblite import LITE, keeps
from memory import open_memory

async def main(directory, base_url):
    config = graphiti_support.config(base_url, directory, **LITE)
    async with open_memory(config, scope=graphiti_support.ALICE) as slot:
        for number in range(10**6):
            await slot.record_event(keeps(f"thing{number}", event_id=f"e{number}"))
            print(number, flush=True)

anyio.run(main, *sys.argv[2:])
"""


def killed_writer(data_dir, llm):
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        WRITER,
        str(Path(__file__).parent),
        str(data_dir),
        llm.base_url,
    ]
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


@pytest.mark.parametrize("writes", [1, 20])
async def test_an_owner_that_is_killed_takes_its_server_along_and_loses_nothing(tmp_path, llm, writes):
    with killed_writer(tmp_path, llm) as process:
        acknowledged = [int(process.stdout.readline()) for _ in range(writes)]
        process.kill()
        acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
    async with opened(llm, tmp_path, **LITE) as slot:
        assert {f"thing{number}" for number in acknowledged} <= await kept(slot)
        assert (await slot.health()).status == "ok"
        await slot.record_event(keeps("violin"))


@pytest.mark.parametrize("after", ["a kill", "closing"])
async def test_a_graph_that_is_listed_never_reads_as_empty(tmp_path, llm, after):
    """Redis takes a directory without its log for a new one."""
    left = tmp_path / "open"
    async with opened(llm, tmp_path / "open", **LITE) as slot:
        await slot.record_event(keeps("teapot"))
        if after == "a kill":
            left = tmp_path / "left"
            await anyio.to_thread.run_sync(shutil.copytree, tmp_path / "open", left)
            (left / "graphiti" / "socket").unlink()
    shutil.rmtree(left / "graphiti" / "appendonlydir")
    with pytest.raises(BackendUnavailable, match=r"is listed in .* and missing; restore it"):
        async with opened(llm, left, **LITE):
            pass


async def test_another_embedder_is_named_before_anything_is_searched(tmp_path, llm):
    lite = {**LITE, "path": str(tmp_path / "graphs")}
    async with opened(llm, tmp_path, **lite) as slot:
        await slot.record_event(keeps("teapot"))
    with pytest.raises(ConfigError, match="dimensions 1024, and dimensions 256 is configured"):
        async with opened(llm, tmp_path, dimensions=256, **lite):
            pass
    with pytest.raises(ConfigError, match="holds vectors of 1024, the embedder makes 256"):
        async with opened(llm, tmp_path / "another", dimensions=256, **lite):
            pass
    async with opened(llm, tmp_path, **lite) as slot:
        assert await kept(slot) == {"teapot"}


@pytest.mark.parametrize("cut", [0, 1, 5, None])
async def test_a_note_of_the_socket_that_was_cut_removes_nothing_of_anybody(tmp_path, llm, cut, monkeypatch):
    """What it names is removed at the next start, and of half of it, or of nothing, its parent was."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    monkeypatch.chdir(precious)
    async with opened(llm, tmp_path, **LITE) as slot:
        await slot.record_event(keeps("teapot"))
    note = (
        "\0" * 9 if cut is None else f"{precious}/memslot-x/socket"[: len(str(precious)) + cut if cut else 0]
    )
    (tmp_path / "graphiti" / "socket").write_text(note)
    async with opened(llm, tmp_path, **LITE) as slot:
        assert await kept(slot) == {"teapot"}
    assert (precious / "file").exists()


def files_with(directory, word):
    return [path for path in directory.rglob("*") if path.is_file() and word in path.read_bytes()]


async def test_a_reset_leaves_the_bystander_and_no_word_on_disk(tmp_path, llm):
    async with opened(llm, tmp_path, BOB, driver="falkordblite") as slot:
        await reset_leaves_the_bystander(slot)
    async with opened(llm, tmp_path / "erased", BOB, **LITE) as slot:
        await slot.record_event(keeps("teapot"))
        await slot.record_event(keeps("violin", scope=BOB))
        assert files_with(tmp_path / "erased", b"teapot")
        assert (await slot.reset_scope(ALICE)).verified
        assert not files_with(tmp_path / "erased", b"teapot")
        assert files_with(tmp_path / "erased", b"violin")
        await slot.record_event(keeps("lamp"))
    async with opened(llm, tmp_path / "erased", **LITE) as slot:
        assert await kept(slot) == {"lamp"}


async def test_a_save_is_whole_or_not_at_all(tmp_path, llm, monkeypatch):
    """One transaction on the server: a connection that ends before it is carried out leaves nothing of it."""
    from redis.asyncio.client import Pipeline
    from redis.exceptions import ConnectionError as HungUp

    async def cut(self, *given, **named):
        raise HungUp("connection closed by server")

    async with opened(llm, tmp_path, driver="falkordblite") as slot:
        before = await listed(slot, "count")
        with monkeypatch.context() as patch:
            patch.setattr(Pipeline, "execute", cut)
            receipt = await slot.record_event(event("I keep my passport in the drawer."))
        assert receipt.status == "unknown"
        assert await listed(slot, "count") == before
        again = await slot.record_event(event("I keep my passport in the drawer.", event_id=receipt.event_id))
        assert again.status == "committed"
        assert await found(slot, "passport") == ["I keep my passport in the drawer."]


async def test_a_start_that_fails_gives_the_directory_back(tmp_path, llm, monkeypatch):
    import redislite

    with monkeypatch.context() as patch:
        patch.setattr(redislite, "__falkordb_module__", "/nowhere/falkordb.so")
        with pytest.raises(BackendError, match="its server ended while it opened"):
            async with opened(llm, tmp_path, **LITE):
                pass
    async with opened(llm, tmp_path, **LITE) as slot:
        await slot.record_event(keeps("teapot"))


def test_init_prefers_it_where_it_is_installed(tmp_path):
    from memory.cli._template import render
    from memory.plugins.registry import MemoryAdapterRegistry

    assert "\n      driver: falkordblite\n" in render(MemoryAdapterRegistry().info("graphiti"))
