"""mem0 on a real PostgreSQL with pgvector, which ``pgserver`` brings along: a server store with several workers."""

import threading
import uuid
from contextlib import contextmanager
from datetime import timedelta

import pytest
from mem0_support import (
    ALICE,
    BOB,
    NEEDS_MEM0,
    PEOPLE,
    START,
    config,
    event,
    found,
    lose_nothing,
    opened,
    stored,
)
from postgres import NEEDS_POSTGRES

from memory import BackendUnavailable, InputError, SupportsBulkIngest, open_memory
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import MemoryContract

pytestmark = [NEEDS_MEM0, NEEDS_POSTGRES]


@pytest.fixture
def block(postgres):
    """A configuration block with a table of its own."""
    return {
        "vector_store": {"provider": "pgvector", "config": {"connection_string": postgres}},
        "collection": f"t_{uuid.uuid4().hex[:12]}",
    }


@pytest.mark.thorough
class TestContract(MemoryContract):
    """The whole kit on a server store."""

    anyio_backends = ("asyncio",)
    native_query = ("list", {})
    native_mutations = {"delete": {}, "update": {"text": "I have no passport."}}  # noqa: RUF012

    @pytest.fixture
    def adapter_factory(self, tmp_path, block):
        settings = load_config(config(tmp_path, **block))
        return lambda: MemoryAdapterRegistry().create(settings)


async def test_the_store_and_its_workers_are_declared(tmp_path, block):
    async with opened(tmp_path, **block, workers=3) as slot:
        health = await slot.health()
        workers = [thread for thread in threading.enumerate() if thread.name.startswith("memslot-mem0")]
    assert health.status == "ok"
    assert len(workers) == 3
    assert health.details["vector_store"] == "pgvector"
    assert health.details["keyword_search"] is True
    assert health.warnings == ()
    assert slot.traits.cs_filtering == "hard"


@pytest.mark.thorough
async def test_the_approximate_index_is_off_unless_asked_for(tmp_path, block):
    """It ranks 40 rows before the scope filter, so that a shared table answers with too few."""
    async with opened(tmp_path, BOB, **block) as slot:
        for number in range(100):
            await slot.record_event(event(f"tea number {number}"))
        await slot.record_event(event("coffee", scope=BOB))
        assert await found(slot, "tea number 7", scope=BOB) == ["coffee"]
        assert slot._adapter._native._config.vector_store.config.hnsw is False
    asked = {**block["vector_store"]["config"], "hnsw": True}
    async with opened(tmp_path, vector_store={"provider": "pgvector", "config": asked}) as slot:
        assert any("hnsw: true ranks before" in warning for warning in (await slot.health()).warnings)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"even": True}, {"green"}),
        ({"even": {"ne": True}}, {"red", "blue"}),
        ({"even": {"in": [False]}}, {"red", "blue"}),
        ({"n": 2}, {"green"}),
        ({"n": {"gte": 2, "lt": 2.5}}, {"green"}),
        ({"n": {"gte": 2, "ne": 2}}, {"blue"}),
        ({"n": {"nin": [1, 2]}}, {"blue"}),
        ({"colour": {"contains": "ree"}}, {"green"}),
        ({"colour": {"icontains": "REE"}}, {"green"}),
        ({"colour": {"contains": "r%d"}}, set()),
        ({"timestamp": {"gte": (START + timedelta(days=2)).isoformat()}}, {"green", "blue"}),
        ({"timestamp": (START + timedelta(days=2)).isoformat()}, {"green"}),
    ],
)
async def test_filters_narrow(tmp_path, block, filters, expected):
    async with opened(tmp_path, **block) as slot:
        for number, name in enumerate(("red", "green", "blue"), 1):
            await slot.record_event(
                event(
                    f"My {name} mug",
                    metadata={"colour": name, "n": number, "even": number % 2 == 0},
                    timestamp=START + timedelta(days=number),
                )
            )
        assert {text.split()[1] for text in await found(slot, "mug", filters=filters)} == expected


async def test_iso_ranges_are_refused_with_another_way(tmp_path, block):
    async with opened(tmp_path, **block) as slot:
        with pytest.raises(InputError, match="filter by timestamp for time"):
            await found(slot, "mug", filters={"day": {"gte": "2023-05-01"}})


@pytest.mark.thorough
async def test_64_at_a_time_lose_nothing(tmp_path, block):
    async with opened(tmp_path, *PEOPLE, **block) as slot:
        await lose_nothing(slot, 64)


async def test_reset_says_what_other_processes_keep(tmp_path, block):
    async with opened(tmp_path, BOB, **block) as slot:
        for scope in (ALICE, BOB):
            await slot.record_event(event("one", "two", scope=scope))
        receipt = await slot.reset_scope(ALICE)
        assert (receipt.verified, receipt.removed) == (True, 2)
        assert receipt.left == ("history and recent messages that other machines keep of this scope",)
        assert await stored(slot) == []
        assert len(await stored(slot, BOB)) == 2


async def test_a_server_that_is_down_is_one_clear_error(tmp_path, caplog):
    down = {
        "vector_store": {
            "provider": "pgvector",
            "config": {"connection_string": "postgresql://ada:hunter2@127.0.0.1:1/none"},
        },
        "deadlines": {"retrieve_s": 0.5, "setup_s": 5},
    }
    before = set(threading.enumerate())
    with pytest.raises(BackendUnavailable, match="PoolTimeout") as raised:
        async with opened(tmp_path, **down):
            pass
    assert not raised.value.sent
    assert "hunter2" not in str(raised.value) + str(raised.value.diagnostics) + caplog.text
    async with open_memory(config(tmp_path, **down)) as slot:
        health = await slot.health()
    assert health.status == "unavailable"
    assert set(threading.enumerate()) <= before


FORTY = [f"I own the numbered thing {number}." for number in range(40)]


@contextmanager
def ended_at_the_tenth_row(postgres, table):
    """The server ends the connection (as ``pg_terminate_backend`` does) that inserts the tenth row of an event."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION hang_up() RETURNS trigger AS $$ BEGIN "
            "PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$ LANGUAGE plpgsql"
        )
        connection.execute(
            f"CREATE TRIGGER tenth BEFORE INSERT ON {table} FOR EACH ROW "
            "WHEN ((NEW.payload->>'event_part')::int = 9) EXECUTE FUNCTION hang_up()"
        )
        try:
            yield
        finally:
            connection.execute(f"DROP TRIGGER tenth ON {table}")


def parts_in(postgres, table):
    import psycopg

    with psycopg.connect(postgres) as connection:
        rows = connection.execute(f"SELECT (payload->>'event_part')::int FROM {table} ORDER BY 1")
        return [part for (part,) in rows]


@pytest.mark.parametrize("bulk", [False, True])
async def test_an_event_cut_in_the_middle_is_never_half_stored_and_a_repeat_stores_it_once(
    tmp_path, block, postgres, bulk
):
    """Nine of forty rows were called committed, and a repeat stored all forty on top."""
    whole, table = event(*FORTY), block["collection"]

    async def write(slot):
        if not bulk:
            return await slot.record_event(whole)
        many = slot.capability(SupportsBulkIngest)
        return (await many.record_events([whole]))[0]

    async with opened(tmp_path, **block) as slot:
        await slot.record_event(event("The table is made by the first event."))
        with ended_at_the_tenth_row(postgres, table):
            if bulk:
                with pytest.raises(BackendUnavailable):
                    await write(slot)
            else:
                assert (await write(slot)).status == "unknown"
        assert parts_in(postgres, table) == [None], "all of the event, or nothing"
        receipt = await write(slot)
        assert receipt.status == "committed"
        assert len(receipt.native_ids) == 40
    assert parts_in(postgres, table) == [*range(40), None]


@pytest.mark.parametrize("journal", [False, True])
async def test_an_event_that_is_sent_again_is_stored_once(tmp_path, block, postgres, journal):
    """A slot knows what it has written, and the journal what earlier processes have."""
    whole, given = event("I like oolong.", "I like sencha."), config(tmp_path, **block)
    given["memory"]["journal"] = journal
    for _ in range(1 + journal):
        async with open_memory(given, scope=ALICE) as slot:
            for _ in range(2):
                assert len((await slot.record_event(whole)).native_ids) == 2
        assert parts_in(postgres, block["collection"]) == [0, 1]
