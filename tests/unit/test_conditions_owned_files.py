"""Conditions that keep files: one owner at a time, nothing acknowledged is lost, damage never looks like empty."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from said import said

from memory import (
    AdapterMode,
    BackendUnavailable,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    RetrieveRequest,
    SupportsReadiness,
)
from memory.adapter import BackendProtocolError, MemoryAdapter
from memory.plugins.opening import build_slot

ALICE = MemoryScope(run_id="run", persona_id="alice")
KINDS = ("full_history", "rolling_summary")
WRITER = """
import sys, anyio
from datetime import UTC, datetime
from memory import MemoryEvent, MemoryScope, Message
from memory.plugins.opening import build_slot

async def main(kind, path, start):
    config = {"memory": {"condition": kind, "conditions": {kind: {"path": path}}}}
    async with build_slot(config, scope=MemoryScope(run_id="run", persona_id="alice")) as slot:
        print("open", flush=True)
        for number in range(int(start), 10**6):
            await slot.record_event(
                MemoryEvent(
                    event_id=f"e{number}", scope=slot.scope, session_id=f"s{number // 5}", turn_id="t",
                    timestamp=datetime(2026, 1, 1, tzinfo=UTC),
                    messages=[Message(role="user", content=f"I prefer word{number} over other{number}.")],
                )
            )
            print(number, flush=True)

anyio.run(main, *sys.argv[1:])
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def opened(kind: str, path: Path, **fields: Any) -> MemorySlot:
    config = {"memory": {"condition": kind, "conditions": {kind: {"path": str(path)}}}}
    return build_slot(config, **{"scope": ALICE, **fields})


def event(number: int) -> MemoryEvent:
    return said(ALICE, f"I prefer word{number} over other{number}.", number=number, session_id=f"s{number}")


async def known(slot: MemorySlot, number: int) -> bool:
    """Whether the event is stored: then recording it again says so."""
    return "was recorded before" in str((await slot.record_event(event(number))).warnings)


async def recalled(slot: MemorySlot) -> str:
    readiness = slot.capability(SupportsReadiness)
    if readiness is not None:
        assert (await readiness.wait_until_ready(ALICE, 5)).state == "ready"
    return (await slot.retrieve(RetrieveRequest(query="?", scope=ALICE, session_id="t"))).formatted_context


async def filled(kind: str, path: Path, count: int = 3) -> None:
    async with opened(kind, path) as slot:
        for number in range(count):
            await slot.record_event(event(number))
        assert "word0" in await recalled(slot)


def log_of(path: Path) -> Path:
    return only(path, "*.jsonl")


def only(path: Path, pattern: str) -> Path:
    (found,) = path.rglob(pattern)
    return found


def everything(path: Path) -> list[Path]:
    return list(path.rglob("*"))


@contextmanager
def writer(kind: str, path: Path, start: int = 0) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WRITER, kind, str(path), str(start)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process
        finally:
            process.kill()


# -- one owner ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_second_slot_of_the_process_is_refused(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as first:
        await first.record_event(event(1))
        with pytest.raises(
            BackendUnavailable, match=rf"conditions\.{kind}\.path is open elsewhere in this process"
        ):
            async with opened(kind, tmp_path):
                pass
        await first.record_event(event(2))
    async with opened(kind, tmp_path) as later:
        assert [await known(later, number) for number in (1, 2, 3)] == [True, True, False]
    assert not [path for path in everything(tmp_path) if "lock" in path.name], "no lock is left behind"


@pytest.mark.parametrize("kind", KINDS)
async def test_another_process_is_refused_until_it_is_gone(kind: str, tmp_path: Path) -> None:
    with (
        writer(kind, tmp_path) as process,
        pytest.raises(BackendUnavailable, match=f"open elsewhere in process {process.pid}"),
    ):
        async with opened(kind, tmp_path):
            pass
    async with opened(kind, tmp_path) as slot:
        await slot.record_event(event(10**6))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_second_worker_is_refused_at_its_start(kind: str, tmp_path: Path) -> None:
    """Also one that serves many people and names no scope: not at its first request."""
    with writer(kind, tmp_path) as process, pytest.raises(BackendUnavailable, match=str(process.pid)):
        async with opened(kind, tmp_path, scope=None):
            pass
    async with opened(kind, tmp_path, scope=None) as slot:
        await slot.setup_scope(ALICE)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_directory_removed_and_made_anew_by_another_is_theirs(kind: str, tmp_path: Path) -> None:
    """Whose directory it was went on writing into it, and reset what the other one kept."""
    path, bob = tmp_path / "kept", MemoryScope(run_id="run", persona_id="bob")
    async with opened(kind, path) as first:
        shutil.rmtree(path)
        async with opened(kind, path, scope=bob) as second:
            kept = said(bob, "I prefer tea.", number=1, session_id="s")
            await second.record_event(kept)
            before = {file: file.read_bytes() for file in path.rglob("*.jsonl")}
            for call in (first.record_event(event(1)), first.setup_scope(bob), first.reset_scope(ALICE)):
                with pytest.raises(BackendUnavailable, match="is open elsewhere in this process"):
                    await call
            assert {file: file.read_bytes() for file in path.rglob("*.jsonl")} == before
        await first.record_event(event(1))
    async with opened(kind, path) as later:
        assert await known(later, 1)


async def test_what_is_pending_is_not_summarised_into_notes_of_another(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    async with opened("rolling_summary", path) as first:
        await first.record_event(event(1))
        shutil.rmtree(path)
        async with opened("rolling_summary", path) as second:
            await second.record_event(event(2))
            before = {file.name: file.read_bytes() for file in path.rglob("*.*")}
            await first.set_mode(AdapterMode(read_only=True))
            assert {file.name: file.read_bytes() for file in path.rglob("*.*")} == before
            assert (await first.health()).status == "degraded"


@pytest.mark.parametrize("kind", KINDS)
async def test_other_scopes_of_one_slot_share_the_directory(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as slot:
        for persona in ("bob", "carol"):
            await slot.setup_scope(MemoryScope(run_id="run", persona_id=persona))


# -- killed ---------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_acknowledged_survives_a_kill(kind: str, tmp_path: Path) -> None:
    """Killed at random, five times over one directory: every event whose receipt was seen is there."""
    chance = random.Random(3)
    acknowledged: list[int] = []
    for _ in range(5):
        # One after the last seen may have been written without its receipt having been seen.
        with writer(kind, tmp_path, acknowledged[-1] + 2 if acknowledged else 0) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 120)):
                acknowledged.append(int(process.stdout.readline()))
            os.kill(process.pid, signal.SIGKILL)
            acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
        async with opened(kind, tmp_path) as slot:
            assert [number for number in acknowledged if not await known(slot, number)] == []
            assert (await slot.health()).status == "ok"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_torn_last_line_is_dropped_and_told(kind: str, tmp_path: Path) -> None:
    await filled(kind, tmp_path, 2)
    async with opened(kind, tmp_path) as slot:
        await slot.record_event(event(7))
    log = log_of(tmp_path)
    whole = log.read_bytes()
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in {start + 1, start + 10, len(whole) - 1}:
        log.write_bytes(whole[:cut])
        async with opened(kind, tmp_path) as slot:
            health = await slot.health()
            assert "was not whole and was dropped" in str(health.warnings)
            assert [await known(slot, number) for number in (0, 1)] == [True, True]
        assert log.read_bytes() == whole[:start]


# -- damaged from outside -------------------------------------------------------------------------------

DAMAGE = {
    "emptied": lambda data: b"",
    "zeroed": lambda data: bytes(len(data)),
    "zeroed at the end": lambda data: data + bytes(500),
    "zeroed within": lambda data: data[:30] + bytes(30) + data[60:],
    "torn in the first line": lambda data: data[:40],
    "not text": lambda data: b"\xff\xfe" + data,
    "something else": lambda data: b"hello\n" + data,
    "something else at the end": lambda data: data + b"hello",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_log_is_an_error_until_it_is_reset(kind: str, damage: str, tmp_path: Path) -> None:
    await filled(kind, tmp_path)
    log = log_of(tmp_path)
    log.write_bytes(DAMAGE[damage](log.read_bytes()))
    left = log.read_bytes()
    slot = opened(kind, tmp_path)
    with pytest.raises(BackendProtocolError, match=r"restore .* or reset the scope"):
        async with slot:
            pass
    assert log.read_bytes() == left, "what is there is left for whoever restores it"
    adapter: MemoryAdapter = opened(kind, tmp_path, scope=None)._adapter
    receipt = await adapter.reset_scope(ALICE)
    assert (receipt.verified, receipt.removed) == (True, None)
    await adapter.aclose()
    assert everything(tmp_path) == []
    await filled(kind, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ["emptied", "removed", "zeroed", "appended", "replaced"])
async def test_a_log_changed_while_it_is_open_takes_no_more(kind: str, change: str, tmp_path: Path) -> None:
    await filled(kind, tmp_path)
    async with opened(kind, tmp_path) as slot:
        log = log_of(tmp_path)
        data = log.read_bytes()
        if change == "removed":
            log.unlink()
        elif change == "replaced":
            log.with_name("x").write_bytes(data)
            log.with_name("x").replace(log)
        else:
            log.write_bytes({"emptied": b"", "zeroed": bytes(len(data)), "appended": data + data}[change])
        health = await slot.health()
        assert health.status == "degraded"
        assert "was changed or removed by someone else" in str(health.warnings)
        with pytest.raises(BackendProtocolError, match="was changed or removed by someone else"):
            await slot.record_event(event(9))
        found = await slot.retrieve(RetrieveRequest(query="?", scope=ALICE, session_id="t"))
        assert "was changed or removed by someone else" in str(found.trace.warnings)
        assert (await slot.reset_scope(ALICE)).verified
        assert (await slot.health()).status == "ok"
        await slot.record_event(event(9))
    async with opened(kind, tmp_path) as slot:
        assert await known(slot, 9)


NOTES = ("MEMORY.md", "HISTORY.md", "state.json")


@pytest.mark.parametrize("name", NOTES)
@pytest.mark.parametrize("damage", ["emptied", "zeroed", "zeroed at the end", "removed"])
async def test_damaged_notes_are_an_error(name: str, damage: str, tmp_path: Path) -> None:
    await filled("rolling_summary", tmp_path)
    file = only(tmp_path, name)
    if damage == "removed":
        file.unlink()
    else:
        file.write_bytes(DAMAGE[damage](file.read_bytes()))
    if (name, damage) == ("state.json", "removed"):  # as after a crash before it was first written
        async with opened("rolling_summary", tmp_path) as slot:
            assert "word0" in await recalled(slot)
        return
    with pytest.raises(BackendProtocolError, match=name):
        async with opened("rolling_summary", tmp_path):
            pass


@pytest.mark.parametrize(
    "state",
    ["[]", "5", "{}", '"x"', "null", "[" * 5000],
)
async def test_a_state_of_another_shape_is_an_error(state: str, tmp_path: Path) -> None:
    await filled("rolling_summary", tmp_path)
    file = only(tmp_path, "state.json")
    file.write_text(state)
    with pytest.raises(BackendProtocolError, match=r"state\.json is damaged"):
        async with opened("rolling_summary", tmp_path):
            pass


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ('"consolidated": 3', '"consolidated": -3'),
        ('"consolidated": 3', '"consolidated": "many"'),
        ('"consolidated": 3', '"consolidated": 3, "more": 1'),
        ('"sources": {', '"sources": {"x": [{"event_id": 5}], '),
        ('"retry_after_s": 0.0', '"retry_after_s": NaN'),
    ],
)
async def test_a_state_of_wrong_values_is_an_error(was: str, becomes: str, tmp_path: Path) -> None:
    await filled("rolling_summary", tmp_path)
    file = only(tmp_path, "state.json")
    text = file.read_text(encoding="utf-8")
    assert was in text
    file.write_text(text.replace(was, becomes), encoding="utf-8")
    with pytest.raises(BackendProtocolError, match=r"state\.json is damaged"):
        async with opened("rolling_summary", tmp_path):
            pass


async def test_notes_removed_while_open_are_told(tmp_path: Path) -> None:
    await filled("rolling_summary", tmp_path)
    async with opened("rolling_summary", tmp_path) as slot:
        for name in NOTES:
            file = only(tmp_path, name)
            text = file.read_bytes()
            file.unlink()
            health = await slot.health()
            assert health.status == "degraded"
            assert f"{name} was removed" in str(health.warnings)
            file.write_bytes(text)
            assert (await slot.health()).status == "ok"


async def test_what_a_crash_left_unfinished_goes_with_a_reset(tmp_path: Path) -> None:
    for kind in KINDS:
        async with opened(kind, tmp_path / kind) as slot:
            await slot.record_event(event(1))
            log = log_of(tmp_path / kind)
            log.with_name(log.name + ".new").write_text("I prefer secrets")
            assert (await slot.reset_scope(ALICE)).verified
        assert not [path for path in everything(tmp_path / kind) if path.suffix != ".lock"]
