"""Graphiti on FalkorDB and Neo4j, as far as that goes without a server: nobody there, nobody answering, no client.

What FalkorDB does is shown in ``tests/live``. No Neo4j server has been at hand.
"""

import socket
import sys
from contextlib import closing
from importlib.util import find_spec

import anyio
import pytest
from graphiti_support import ALICE, BOB, NEEDS_GRAPHITI, config, event, found, opened

from memory import BackendTimeout, BackendUnavailable, MemorySlot, PluginLoadError, ScopeError, open_memory
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import FAKE_KEY, ScriptedLLM

NEEDS_FALKORDB = pytest.mark.skipif(
    find_spec("falkordb") is None, reason="graphiti-core[falkordb] is not installed"
)
BOTH = pytest.mark.parametrize("driver", [pytest.param("falkordb", marks=NEEDS_FALKORDB), "neo4j"])
pytestmark = [NEEDS_GRAPHITI]


def given(driver, port, directory, **more):
    """A configuration for a server on the loopback, with a password to look out for."""
    blocks = {
        "falkordb": {"host": "127.0.0.1", "port": port, "username": "ada", "password": FAKE_KEY},
        "neo4j": {"uri": f"bolt://127.0.0.1:{port}", "user": "ada", "password": FAKE_KEY},
    }
    return config("http://127.0.0.1:9/v1", directory, driver=driver, **{driver: blocks[driver]}, **more)


@pytest.fixture
def closed_port():
    """Taken, so that nobody else is given it, by somebody who does not listen."""
    with closing(socket.socket()) as deaf:
        deaf.bind(("127.0.0.1", 0))
        yield deaf.getsockname()[1]


@pytest.fixture
def silent_port():
    """Somebody who takes connections and says nothing."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield listener.getsockname()[1]


def text_of(error):
    return f"{error} {error.diagnostics}"


@BOTH
async def test_nobody_there(tmp_path, closed_port, driver):
    """At once, and not after the 33 s of Neo4j's own patience."""
    slot = MemorySlot(MemoryAdapterRegistry().create(load_config(given(driver, closed_port, tmp_path))))
    with anyio.fail_after(25):
        with pytest.raises(BackendUnavailable) as raised:
            await slot.setup_scope(ALICE)
        health = await slot.health()
        await slot.aclose()
    assert health.status == "unavailable"
    assert health.versions.keys() == {"graphiti-core", driver}
    assert FAKE_KEY not in text_of(raised.value) + health.model_dump_json()


@BOTH
async def test_no_such_host(tmp_path, driver, monkeypatch):
    def unknown(*args, **kwargs):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    memory = given(driver, 9, tmp_path)
    memory["memory"]["backends"]["graphiti"][driver] |= {
        "falkordb": {"host": "graphs.invalid"},
        "neo4j": {"uri": "bolt://graphs.invalid:9"},
    }[driver]
    with anyio.fail_after(25), pytest.raises(BackendUnavailable):
        async with open_memory(memory, scope=ALICE):
            pass


@BOTH
async def test_nobody_answers(tmp_path, silent_port, driver):
    short = {"setup_s": 0.4, "health_s": 0.4, "close_s": 2.0}
    with anyio.fail_after(10), pytest.raises((BackendUnavailable, BackendTimeout)) as raised:
        async with open_memory(given(driver, silent_port, tmp_path, deadlines=short), scope=ALICE):
            pass
    assert FAKE_KEY not in text_of(raised.value)


async def test_neo4js_own_patience_ends_before_the_deadline(tmp_path, silent_port):
    """Without a slot, which would cut it off and say ``unavailable``."""
    short = {"setup_s": 0.4, "health_s": 0.4, "retrieve_s": 0.4}
    settings = load_config(given("neo4j", silent_port, tmp_path, deadlines=short))
    adapter = MemoryAdapterRegistry().create(settings)
    with anyio.fail_after(10), pytest.raises(Exception, match="Couldn't connect"):
        await adapter.health()
    await adapter.aclose()


async def test_neo4j_repeats_nothing(tmp_path, closed_port):
    adapter = MemoryAdapterRegistry().create(load_config(given("neo4j", closed_port, tmp_path)))
    with anyio.fail_after(25), pytest.raises(Exception, match="Couldn't connect"):
        await adapter._store.graph("any").execute_query("RETURN 1")
    await adapter.aclose()


@NEEDS_FALKORDB
async def test_falkordb_is_given_credentials_and_repeats_nothing(tmp_path, closed_port):
    adapter = MemoryAdapterRegistry().create(load_config(given("falkordb", closed_port, tmp_path)))
    connection = (await adapter._store.connected()).connection
    sent = connection.connection_pool.connection_kwargs
    assert (sent["host"], sent["port"], sent["username"], sent["password"]) == (
        *("127.0.0.1", closed_port, "ada", FAKE_KEY),
    )
    assert sent["retry"].get_retries() == 0
    assert sent["socket_connect_timeout"] == pytest.approx(13.5), "of the nearest deadline, nine tenths"
    assert sent["socket_timeout"] == 300, "the longest deadline; the slot's own is nearer"
    assert await adapter._store.connected() is await adapter._store.connected()
    await adapter.aclose()
    await adapter.aclose()


@pytest.mark.parametrize("driver", ["kuzu", "falkordb"])
def test_a_missing_client_is_named_with_its_pip_line(tmp_path, monkeypatch, driver):
    from memory.backends.graphiti.stores import import_sdk

    for name in [name for name in sys.modules if name.partition(".")[0] == driver]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"memory.backends.graphiti.{driver}", raising=False)
    monkeypatch.delitem(sys.modules, f"graphiti_core.driver.{driver}_driver", raising=False)
    monkeypatch.setitem(sys.modules, driver, None)
    extra = {"kuzu": "graphiti", "falkordb": "graphiti-falkordb"}[driver]
    with pytest.raises(PluginLoadError, match=rf"pip install 'memslot\[{extra}\]'"):
        import_sdk(driver)


@NEEDS_FALKORDB
@pytest.mark.skipif(find_spec("redislite") is not None, reason="falkordblite is installed")
def test_an_embedded_server_needs_falkordblite(tmp_path):
    settings = load_config(config("http://127.0.0.1:9/v1", tmp_path, driver="falkordblite"))
    with pytest.raises(
        PluginLoadError, match=r"Python 3.12 .*pip install 'memslot\[graphiti-falkordblite\]'"
    ):
        MemoryAdapterRegistry().create(settings)


@pytest.mark.thorough
async def test_scopes_that_share_a_database_do_not_meet(tmp_path, monkeypatch):
    """As on Neo4j; here on Kuzu, with one scope's database lent to another."""
    with ScriptedLLM() as llm:
        async with opened(llm, tmp_path) as slot:
            from memory.backends.graphiti.client import NativeGraph
            from memory.backends.graphiti.neo4j import Neo4jGraph

            adapter = slot._adapter
            (alice,) = adapter._graphs.opened.values()
            parts = (adapter._options, adapter._models, adapter._ontology, "graphiti")
            bob = NativeGraph(alice.driver, adapter.native_scope(BOB)["group_id"], *parts)
            receipt = await slot.record_event(event("I keep my passport in the drawer."))
            episode, fact = receipt.native_ids
            same_event = event("I keep my passport in the drawer.", event_id=receipt.event_id)
            assert set((await bob.counts()).values()) == {0}
            assert (await bob.search("passport", 5)).edges == []
            assert await bob.episodes_of_event(receipt.event_id) == []
            assert await bob.episodes([episode]) == await bob.edges([fact]) == []
            for native_id in (episode, fact):
                with pytest.raises(ScopeError):
                    await bob.find(native_id)
                with pytest.raises(ScopeError):
                    await bob.remove(native_id)
            stored = await bob.add_episode(same_event, "user: I keep my passport in the drawer.")
            assert not {episode, fact} & set(stored)
            # A shared file is not replaced.
            monkeypatch.setattr(type(alice.driver), "clear", Neo4jGraph.clear)
            assert (await bob.clear())[1]
            assert await found(slot, "passport") == ["I keep my passport in the drawer."]


def test_neo4j_times_are_told_in_json():
    from neo4j.time import DateTime

    from memory.backends.graphiti.translate import json_ready

    class Row:
        def __init__(self):
            self.attributes = {"since": DateTime(2024, 5, 1, 12)}

    assert json_ready(Row())["attributes"]["since"].startswith("2024-05-01T12:00:00")


@NEEDS_FALKORDB
def test_falkordb_is_asked_for_words_that_it_can_read():
    """Else a question, and a fact that is looked for while it is written, fails with an error of syntax."""
    from memory.backends.graphiti.stores import import_sdk

    import_sdk("falkordb")
    from memory.backends.graphiti.falkordb import searchable

    asked = '(@group_id:"ms\\_kit") (100 | _ | snake_case | _x | \x07 | a\x1bb)'
    assert searchable(asked) == '(@group_id:"ms\\_kit") (100 | __ | snake_case | _x | __ | a_b)'
    assert searchable("(_)") == "(__)"
    assert searchable("(_ | _)") == "(__ | __)"
