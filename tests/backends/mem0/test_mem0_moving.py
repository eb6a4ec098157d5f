"""From the one collection of earlier versions to a partition for each scope: nothing lost, said once."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from mem0_killing import killed_at_every_step
from mem0_old_store import close_plain, plain_memory, write_old_store
from mem0_support import (
    ALICE,
    BOB,
    NEEDS_MEM0,
    ask,
    config,
    event,
    found,
    histories,
    native,
    on_disk,
    opened,
    stored,
)

from memory import (
    BackendError,
    BackendUnavailable,
    ConfigError,
    MemoryScope,
    ProvenanceRequest,
    SupportsProvenance,
)

pytestmark = NEEDS_MEM0

AGENT = MemoryScope(run_id="run1", persona_id="alice", agent_id="agent")


def expected(count: int) -> dict[MemoryScope, set[str]]:
    """What the three scopes hold, each so many memories of its own, and Bob one more."""
    return {
        ALICE: {f"alice drinks tea {number}" for number in range(count)},
        AGENT: {f"alice's agent drinks tea {number}" for number in range(count)},
        BOB: {*(f"bob drinks tea {number}" for number in range(count)), "bob drinks cocoa"},
    }


EXPECTED = expected(3)


@pytest.fixture(autouse=True)
def _mem0(tmp_path_factory: pytest.TempPathFactory) -> None:
    """mem0, imported by our factory and thus without telemetry."""
    from memory.plugins.config import load_config
    from memory.plugins.registry import MemoryAdapterRegistry

    MemoryAdapterRegistry().create(load_config(config(tmp_path_factory.mktemp("first"))))


async def everything(slot: Any) -> dict[MemoryScope, set[str]]:
    texts = {}
    for scope in EXPECTED:
        texts[scope] = {row["memory"] for row in await stored(slot, scope)}
        assert set(await found(slot, "drinks", scope=scope)) == texts[scope]
    return texts


def entities(slot: Any, scope: MemoryScope) -> set[str]:
    return {row.payload["data"] for row in native(slot, scope).entity_store.list(top_k=100)[0]}


async def test_an_old_store_is_moved_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_old_store(tmp_path)
    async with opened(tmp_path, BOB, AGENT) as slot:
        assert await everything(slot) == EXPECTED
        assert entities(slot, BOB) == {f"Tea {number} of bob" for number in range(3)}
        assert (await slot.health()).details["moved"] == "10 memories of 3 scopes"
        assert (
            native(slot, BOB).db.get_last_messages("run_id=run1&user_id=bob")[0]["content"]
            == "bob said hello"
        )
        await slot.record_event(event("alice drinks water"))
        assert len(await stored(slot)) == 4
    (line,) = [record.getMessage() for record in caplog.records if record.name == "memslot.mem0"]
    assert line.startswith("mem0: moved 10 memories of 3 scopes from one collection to a partition for each")
    caplog.clear()
    async with opened(tmp_path, BOB, AGENT) as slot:
        assert "moved" not in (await slot.health()).details
        assert len(await stored(slot)) == 4
    assert not [record for record in caplog.records if record.name == "memslot.mem0"]


async def test_nothing_of_it_stays_where_it_was(tmp_path: Path) -> None:
    """A reset that left the old copy would be none."""
    write_old_store(tmp_path)
    async with opened(tmp_path, BOB, AGENT) as slot:
        assert not (tmp_path / "mem0" / "history.db").exists()
        for scope in EXPECTED:
            assert (await slot.reset_scope(scope)).verified
    assert on_disk(tmp_path, "drink") == []


async def test_the_past_of_a_memory_is_moved_with_it(tmp_path: Path) -> None:
    write_old_store(tmp_path)
    async with opened(tmp_path, BOB) as slot:
        provenance = slot.capability(SupportsProvenance)
        assert provenance is not None
        (cocoa,) = [row["id"] for row in await stored(slot, BOB) if "cocoa" in row["memory"]]
        source = await provenance.provenance(ProvenanceRequest(scope=BOB, native_id=cocoa))
        assert [step["event"] for step in source.raw["history"]] == ["ADD", "UPDATE"]
        ((beer,),) = histories(tmp_path, "SELECT memory_id FROM memslot_deleted")
        source = await provenance.provenance(ProvenanceRequest(scope=ALICE, native_id=beer))
        assert [step["event"] for step in source.raw["history"]] == ["ADD", "DELETE"]


async def test_what_belongs_to_no_scope_stays_for_whoever_wrote_it(tmp_path: Path) -> None:
    """A memory of plain mem0 that names no run: no scope ever saw it."""
    write_old_store(tmp_path, foreign=True)
    async with opened(tmp_path, BOB, AGENT) as slot:
        assert await everything(slot) == EXPECTED
    memory = plain_memory(tmp_path / "mem0")
    rows = memory.get_all(filters={"user_id": "carol"})["results"]
    everybody = memory.vector_store.list(top_k=100)[0]
    close_plain(memory)
    assert [row["memory"] for row in rows] == ["carol drinks water"]
    assert len(everybody) == 1
    async with opened(tmp_path, BOB, AGENT) as slot:
        assert await everything(slot) == EXPECTED


async def test_what_an_earlier_version_adds_afterwards_is_moved_as_well(tmp_path: Path) -> None:
    write_old_store(tmp_path)
    async with opened(tmp_path):
        pass
    memory = plain_memory(tmp_path / "mem0")
    memory.add("alice drinks milk", user_id="alice", run_id="run1", infer=False)
    close_plain(memory)
    async with opened(tmp_path, BOB, AGENT) as slot:
        assert await everything(slot) == {**EXPECTED, ALICE: {*EXPECTED[ALICE], "alice drinks milk"}}


@pytest.mark.thorough
async def test_killed_at_every_step_and_nothing_is_lost(tmp_path: Path) -> None:
    killed = killed_at_every_step(tmp_path, "move")
    for data_dir in killed:
        async with opened(data_dir, BOB, AGENT) as slot:
            assert await everything(slot) == expected(2), data_dir.name
            assert entities(slot, BOB) == {f"Tea {number} of bob" for number in range(2)}
        told = histories(data_dir, "SELECT new_memory FROM history WHERE event = 'ADD' ORDER BY new_memory")
        assert len(told) == 8, "each once"
        assert not (data_dir / "mem0" / "history.db").exists()
        assert json.loads((data_dir / "mem0" / "qdrant" / "meta.json").read_text())["collections"] == {}
    assert len(killed) > 20


async def test_a_store_that_an_earlier_version_still_uses_is_left_alone(tmp_path: Path) -> None:
    write_old_store(tmp_path)
    memory = plain_memory(tmp_path / "mem0")
    with pytest.raises(BackendUnavailable, match="open elsewhere"):
        async with opened(tmp_path):
            pass
    assert len(memory.vector_store.list(top_k=100)[0]) == 10
    close_plain(memory)
    async with opened(tmp_path, BOB, AGENT) as slot:
        assert await everything(slot) == EXPECTED


async def test_vectors_of_another_length_are_refused_before_anything_is_moved(tmp_path: Path) -> None:
    write_old_store(tmp_path, dimensions=256)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"dimensions: the collection 'memslot' holds vectors of 256"):
            async with opened(tmp_path):
                pass
    async with opened(tmp_path, BOB, AGENT, dimensions=256) as slot:
        assert await everything(slot) == EXPECTED


@pytest.mark.parametrize("content", [b"", bytes(100_000)], ids=["emptied", "zeroed"])
async def test_an_old_file_that_cannot_be_read_is_an_error_that_comes_again(
    tmp_path: Path, content: bytes
) -> None:
    write_old_store(tmp_path)
    file = tmp_path / "mem0" / "qdrant" / "collection" / "memslot" / "storage.sqlite"
    whole = file.read_bytes()
    file.write_bytes(content)
    for _ in range(2):
        with pytest.raises(BackendError, match=r"could not be moved .*; nothing is lost") as raised:
            async with opened(tmp_path):
                pass
        assert not raised.value.ambiguous
    file.write_bytes(whole)
    async with opened(tmp_path, BOB, AGENT) as slot:
        assert await everything(slot) == EXPECTED


async def test_a_shared_history_stays_shared(tmp_path: Path) -> None:
    write_old_store(tmp_path)
    shared = tmp_path / "mem0" / "history.db"
    async with opened(tmp_path, BOB, AGENT, history_path=str(shared)) as slot:
        assert await everything(slot) == EXPECTED
        assert (await slot.retrieve(ask("tea"))).entries
    with sqlite3.connect(shared) as connection:
        assert connection.execute("SELECT COUNT(*) FROM history WHERE event = 'ADD'").fetchone() == (11,)
    connection.close()
    assert histories(tmp_path, "SELECT * FROM history") == []
