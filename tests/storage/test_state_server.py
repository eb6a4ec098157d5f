"""State on a server of many machines: who delivers, and what is said, and never said, where it cannot be used."""

import subprocess
import sys
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random
from urllib.parse import parse_qs, urlsplit

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journals import keep
from postgres import NEEDS_POSTGRES, ask
from slot_support import ALICE, Lookup, event

from memory import BackendTimeout, BackendUnavailable, ConfigError, MemorySlot, SupportsReadiness
from memory.adapter import StoreError
from memory.contract.errors import JournalError
from memory.plugins.config import load_config
from memory.plugins.opening import build_slot
from memory.runtime import TurnMemory
from memory.storage.journal import Journal
from memory.storage.kept import HostStore, StoredObject
from memory.storage.postgres import PostgresStore

pytestmark = NEEDS_POSTGRES
PASSWORD = "zebra-in-the-URL"


def opened(url):
    with closing(PostgresStore(url)) as store:
        journal = Journal(store)
    journal.open()
    return journal


@pytest.mark.parametrize("first", [0, 1, 2])
async def test_events_accepted_by_three_processes_are_sent_once_and_in_order(state_url, first):
    """Three slots over one backend: whichever of them delivers."""
    backend = Lookup()
    slots = [MemorySlot(backend, scope=ALICE, journal=opened(state_url)) for _ in range(3)]
    async with slots[0], slots[1], slots[2]:
        for number in range(12):
            assert await slots[number % 3].delivery.keep(event(number))
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(slots[(first + number) % 3].delivery.deliver, ALICE)
        receipt = await slots[first].record_event(event(12))
        assert receipt.status == "committed"
        assert [row.event_id for row in backend.rows] == [f"e{number}" for number in range(13)]
        assert (await slots[0].record_event(event(3))).warnings == ("recorded before; it was not sent again",)


async def test_while_another_process_delivers_an_event_is_kept_and_waits(state_url, monkeypatch):
    monkeypatch.setattr("memory.slot.writes._WRITE_LOCK_S", 0.1)
    monkeypatch.setattr("memory.slot.writes._RESET_LOCK_S", 0.1)
    async with MemorySlot(Lookup(), scope=ALICE, journal=opened(state_url)) as slot:
        with opened(state_url) as other:
            ours = slot.delivery.writes.key_of(ALICE)
            lease = (await other.append(ours, [])).lease
            receipt = await slot.record_event(event(1))
            assert (receipt.status, slot._adapter.rows) == ("queued", [])
            assert "another process is delivering" in receipt.warnings[0]
            assert "another process is delivering" in (await slot.delivery.deliver(ALICE) or "")
            with pytest.raises(
                StoreError.__mro__[1], match="another process is delivering to it; reset it again"
            ):
                await slot.reset_scope(ALICE)
            await other.outbox.leases.let_go(lease)
        assert await slot.delivery.deliver(ALICE) is None
        assert [row.event_id for row in slot._adapter.rows] == ["e1"]


async def test_what_a_process_that_died_had_accepted_is_taken_up_by_another(state_url, monkeypatch):
    monkeypatch.setattr("memory.runtime._writing._LOOK_S", 0.05)
    slot = MemorySlot(Lookup(), scope=ALICE, journal=opened(state_url))
    async with slot, TurnMemory(slot) as memory:
        await memory.record_turn(session_id="s", user="the first")
        assert await memory.drain(10)
        with opened(state_url) as dead:
            await dead.append(slot.delivery.writes.key_of(ALICE), [event(7)], send=False)
        with anyio.fail_after(10):
            while len(slot._adapter.rows) < 2:  # noqa: ASYNC110
                await anyio.sleep(0.05)
    assert [row.event_id for row in slot._adapter.rows][1:] == ["e7"]


def refused(url, wanted):
    """Nothing opens, and one sentence says why, without the password and whatever the server said."""
    config = {"memory": {"condition": "full_history", "state": url, "data_dir": "never-made"}}
    with pytest.raises((StoreError, ConfigError), match=wanted) as caught:
        build_slot(config)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__cause__ is None
    assert not Path("never-made").exists()


def named(url, user, database="postgres", password=PASSWORD):
    directory = parse_qs(urlsplit(url).query)["host"][0]
    return f"postgresql://{user}:{password}@/{database}?host={directory}"


def test_a_server_that_cannot_be_used_is_refused_in_one_sentence(state_url):
    refused(
        f"postgresql://ada:{PASSWORD}@127.0.0.1:9/db", r"127\.0\.0\.1:9/db: it cannot be reached; start it"
    )
    refused(named(state_url, "postgres", "nowhere"), "it has no such database; create it")
    refused(named(state_url, "nobody"), "it refuses this user or password")
    ask(state_url, "DROP ROLE IF EXISTS ada", f"CREATE ROLE ada LOGIN PASSWORD '{PASSWORD}'")
    refused(named(state_url, "ada"), "its user has no right to do this; GRANT CREATE ON DATABASE")
    hba = Path(ask(state_url, "SHOW hba_file")[0][0])
    before = hba.read_text()
    try:
        hba.write_text(f"local all ada scram-sha-256\n{before}")
        ask(state_url, "SELECT pg_reload_conf()")
        for _ in range(50):
            ask(state_url, "SELECT pg_sleep(0.1)")  # until it has read it
            with pytest.raises(StoreError) as caught:
                opened(named(state_url, "ada", password="wrong"))
            if "refuses" in str(caught.value):
                break
        refused(named(state_url, "ada", password=f"{PASSWORD}x"), "it refuses this user or password")
    finally:
        hba.write_text(before)
        ask(state_url, "SELECT pg_reload_conf()")


def test_a_url_that_cannot_be_used_is_refused(monkeypatch):
    refused(f"mysql://ada:{PASSWORD}@host/db", r"memory.state.*must be postgresql://user:password@host")
    refused(
        f"postgresql://ada:{PASSWORD}@host:port/db?nonsense=1",
        "memory.state: cannot be read; write postgresql://",
    )
    refused("postgresql://[", "memory.state: cannot be read")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    refused(f"postgresql://ada:{PASSWORD}@host/db", r"needs psycopg: pip install 'memslot\[postgres\]'")


def test_what_is_a_files_is_refused_beside_a_server():
    with pytest.raises(ConfigError, match="durability is a file's"):
        load_config(
            {
                "memory": {
                    "condition": "full_history",
                    "state": "postgresql://h/d",
                    "journal": {"durability": "machine"},
                }
            }
        )
    config = {"memory": {"condition": "full_history", "state": "postgresql://h/d"}}
    assert load_config(config).journal is not None
    config["memory"]["journal"] = False
    assert load_config(config).journal is None


@pytest.mark.thorough
def test_the_password_is_in_nothing_that_is_shown(state_url, tmp_path):
    file = tmp_path / "m.yaml"
    file.write_text(
        "memory:\n  condition: full_history\n  scope: {run_id: r, persona_id: ada}\n"
        f"  state: 'postgresql://ada:{PASSWORD}@127.0.0.1:9/db'\n"
    )
    for command in (["tools", "config", "show"], ["serve"], ["journal", "list"], ["doctor"]):
        done = subprocess.run(
            [sys.executable, "-c", "from memory.cli import main; main()", *command, str(file)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert PASSWORD not in done.stdout + done.stderr, command
        assert command[0] == "tools" or "it cannot be reached" in done.stdout + done.stderr
        assert command[0] not in ("serve", "journal") or (done.returncode, done.stderr.count("\n")) == (1, 1)
    loaded = load_config(file)
    assert PASSWORD not in repr(loaded) + str(loaded.memory)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.thorough
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, NAMES, max_size=8))
def test_any_name_and_text_comes_back_as_it_was(state_url, kept):
    with closing(PostgresStore(state_url)) as place, HostStore("fake", place) as store:
        store.put(*(StoredObject("note", ALICE, name, {"text": text}) for name, text in kept.items()))
        assert {name: store.get("note", ALICE, name) for name in kept} == {
            name: {"text": text} for name, text in kept.items()
        }


def test_an_id_too_long_for_it_is_refused_in_words(state_url):
    letters = [chr(number) for number in range(0x4E00, 0x9F00)]
    names = ("run_id", "persona_id", "backend_namespace", "agent_id")
    wide = ALICE.model_copy(update={name: "".join(Random(name).choices(letters, k=512)) for name in names})
    with (
        opened(state_url) as journal,
        pytest.raises(JournalError, match="an id is too long for it; shorten it"),
    ):
        anyio.run(keep, journal, event(1, wide))


# Controls of two machines: one state, a data_dir each.


@pytest.mark.parametrize("kind", ["full_history", "rolling_summary"])
async def test_a_machine_knows_what_another_one_wrote_and_reset(state_url, tmp_path, kind):
    def machine(name):
        block = {"condition": kind, "state": state_url, "data_dir": str(tmp_path / name)}
        return build_slot({"memory": block}, scope=ALICE)

    async with machine("a") as first, machine("b") as second:
        for number in range(4):
            said = f"I prefer word{number} tea."
            await (first, second)[number % 2].after_turn(session_id=f"s{number}", user=said)
        if (readiness := first.capability(SupportsReadiness)) is not None:
            assert (await readiness.readiness(ALICE)).state == "pending"
            assert (await readiness.wait_until_ready(ALICE, 10)).state == "ready"
        for slot in (first, second):
            shown = await slot.before_turn("tea", session_id="t")
            assert [f"word{number}" in shown for number in range(4)] == [True] * 4
        assert (await second.reset_scope(ALICE)).verified
        assert await first.before_turn("tea", session_id="t") == ""
    assert not list(tmp_path.rglob("*.db*"))


@pytest.mark.thorough
async def test_a_write_to_a_server_that_stands_still_ends_in_time_and_is_looked_up(state_url, tmp_path):
    """Every process of a real PostgreSQL is stopped, and goes on later."""
    block = {"condition": "full_history", "state": state_url, "data_dir": str(tmp_path)}
    with suspended(state_url) as (stop, go_on):
        async with build_slot({"memory": {**block, "deadlines": {"write_s": 2.0}}}, scope=ALICE) as slot:
            await slot.after_turn(session_id="s", user="I like tea.")
            stop()
            began = time.monotonic()
            written = None
            with suppress(BackendUnavailable, BackendTimeout, StoreError):
                written = (await slot.after_turn(session_id="s", user="And oolong.", event_id="e")).status
            assert time.monotonic() - began < 8.0
            assert written in (None, "unknown")
            go_on()
            await slot.after_turn(session_id="s", user="And oolong.", event_id="e")
            shown = await slot.before_turn("oolong", session_id="t")
            assert shown.count("And oolong.") == 1


@contextmanager
def suspended(url):
    """Yields two calls: one stops every process of a server, the other lets them go on."""
    import psutil

    [[directory]] = ask(url, "SHOW data_directory")
    main = psutil.Process(int(Path(directory, "postmaster.pid").read_text().split()[0]))
    stopped = []

    def stop():
        stopped.extend([main, *main.children(recursive=True)])
        for process in stopped:
            process.suspend()

    def go_on():
        for process in stopped:
            process.resume()
        stopped.clear()

    try:
        yield stop, go_on
    finally:
        go_on()
