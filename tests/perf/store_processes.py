"""The processes of store_campaign.py. They speak, report and deliver until they are killed, and write it down."""

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
from figures import SCOPE

from memory import (
    BackendHealth,
    MemoryEvent,
    MemorySlot,
    MemslotError,
    Message,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import BaseAdapter
from memory.hosts import hooks
from memory.plugins.opening import build_slot
from memory.runtime import TurnMemory, TurnPolicy
from memory.storage import leases
from memory.storage.insert import FILE_NAME, insert
from memory.storage.journal import Journal
from memory.storage.store import SqliteStore, Store

LEASE_S = 0.4


@dataclass(frozen=True)
class Place:
    """Where the entries of a kind lie, and where they go.

    Attributes:
        kind: a name from the campaign's ``KINDS``.
        directory: of this kind alone.
        state: URL of the PostgreSQL, or an empty string.
        url: of the model server that is the destination, or an empty string.
    """

    kind: str
    directory: str
    state: str = ""
    url: str = ""

    @property
    def arrived(self) -> Path:
        """The file of lines that events arrive at."""
        return Path(self.directory, "arrived")

    @property
    def said(self) -> Path:
        """The file in which processes say what they do."""
        return Path(self.directory, "said")

    def store(self) -> Store:
        """A handle on the store of the memory."""
        if self.state:
            from memory.storage.postgres import PostgresStore

            return PostgresStore(self.state)
        return SqliteStore(Path(self.directory, FILE_NAME))

    def settings(self) -> dict[str, Any]:
        """The configuration of a memory that a backend opens itself."""
        block: dict[str, Any] = {
            "backend": self.kind,
            "data_dir": self.directory,
            "scope": SCOPE.model_dump(),
        }
        if self.state:
            block["state"] = self.state
        if self.kind == "mirror":
            block["backends"] = {"mirror": {"primary": "full_history", "shadows": ["full_history"]}}
            block["journal"] = False
        else:
            block["backends"] = {"memos": {"url": self.url, "graph_db": "postgres", "idle_timeout_s": 20}}
        return {"memory": block}


class Lines(BaseAdapter):
    """A memory that is a file of lines: the id of each event that arrived, with a pause before and after it."""

    backend_name = "lines"

    def __init__(self, file: Path) -> None:
        self._file = file
        self._chance = random.Random(os.getpid())

    def native_scope(self, scope: Any) -> dict[str, str]:
        return {"id": scope.label}

    async def setup_scope(self, scope: Any) -> None:
        await anyio.lowlevel.checkpoint()

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        await anyio.sleep(self._chance.random() * 0.002)
        append(self._file, event.event_id)
        await anyio.sleep(self._chance.random() * 0.002)
        return WriteReceipt(event_id=event.event_id, status="committed", native_ids=(event.event_id,))

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        await anyio.lowlevel.checkpoint()
        return (event.event_id,) if event.event_id in lines(self._file) else None

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        trace = self.trace(request.scope, "lines")
        return RetrieveResult(request=request, raw={}, entries=(), trace=trace)

    async def reset_scope(self, scope: Any) -> ResetReceipt:
        return ResetReceipt(scope=scope, verified=True)

    async def health(self) -> BackendHealth:
        return BackendHealth(status="ok", backend_name="lines", consistency_model="immediate")


def append(file: Path, line: str) -> None:
    """Add a line at once, so that a kill leaves it whole or not there."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def lines(file: Path) -> list[str]:
    """The lines of a file, none where there is no file."""
    return file.read_text().split("\n")[:-1] if file.exists() else []


def event(name: str) -> MemoryEvent:
    """The event of a name; its words hold the name, and no other event's do."""
    said = Message(role="user", content=f"I prefer word-{name}-tea over milk.")
    return MemoryEvent(
        event_id=name,
        scope=SCOPE,
        session_id=name.partition("-")[0],
        turn_id=name,
        timestamp="2026-01-02T03:04:05Z",
        messages=(said,),
    )


@dataclass
class Speaker:
    """Names the events of one process, says what became of each, and moves its own clock where it is told to."""

    place: Place
    name: str
    count: int
    clocks: bool
    again: list[str]
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.name)

    def names(self) -> Iterator[str]:
        """The event that an earlier process was not answered for, then ``count`` new ones."""
        real = time.time
        for name in [*self.again, *(f"{self.name}-{number:04}" for number in range(self.count))]:
            if self.clocks and self.chance.random() < 0.5:
                shift = self.chance.choice([-86400.0, -3600.0, 0.0, 3600.0, 86400.0])
                time.time = lambda shift=shift: real() + shift
                append(self.place.said, f"clock {self.name}")
            append(self.place.said, f"writing {name}")
            yield name

    def written(self, name: str) -> None:
        append(self.place.said, f"written {name}")


async def speak(place: Place, speaker: Speaker) -> None:
    """Write until the end, or until killed."""
    if place.kind == "hooks":
        report(place, speaker)
        return
    async with opened(place) as slot:
        if place.kind == "write-behind":
            async with TurnMemory(slot, TurnPolicy(drain_s=20.0)) as turns:
                for name in speaker.names():
                    if await turns.record(event(name)) or name in speaker.again:
                        speaker.written(name)
                    await anyio.sleep(speaker.chance.random() * 0.003)
            return
        for name in speaker.names():
            with suppress(MemslotError):  # not acknowledged
                status = (await slot.record_event(event(name))).status
                if status in ("committed", "queued", "pending"):
                    speaker.written(name)
                elif status == "unknown":
                    append(place.said, f"unknown {name}")


def report(place: Place, speaker: Speaker) -> None:
    """Insert what hooks report, as they do: with the standard library alone."""
    file = Path(place.directory, FILE_NAME)
    for name in speaker.names():
        for did in ("prompt", "stop", "end"):
            row = {"host": "h", "session_id": speaker.name, "did": did, "at": time.time()}
            row["turn"] = name if did == "prompt" else f"{name}-{did}"  # each hook names its own report
            text = {"prompt": f"I prefer word-{name}-tea.", "stop": "Fine."}.get(did, "")
            insert(file, "hook", f"{name}-{did}", json.dumps({**row, "text": text}), scope=speaker.name)
        speaker.written(name)
        time.sleep(speaker.chance.random() * 0.005)


async def deliver(place: Place) -> None:
    """Deliver what hooks reported, until killed."""
    hooks._AGAIN_S = 0.01
    async with opened(place) as slot:
        await hooks.answer_hooks(slot, Path(place.directory))


@contextmanager
def handles(place: Place) -> Iterator[Store]:
    store = place.store()
    try:
        yield store
    finally:
        store.close()


def opened(place: Place, **options: Any) -> MemorySlot:
    """The memory of a kind."""
    if place.kind in ("mirror", "memos"):
        return build_slot(place.settings())
    with handles(place) as store:
        within_s = options.pop("within_s", 5.0)
        journal = Journal(store, within_s=within_s) if place.kind in ("journal", "forks") else None
        return MemorySlot(Lines(place.arrived), scope=SCOPE, store=store, journal=journal, **options)


class Forker:
    """Forks processes from one that has imported everything and has one thread. It reads its work from a pipe."""

    def __init__(self) -> None:
        asked, self._ask = os.pipe()
        self._answer, answers = os.pipe()
        if not os.fork():
            os.close(self._ask)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            with os.fdopen(asked) as work:
                for line in work:
                    role, place, *more = json.loads(line)
                    if not (pid := os.fork()):
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        carry_out(role, Place(**place), *more)
                    os.write(answers, f"{pid}\n".encode())
            os._exit(0)
        os.close(asked)
        self._pids = os.fdopen(self._answer)

    def start(self, role: str, place: Place, *more: Any) -> int:
        """A process that speaks or delivers; its id."""
        os.write(self._ask, f"{json.dumps([role, vars(place), *more])}\n".encode())
        return int(self._pids.readline())


def carry_out(role: str, place: Place, *more: Any) -> None:
    """The life of a forked process."""
    leases.LEASE_S = LEASE_S
    try:
        if role == "speak":
            anyio.run(speak, place, Speaker(place, *more))
        else:
            anyio.run(deliver, place)
    except BaseException as error:
        append(Path(place.directory, "errors"), f"{role}: {error!r}")
        os._exit(1)
    os._exit(0)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(pids: list[int], within_s: float = 120.0) -> None:
    ends = time.monotonic() + within_s
    while any(map(lives, pids)):
        if time.monotonic() > ends:
            raise TimeoutError(f"processes still run: {[pid for pid in pids if lives(pid)]}")
        time.sleep(0.005)
