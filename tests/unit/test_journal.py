"""The journal as a file: what is acknowledged stays, whatever happens to the process and to the file."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import traceback
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import backlog, keep, key, open_journal, wipe
from said import said

from memory import InputError, MemoryEvent, MemoryScope, WriteReceipt
from memory.contract.errors import JournalError
from memory.slot.journal import Journal

ADA, BOB = MemoryScope(run_id="r", persona_id="ada"), MemoryScope(run_id="r", persona_id="bob")
ROUNDS = int(os.environ.get("MEMSLOT_ROUNDS", "8"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def event(name: str, scope: MemoryScope = ADA, text: str = "tea") -> MemoryEvent:
    return said(scope, text, number=0, event_id=name, session_id="s", turn_id=name, metadata={"n": 1})


@pytest.fixture
def journal(tmp_path: Path, each_store):
    with open_journal(tmp_path / "j.db") as opened:
        yield opened


async def test_an_event_waits_until_the_backend_has_it(journal: Journal) -> None:
    assert await keep(journal, event("a"), event("b")) == [None, None]
    assert (backlog(journal), journal.backlog(key(ADA)), journal.backlog(key(BOB))) == (2, 2, 0)
    await journal.record(key(ADA), [WriteReceipt(event_id="a", status="committed", native_ids=("n1",))])
    [left] = await journal.waiting(key(ADA))
    assert left.event == event("b")
    assert journal.counts() == {"committed": 1, "waiting": 1}


@pytest.mark.parametrize("each_store", ["file"], indirect=True)
async def test_nothing_on_the_way_of_an_event_goes_through_the_whole_journal(journal: Journal) -> None:
    """Else each write costs what was ever written."""
    asked: list[str] = []
    journal._db.set_trace_callback(asked.append)
    await keep(journal, event("a"), event("b"), event("c"))
    await journal.record(key(ADA), [WriteReceipt(event_id="a", status="committed", native_ids=("n1",))])
    await journal.failed(key(ADA), ["b"], "BackendUnavailable", final=False)
    await journal.failed(key(ADA), ["c"], "BackendRejected", final=True)
    await journal.waiting(key(ADA))
    await journal.find(key(ADA), "a")
    journal.add([(event("d"), "committed", key(ADA).destination)])
    assert len(list(journal.entries(ADA))) == len(journal.sample(ADA, 9)) == journal.count(ADA, until=9) == 4
    await wipe(journal, ADA)
    journal._db.set_trace_callback(None)
    written = [query for query in asked if query.startswith(("SELECT", "UPDATE")) and " events " in query]
    assert sum(query.startswith("UPDATE") for query in written) == 6
    for query in written:
        if "GROUP BY" in query:  # what waits, after an import
            continue
        steps = [row[3] for row in journal._db.execute(f"EXPLAIN QUERY PLAN {query}")]
        steps = [step for step in steps if not step.startswith("CORRELATED")]
        assert all(step.startswith("SEARCH") for step in steps), (query, steps, "nor sorts it")
        looks_back = [step for step in steps if "earlier" in step]
        assert all("event_id=?" in step for step in looks_back), (query, steps, "nor all that was before")


async def test_an_unknown_write_still_waits(journal: Journal) -> None:
    await keep(journal, event("a"))
    await journal.record(key(ADA), [WriteReceipt(event_id="a", status="unknown")])
    assert [entry.status for entry in await journal.waiting(key(ADA))] == ["unknown"]


async def test_the_same_event_again_is_not_new(journal: Journal) -> None:
    await keep(journal, event("a"))
    receipt = WriteReceipt(event_id="a", status="committed", native_ids=("n1",))
    await journal.record(key(ADA), [receipt])
    [kept] = await keep(journal, event("a"))
    assert kept is not None
    assert (kept.delivered, kept.receipt) == (True, receipt)
    assert backlog(journal) == 0


async def test_an_event_id_used_for_other_words_is_refused_and_keeps_none_of_the_batch(
    journal: Journal,
) -> None:
    await keep(journal, event("a"))
    with pytest.raises(InputError, match="'a' stands in the journal for other messages"):
        await keep(journal, event("new"), event("a", text="coffee"))
    assert [entry.event.event_id for entry in journal.entries()] == ["a"]
    assert backlog(journal) == 1


async def test_one_id_in_two_scopes_is_two_events(journal: Journal) -> None:
    assert await keep(journal, event("a"), event("a", BOB, "coffee")) == [None, None]
    assert journal.scopes() == [(ADA, 1), (BOB, 1)]


async def test_what_the_backend_refused_for_good_waits_no_longer(journal: Journal) -> None:
    await keep(journal, event("a"))
    await journal.failed(key(ADA), ["a"], "BackendUnavailable", final=False)
    [left] = await journal.waiting(key(ADA))
    assert (left.attempts, left.error) == (1, "BackendUnavailable")
    await journal.failed(key(ADA), ["a"], "BackendRejected", final=True)
    assert await journal.waiting(key(ADA)) == []
    assert journal.counts() == {"rejected": 1}


async def test_a_reset_ends_what_waits_and_what_is_replayed(journal: Journal) -> None:
    await keep(journal, event("a"), event("a", BOB))
    journal.replayed("target", ADA, 1)
    await wipe(journal, ADA)
    assert (journal.backlog(key(ADA)), journal.backlog(key(BOB)), journal.position("target", ADA)) == (
        0,
        1,
        0,
    )
    assert [entry.event.scope for entry in journal.entries()] == [BOB]
    assert len(list(journal.entries(everything=True))) == 2
    assert await keep(journal, event("a")) == [None], "after a reset the id is free again"


async def test_entries_come_in_order_and_in_pages(journal: Journal) -> None:
    names = [f"e{number}" for number in range(25)]
    for start in range(0, 25, 5):
        await keep(journal, *[event(name) for name in names[start : start + 5]])
    assert [entry.event.event_id for entry in journal.entries(size=4)] == names
    assert [entry.event.event_id for entry in journal.entries(after=20, size=4)] == names[20:]


def bytes_below(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in directory.iterdir())


async def test_forgetting_leaves_nothing_of_a_person_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with Journal(path) as journal:
        for number in range(50):
            await keep(
                journal, event(f"a{number}", text="ZEBRA " * 50), event(f"b{number}", BOB, "GIRAFFE " * 50)
            )
        assert journal.forget("ada") == [key(ADA)]
        on_disk = bytes_below(tmp_path)
        assert b"ZEBRA" not in on_disk
        assert b"GIRAFFE" in on_disk
    left = sqlite3.connect(path)
    assert left.execute("PRAGMA freelist_count").fetchone() == (0,)
    left.close()


async def test_a_full_journal_drops_what_is_delivered_and_never_what_waits(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db", max_mb=1) as journal:
        big = "x" * 20_000
        for number in range(100):
            await keep(journal, event(f"d{number}", text=big))
            await journal.record(key(ADA), [WriteReceipt(event_id=f"d{number}", status="committed")])
        assert journal.counts()["committed"] < 60

        async def fill() -> None:
            for number in range(100):
                await keep(journal, event(f"w{number}", text=big))

        with pytest.raises(JournalError, match="max_mb is reached"):
            await fill()
        waiting = backlog(journal)
        assert waiting > 20
        assert [entry.event.event_id for entry in await journal.waiting(key(ADA))] == [
            f"w{n}" for n in range(waiting)
        ]
        with pytest.raises(JournalError, match="max_mb is reached"):
            journal.add([(event("taken-over"), "committed", key(ADA).destination)])


def test_two_openers_are_told_apart(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db"), pytest.raises(JournalError, match="another"):
        Journal(tmp_path / "j.db")
    Journal(tmp_path / "j.db").close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "j.db")
    code = f"from pathlib import Path; from memory.slot.journal import Journal; Journal(Path({path!r}))"
    with Journal(tmp_path / "j.db"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "another process has this journal open" in done.stderr


def spoil_version(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()


def spoil_page(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))


def other_database(path: Path) -> None:
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE cats (name TEXT)")
    db.commit()
    db.close()


def spoil_open(file: Path, how: str) -> None:
    """Whoever has it open is not told."""
    if how == "removed":
        file.unlink()
    elif how == "replaced":
        other = file.with_name("other")
        other.write_bytes(file.read_bytes())
        other.replace(file)
    else:
        os.truncate(file, 0)


def each_spoilt(what: str):
    """Parametrises by what spoils a file, and how it is refused by who looks for ``what`` in it."""
    spoilt = {
        "version": (spoil_version, "version 99"),
        "torn": (spoil_page, "damaged"),
        "zeros": (lambda path: path.write_bytes(b"\0" * 8192), "damaged"),
        "emptied": (lambda path: path.write_bytes(b""), "emptied"),
        "other": (other_database, f"no {what}"),
    }
    return pytest.mark.parametrize(("spoil", "said"), spoilt.values(), ids=spoilt.keys())


@each_spoilt("journal")
async def test_a_spoilt_file_is_never_an_empty_journal(tmp_path: Path, spoil, said: str) -> None:
    path = tmp_path / "j.db"
    with Journal(path) as journal:
        for number in range(20):
            await keep(journal, event(f"a{number}", text="tea " * 100))
    spoil(path)
    with pytest.raises(JournalError, match=said):
        Journal(path)


@pytest.mark.parametrize("column", ["event", "receipt"])
async def test_a_row_that_is_no_event_is_named_and_not_repeated(tmp_path: Path, column: str) -> None:
    with Journal(tmp_path / "j.db") as journal:
        await keep(journal, event("a"), event("b"))
    db = sqlite3.connect(tmp_path / "j.db")
    db.execute(f"UPDATE events SET {column} = ? WHERE seq = 2", ('{"planted": "sentence"}',))
    db.commit()
    db.close()
    with Journal(tmp_path / "j.db") as journal:
        with pytest.raises(JournalError, match="seq 2 is no event") as caught:
            list(journal.entries())
        assert "planted" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("name", ["j.db", "j.db-wal"])
@pytest.mark.parametrize("how", ["removed", "replaced", "emptied"])
async def test_a_journal_spoilt_while_it_is_open_keeps_nothing_and_says_so(
    tmp_path: Path, name: str, how: str
) -> None:
    """SQLite would go on writing to a file that nobody can open any more."""
    file = tmp_path / name
    with Journal(tmp_path / "j.db") as journal:
        await keep(journal, event("a"))
        spoil_open(file, how)
        with pytest.raises(JournalError, match=f"{name}: removed, replaced or emptied while it was open"):
            await keep(journal, event("b"))


async def test_an_import_cut_short_leaves_nothing_to_be_delivered(
    tmp_path: Path, each_store, monkeypatch
) -> None:
    """What comes from elsewhere was delivered there; waiting here, it would be sent to this backend."""
    insert = Journal._insert

    def dies(self, *given, **named):
        insert(self, *given, **named)
        raise KeyboardInterrupt

    with open_journal(tmp_path / "j.db") as journal:
        monkeypatch.setattr(Journal, "_insert", dies)
        with pytest.raises(KeyboardInterrupt):
            journal.add(
                [
                    (event("a"), "committed", key(ADA).destination),
                    (event("b"), "waiting", key(ADA).destination),
                ]
            )
    monkeypatch.undo()
    with open_journal(tmp_path / "j.db") as journal:
        assert list(journal.entries()) == []
        here = key(ADA).destination
        assert journal.add([(event("a"), "committed", here), (event("b"), "waiting", here)]) == (2, 0)
        assert journal.add([(event("a"), "committed", here), (event("c"), "rejected", here)]) == (1, 1)
        assert journal.counts() == {"committed": 1, "waiting": 1, "rejected": 1}
        assert backlog(journal) == 1


async def test_a_closed_journal_says_so(journal: Journal) -> None:
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        await keep(journal, event("a"))


async def test_a_cancelled_append_is_whole_or_not_at_all(journal: Journal) -> None:
    for number in range(20):
        with anyio.move_on_after(0.0002 * number):
            await keep(journal, event(f"x{number}"), event(f"y{number}"))
    names = {entry.event.event_id[1:] + entry.event.event_id[0] for entry in journal.entries()}
    assert all(
        {f"{number}x", f"{number}y"} <= names or not {f"{number}x", f"{number}y"} & names
        for number in range(20)
    )


@settings(max_examples=30)
@given(
    texts=st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip), max_size=5
    )
)
def test_any_text_comes_back_as_it_was(tmp_path_factory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("any") / "j.db"
    given_events = [event(f"e{number}", text=text) for number, text in enumerate(texts)]
    with Journal(path) as journal:
        anyio.run(keep, journal, *given_events)
    with Journal(path) as journal:
        assert [entry.event for entry in journal.entries()] == given_events


CHILD = """
    import anyio, sys
    from pathlib import Path
    from journals import keep, key
    from test_journal import ADA, event
    from memory import WriteReceipt
    from memory.slot.journal import Journal

    async def main():
        journal = Journal(Path(sys.argv[1]))
        number = int(sys.argv[2])
        while True:
            name = f"e{{number}}"
            await keep(journal, event(name))
            print("kept", name, flush=True)
            await journal.record(key(ADA), [WriteReceipt(event_id=name, status="committed")])
            print("done", name, flush=True)
            number += 1

    anyio.run(main)
"""


FORKED = """
import asyncio, os, sys
from pathlib import Path
from journals import backlog, keep, key, open_journal, wipe
from said import said
from memory import MemoryScope
from memory.slot.journal import Journal
from memory.contract.errors import JournalError
ada = MemoryScope(run_id="r", persona_id="ada")
def event(name):
    return said(ada, "tea", number=0, event_id=name, session_id="s", turn_id=name)
journal = Journal(Path(sys.argv[1]))
asyncio.run(keep(journal, event("a")))
if (child := os.fork()) == 0:
    try:
        asyncio.run(keep(journal, event("c")))
    except JournalError as error:
        assert "is closed" in str(error)
        if sys.argv[2] == "closed":
            journal.close()
        sys.exit(0)
    sys.exit(1)
assert os.waitpid(child, 0)[1] == 0
asyncio.run(keep(journal, event("b")))
os._exit(0)  # as if it was killed
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@pytest.mark.parametrize("left", ["closed", "open"])
def test_a_forked_child_leaves_the_journal_to_its_parent(tmp_path: Path, left: str) -> None:
    """On its way out it removed the log, and what the parent went on to write was lost."""
    path = tmp_path / "j.db"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", FORKED, str(path), left], check=True, env=environment)
    with Journal(path) as journal:
        assert [entry.event.event_id for entry in journal.entries()] == ["a", "b"]


@pytest.mark.thorough
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    """``kill -9`` at moments of chance: MEMSLOT_ROUNDS of them (CI runs 200)."""
    path, script = tmp_path / "j.db", tmp_path / "child.py"
    script.write_text(textwrap.dedent(CHILD.format(here=str(Path(__file__).parent))), encoding="utf-8")
    kept: set[str] = set()
    done: set[str] = set()
    for round_number in range(ROUNDS):
        child = subprocess.Popen(
            [sys.executable, str(script), str(path), str(round_number * 100_000)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(1 + round_number * 7 % 40)]
        child.send_signal(signal.SIGKILL)
        said += child.stdout
        child.wait()
        child.stdout.close()
        for line in said:
            if line.endswith("\n"):  # what was cut off by the kill is no word of it
                word, name = line.split()
                {"kept": kept, "done": done}[word].add(name)
    with Journal(path) as journal:
        found = {entry.event.event_id: entry for entry in journal.entries()}
    assert kept, "the children must have got as far as one event"
    assert kept <= found.keys()
    assert all(found[name].delivered for name in done)


async def test_the_log_is_folded_into_the_file_now_and_then(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("memory.slot.journal_file._CHECKPOINT_AFTER", 5)
    path = tmp_path / "j.db"
    with Journal(path) as journal:
        before = path.stat().st_size
        for number in range(40):
            await keep(journal, event(f"e{number}", text="tea " * 200))
            await journal.record(key(ADA), [WriteReceipt(event_id=f"e{number}", status="committed")])
        assert path.stat().st_size > before
        assert len(list(journal.entries())) == 40


async def test_what_one_backend_has_says_nothing_of_another(journal: Journal) -> None:
    """Two backends over one directory is what changing one word in YAML gives."""
    await keep(journal, event("a"))
    await journal.record(key(ADA), [WriteReceipt(event_id="a", status="committed")])
    assert await keep(journal, event("a"), backend="other") == [None]
    assert [entry.event.event_id for entry in await journal.waiting(key(ADA, "other"))] == ["a"]
    assert await journal.append(key(ADA, store="http://elsewhere"), [event("a")]) == [None]
    assert await journal.waiting(key(ADA)) == []
    assert len(list(journal.entries())) == journal.count(ADA, until=99) == 1, "the past has it once"
    assert len(list(journal.entries(everything=True))) == 3
    assert len(journal.forget("ada")) == 3


async def test_a_reset_is_noted_before_it_begins_and_taken_back_where_nothing_was_reset(
    tmp_path: Path, each_store
) -> None:
    with open_journal(tmp_path / "j.db") as journal:
        await keep(journal, event("a"), event("b"))
        await keep(journal, event("a"), backend="other")
        await journal.record(key(ADA), [WriteReceipt(event_id="a", status="committed")])
        before = [(entry.destination, entry.status) for entry in journal.entries(everything=True)]
        await journal.begin_reset(key(ADA))
        assert journal.backlog(key(ADA)) == 0
        assert journal.backlog(key(ADA, "other")) == 1
        assert list(journal.entries()) == []
    with open_journal(tmp_path / "j.db") as journal:
        assert journal.resetting(key(ADA))
        assert not journal.resetting(key(ADA, "other"))
        await journal.cancel_reset(key(ADA))
        assert [(entry.destination, entry.status) for entry in journal.entries(everything=True)] == before
        assert (journal.resetting(key(ADA)), journal.backlog(key(ADA))) == (False, 1)
    with open_journal(tmp_path / "j.db") as journal:
        assert not journal.resetting(key(ADA)), "nor is it begun again by the next process"
        await journal.begin_reset(key(ADA))
        assert await journal.end_reset(key(ADA)), "its words are still there"
        assert not journal.resetting(key(ADA))
    with open_journal(tmp_path / "j.db") as journal:
        assert not journal.resetting(key(ADA))
        assert list(journal.entries()) == []


FILLS = """
import anyio, os, sys
from pathlib import Path
from journals import keep
from test_journal import ADA, event
from memory.slot.journal import Journal
journal = Journal(Path(sys.argv[1]))
for number in range(10):
    anyio.run(keep, journal, event(f"e{number}"))
os._exit(0)  # as if it was killed: all of it is in the log
"""


@pytest.mark.parametrize("how", ["removed", "emptied", "halved"])
def test_a_log_that_is_gone_is_no_empty_journal(tmp_path: Path, how: str) -> None:
    path, log = tmp_path / "j.db", tmp_path / "j.db-wal"
    places = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    subprocess.run(
        [sys.executable, "-c", FILLS, str(path)], check=True, env={**os.environ, "PYTHONPATH": places}
    )
    size = log.stat().st_size
    log.unlink() if how == "removed" else os.truncate(log, size // 2 if how == "halved" else 0)
    if how != "halved":
        with pytest.raises(JournalError, match=r"10 acknowledged changes are missing.*remove j\.db-count"):
            Journal(path)
        (tmp_path / "j.db-count").unlink()
        with Journal(path) as journal:
            assert list(journal.entries()) == []
        return
    for _ in range(2):
        with Journal(path) as journal:
            left = len(list(journal.entries()))
            [warning] = journal.warnings()
            assert f"{10 - left} acknowledged changes are gone" in warning
    assert 0 < left < 10
    (tmp_path / "j.db.lost").unlink()
    with Journal(path) as journal:
        assert journal.warnings() == []


async def test_a_count_that_cannot_be_written_costs_a_warning_and_no_event(tmp_path: Path) -> None:
    path, count = tmp_path / "j.db", tmp_path / "j.db-count"
    with Journal(path) as journal:
        await keep(journal, event("a"))
        count.unlink()
        count.mkdir()
        assert await keep(journal, event("b")) == [None]
        assert journal.backlog(key(ADA)) == 2
        [warning] = journal.warnings()
        assert "j.db-count" in warning
    with Journal(path) as journal:
        assert len(journal.warnings()) == 1
        count.rmdir()
        await keep(journal, event("c"))
        assert journal.warnings() == []
    assert count.stat().st_size == 8


@pytest.mark.parametrize("unreadable", ["j.db-count", "j.db.lost"])
def test_a_journal_that_cannot_be_checked_is_not_opened(
    tmp_path: Path, unreadable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j.db"
    Journal(path).close()
    (tmp_path / unreadable).write_bytes(b"\0" * 8)

    def refused(file: Path) -> bytes:
        raise PermissionError(13, "no", str(file))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(JournalError, match=rf"{unreadable}: .*PermissionError") as caught:
        Journal(path)
    monkeypatch.undo()
    Journal(path).close()
    assert caught


async def test_of_two_users_of_a_journal_the_stronger_promise_counts(tmp_path: Path) -> None:
    with Journal.shared(tmp_path / "j.db") as weak:
        with Journal.shared(tmp_path / "j.db"):
            assert weak._db.execute("PRAGMA synchronous").fetchone() == (1,)
        with Journal.shared(tmp_path / "j.db", durability="machine") as strong:
            assert strong is weak
            assert strong._db.execute("PRAGMA synchronous").fetchone() == (2,)
            threads: set[int] = set()
            strong._db.set_trace_callback(lambda _: threads.add(threading.get_ident()))
            await keep(strong, event("a"))
            assert threads
            assert threading.get_ident() not in threads, "a commit that flushes holds nobody up"
        with Journal.shared(tmp_path / "j.db"):
            assert weak._db.execute("PRAGMA synchronous").fetchone() == (2,)


async def test_words_changed_on_the_disk_are_not_delivered(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db") as journal:
        await keep(journal, event("a", text="oolong"))
    db = sqlite3.connect(tmp_path / "j.db")
    db.execute("UPDATE events SET event = replace(event, 'oolong', 'coffee')")
    db.commit()
    db.close()
    with Journal(tmp_path / "j.db") as journal, pytest.raises(JournalError, match="seq 1"):
        await journal.waiting(key(ADA))


async def test_a_full_disk_is_said_in_words(tmp_path: Path) -> None:
    """The limit on the size of a file, as the system knows it, is what a quota and a full disk look like."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(tmp_path / "j.db") as journal:
        await keep(journal, event("a"))
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "j.db-wal").stat().st_size, before[1]))
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            with pytest.raises(JournalError, match="disk or a quota of it is full; the event was not kept"):
                await keep(journal, event("b", text="tea" * 10_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        await keep(journal, event("c"))
        assert [entry.event.event_id for entry in journal.entries()] == ["a", "c"]
    with Journal(tmp_path / "j.db") as journal:
        assert journal.warnings() == [], "what was refused is not missed"


async def test_room_is_not_made_of_what_a_reset_may_give_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "j.db", max_mb=1) as journal:
        await keep(journal, event("waits"), event("delivered", BOB))
        await journal.record(key(BOB), [WriteReceipt(event_id="delivered", status="committed")])
        await journal.begin_reset(key(ADA))
        monkeypatch.setattr(journal._file, "reaches", lambda mb: True)
        await keep(journal, event("later", BOB))
        await journal.cancel_reset(key(ADA))
        assert [entry.event.event_id for entry in journal.entries()] == ["waits", "later"]
        assert journal.backlog(key(ADA)) == 1


async def test_of_an_event_recorded_again_during_a_reset_the_first_is_never_given_back(
    journal: Journal,
) -> None:
    await keep(journal, event("a"))
    await journal.begin_reset(key(ADA))
    await keep(journal, event("a"))
    await journal.cancel_reset(key(ADA))
    await journal.begin_reset(key(ADA))
    await journal.cancel_reset(key(ADA))
    assert [entry.seq for entry in journal.entries()] == [2]
    assert journal.backlog(key(ADA)) == 1


async def test_a_refused_reset_of_one_backend_gives_nothing_back_of_an_open_one_of_another(
    journal: Journal,
) -> None:
    await keep(journal, event("a"))
    await journal.begin_reset(key(ADA))
    other = key(ADA, "other")
    await keep(journal, event("b"), backend="other")
    await journal.begin_reset(other)
    await journal.cancel_reset(other)
    await journal.end_reset(key(ADA))
    assert [entry.event.event_id for entry in journal.entries()] == ["b"], "a replay brings back the rest"
