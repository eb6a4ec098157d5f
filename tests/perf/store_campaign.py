"""Kills, clocks, hangs and forks over the outbox: nothing is lost, repeated or out of order, and no call is late.

python tests/perf/store_campaign.py                              a few of each
python tests/perf/store_campaign.py kills=1000 clocks=200 hangs=50 forks=40 rounds=40 seed=7
python tests/perf/store_campaign.py kills=200 kinds=hooks,mirror stores=file

Every kind of entry runs on a SQLite file and, where PyPI's ``pgserver`` is installed, on a real PostgreSQL. Reports
of hooks always lie in a file; their memory is on the server then. The destination of an event is a file of lines, a
model server of MemOS, or a pair of real memories.
"""

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
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "backends" / "memos"))
sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

import anyio
import anyio.lowlevel
from anyio.from_thread import start_blocking_portal
from figures import SCOPE, finish, show
from store_processes import LEASE_S, Forker, Place, append, carry_out, event, lines, lives, opened, wait_for

from memory import Deadlines, MemorySlot, MemslotError, RetrieveRequest, SupportsReadiness
from memory.storage import leases
from memory.storage.insert import FILE_NAME
from memory.storage.store import SqliteStore

KINDS = ("journal", "write-behind", "hooks", "mirror", "memos")
LATE_S = 0.5
_ON_THE_WAY_S = 0.2  # a request of a killed process reaches its server; no look-up finds what is on the way
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")


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
        senders = [forker.start("deliver", place)] if place.kind == "hooks" else []
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
    if place.kind == "hooks":
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
        waits = "SELECT count(*) FROM outbox WHERE kind = 'hook' AND state = 'waiting'"
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
        numbers: dict[str, list[str]] = {}
        for name in dict.fromkeys(arrived):
            numbers.setdefault(name.partition("-")[0], []).append(name)
        seen.out_of_order += sum(names != sorted(names) for names in numbers.values())
    if len(arrivals) == 2 and seen.reported:
        seen.lost = len(set(acknowledged) - set(arrivals[0]))  # the shadow's difference was reported


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


@contextmanager
def destination(kind: str) -> Iterator[str]:
    """URL of the model server that a kind needs, or an empty string."""
    if kind == "memos":
        from memos_double import MemosDouble as Model
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
