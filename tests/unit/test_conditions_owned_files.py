"""Conditions that keep files: one owner at a time, nothing acknowledged is lost, damage never looks like empty."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from said import said

from conditions._notebook import _digest
from memory import (
    AdapterMode,
    BackendUnavailable,
    MemoryAdapter,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    RetrieveRequest,
    SupportsReadiness,
)
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
    """Whether the event is stored: then the slot or the condition says so when it is recorded again."""
    return "recorded before" in str((await slot.record_event(event(number))).warnings)


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


def file_of(path: Path) -> Path:
    """The scope's own file, of either kind."""
    return only(path, "run*.jsonl") if any(path.rglob("*.jsonl")) else only(path, "run*.sqlite")


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
            before = {file: file.read_bytes() for file in path.rglob("run*")}
            for call in (first.record_event(event(1)), first.setup_scope(bob), first.reset_scope(ALICE)):
                with pytest.raises(BackendUnavailable, match="is open elsewhere in this process"):
                    await call
            assert {file: file.read_bytes() for file in path.rglob("run*")} == before
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
            before = {file.name: file.read_bytes() for file in path.rglob("run*")}
            await first.set_mode(AdapterMode(read_only=True))
            assert {file.name: file.read_bytes() for file in path.rglob("run*")} == before
            assert (await first.health()).status == "unavailable"


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


async def test_acknowledged_events_that_are_torn_off_are_counted_until_that_is_acknowledged(
    tmp_path: Path,
) -> None:
    """What a power cut leaves of a file that was not flushed: events are missing, and half of one is there."""
    await filled("full_history", tmp_path, 10)
    log = file_of(tmp_path)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:7]) + lines[7][:20])
    for _ in range(2):
        async with opened("full_history", tmp_path) as slot:
            health = await slot.health()
            assert health.status == "degraded"
            assert "3 acknowledged records are gone" in str(health.warnings)
            assert [await known(slot, number) for number in (6,)] == [True]
    only(tmp_path, "*.lost").unlink()
    async with opened("full_history", tmp_path) as slot:
        assert (await slot.health()).status == "ok"
        assert not await known(slot, 9)
    async with opened("full_history", tmp_path) as slot:
        assert [await known(slot, number) for number in (0, 6, 9, 8)] == [True, True, True, False]


# -- damaged from outside -------------------------------------------------------------------------------


def flipped(data: bytes) -> bytes:
    """One bit of a word that somebody said is another one."""
    at = data.index(b"word0") + 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGE = {
    "emptied": lambda data: b"",
    "zeroed": lambda data: bytes(len(data)),
    "zeroed at the end": lambda data: data[:-500] + bytes(500),
    "zeroed within": lambda data: data[:30] + bytes(30) + data[60:],
    "not text": lambda data: b"\xff\xfe" + data,
    "something else": lambda data: b"hello\n" + data,
    "flipped": flipped,
    "cut at the end of a line": lambda data: b"".join(data.splitlines(keepends=True)[:1]),
    "a line less within": lambda data: b"".join(data.splitlines(keepends=True)[::2]),
    "a page zeroed": lambda data: data[:4096] + bytes(4096) + data[8192:],
    "ending in zeros": lambda data: data + bytes(500),
}
OF_DATABASES = ("emptied", "zeroed", "a page zeroed", "not text", "something else", "flipped")


@pytest.mark.parametrize(
    ("kind", "damage"),
    [("full_history", damage) for damage in DAMAGE if damage != "a page zeroed"]
    + [("rolling_summary", damage) for damage in OF_DATABASES],
)
async def test_a_damaged_file_is_an_error_until_it_is_reset(kind: str, damage: str, tmp_path: Path) -> None:
    await filled(kind, tmp_path)
    file = file_of(tmp_path)
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    left = file.read_bytes()
    slot = opened(kind, tmp_path)
    with pytest.raises(
        BackendUnavailable, match=r"restore it|give another path|remove it|no rolling summary|is damaged"
    ):
        async with slot:
            pass
    assert file.read_bytes() == left, "what is there is left for whoever restores it"
    adapter: MemoryAdapter = opened(kind, tmp_path, scope=None)._adapter
    receipt = await adapter.reset_scope(ALICE)
    assert (receipt.verified, receipt.removed) == (True, None)
    await adapter.aclose()
    assert everything(tmp_path) == []
    await filled(kind, tmp_path)


@pytest.mark.parametrize("name", ["log", "count"])
async def test_a_log_without_its_count_and_a_count_without_its_log_are_errors(
    name: str, tmp_path: Path
) -> None:
    await filled("full_history", tmp_path)
    only(tmp_path, "*.jsonl" if name == "log" else "*.count").unlink()
    with pytest.raises(BackendUnavailable, match="is missing"):
        async with opened("full_history", tmp_path):
            pass


CHANGES = [
    *(("full_history", change) for change in ("emptied", "removed", "zeroed", "appended", "replaced")),
    *(("rolling_summary", change) for change in ("emptied", "removed", "replaced")),
]


@pytest.mark.parametrize(("kind", "change"), CHANGES)
async def test_a_file_changed_while_it_is_open_takes_no_more(kind: str, change: str, tmp_path: Path) -> None:
    complaint = "changed or removed by someone else|removed, replaced or emptied"
    await filled(kind, tmp_path)
    async with opened(kind, tmp_path) as slot:
        file = file_of(tmp_path)
        data = file.read_bytes()
        if change == "removed":
            file.unlink()
        elif change == "replaced":
            file.with_name("x").write_bytes(data)
            file.with_name("x").replace(file)
        else:
            file.write_bytes({"emptied": b"", "zeroed": bytes(len(data)), "appended": data + data}[change])
        health = await slot.health()
        assert health.status == "degraded"
        assert re.search(complaint, str(health.warnings))
        with pytest.raises(BackendUnavailable, match=complaint):
            await slot.record_event(event(9))
        found = await slot.retrieve(RetrieveRequest(query="?", scope=ALICE, session_id="t"))
        assert re.search(complaint, str(found.trace.warnings))
        assert (await slot.reset_scope(ALICE)).verified
        await slot.record_event(event(9))
        assert (await slot.health()).status == "ok"
    async with opened(kind, tmp_path) as slot:
        assert await known(slot, 9)


@pytest.mark.parametrize(
    "progress", ["[]", "{}x", '{"consolidated": -3}', '{"more": 1}', '{"retry_after_s": NaN}']
)
async def test_a_state_of_wrong_values_is_an_error(progress: str, tmp_path: Path) -> None:
    await filled("rolling_summary", tmp_path)
    with closing(sqlite3.connect(file_of(tmp_path))) as file, file:
        sealed = progress, _digest(progress)
        file.execute("UPDATE summary SET content = ?, digest = ? WHERE seq = 0", sealed)
    with pytest.raises(BackendUnavailable, match="is not as it was written"):
        async with opened("rolling_summary", tmp_path):
            pass


@pytest.mark.parametrize("left", ["-wal", "-count"])
async def test_a_database_that_is_missing_beside_its_log_or_count_is_an_error(
    left: str, tmp_path: Path
) -> None:
    await filled("rolling_summary", tmp_path)
    file = file_of(tmp_path)
    count = only(tmp_path, "*-count")
    if left == "-wal":
        count.unlink()
        file.rename(f"{file}-wal")
    else:
        file.unlink()
    for _ in range(2):
        with pytest.raises(BackendUnavailable, match="is missing beside"):
            async with opened("rolling_summary", tmp_path):
                pass
    adapter: MemoryAdapter = opened("rolling_summary", tmp_path, scope=None)._adapter
    assert (await adapter.reset_scope(ALICE)).verified
    await adapter.aclose()
    assert everything(tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_crash_left_unfinished_goes_with_a_reset(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    async with opened(kind, path) as slot:
        await slot.record_event(event(1))
        file = file_of(path)
        file.with_name(file.name + ".new").write_text("I prefer secrets")
        assert (await slot.reset_scope(ALICE)).verified
        assert not [left for left in everything(path) if left.suffix != ".lock"]


# -- killed in the middle of a reset ----------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reset_that_is_killed_at_any_step_leaves_all_or_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first step everything is there; after it nothing ever comes back, and the scope can be used."""
    for step in range(20):
        path = tmp_path / str(step)
        await filled(kind, path)
        adapter: MemoryAdapter = opened(kind, path, scope=None)._adapter
        await adapter.setup_scope(ALICE)
        carried_out = 0

        def kill(native: Any, at: int = step) -> Any:
            def call(*given: Any, **named: Any) -> Any:
                nonlocal carried_out
                if carried_out == at:
                    raise Killed
                carried_out += 1
                return native(*given, **named)

            return call

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", kill(os.replace))
            patch.setattr(Path, "unlink", kill(Path.unlink))
            try:
                await adapter.reset_scope(ALICE)
            except Killed:
                ended = False
            else:
                ended = True
        await adapter.aclose()
        async with opened(kind, path) as slot:
            assert (await slot.health()).status == "ok"
            shown = await recalled(slot)
            if carried_out == 0 and not ended:
                assert "word0" in shown
            else:
                assert "word" not in shown
                assert not [
                    file for file in path.rglob("*") if file.is_file() and b"word0" in file.read_bytes()
                ]
            await slot.record_event(event(8))
            assert await known(slot, 8)
        if ended:
            return
    raise AssertionError("a reset has more steps than were tried")
