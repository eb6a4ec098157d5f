"""Owners of stores that are killed at random: nothing acknowledged is lost, nothing erased comes back.

MEMSLOT_ROUNDS=1000 pytest tests/backends/test_kill_campaign.py -s

A writer is a fork of a process that has imported its SDK and opened nothing, so that a kill costs little; where
that process has more than one thread, every writer is started afresh.
"""

import json
import os
import random
import re
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx
import pytest
from embedded_stores import LOCAL, SCOPE, config, require
from embedded_stores import event as of_words

from memory import NativeQueryRequest, RetrieveRequest, SupportsReadiness
from memory.plugins.config import load_config
from memory.plugins.opening import build_slot
from memory.runtime import ServeSettings, TurnMemory, TurnPolicy
from memory.runtime._serving import serve

pytestmark = pytest.mark.thorough

MIRROR = {"primary": "full_history", "shadows": ["rolling_summary"]}


@dataclass(frozen=True)
class Killed:
    """What is killed.

    Attributes:
        store: of ``embedded_stores``, or ``mirror``.
        way: ``slot`` writes and waits for each receipt, ``host`` hands turns over, ``serve`` answers a client.
        journal: whether there is one; hosts and servers are acknowledged for by it alone.
        share: of the rounds, in thousandths.
    """

    store: str
    way: str = "slot"
    journal: bool = False
    share: int = 100


KILLED = {
    **{name: Killed(name, share=100 if name == "mem0" else 50) for name in LOCAL},
    "full_history": Killed("full_history", share=150),
    "rolling_summary": Killed("rolling_summary"),
    "mirror": Killed("mirror"),
    "full_history, journal": Killed("full_history", journal=True),
    "mem0, journal": Killed("mem0", journal=True, share=50),
    "full_history, hosts": Killed("full_history", way="host", journal=True),
    "full_history, serve": Killed("full_history", way="serve", journal=True),
}
ROUNDS = int(os.environ.get("MEMSLOT_ROUNDS", "0"))
MESSAGES = 3
WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
import test_kill_campaign
test_kill_campaign.{name}(*sys.argv[2:])
"""


def settings_of(name, data_dir, base_url):
    store, journal = KILLED[name].store, {"journal": True} if KILLED[name].journal else {}
    if store != "mirror":
        return config(store, data_dir, base_url, scope=dict(SCOPE), **journal)
    mirror = {"backend": "mirror", "backends": {"mirror": MIRROR}, "data_dir": str(data_dir)}
    return {"memory": {**mirror, "scope": dict(SCOPE), **journal}}


def parts_of(name):
    """A client of the server says one thing at a time."""
    return 1 if KILLED[name].way == "serve" else MESSAGES


def words(number):
    """Of an event, that no other says."""
    return f"word{number}x"


def event(number):
    """Of three messages, or facts."""
    return of_words(number, *(f"{words(number)}{part}" for part in range(MESSAGES)))


def say(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def play(name, data_dir, base_url, start, seed):
    """Write, and now and then reset, until killed; say each step before it begins, and when it is acknowledged."""
    ways = {"slot": play_slot, "host": play_host, "serve": play_server}
    settings = settings_of(name, data_dir, base_url)
    anyio.run(ways[KILLED[name].way], settings, int(start), random.Random(int(seed)))


async def play_slot(settings, start, chance):
    async with build_slot(settings) as slot:
        say("open")
        for number in range(start, 10**6):
            await sometimes_reset(slot, chance)
            say(f"writing {number}")
            receipt = await slot.record_event(event(number))
            if receipt.status in ("committed", "queued", "pending"):
                say(f"written {number}")


async def play_host(settings, start, chance):
    async with build_slot(settings) as slot, TurnMemory(slot, TurnPolicy()) as turns:
        say("open")
        for number in range(start, 10**6):
            await sometimes_reset(slot, chance)
            say(f"writing {number}")
            if await turns.record(event(number)):
                say(f"written {number}")
            await anyio.lowlevel.checkpoint()


async def sometimes_reset(slot, chance):
    if chance.random() < 0.06:
        say("resetting")
        assert (await slot.reset_scope(SCOPE)).verified
        say("reset")


async def play_server(settings, start, chance):
    """Its client, on a thread of this process, says what was answered: 200 is the acknowledgement."""

    def ask(url):
        with httpx.Client(base_url=url, timeout=60) as http:
            say("open")
            for number in range(start, 10**6):
                say(f"writing {number}")
                said = f"I prefer {words(number)}0 over milk."
                body = {"harness": "t", "sessionKey": f"s{number}", "userMessage": said}
                if http.post("/api/hooks/user-prompt-submit", json=body).status_code == 200:
                    say(f"written {number}")

    def ready(url):
        threading.Thread(target=ask, args=[url], daemon=True).start()

    await serve(load_config(settings), ServeSettings(port=0), ready)


def fork_writers(name, data_dir, base_url):
    """Import what a writer needs, then fork one for each line: its arguments. Say its id, and when it is gone."""
    anyio.run(build_slot(settings_of(name, data_dir, base_url)).aclose)
    say("warm" if len(os.listdir("/proc/self/task")) == 1 else "threads")
    for line in sys.stdin:
        pipe, *arguments = json.loads(line)
        pid = os.fork()
        if not pid:
            out = os.open(pipe, os.O_WRONLY)
            os.dup2(out, 1)
            os.close(out)
            os.close(0)
            with suppress(BaseException):
                play(*arguments)
            os._exit(1)
        say(str(pid))
        os.waitpid(pid, 0)
        say("gone")


class Writers:
    """Starts writers of a store, one at a time.

    Args:
        name: the store.
        directory: of the store, and, beside it, of the pipe that a writer speaks through.
        base_url: of a scripted model.
    """

    def __init__(self, name, directory, base_url):
        self._given = [name, str(directory), base_url]
        self._pipe = directory.with_name("said")
        os.mkfifo(self._pipe)
        self._parent = self._started("fork_writers", [name, f"{directory}-unused", base_url])
        self._forks = self._parent.stdout.readline().strip() == "warm"

    def _started(self, function, arguments):
        code = WRITER.replace("{name}", function)
        command = [sys.executable, "-W", "ignore", "-c", code, str(Path(__file__).parent), *arguments]
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": paths, "OPENAI_API_KEY": "unused"}
        environment["OPENBLAS_NUM_THREADS"] = "1"
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def killed(self, start, seed, lines, pause_s):
        """What a writer said that was killed so many seconds after so many lines."""
        arguments = [*self._given, str(start), str(seed)]
        if not self._forks:
            with self._started("play", arguments) as alone:
                said = [alone.stdout.readline() for _ in range(lines)]
                threading.Event().wait(pause_s)
                alone.kill()
                return [*said, *alone.stdout]
        assert self._parent.stdout is not None
        self._parent.stdin.write(f"{json.dumps([str(self._pipe), *arguments])}\n")
        self._parent.stdin.flush()
        with self._pipe.open(encoding="utf-8") as stdout:
            pid = int(self._parent.stdout.readline())
            said = [stdout.readline() for _ in range(lines)]
            threading.Event().wait(pause_s)
            os.kill(pid, 9)
            said += stdout
        assert self._parent.stdout.readline() == "gone\n"
        return said

    def close(self):
        self._parent.kill()
        self._parent.communicate()


@contextmanager
def writers(name, directory, base_url):
    opened = Writers(name, directory, base_url)
    try:
        yield opened
    finally:
        opened.close()


@dataclass
class Figures:
    """What was seen over all rounds."""

    kills: int = 0
    acknowledged: int = 0
    acknowledged_lost: int = 0
    half_stored: int = 0
    erased_found: int = 0
    false_ready: int = 0
    unhealthy: int = 0


@dataclass
class Expected:
    """What must be there, what may be, and what must be nowhere."""

    kept: set[int] = field(default_factory=set)
    maybe: set[int] = field(default_factory=set)
    erased: set[int] = field(default_factory=set)

    def follow(self, lines):
        """Take up what a writer said until it was killed; how many events it acknowledged."""
        written, resetting = 0, False
        for line in lines:
            word, _, number = line.partition(" ")
            if word == "writing":
                self.maybe.add(int(number))
            elif word == "written":
                self.maybe.discard(int(number))
                self.kept.add(int(number))
                written += 1
            elif word == "resetting":
                resetting = True
            elif word == "reset":
                resetting = False
                self.erased |= self.kept | self.maybe
                self.kept, self.maybe = set(), set()
        if resetting:  # nobody was told how it ended
            self.maybe |= self.kept
            self.kept = set()
        return written


async def parts_stored(slot, name, expected):
    """Event -> how many of its messages are retrievable, after waiting until the slot is ready."""
    readiness = slot.capability(SupportsReadiness)
    if readiness is not None:
        assert (await readiness.wait_until_ready(SCOPE, 60)).state == "ready"
    adapter = slot._adapter
    numbers = expected.kept | expected.maybe | expected.erased
    if adapter.backend_name == "rolling_summary":  # whose memory leaves things out by design
        return {
            number: MESSAGES * (await adapter.find_event(event(number)) is not None) for number in numbers
        }
    if adapter.backend_name in ("full_history", "mirror"):
        request = RetrieveRequest(query="?", scope=SCOPE, session_id="t")
        text = (await slot.retrieve(request)).formatted_context
    else:
        operation = "edges" if adapter.backend_name == "graphiti" else "list"
        asked = NativeQueryRequest(scope=SCOPE, operation=operation)
        text = json.dumps((await adapter.native_query(asked)).raw)
    return {
        number: sum(f"{words(number)}{part}" in text for part in range(parts_of(name))) for number in numbers
    }


def on_disk(name, directory, numbers):
    """The events with words in any file, except in that of a journal: it keeps them until they are forgotten."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    if KILLED[name].journal:
        files = [path for path in files if not path.name.startswith("memslot.db")]
    # One look at each file: a graph's has megabytes, and hundreds of events are erased in the end.
    found = {int(number) for path in files for number in re.findall(rb"word(\d+)x0", path.read_bytes())}
    return numbers & found


@pytest.mark.parametrize("name", KILLED)
async def test_kills_lose_nothing_and_bring_nothing_back(name, tmp_path, llm, capsys):
    if KILLED[name].store in LOCAL:
        require(KILLED[name].store)
    chance, expected, figures = random.Random(7), Expected(), Figures()
    whole, data = parts_of(name), tmp_path / "data"
    with writers(name, data, llm.base_url) as started:
        for round_ in range(max(5, ROUNDS * KILLED[name].share // 1000)):
            start = max((*expected.kept, *expected.maybe, *expected.erased, -1)) + 1
            lines_before_kill, pause_s = chance.randrange(1, 60), chance.random() * 0.02
            said = await anyio.to_thread.run_sync(started.killed, start, round_, lines_before_kill, pause_s)
            lines = [line.strip() for line in said if line.endswith("\n")]
            assert lines[0] == "open", "the store a kill left could not be opened"
            figures.kills += 1
            figures.acknowledged += expected.follow(lines)
            async with build_slot(settings_of(name, str(data), llm.base_url)) as slot:
                stored = await parts_stored(slot, name, expected)
                figures.unhealthy += (await slot.health()).status != "ok"
                lost = {number for number in expected.kept if stored[number] < whole}
                figures.acknowledged_lost += len(lost)
                figures.false_ready += bool(lost)
                figures.half_stored += sum(0 < stored[number] < whole for number in expected.maybe)
                figures.erased_found += sum(stored[number] > 0 for number in expected.erased)
                expected.kept |= {number for number in expected.maybe if stored[number]}
                expected.maybe = set()
                for number in sorted(expected.kept):  # a repeat completes what is not whole
                    if 0 < stored[number] < whole:
                        adapter = slot._adapter
                        await adapter.find_event(event(number))
                        await slot.record_event(event(number))
                        assert (await parts_stored(slot, name, expected))[number] == whole
            figures.erased_found += len(on_disk(name, data, expected.erased))
    with capsys.disabled():
        say(f"\n{name}: {figures}")
    assert figures.acknowledged > 0
    assert (figures.acknowledged_lost, figures.erased_found, figures.false_ready) == (0, 0, 0)
    if name != "mirror":  # which says that its memories may differ
        assert figures.unhealthy == 0
