"""The driver of an embedded graph: queries that are asked again, saves, and the order of equal rows."""

import asyncio
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from graphiti_support import ALICE, NEEDS_GRAPHITI, ask, event, opened

from memory import BackendError, BackendUnavailable
from memory.backends.graphiti.stores import import_sdk

if TYPE_CHECKING:
    pass

pytestmark = NEEDS_GRAPHITI

COUNT = "MATCH (n:Saga) RETURN count(*) AS found"
CREATE = "CREATE (n:Saga {uuid: $uuid, name: 'n', group_id: 'g'})"


@asynccontextmanager
async def driver(directory):
    import_sdk()
    from memory.backends.graphiti.database import Database
    from memory.backends.graphiti.kuzu import ScopeDriver

    files = Database(directory, 64, ["Entity", "RelatesToNode_", "Episodic", "Community"])
    driver = ScopeDriver(files, "g")
    try:
        await driver.open()
        yield driver
    finally:
        await driver.close()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_save_is_seen_whole_or_not_at_all(tmp_path, cancelled):
    """Also one whose caller is gone: it is a single call of the database, which reads come before or after."""
    async with driver(tmp_path / "g") as graph:

        async def save(tx):
            for at in range(50):
                await tx.run(CREATE, uuid=str(at))

        async def look():
            return {(await graph.execute_query(COUNT, routing_="r"))[0][0]["found"] for _ in range(30)}

        saving = asyncio.ensure_future(graph.session().execute_write(save))
        looking = asyncio.ensure_future(look())
        if cancelled:
            await asyncio.sleep(0.01)
            saving.cancel()
        assert await looking <= {0, 50}
        await asyncio.wait([saving])
        found = (await graph.execute_query(COUNT))[0][0]["found"]
        assert found == 50 or (cancelled and not found), "given up before it began"


@pytest.mark.thorough
async def test_a_query_asked_again_holds_no_more_memory(tmp_path):
    """Kuzu keeps 150 KB of each query that is given as text with a vector, until its connection is closed."""
    query = "WITH CAST($vector AS FLOAT[1024]) AS v RETURN v[1] AS first"
    async with driver(tmp_path / "g") as graph:
        for at in range(450):
            if at == 50:
                before = psutil.Process().memory_info().rss
            rows, _, _ = await graph.execute_query(query, vector=[float(at)] * 1024)
            assert rows == [{"first": float(at)}]
        assert psutil.Process().memory_info().rss - before < 20e6


async def test_a_cleared_graph_is_asked_anew(tmp_path):
    query = "MATCH (n:Saga) WHERE n.group_id = $of RETURN count(*) AS found"
    async with driver(tmp_path / "g") as graph:
        await graph.execute_query(CREATE, uuid="1")
        assert (await graph.execute_query(query, of="g"))[0] == [{"found": 1}]
        await graph.clear("g")
        assert (await graph.execute_query(query, of="g"))[0] == [{"found": 0}]
    with pytest.raises(BackendUnavailable):
        await graph.execute_query(query, of="g")


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from graphiti_support import event, opened
from memory.testing import ScriptedLLM

async def main():
    with ScriptedLLM() as llm:
        async with opened(llm, Path(sys.argv[1])) as slot:
            for thing in sys.argv[2:]:
                assert (await slot.record_event(event(f"I keep my {thing} at home."))).status == "committed"
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.thorough
async def test_what_was_committed_before_a_kill_is_found_and_can_be_changed(tmp_path, llm):
    """Kuzu restores it into its tables alone: the words of it were not found, and to change it was a crash."""
    for things in (("teapot", "violin"), ("kayak",)):
        killed = subprocess.run(  # noqa: ASYNC221 (nothing else runs on this loop)
            [sys.executable, "-c", KILLED, str(tmp_path), *things], cwd=Path(__file__).parent, check=False
        )
        assert killed.returncode == -signal.SIGKILL, "a crash of its own is another number"
    words = "CALL QUERY_FTS_INDEX('RelatesToNode_', 'edge_name_and_fact', $word) RETURN node.fact AS fact"
    async with opened(llm, tmp_path) as slot:
        adapter = slot._adapter
        await slot.record_event(event("I keep my lantern at home."))
        for thing in ("teapot", "violin", "kayak", "lantern"):
            async with adapter.graph(ALICE) as graph:
                rows, _, _ = await graph.driver.execute_query(words, word=thing)
            assert [row["fact"] for row in rows] == [f"I keep my {thing} at home."]
        assert (await slot.reset_scope(ALICE)).verified


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["drop", "create", "replace"])
async def test_reindexing_that_is_interrupted_costs_nothing(tmp_path, llm, where):
    """Kuzu cannot restore a log that drops an index, so the indexes are rebuilt in a copy."""
    killed = subprocess.run(  # noqa: ASYNC221 (nothing else runs on this loop)
        [sys.executable, "-c", KILLED, str(tmp_path), "teapot"], cwd=Path(__file__).parent, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    from memory.backends.graphiti.database import Connection

    (directory,) = (tmp_path / "graphiti").iterdir()
    assert (directory / "graph.kuzu.wal").stat().st_size, "or this test proves nothing"
    native, replace = Connection.rows, Path.replace

    def fails(connection, query, parameters):
        rows = native(connection, query, parameters)
        if f"{where.upper()}_FTS_INDEX" in query:
            raise RuntimeError("disk full")
        return rows

    def fails_to_replace(path, target):
        if path.name == "new.kuzu":
            raise RuntimeError("disk full")
        return replace(path, target)

    with pytest.MonkeyPatch.context() as patch:
        if where == "replace":
            patch.setattr(Path, "replace", fails_to_replace)
        else:
            patch.setattr(Connection, "rows", fails)
        with pytest.raises(BackendError, match="reset_scope"):
            async with opened(llm, tmp_path):
                pass
    async with opened(llm, tmp_path) as slot:
        assert len((await slot.retrieve(ask("teapot"))).entries) == 1
    assert sorted(file.name for file in directory.iterdir()) == ["graph.kuzu", "lock"]


@pytest.mark.parametrize(
    "order", [("hybrid", "combined"), pytest.param(("combined", "hybrid"), marks=pytest.mark.thorough)]
)
async def test_words_are_indexed_where_the_recipe_reads(tmp_path, llm, order):
    async with opened(llm, tmp_path, recipe=order[0]) as slot:
        await slot.record_event(event("I keep my teapot at home."))
    async with opened(llm, tmp_path, recipe=order[1]) as slot:
        assert (await slot.retrieve(ask("teapot"))).raw["edges"]
    async with opened(llm, tmp_path, recipe="combined") as slot:
        assert (await slot.retrieve(ask("teapot"))).raw["episodes"]
        graph = slot._adapter
        async with graph.graph(ALICE) as opened_graph:
            assert len(await indexes(opened_graph.driver)) == 4


async def test_few_indexes_are_made(tmp_path, llm):
    async with opened(llm, tmp_path) as slot:
        graph = slot._adapter
        async with graph.graph(ALICE) as opened_graph:
            assert await indexes(opened_graph.driver) == {"edge_name_and_fact", "node_name_and_summary"}


async def indexes(graph):
    rows, _, _ = await graph.execute_query("CALL SHOW_INDEXES() RETURN index_name AS name")
    return {row["name"] for row in rows}


@pytest.mark.thorough
async def test_a_graph_that_has_outgrown_its_buffer_names_the_option(tmp_path):
    collect = "UNWIND range(1, $last) AS x WITH collect(x) AS xs RETURN size(xs) AS found"
    async with driver(tmp_path / "g") as graph:

        async def save(tx):
            await tx.run(CREATE, uuid="1")
            await tx.run(collect, last=10_000_000)

        for call in (
            lambda: graph.execute_query(collect, last=10_000_000),
            lambda: graph.session().execute_write(save),
        ):
            with pytest.raises(BackendError, match="outgrown buffer_mb, which is 64"):
                await call()
            assert (await graph.execute_query(COUNT))[0] == [{"found": 0}], "rolled back, and it goes on"
        assert (await graph.execute_query(collect, last=10))[0] == [{"found": 10}]
