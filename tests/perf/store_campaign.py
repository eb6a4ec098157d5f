"""Kills, clocks, hangs and forks over the outbox: nothing is lost, repeated or out of order, and no call is late.

python tests/perf/store_campaign.py                              a few of each
python tests/perf/store_campaign.py kills=1000 clocks=200 hangs=50 forks=40 rounds=40 seed=7
python tests/perf/store_campaign.py kills=200 kinds=hooks,mirror stores=file

Every kind of entry runs on a SQLite file and, where PyPI's ``pgserver`` is installed, on a real PostgreSQL. Reports
of hooks and Stigmem's hand-overs always lie in a file; their memory is on the server then. The destination of an
event is a file of lines, a model node of Stigmem, a model server of MemOS, or a pair of real memories.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "backends" / "memos"))
sys.path.insert(0, str(Path(__file__).parents[1] / "backends" / "stigmem"))
sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

import anyio
import anyio.lowlevel
from anyio.from_thread import start_blocking_portal
from figures import SCOPE, finish, show

from memory import (
    BackendHealth,
    Deadlines,
    MemoryEvent,
    MemorySlot,
    MemslotError,
    Message,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    SupportsReadiness,
    WriteReceipt,
)
from memory.adapter import BaseAdapter
from memory.hosts import hooks
from memory.plugins.opening import build_slot
from memory.runtime import TurnMemory, TurnPolicy
from memory.stigmem.commands._sender import Sender
from memory.storage import leases
from memory.storage.insert import FILE_NAME, insert
from memory.storage.journal import Journal
from memory.storage.store import SqliteStore, Store

KINDS = ("journal", "write-behind", "hooks", "stigmem", "mirror", "memos")
LEASE_S = 0.4
LATE_S = 0.5
_ON_THE_WAY_S = 0.2  # a request of a killed process reaches its server; no look-up finds what is on the way
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")


@dataclass(frozen=True)
class Place:
    """Where the entries of a kind lie, and where they go.

    Attributes:
        kind: of :data:`KINDS`.
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


# -- processes ----------------------------------------------------------------------------------------------


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
    if place.kind in ("hooks", "stigmem"):
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
        if place.kind == "stigmem":
            insert(file, "stigmem", name, json.dumps({"arguments": ["done", name]}))
        else:
            for did in ("prompt", "stop", "end"):
                row = {"host": "h", "session_id": speaker.name, "did": did, "at": time.time()}
                row["turn"] = name if did == "prompt" else f"{name}-{did}"  # each hook names its own report
                text = {"prompt": f"I prefer word-{name}-tea.", "stop": "Fine."}.get(did, "")
                insert(file, "hook", f"{name}-{did}", json.dumps({**row, "text": text}), scope=speaker.name)
        speaker.written(name)
        time.sleep(speaker.chance.random() * 0.005)


async def deliver(place: Place) -> None:
    """Deliver what hooks reported, until killed."""
    if place.kind == "stigmem":
        os.environ.update(STIGMEM_URL=place.url, STIGMEM_SOURCE_ENTITY="agent:campaign")
        await Sender(Path(place.directory)).run()
        return
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


# -- kills, clocks and rounds -------------------------------------------------------------------------------


@dataclass
class Seen:
    """Figures of one kind on one store."""

    kills: int = 0
    clocks: int = 0
    acknowledged: int = 0
    lost: int = 0
    repeated: int = 0
    out_of_order: int = 0
    reported: int = 0
    errors: int = 0

    @property
    def clean(self) -> bool:
        return (self.lost, self.repeated, self.out_of_order, self.errors) == (0, 0, 0, 0)


def unanswered(place: Place) -> list[str]:
    """The last events whose writers were killed before they had an answer: their hosts send them again.

    No agent runs a hook again, and without a journal only the process that sent an event knows that it did.
    """
    if place.kind in ("hooks", "write-behind"):
        return []
    begun: dict[str, str] = {}
    for line in lines(place.said):
        word, name = line.split(" ")
        if word == "writing":
            begun[name.partition("-")[0]] = name
        elif word == "written":
            begun.pop(name.partition("-")[0], None)
    return list(begun.values())


def play(forker: Forker, place: Place, chance: random.Random, kills: int, clocks: bool) -> Seen:
    """Processes that write and are killed at random, or end by themselves where ``kills`` is 0."""
    seen, round_ = Seen(), 0
    while True:
        alone = place.kind == "mirror"
        count = 1 if alone else chance.randrange(2, 6) if not kills else 2
        again = unanswered(place)
        pids = []
        for number in range(count):
            length = 1000 if kills else 15
            given = (f"r{round_}x{number}", length, clocks, again if not number else [])
            pids.append(forker.start("speak", place, *given))
        senders = [forker.start("deliver", place)] if place.kind in ("hooks", "stigmem") else []
        if not kills:
            wait_for(pids)
            for sender in senders:
                with suppress(ProcessLookupError):
                    os.kill(sender, signal.SIGKILL)
            wait_for(senders)
            break
        before, ends = len(lines(place.said)), time.monotonic() + 10
        for pid in [*pids, *senders]:
            steps = chance.randrange(1, 40)
            while pid in pids and len(lines(place.said)) < before + steps and time.monotonic() < ends:
                time.sleep(0.001)
            time.sleep(chance.random() * 0.01)
            before = len(lines(place.said))
            seen.kills += lives(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for([*pids, *senders])
        if place.url:
            time.sleep(_ON_THE_WAY_S)
        round_ += 1
        if seen.kills >= kills:
            break
    finish_all(forker, place)
    judge(place, seen)
    return seen


def finish_all(forker: Forker, place: Place) -> None:
    """Send again what was not answered, and deliver the rest."""
    again = unanswered(place)
    wait_for([forker.start("speak", place, "last", 1, False, again)])
    if place.kind in ("hooks", "stigmem"):
        sender = forker.start("deliver", place)
        ends = time.monotonic() + 60
        while time.monotonic() < ends and left(place):
            time.sleep(0.02)
        if place.kind == "hooks":
            with suppress(ProcessLookupError):
                os.kill(sender, signal.SIGKILL)
        wait_for([sender])
    else:
        anyio.run(deliver_rest, place)


def left(place: Place) -> int:
    """Reports that wait in the file of the hooks."""
    with closing_store(Path(place.directory, FILE_NAME)) as store:
        waits = "SELECT count(*) FROM outbox WHERE kind IN ('hook', 'stigmem') AND state = 'waiting'"
        return int(store.call(lambda db: db.execute(waits).fetchone()[0], writes=False))


@contextmanager
def closing_store(path: Path) -> Iterator[SqliteStore]:
    from memory.storage.entries import OUTBOX

    store = SqliteStore(path, [OUTBOX])
    try:
        yield store
    finally:
        store.close()


async def deliver_rest(place: Place) -> None:
    leases.LEASE_S = LEASE_S
    ends, waits = time.monotonic() + 60, True
    async with opened(place) as slot:
        adapter: Any = slot._adapter
        while (
            waits and time.monotonic() < ends
        ):  # a killed process may hold the lane for the length of a lease
            if place.kind == "mirror":
                waits = not await adapter.shadows[0].drained(60.0)
            else:
                await slot.delivery.deliver(SCOPE)
                waits = bool(slot.delivery.waiting())
            await anyio.sleep(0.02)
        if (readiness := slot.capability(SupportsReadiness)) is not None:
            state = (await readiness.wait_until_ready(SCOPE, 60)).state
            append(place.said, f"{state} readiness")


def found(place: Place) -> list[list[str]]:
    """Events that arrived, in order, for each memory that they went to."""
    if place.kind == "stigmem":
        return [[fact["entity"].removeprefix("issue:") for fact in MODELS[place.url].node.facts]]
    if place.kind == "memos":
        text = [row.memory for row in MODELS[place.url].model.rows]
        # Readiness writes rows of its own, by which it sees that the server is done.
        return [[named(memory) for memory in text if "word-" in memory]]
    if place.kind == "mirror":
        return anyio.run(of_mirror, place)
    arrived = [line.removeprefix("h:") for line in lines(place.arrived)]
    # A window that opens between a prompt and its answer records the two as turns of their own.
    return [[name for name in arrived if not name.endswith(("-stop", "-end"))]]


def named(text: str) -> str:
    return text.partition("word-")[2].partition("-tea")[0]


async def of_mirror(place: Place) -> list[list[str]]:
    async with opened(place) as slot:
        adapter: Any = slot._adapter
        append(place.said, f"{(await slot.health()).status} health")
        memories = [adapter._primary, adapter.shadows[0].adapter]
        request = RetrieveRequest(query="?", scope=SCOPE, session_id="t", exclude_session=False)
        answers = [await memory.retrieve(request) for memory in memories]
    return [[named(entry.text) for entry in answer.entries] for answer in answers]


MODELS: dict[str, Any] = {}
"""Model servers, by URL."""


def judge(place: Place, seen: Seen) -> None:
    said = [line.split(" ") for line in lines(place.said)]
    acknowledged = [name for word, name in said if word == "written"]
    seen.acknowledged = len(set(acknowledged))
    seen.clocks = sum(word == "clock" for word, _ in said)
    seen.reported = sum(word in ("unknown", "degraded") for word, _ in said)
    seen.errors = len(lines(Path(place.directory, "errors")))
    arrivals = found(place)
    for arrived in arrivals:
        seen.lost += len(set(acknowledged) - set(arrived))
        unanswered_for = {name for word, name in said if word == "unknown"}
        seen.repeated += sum(
            times > 1 and name not in unanswered_for for name, times in Counter(arrived).items()
        )
        if place.kind != "stigmem":  # a sender sends eight at a time
            numbers: dict[str, list[str]] = {}
            for name in dict.fromkeys(arrived):
                numbers.setdefault(name.partition("-")[0], []).append(name)
            seen.out_of_order += sum(names != sorted(names) for names in numbers.values())
    if len(arrivals) == 2 and seen.reported:
        seen.lost = len(set(acknowledged) - set(arrivals[0]))  # the shadow's difference was reported


# -- hangs --------------------------------------------------------------------------------------------------


@contextmanager
def silent_proxy(state: str) -> Iterator[tuple[str, Callable[[bool], None]]]:
    """A proxy of a PostgreSQL on a Unix socket; yields its URL, and a call by which it falls silent."""
    from urllib.parse import parse_qs, urlsplit

    target = str(Path(parse_qs(urlsplit(state).query)["host"][0], ".s.PGSQL.5432"))
    listener = socket.create_server(("127.0.0.1", 0))
    talks = threading.Event()
    talks.set()

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                talks.wait()
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(target)
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    url = f"postgresql://postgres@127.0.0.1:{listener.getsockname()[1]}/postgres"
    try:
        yield url, lambda silent: talks.clear() if silent else talks.set()
    finally:
        talks.set()
        listener.close()


async def hang(place: Place, state: str, times: int, chance: random.Random) -> tuple[float, int, Seen]:
    """A database that stands still in the middle of calls: the longest overrun in seconds, calls, figures."""
    from test_state_server import suspended

    longest, calls = 0.0, 0
    acknowledged: list[str] = []
    names: list[str] = []
    deadline_s = 1.0
    for number in range(times):
        with ExitStack() as stack:
            if number % 2:
                url, silence = stack.enter_context(silent_proxy(state))
                stop, go_on = (
                    (lambda silence=silence: silence(True)),
                    (lambda silence=silence: silence(False)),
                )
            else:
                url = state
                stop, go_on = stack.enter_context(suspended(state))
            here = Place("journal", place.directory, url)
            deadlines = Deadlines(write_s=deadline_s)
            async with opened(here, within_s=deadline_s, deadlines=deadlines) as slot:
                for step in range(4):
                    name = f"h-{number:03}{step}"
                    names.append(name)
                    if step == 1:
                        threading.Timer(chance.random() * 0.01, stop).start()
                    if step == 3:
                        go_on()
                    began = time.monotonic()
                    with suppress(MemslotError):
                        receipt = await slot.record_event(event(name))
                        if receipt.status in ("committed", "queued"):
                            acknowledged.append(name)
                    longest, calls = max(longest, time.monotonic() - began - deadline_s), calls + 1
                    if step == 1:
                        await anyio.sleep(0.02)
                go_on()
                await anyio.sleep(1.1)
                for name in names[-4:]:  # the host sends again what was not acknowledged
                    if name not in acknowledged:
                        with suppress(MemslotError):
                            await slot.record_event(event(name))
                            acknowledged.append(name)
    await deliver_rest(Place("journal", place.directory, state))
    seen = Seen(acknowledged=len(acknowledged))
    arrived = lines(place.arrived)
    seen.lost = len(set(acknowledged) - set(arrived))
    seen.repeated = sum(count > 1 for count in Counter(arrived).values())
    return longest, calls, seen


# -- forks --------------------------------------------------------------------------------------------------


def fork(place: Place, times: int) -> Seen:
    """A host that forks between its writes; its child opens the memory anew and writes, too."""
    seen = Seen()
    acknowledged: list[str] = []

    async def open_one() -> MemorySlot:
        return opened(place)

    with start_blocking_portal() as portal:
        slot = portal.call(open_one)
        portal.call(slot.__aenter__)
        for number in range(times):
            under_way = portal.start_task_soon(slot.record_event, event(f"p-{number:03}"))
            time.sleep(0.001)
            child = os.fork()
            if not child:
                signal.alarm(20)
                carry_out("speak", place, f"c{number}", 2, False, [])
            seen.errors += os.waitpid(child, 0)[1] != 0
            for receipt in (under_way.result(), portal.call(slot.record_event, event(f"q-{number:03}"))):
                acknowledged += [receipt.event_id] if receipt.status in ("committed", "queued") else []
        portal.call(slot.aclose)
    anyio.run(deliver_rest, place)
    for name in acknowledged:
        append(place.said, f"written {name}")
    errors = seen.errors
    judge(place, seen)
    seen.errors += errors
    return seen


# -- the run ------------------------------------------------------------------------------------------------


@contextmanager
def destination(kind: str) -> Iterator[str]:
    """URL of the model server that a kind needs, or an empty string."""
    if kind == "memos":
        from memos_double import MemosDouble as Model
    elif kind == "stigmem":
        from stigmem_double import StigmemDouble as Model
    else:
        yield ""
        return
    with Model() as server:
        MODELS[server.url] = server
        yield server.url


def show_seen(what: str, seen: Seen) -> None:
    figures = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in vars(seen).items() if value)
    show(what, figures, "0 lost, repeated, reordered", seen.clean, failed=not seen.clean)


def arguments() -> dict[str, Any]:
    given = dict(word.split("=", 1) for word in sys.argv[1:])
    counts = {"kills": 24, "clocks": 20, "hangs": 2, "forks": 4, "rounds": 6, "seed": 7}
    numbers = {name: int(given.get(name, default)) for name, default in counts.items()}
    stores = ["file", "server"] if find_spec("pgserver") and find_spec("psycopg") else ["file"]
    kinds = given.get("kinds", ",".join(KINDS)).split(",")
    return {**numbers, "kinds": kinds, "stores": given.get("stores", ",".join(stores)).split(",")}


def main() -> None:
    wanted = arguments()
    chance, forker = random.Random(wanted["seed"]), Forker()
    leases.LEASE_S = LEASE_S
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        states = {"file": ""}
        if "server" in wanted["stores"]:
            from embedded_stores import postgres

            states["server"] = stack.enter_context(postgres())
        pairs = [(kind, store) for kind in wanted["kinds"] for store in wanted["stores"]]

        def new_place(what: str, kind: str, store: str, url: str = "") -> Place:
            directory = Path(scratch, f"{what}-{kind}-{store}")
            directory.mkdir(mode=0o700)
            if states[store]:
                from postgres import ask

                ask(
                    states[store], "SET client_min_messages TO error", "DROP SCHEMA IF EXISTS memslot CASCADE"
                )
            return Place(kind, str(directory), states[store], url)

        for what in ("kills", "clocks", "rounds"):
            for kind, store in pairs:
                if not (count := -(-wanted[what] // len(pairs))):
                    continue
                total = Seen()
                for number in range(count if what == "rounds" else 1):
                    with destination(kind) as url:
                        place = new_place(f"{what}{number}", kind, store, url)
                        kills = count if what == "kills" else 0
                        if what == "clocks":
                            kills = max(1, count // 8)
                        seen = play(forker, place, chance, kills, clocks=what == "clocks")
                        for error in lines(Path(place.directory, "errors"))[:3]:
                            print("  ", error[:300])
                    for name, value in vars(seen).items():
                        setattr(total, name, getattr(total, name) + value)
                show_seen(f"{what}: {kind}, {store}", total)
        if wanted["hangs"] and "server" in states:
            place = new_place("hangs", "journal", "server")
            longest, calls, seen = anyio.run(hang, place, states["server"], wanted["hangs"], chance)
            show_seen(f"hangs: {wanted['hangs']}, {calls} calls", seen)
            show(
                "hangs: longest past a deadline",
                f"{longest:.3f} s",
                f"<= {LATE_S} s",
                failed=longest > LATE_S,
            )
        for store in wanted["stores"]:
            if forks := -(-wanted["forks"] // len(wanted["stores"])):
                seen = fork(new_place("forks", "forks", store), forks)
                show_seen(f"forks: {forks}, {store}", seen)
    finish()


if __name__ == "__main__":
    main()
