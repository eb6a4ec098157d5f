"""mem0 on embedded Qdrant, the default: the real library, no network, no key."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from mem0_support import ALICE, BOB, NEEDS_MEM0, START, ask, config, event, found, opened, stored

from memory import (
    BackendUnavailable,
    CapabilityNotSupported,
    ConfigError,
    InputError,
    MemoryEvent,
    MemoryScope,
    Message,
    NativeMutationRequest,
    NativeQueryRequest,
    ProvenanceRequest,
    ScopeError,
    SupportsBulkIngest,
    SupportsNativeMutation,
    SupportsNativeQuery,
    SupportsProvenance,
    SupportsReadiness,
    open_memory,
)

pytestmark = [pytest.mark.anyio, NEEDS_MEM0]


@pytest.fixture
def anyio_backend() -> str:
    """The contract tests run on trio as well."""
    return "asyncio"


# -- writing and reading ------------------------------------------------------------------------------------


async def test_a_turn_comes_back_with_everything_that_was_said_about_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as slot:
        told = event(
            "I drink oolong.", scenario="tea", context="work", attribute="taste", metadata={"n": [1]}
        )
        receipt = await slot.record_event(told)
        result = await slot.retrieve(ask("Which oolong?"))
    (entry,), (row,) = result.entries, result.raw["results"]
    assert receipt.status == "committed"
    assert receipt.native_ids == (entry.native_id,)
    assert not receipt.warnings
    assert entry.timestamp == told.timestamp, "backdated to the event, not to the wall clock"
    assert entry.event_ids == (told.event_id,)
    assert entry.score == row["score"] == result.trace.top_score
    assert row["metadata"] == {
        "event_id": told.event_id,
        "session_id": "session-1",
        "turn_id": told.turn_id,
        "agent": "agent",
        "scenario": "tea",
        "context": "work",
        "attribute": "taste",
        "timestamp": told.timestamp.isoformat(),
        "ts_epoch": told.timestamp.timestamp(),
        "meta_n": "[1]",
    }
    assert json.loads(json.dumps(result.raw)) == result.raw
    assert result.trace.native_operation == "Memory.search"
    assert result.trace.cs_filtering == "hard"


async def test_top_k_is_the_budget_or_the_configured_one(tmp_path: Path) -> None:
    async with opened(tmp_path, top_k=3) as slot:
        for number in range(6):
            await slot.record_event(event(f"tea number {number}"))
        assert len(await found(slot, "tea number")) == 3
        assert len(await found(slot, "tea number", max_items=5)) == 5


async def test_every_message_is_a_memory_of_its_speaker(tmp_path: Path) -> None:
    said = (
        Message(role="user", content="Which tea?", name="Ann"),
        Message(role="assistant", content="Oolong tea."),
        Message(role="tool", content="tea: 3 kinds"),
    )
    async with opened(tmp_path) as slot:
        receipt = await slot.record_event(event(messages=said))
        entries = (await slot.retrieve(ask("tea"))).entries
    assert len(receipt.native_ids) == 3
    assert {entry.labels[0][1] for entry in entries} == {"Ann", "assistant", "tool"}


async def test_an_event_mem0_would_not_remember_is_not_a_silent_success(tmp_path: Path) -> None:
    async with opened(tmp_path) as slot:
        receipt = await slot.record_event(event(messages=(Message(role="system", content="Be kind."),)))
        assert receipt.native_ids == ()
        assert "mem0 remembers nothing of this event" in receipt.warnings[-1]
        assert await stored(slot) == []


# -- filters ------------------------------------------------------------------------------------------------

COLOURS = {"red": 1, "green": 2, "blue": 3}


async def coloured(slot: Any) -> None:
    for name, number in COLOURS.items():
        await slot.record_event(
            event(
                f"My {name} mug",
                context="work" if number < 3 else "personal",
                metadata={"colour": name, "n": number, "even": number % 2 == 0, "day": f"2023-05-0{number}"},
                timestamp=START + timedelta(days=number),
            )
        )


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"colour": "red"}, {"red"}),
        ({"n": 2}, {"green"}),
        ({"even": True}, {"green"}),
        ({"colour": {"ne": "red"}}, {"green", "blue"}),
        ({"n": {"gt": 1}}, {"green", "blue"}),
        ({"n": {"gte": 2, "lt": 3}}, {"green"}),
        ({"n": {"lte": 1.5}}, {"red"}),
        ({"colour": {"in": ["red", "blue"]}}, {"red", "blue"}),
        ({"colour": {"nin": ["red", "blue"]}}, {"green"}),
        ({"colour": {"contains": "green"}}, {"green"}),
        ({"day": {"gte": "2023-05-02"}}, {"green", "blue"}),
        ({"timestamp": {"gte": (START + timedelta(days=2)).isoformat()}}, {"green", "blue"}),
        ({"timestamp": (START + timedelta(days=2)).isoformat()}, {"green"}),
        ({"colour": "red", "n": {"lt": 3}}, {"red"}),
        ({"colour": "red", "n": 2}, set()),
        ({"nowhere": {"ne": "x"}}, set()),
        ({"role": "user", "colour": "blue"}, {"blue"}),
    ],
)
async def test_filters_narrow(tmp_path: Path, filters: dict[str, Any], expected: set[str]) -> None:
    async with opened(tmp_path) as slot:
        await coloured(slot)
        assert {text.split()[1] for text in await found(slot, "mug", filters=filters)} == expected


async def test_cs_fields_are_required_of_every_row(tmp_path: Path) -> None:
    async with opened(tmp_path) as slot:
        await coloured(slot)
        assert len(await found(slot, "mug", context="work")) == 2
        assert await found(slot, "mug", context="holiday") == []
        assert await found(slot, "mug", context="*") == [], "a wildcard of mem0, literal here"
        assert len(await found(slot, "mug", context="work", filters={"cross_context": True})) == 3


async def test_soft_cs_fields_filter_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, cs_filtering="soft") as slot:
        await coloured(slot)
        result = await slot.retrieve(ask("mug", context="work"))
    assert len(result.entries) == 3
    assert result.trace.cs_filtering == "soft"


# -- isolation ----------------------------------------------------------------------------------------------

HOSTILE = [
    MemoryScope(run_id="run1", persona_id="alice", agent_id="agent"),
    MemoryScope(run_id="run1", persona_id="alice", backend_namespace="agent"),
    MemoryScope(run_id="run1", persona_id="Alice"),
    MemoryScope(run_id="run1", persona_id=" alice"),
    MemoryScope(run_id="run1:%n:agent", persona_id="alice"),
    MemoryScope(run_id="alice", persona_id="run1"),
    MemoryScope(run_id="run1", persona_id="alice/../bob"),
    MemoryScope(run_id="run1", persona_id="乌龙"),
    MemoryScope(run_id="run1", persona_id="a" * 512),
    MemoryScope(run_id="run1", persona_id="a" * 511 + "b"),
    BOB,
]


async def test_no_scope_sees_another(tmp_path: Path) -> None:
    scopes = [ALICE, *HOSTILE]
    async with opened(tmp_path, *HOSTILE) as slot:
        for number, scope in enumerate(scopes):
            await slot.record_event(event(f"the secret tea number {number}", scope=scope))
        for number, scope in enumerate(scopes):
            assert await found(slot, "secret tea", scope=scope) == [f"the secret tea number {number}"]
            assert len(await stored(slot, scope)) == 1


async def test_reset_clears_one_scope_and_what_mem0_would_leave(tmp_path: Path) -> None:
    async with opened(tmp_path, BOB, *HOSTILE[:2]) as slot:
        for scope in (ALICE, BOB, *HOSTILE[:2]):
            await slot.record_event(event("one secret", "two secrets", scope=scope))
        await mutate(slot, "delete", (await stored(slot))[0]["id"])
        receipt = await slot.reset_scope(ALICE)
        assert (receipt.verified, receipt.removed, receipt.left) == (True, 1, ())
        assert await stored(slot) == []
        for scope in (BOB, *HOSTILE[:2]):
            assert len(await stored(slot, scope)) == 2
        await slot.record_event(event("a fresh start"))
        assert await found(slot, "secret fresh") == ["a fresh start"]
    history = sqlite(
        tmp_path, "SELECT COUNT(*) FROM history WHERE new_memory LIKE '%secret%' OR old_memory NOT NULL"
    )
    assert history == [(6,)], "the history of the three others, and nothing that Alice had deleted"


async def entities(slot: Any, scope: MemoryScope) -> set[str]:
    """mem0's entities of a scope, read from its own store."""
    native, ids = slot._adapter._native, slot.native_scope(scope)
    rows = await slot._adapter.worker.run(lambda: native.open().entity_store.list(filters=ids, top_k=100)[0])
    return {row.payload["data"] for row in rows}


async def test_entities_of_an_earlier_process_go_as_well(tmp_path: Path) -> None:
    """mem0 leaves them, because it opens its entity store only with the first new entity (mem0 #7226). Linked
    here by mem0's own call, which it makes for every entity spaCy finds."""
    async with opened(tmp_path, BOB) as slot:
        adapter: Any = slot._adapter
        for scope in (ALICE, BOB):
            receipt = await slot.record_event(event("I met Ada.", "I met Grace.", scope=scope))
            for name, native_id in zip(("Ada", "Grace"), receipt.native_ids, strict=True):
                ids = slot.native_scope(scope)
                link = adapter._native.open()._upsert_entity
                await adapter.worker.run(
                    lambda link=link, name=name, id=native_id, ids=ids: link(name, "person", id, ids)
                )
        assert await entities(slot, ALICE) == {"Ada", "Grace"}
    async with opened(tmp_path, BOB) as slot:
        (native_id,) = [row["id"] for row in await stored(slot) if "Ada" in row["memory"]]
        await mutate(slot, "delete", native_id)
        assert await entities(slot, ALICE) == {"Grace"}
    async with opened(tmp_path, BOB) as slot:
        assert (await slot.reset_scope(ALICE)).verified
        assert await entities(slot, ALICE) == set()
        assert await entities(slot, BOB) == {"Ada", "Grace"}


def sqlite(data_dir: Path, query: str) -> list[Any]:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(data_dir / "mem0" / "history.db")) as connection:
        return connection.execute(query).fetchall()


async def mutate(
    slot: Any, operation: str, native_id: str | None, scope: MemoryScope = ALICE, **arguments: Any
) -> Any:
    return await slot.capability(SupportsNativeMutation).native_mutation(
        NativeMutationRequest(scope=scope, operation=operation, native_id=native_id, arguments=arguments)
    )


# -- capabilities -------------------------------------------------------------------------------------------


async def test_records_can_be_corrected_and_their_history_told(tmp_path: Path) -> None:
    async with opened(tmp_path, BOB) as slot:
        told = event("I drink coffee.")
        (native_id,) = (await slot.record_event(told)).native_ids
        receipt = await mutate(
            slot, "update", native_id, text="I drink tea.", metadata={"event_id": "forged"}
        )
        assert receipt.native_ids == (native_id,)
        (row,) = await stored(slot)
        assert row["memory"] == "I drink tea."
        assert row["metadata"]["event_id"] == told.event_id
        assert row["metadata"]["meta_event_id"] == "forged"
        provenance = slot.capability(SupportsProvenance)
        assert provenance is not None
        source = await provenance.provenance(ProvenanceRequest(scope=ALICE, native_id=native_id))
        assert source.event_ids == (told.event_id,)
        assert [step["event"] for step in source.raw["history"]] == ["ADD", "UPDATE"]
        await mutate(slot, "delete", native_id)
        assert await stored(slot) == []
        source = await provenance.provenance(ProvenanceRequest(scope=ALICE, native_id=native_id))
        assert source.raw["memory"] is None
        assert source.raw["history"][-1]["event"] == "DELETE"
        with pytest.raises(ScopeError):
            await provenance.provenance(ProvenanceRequest(scope=BOB, native_id=native_id))


async def test_a_record_of_another_scope_cannot_be_touched(tmp_path: Path) -> None:
    agent = MemoryScope(run_id="run1", persona_id="alice", agent_id="agent")
    async with opened(tmp_path, BOB, agent) as slot:
        (native_id,) = (await slot.record_event(event("Alice's own"))).native_ids
        provenance = slot.capability(SupportsProvenance)
        assert provenance is not None
        for scope in (BOB, agent):
            for operation, arguments in (("update", {"text": "hacked"}), ("delete", {})):
                with pytest.raises(ScopeError, match="names no memory of this scope"):
                    await mutate(slot, operation, native_id, scope, **arguments)
            with pytest.raises(ScopeError):
                await provenance.provenance(ProvenanceRequest(scope=scope, native_id=native_id))
        for unknown in ("no-uuid", "00000000-0000-4000-8000-000000000000", None):
            with pytest.raises(ScopeError, match="names no memory of this scope"):
                await mutate(slot, "delete", unknown)
        assert [row["memory"] for row in await stored(slot)] == ["Alice's own"]


async def test_wrong_mutations_and_queries_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as slot:
        (native_id,) = (await slot.record_event(event("x"))).native_ids
        with pytest.raises(CapabilityNotSupported, match="update and delete"):
            await mutate(slot, "merge", native_id)
        with pytest.raises(
            InputError, match="user_id is unknown; update takes expiration_date, metadata, text"
        ):
            await mutate(slot, "update", native_id, user_id="bob")
        with pytest.raises(InputError, match="is empty"):
            await mutate(slot, "update", native_id)
        query = slot.capability(SupportsNativeQuery)
        assert query is not None
        with pytest.raises(CapabilityNotSupported, match="count and list"):
            await query.native_query(NativeQueryRequest(scope=ALICE, operation="dump"))
        for arguments in ({"limit": 0}, {"limit": True}, {"filters": {}}):
            with pytest.raises(InputError, match="limit alone"):
                await query.native_query(
                    NativeQueryRequest(scope=ALICE, operation="count", arguments=arguments)
                )


async def test_an_expired_memory_is_counted_and_reset(tmp_path: Path) -> None:
    async with opened(tmp_path) as slot:
        (native_id,) = (await slot.record_event(event("tea"))).native_ids
        await mutate(slot, "update", native_id, expiration_date="2020-01-01")
        assert await found(slot, "tea") == []
        assert len(await stored(slot)) == 1
        assert (await slot.reset_scope(ALICE)).removed == 1


async def test_provenance_of_a_time_range(tmp_path: Path) -> None:
    async with opened(tmp_path) as slot:
        await coloured(slot)
        provenance = slot.capability(SupportsProvenance)
        assert provenance is not None
        since = START + timedelta(days=2)
        answer = await provenance.provenance(ProvenanceRequest(scope=ALICE, since=since))
        assert {row["memory"] for row in answer.raw["results"]} == {"My green mug", "My blue mug"}
        assert len(answer.event_ids) == 2
        everything = await provenance.provenance(ProvenanceRequest(scope=ALICE))
        assert len(everything.native_ids) == 3


async def test_what_is_written_is_ready(tmp_path: Path) -> None:
    async with opened(tmp_path) as slot:
        await slot.record_event(event("tea"))
        readiness = slot.capability(SupportsReadiness)
        assert readiness is not None
        assert (await readiness.wait_until_ready(ALICE, 1.0)).state == "ready"
        assert await found(slot, "tea")


async def test_bulk_is_one_add_per_event_in_order(tmp_path: Path) -> None:
    async with opened(tmp_path) as slot:
        events = [event(f"tea {number}", f"cup {number}") for number in range(40)]
        bulk = slot.capability(SupportsBulkIngest)
        assert bulk is not None
        receipts = await bulk.record_events(events)
        assert [receipt.event_id for receipt in receipts] == [told.event_id for told in events]
        by_id = {row["id"]: row for row in await stored(slot)}
        for told, receipt in zip(events, receipts, strict=True):
            rows = [by_id[native_id] for native_id in receipt.native_ids]
            assert [row["memory"] for row in rows] == [message.content for message in told.messages]
            assert {row["metadata"]["event_id"] for row in rows} == {told.event_id}


# -- concurrency --------------------------------------------------------------------------------------------


async def test_64_at_a_time_lose_nothing(tmp_path: Path) -> None:
    """Embedded Qdrant itself fails at this: 15 of 200 concurrent adds raised."""
    scopes = [MemoryScope(run_id="run1", persona_id=f"p{number}") for number in range(8)]
    async with opened(tmp_path, *scopes) as slot:

        async def one(number: int) -> None:
            scope = scopes[number % len(scopes)]
            await slot.record_event(event(f"tea number {number}", scope=scope))
            await slot.retrieve(ask("tea", scope=scope))

        async with anyio.create_task_group() as group:
            for number in range(64):
                group.start_soon(one, number)
        for index, scope in enumerate(scopes):
            numbers = {int(row["memory"].split()[-1]) for row in await stored(slot, scope)}
            assert numbers == set(range(index, 64, 8))


# -- life ---------------------------------------------------------------------------------------------------


async def test_memories_survive_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as slot:
        await slot.record_event(event("I drink oolong."))
    async with opened(tmp_path) as slot:
        assert await found(slot, "oolong") == ["I drink oolong."]


async def test_closing_frees_lock_and_threads(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        async with opened(tmp_path) as slot:
            await slot.record_event(event("tea"))
            assert set(threading.enumerate()) - before
        assert set(threading.enumerate()) == before


async def test_a_locked_store_is_one_clear_error(tmp_path: Path) -> None:
    async with opened(tmp_path) as slot:
        with pytest.raises(
            BackendUnavailable, match=r"open elsewhere; .*memory\.backends\.mem0\.path, or configure"
        ):
            async with opened(tmp_path):
                pass
        await slot.record_event(event("still mine"))
        assert await found(slot, "mine") == ["still mine"]
    async with opened(tmp_path) as slot:
        assert await found(slot, "mine") == ["still mine"]


async def test_a_store_locked_by_another_process_is_the_same_error(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    holder = subprocess.Popen(  # noqa: ASYNC220 (a process of its own is the point)
        [
            sys.executable,
            "-c",
            "import sys; from qdrant_client import QdrantClient; c = QdrantClient(path=sys.argv[1]);"
            "print('locked', flush=True); sys.stdin.read(); c.close()",
            str(tmp_path / "mem0" / "qdrant"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(BackendUnavailable, match="open elsewhere"):
            async with opened(tmp_path):
                pass
        holder.stdin.close()
    async with opened(tmp_path):
        pass


async def test_health_of_a_locked_store_is_unavailable(tmp_path: Path) -> None:
    async with opened(tmp_path), open_memory(config(tmp_path)) as other:
        health = await other.health()
    assert health.status == "unavailable"
    assert "open elsewhere" in health.warnings[0]


async def test_vectors_of_another_length_are_noticed_at_once_and_leave_no_lock(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    with pytest.raises(
        ConfigError, match=r"mem0\.dimensions: the collection 'memslot' holds vectors of 1024"
    ):
        async with opened(tmp_path, dimensions=256):
            pass
    async with opened(tmp_path, dimensions=256, collection="other") as slot:
        await slot.record_event(event("tea"))


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"mem0\.path: cannot be created"):
        async with opened(tmp_path, path=str(tmp_path / "file" / "below")):
            pass


async def test_health_says_what_is_on_and_what_is_off(tmp_path: Path) -> None:
    async with opened(tmp_path, rerank=True) as slot:
        health = await slot.health()
    assert health.status == "ok"
    assert health.latency_ms is not None
    assert health.versions.keys() == {"mem0ai", "qdrant-client"}
    assert health.details["embedder"].startswith("lexical")
    assert health.details["dimensions"] == 1024
    assert health.details["vector_store"] == "qdrant (embedded)"
    assert health.native_ingest_modes == ("verbatim",)
    assert any("rerank: true does nothing" in warning for warning in health.warnings)
    assert not any("telemetry" in warning for warning in health.warnings)


async def test_health_warns_of_telemetry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as slot:
        monkeypatch.setattr("mem0.memory.telemetry.MEM0_TELEMETRY", True)
        assert any("telemetry on" in warning for warning in (await slot.health()).warnings)


async def test_mem0_logs_no_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with opened(tmp_path) as slot:
        (native_id,) = (await slot.record_event(event("my secret passport"))).native_ids
        await mutate(slot, "update", native_id, text="another secret passport")
        await found(slot, "secret passport")
    own = [record for record in caplog.records if record.name.startswith("mem0")]
    assert own, "mem0 logs what it does"
    assert not any("passport" in record.getMessage() for record in own)


def test_nothing_is_written_to_the_home_directory_and_no_network_is_touched(tmp_path: Path) -> None:
    """In a fresh process with a home of its own: what mem0 does at import is part of it."""
    home, data = tmp_path / "home", tmp_path / "data"
    home.mkdir()
    code = f"""
import asyncio, socket, sys
def refuse(*arguments, **options): raise AssertionError("network")
socket.getaddrinfo = socket.socket.connect = refuse
sys.path.insert(0, {str(Path(__file__).parent)!r})
from mem0_support import *
async def main():
    async with opened(Path({str(data)!r})) as slot:
        await slot.record_event(event("I drink oolong."))
        print(await found(slot, "oolong"), (await slot.health()).warnings)
asyncio.run(main())
"""
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['I drink oolong.']")
    assert "telemetry" not in done.stdout
    assert done.stderr == ""
    assert list(home.iterdir()) == []


# -- lost answers -------------------------------------------------------------------------------------------


async def test_an_answer_that_is_lost_is_looked_up(tmp_path: Path) -> None:
    """The native call goes on after its deadline; the slot finds what it stored instead of sending it again."""
    async with opened(tmp_path, deadlines={"write_s": 0.1}) as slot:
        memory = slot._adapter._native.open()  # type: ignore[attr-defined]
        native, slow = memory.vector_store.insert, threading.Event()

        def insert(**rows: Any) -> Any:
            slow.wait(0.4)
            return native(**rows)

        memory.vector_store.insert = insert
        receipt = await slot.record_event(event("tea"))
        assert receipt.status == "committed"
        assert receipt.warnings == ("confirmed by look-up after the answer was lost",)
        assert [row["id"] for row in await stored(slot)] == list(receipt.native_ids)


async def test_a_time_out_stops_a_bulk_write(tmp_path: Path) -> None:
    """The event under way ends; those behind it are not written behind the caller's back."""
    async with opened(tmp_path) as slot:
        adapter: Any = slot._adapter
        events = [event(f"tea {number}") for number in range(50)]
        native = adapter._native.open().vector_store.insert
        adapter._native.open().vector_store.insert = lambda **rows: (
            threading.Event().wait(0.02),
            native(**rows),
        )[1]
        with anyio.move_on_after(0.1):
            await adapter.record_events(events)
        await adapter.worker.idle()
        written = len(await stored(slot))
        assert 0 < written < 16
        await anyio.sleep(0.1)
        assert len(await stored(slot)) == written


def test_event_time_is_kept_to_the_microsecond() -> None:
    moment = datetime(2023, 5, 8, 13, 56, 1, 123457, tzinfo=UTC)
    told: MemoryEvent = event("x", timestamp=moment)
    assert told.timestamp == moment
