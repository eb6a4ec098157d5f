"""mem0 on a real PostgreSQL with pgvector, which ``pgserver`` brings along: a server store with several workers."""

from __future__ import annotations

import tempfile
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
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
    native,
    opened,
    stored,
)
from waits import past

from memory import BackendUnavailable, InputError, MemoryScope, open_memory
from memory.adapter import MemoryAdapter
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import MemoryContract

pytestmark = [
    NEEDS_MEM0,
    pytest.mark.skipif(find_spec("pgserver") is None, reason="pgserver is not installed"),
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """A server of its own; yields its connection string. Not below pytest's directory: root's server runs as
    another user, to whom every other run of pytest closes that directory."""
    with tempfile.TemporaryDirectory() as directory, _served(directory) as uri:
        yield uri


@contextmanager
def _served(directory: str) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR
        import pgserver
    server = pgserver.get_server(Path(directory) / "pg", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@pytest.fixture
def block(postgres: str) -> dict[str, Any]:
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
    def adapter_factory(self, tmp_path: Path, block: dict[str, Any]) -> Callable[[], MemoryAdapter]:
        settings = load_config(config(tmp_path, **block))
        return lambda: MemoryAdapterRegistry().create(settings)


async def test_the_store_and_its_workers_are_declared(tmp_path: Path, block: dict[str, Any]) -> None:
    async with opened(tmp_path, **block, workers=3) as slot:
        health = await slot.health()
        workers = [thread for thread in threading.enumerate() if thread.name.startswith("memslot-mem0")]
    assert health.status == "ok"
    assert len(workers) == 3
    assert health.details["vector_store"] == "pgvector"
    assert health.details["keyword_search"] is True
    assert health.warnings == ()
    assert slot.traits.cs_filtering == "hard"


async def test_the_approximate_index_is_off_unless_asked_for(tmp_path: Path, block: dict[str, Any]) -> None:
    """It ranks 40 rows before the scope filter, so that a shared table answers with too few."""
    async with opened(tmp_path, BOB, **block) as slot:
        for number in range(100):
            await slot.record_event(event(f"tea number {number}"))
        await slot.record_event(event("coffee", scope=BOB))
        assert await found(slot, "tea number 7", scope=BOB) == ["coffee"]
        assert slot._adapter._native._config.vector_store.config.hnsw is False  # type: ignore[attr-defined]
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
async def test_filters_narrow(
    tmp_path: Path, block: dict[str, Any], filters: dict[str, Any], expected: set[str]
) -> None:
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


async def test_a_read_is_one_statement_and_a_write_a_transaction(
    tmp_path: Path, block: dict[str, Any]
) -> None:
    """mem0 begins and commits a transaction around each SELECT: three ways to the server, for each of its two."""
    async with opened(tmp_path, **block) as slot:
        await slot.record_event(event("I drink oolong."))
        store = native(slot).vector_store
        seen: list[tuple[bool, bool]] = []
        within = store._get_cursor

        @contextmanager
        def noted(commit: bool = False) -> Iterator[Any]:
            with within(commit) as cursor:
                seen.append((commit, cursor.connection.autocommit))
                yield cursor

        store._get_cursor = noted
        assert await found(slot, "oolong") == ["I drink oolong."]
        assert seen == [(False, True), (False, True)], "by vectors, and by words"
        seen.clear()
        await slot.record_event(event("I drink assam."))
        assert (True, False) in seen
        assert {autocommit for commit, autocommit in seen if commit} == {False}


async def test_a_vector_sent_as_text_is_the_same_vector(tmp_path: Path, block: dict[str, Any]) -> None:
    """psycopg takes longer to write it as an array than all the rest of a search takes."""
    import psycopg

    async with opened(tmp_path, **block) as slot:
        for number in range(30):
            await slot.record_event(event(f"tea number {number} " + "and more " * (number % 7)))
        store = native(slot).vector_store
        sent: list[Any] = []
        execute = psycopg.Cursor.execute

        def noted(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
            sent.append(params)
            return execute(self, query, params, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(psycopg.Cursor, "execute", noted)
            assert await found(slot, "tea")
        assert [type(params[0]) for params in sent] == [str, str], "a vector, and words"
        asked = [0.0, -0.0, 1e-300, 1 / 3, -2e-8, *(number / 7 for number in range(1019))]
        as_array = partial(type(store).search, store)
        first, second = (search("tea", asked, 30) for search in (store.search, as_array))
        assert len(first) == 30
        assert [(row.id, row.score) for row in first] == [(row.id, row.score) for row in second]


async def test_iso_ranges_are_refused_with_another_way(tmp_path: Path, block: dict[str, Any]) -> None:
    async with opened(tmp_path, **block) as slot:
        with pytest.raises(InputError, match="filter by timestamp for time"):
            await found(slot, "mug", filters={"day": {"gte": "2023-05-01"}})


async def test_64_at_a_time_lose_nothing(tmp_path: Path, block: dict[str, Any]) -> None:
    async with opened(tmp_path, *PEOPLE, **block) as slot:
        await lose_nothing(slot, 64)


async def test_several_processes_may_share_the_server(tmp_path: Path, block: dict[str, Any]) -> None:
    """Two slots with a history of their own each stand for two processes. They also create the table together."""
    slots: list[Any] = []

    async def open_one(name: str) -> None:
        async with open_memory(config(tmp_path / name, **block), scope=ALICE) as slot:
            slots.append(slot)
            await slot.record_event(event(f"{name} was here"))
            while len(slots) < 2 or len(await stored(slot)) < 2:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            assert set(await found(slot, "who was here")) == {"one was here", "two was here"}

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(open_one, "one")
            group.start_soon(open_one, "two")


async def test_an_answer_that_is_lost_is_looked_up_once_its_call_has_ended(
    tmp_path: Path, block: dict[str, Any]
) -> None:
    """Another worker is free to look at once, and would find nothing yet: the event would be sent twice."""
    async with opened(tmp_path, deadlines={"write_s": 0.5}, **block) as slot:
        adapter: Any = slot._adapter
        store = native(slot).vector_store
        stored_by, wait = store.insert, past(0.5)

        def insert(**rows: Any) -> Any:
            wait()
            return stored_by(**rows)

        store.insert = insert
        receipt = await slot.record_event(event("tea"))
        assert receipt.status == "committed"
        await adapter.worker.idle()
        assert [row["id"] for row in await stored(slot)] == list(receipt.native_ids)


async def test_reset_says_what_other_processes_keep(tmp_path: Path, block: dict[str, Any]) -> None:
    async with opened(tmp_path, BOB, **block) as slot:
        for scope in (ALICE, BOB):
            await slot.record_event(event("one", "two", scope=scope))
        receipt = await slot.reset_scope(ALICE)
        assert (receipt.verified, receipt.removed) == (True, 2)
        assert receipt.left == ("history and recent messages in files of other processes",)
        assert await stored(slot) == []
        assert len(await stored(slot, BOB)) == 2


async def test_resets_of_several_scopes_at_a_time(tmp_path: Path, block: dict[str, Any]) -> None:
    """Each opens mem0's entity table, and PostgreSQL does not like it created twice at a time."""
    scopes = [MemoryScope(run_id="run1", persona_id=f"p{number}") for number in range(6)]
    async with opened(tmp_path, *scopes, **block) as slot:
        for scope in scopes:
            await slot.record_event(event("tea", scope=scope))
        async with anyio.create_task_group() as group:
            for scope in scopes:
                group.start_soon(slot.reset_scope, scope)
        assert [await stored(slot, scope) for scope in scopes] == [[]] * 6


async def test_closing_leaves_no_thread(tmp_path: Path, block: dict[str, Any]) -> None:
    def running() -> set[threading.Thread]:
        return {
            one for one in threading.enumerate() if not one.name.startswith("AnyIO")
        }  # end with the event loop

    before = running()
    async with opened(tmp_path, **block) as slot:
        await slot.record_event(event("tea"))
        await slot.reset_scope(ALICE)
        assert len(running() - before) > 4
    assert running() <= before, "others may end meanwhile"


async def test_a_server_that_is_down_is_one_clear_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    down = {
        "vector_store": {
            "provider": "pgvector",
            "config": {"connection_string": "postgresql://ada:hunter2@127.0.0.1:1/none"},
        },
        "deadlines": {"retrieve_s": 0.5, "setup_s": 5},
    }
    before = set(threading.enumerate())
    with pytest.raises(BackendUnavailable, match="no connection to the database in time") as raised:
        async with opened(tmp_path, **down):
            pass
    assert not raised.value.sent
    assert "hunter2" not in str(raised.value) + str(raised.value.diagnostics) + caplog.text
    async with open_memory(config(tmp_path, **down)) as slot:
        health = await slot.health()
    assert health.status == "unavailable"
    assert set(threading.enumerate()) <= before
