"""mem0 on embedded Qdrant: concurrency, opening and closing, locks, lost answers."""

import logging
import os
import subprocess
import sys
import threading

import pytest
from mem0_support import NEEDS_MEM0, PEOPLE, config, event, found, lose_nothing, mutate, opened, stored

from memory import BackendError, BackendUnavailable, ConfigError, open_memory
from memory.plugins.opening import build_slot

pytestmark = NEEDS_MEM0


@pytest.mark.thorough
async def test_64_at_a_time_lose_nothing(tmp_path):
    """Embedded Qdrant itself fails at this: 15 of 200 concurrent adds raised."""
    async with opened(tmp_path, *PEOPLE) as slot:
        await lose_nothing(slot, 64)


async def test_closing_frees_lock_and_threads(tmp_path):
    before = set(threading.enumerate())
    for _ in range(3):
        async with opened(tmp_path) as slot:
            await slot.record_event(event("tea"))
            assert set(threading.enumerate()) - before
        left = set(threading.enumerate()) - before
        # The event loop keeps idle threads of its own for a while.
        assert not [thread for thread in left if "AnyIO" not in thread.name]


@pytest.mark.thorough
async def test_a_store_locked_by_another_process_is_the_same_error(tmp_path):
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
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(BackendUnavailable, match="open elsewhere"):
            async with opened(tmp_path):
                pass
        holder.stdin.close()
    async with opened(tmp_path):
        pass


async def test_a_second_worker_is_refused_at_its_start(tmp_path):
    """Also one that serves many people and names no scope: not at its first request."""
    async with opened(tmp_path):
        with pytest.raises(BackendUnavailable, match="open elsewhere"):
            async with open_memory(config(tmp_path)):
                pass
    async with open_memory(config(tmp_path)) as slot:
        assert (await slot.health()).status == "ok"


async def test_health_of_a_locked_store_is_unavailable(tmp_path):
    async with opened(tmp_path):
        other = build_slot(config(tmp_path))
        health = await other.health()
        await other.aclose()
    assert health.status == "unavailable"
    assert "open elsewhere" in health.warnings[0]


async def test_vectors_of_another_length_are_noticed_at_once_and_leave_no_lock(tmp_path):
    async with opened(tmp_path):
        pass
    async with opened(tmp_path, dimensions=512) as slot:  # it was empty
        await slot.record_event(event("tea"))
    with pytest.raises(ConfigError, match=r"made with dimensions 512, and dimensions 256 is configured"):
        async with opened(tmp_path, dimensions=256):
            pass
    async with opened(tmp_path, dimensions=256, collection="other") as slot:
        await slot.record_event(event("tea"))


async def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"mem0\.path: .*below.* cannot be created"):
        async with opened(tmp_path, path=str(tmp_path / "file" / "below")):
            pass


async def test_health_says_what_is_on_and_what_is_off(tmp_path):
    async with opened(tmp_path, rerank=True) as slot:
        health = await slot.health()
    assert health.status == "ok"
    assert health.latency_ms is not None
    assert health.versions.keys() == {"mem0ai", "qdrant-client"}
    assert health.details["embedder"].startswith("lexical")
    assert health.details["dimensions"] == 1024
    assert health.details["vector_store"] == "qdrant (embedded)"
    assert (health.native_ingest_modes, health.details["ingest"]) == (("infer", "verbatim"), "verbatim")
    assert any("rerank: true does nothing" in warning for warning in health.warnings)
    assert not any("telemetry" in warning for warning in health.warnings)


async def test_health_warns_of_telemetry(tmp_path, monkeypatch):
    async with opened(tmp_path) as slot:
        monkeypatch.setattr("mem0.memory.telemetry.MEM0_TELEMETRY", True)
        assert any("telemetry on" in warning for warning in (await slot.health()).warnings)


async def test_mem0_logs_no_memory(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "mem0")
    async with opened(tmp_path) as slot:
        (native_id,) = (await slot.record_event(event("my secret passport"))).native_ids
        await mutate(slot, "update", native_id, text="another secret passport")
        await found(slot, "secret passport")
    own = [record for record in caplog.records if record.name.startswith("mem0")]
    assert own, "mem0 logs what it does"
    assert not any("passport" in record.getMessage() for record in own)


@pytest.mark.thorough
def test_nothing_is_written_to_the_home_directory_and_no_network_is_touched(tmp_path):
    """In a fresh process with a home of its own: what mem0 does at import is part of it."""
    home_dir, data = tmp_path / "home", tmp_path / "data"
    home_dir.mkdir()
    code = f"""
import asyncio, socket, sys
from pathlib import Path
def refuse(*arguments, **options): raise AssertionError("network")
socket.getaddrinfo = socket.socket.connect = refuse
from mem0_support import *
async def main():
    async with opened(Path({str(data)!r})) as slot:
        await slot.record_event(event("I drink oolong."))
        print(await found(slot, "oolong"), (await slot.health()).warnings)
asyncio.run(main())
"""
    environment = {"HOME": str(home_dir), "PATH": "/usr/bin:/bin", "PYTHONPATH": os.environ["PYTHONPATH"]}
    strict = ("-W", "error", "-W", "ignore:unclosed database:ResourceWarning")  # of embedded Qdrant
    done = subprocess.run(
        [sys.executable, *strict, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['I drink oolong.']")
    assert "telemetry" not in done.stdout
    assert done.stderr == ""
    assert list(home_dir.iterdir()) == []


async def test_an_event_cut_in_the_middle_leaves_nothing_and_a_repeat_stores_it_once(tmp_path, monkeypatch):
    """Qdrant commits each row; of an event of forty, the first nine stayed."""
    from qdrant_client.local.persistence import CollectionPersistence

    whole = event(*(f"I own the numbered thing {number}." for number in range(40)))
    persist, rows = CollectionPersistence.persist, []

    def full(self, point):
        rows.append(point)
        if len(rows) == 10:
            raise OSError("no space left on device")
        persist(self, point)

    async with opened(tmp_path) as slot:
        await slot.record_event(event("before"))
        with monkeypatch.context() as patch:
            patch.setattr(CollectionPersistence, "persist", full)
            adapter = slot._adapter
            with pytest.raises(BackendError):
                await adapter.record_event(whole)
        assert [row["memory"] for row in await stored(slot)] == ["before"]
    async with opened(tmp_path) as slot:
        assert [row["memory"] for row in await stored(slot)] == ["before"]
        assert len((await slot.record_event(whole)).native_ids) == 40
        assert len(await stored(slot)) == 41


async def test_a_deleted_memory_is_not_missed(tmp_path):
    async with opened(tmp_path) as slot:
        receipt = await slot.record_event(event("one", "two"))
        await mutate(slot, "delete", receipt.native_ids[0])
        await mutate(slot, "update", receipt.native_ids[1], text="three")
    async with opened(tmp_path, open_partitions=1) as slot:
        assert [row["memory"] for row in await stored(slot)] == ["three"]
        assert (await slot.health()).status == "ok"
