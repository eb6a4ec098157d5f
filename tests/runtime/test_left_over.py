"""What one process could not send is sent once, however many begin after it at once; by real processes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from memory import MemoryEvent, MemoryScope, MemorySlot, Message, WriteReceipt
from memory.runtime import TurnMemory, TurnPolicy
from memory.testing import FakeBackend

SCOPE = MemoryScope(run_id="run", persona_id="ada")
EVENTS = 12


class Slow(FakeBackend):
    """Writes ids to a file that every process has, slowly; nobody can ask it what it has."""

    def __init__(self, file: Path, pause_s: float) -> None:
        super().__init__()
        self._log = file
        self._pause_s = pause_s

    find_event = None  # type: ignore[assignment]

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        await anyio.sleep(self._pause_s)
        with self._log.open("a", encoding="utf-8") as file:
            file.write(f"{event.event_id}\n")
        return WriteReceipt(event_id=event.event_id, status="committed")


def event(name: str) -> MemoryEvent:
    return MemoryEvent(
        event_id=name,
        scope=SCOPE,
        session_id="s",
        turn_id=name,
        timestamp="2026-01-01T00:00:00Z",
        messages=[Message(role="user", content=f"tea {name}")],
    )


def memory(directory: Path, pause_s: float, drain_s: float) -> TurnMemory:
    slot = MemorySlot(Slow(directory / "stored", pause_s), scope=SCOPE, store=directory)
    return TurnMemory(slot, TurnPolicy(drain_s=drain_s))


async def leave(directory: Path) -> None:
    async with memory(directory, 60.0, 0.01) as turns:
        for number in range(EVENTS):
            await turns.record(event(f"e{number}"))


def begin(directory: str, name: str, pause_s: str) -> None:
    """A process that begins: it says one thing of its own, and sends what is there."""

    async def run() -> None:
        async with memory(Path(directory), float(pause_s), 60.0) as turns:
            await anyio.to_thread.run_sync(sys.stdin.readline)
            await turns.record(event(name))
            sys.stdout.write("begun\n")
            sys.stdout.flush()
            await anyio.to_thread.run_sync(sys.stdin.readline)
            await turns.record(event(f"{name} again"))
            assert await turns.drain(60.0)

    anyio.run(run)


BEGIN = (
    "import sys; sys.path.insert(0, sys.argv[1]); import test_left_over; test_left_over.begin(*sys.argv[2:])"
)


def begun(directory: Path, name: str, pause_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BEGIN, str(Path(__file__).parent), str(directory), name, str(pause_s)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def proceed(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.thorough
async def test_two_that_begin_at_once_deliver_what_was_left_once(tmp_path: Path) -> None:
    await leave(tmp_path)
    with begun(tmp_path, "first", 0.05) as first, begun(tmp_path, "second", 0.05) as second:
        proceed(first, second)
        assert [said(first), said(second)] == ["begun", "begun"]
        proceed(first, second)
        assert [first.wait(60), second.wait(60)] == [0, 0]
    stored = Counter((tmp_path / "stored").read_text(encoding="utf-8").split("\n")[:-1])
    assert {name: count for name, count in stored.items() if count > 1} == {}
    assert {f"e{number}" for number in range(EVENTS)} <= stored.keys()


@pytest.mark.thorough
async def test_one_that_dies_over_it_leaves_it_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock is lost with it. What it had sent a moment before may go out a second time."""
    await leave(tmp_path)
    with begun(tmp_path, "first", 0.05) as first, begun(tmp_path, "second", 0.05) as second:
        proceed(first)
        assert said(first) == "begun"
        proceed(second)
        assert said(second) == "begun"
        with anyio.fail_after(30):
            while not (tmp_path / "stored").exists():  # noqa: ASYNC110
                await anyio.sleep(0.01)
        first.kill()
        first.wait()
        await anyio.sleep(5.1)  # until it looks again
        proceed(second)
        assert second.wait(60) == 0
    stored = Counter((tmp_path / "stored").read_text(encoding="utf-8").split("\n")[:-1])
    assert {f"e{number}" for number in range(EVENTS)} <= stored.keys()
    assert sum(count > 1 for count in stored.values()) <= 1
