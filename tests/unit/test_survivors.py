"""Lines of the core whose loss no other test noticed, each with what goes wrong without it."""

import errno
import sqlite3
import threading
from dataclasses import replace

import anyio
import anyio.to_thread
import pytest
from journals import keep, open_journal
from slot_support import ALICE, BOB, Lookup, Obedient, ask, event

from memory import (
    AdapterMode,
    BackendUnavailable,
    ContextBudget,
    Deadlines,
    InputError,
    MemorySlot,
    ScopeError,
    SupportsBulkIngest,
    WriteReceipt,
)
from memory.adapter import (
    BackendProtocolError,
    BackendRejected,
    ContextEntry,
    JsonHttp,
    NativeWorker,
    ShieldedCalls,
    SqliteFile,
    SqliteLayout,
    StoreError,
    Utf8TokenCounter,
    check_url,
    expect,
    normalise_error,
)
from memory.adapter._http import _may_pass
from memory.contract.adapter import capabilities_of
from memory.contract.formatting import (
    NEUTRAL_LABELS,
    entry_cost,
    fit_entries,
    section_overhead,
)
from memory.doctor.hints import Hints
from memory.plugins.config import load_config


async def test_a_look_up_waits_for_the_write_that_was_given_up():
    """Asked while it still runs, the backend says "not stored", and the event would be sent a second time."""

    class Slow(Lookup):
        shielded = ShieldedCalls()
        stored = False

        async def record_event(self, event):
            async def write():
                await go_on.wait()
                self.stored = True
                return WriteReceipt(event_id=event.event_id, status="committed")

            return await self.shielded.run(event.scope, write)

        async def find_event(self, event):
            asked.append(self.stored)
            return (event.event_id,) if self.stored else None

    go_on, asked, receipts = anyio.Event(), [], []
    deadlines = Deadlines(write_s=0.05, query_s=30.0)
    async with MemorySlot(Slow(), scope=ALICE, deadlines=deadlines) as slot:

        async def write():
            receipts.append(await slot.record_event(event(1)))

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await anyio.sleep(0.2)
            assert asked == [], "the write may still be carried out"
            go_on.set()
    assert asked == [True]
    assert receipts[0].status == "committed"


def test_what_sqlite_fails_with_is_raised(tmp_path):
    """Swallowed, an event that is not on the disk would be acknowledged."""
    layout = SqliteLayout(
        what="thing", application_id=1, version=1, tables="CREATE TABLE things (name TEXT);"
    )
    for number, durability in ((2, "machine"), (1, "process")):  # FULL: flushed before it is acknowledged
        file = SqliteFile(tmp_path / "things.db", layout, durability)
        assert file.db.execute("PRAGMA synchronous").fetchone() == (number,)
        file.close()
    file = SqliteFile(tmp_path / "things.db", layout)
    with pytest.raises(StoreError, match="cannot be used") as caught:
        file.sync(lambda: file.db.execute("INSERT INTO nothing VALUES (1)"))
    assert isinstance(caught.value.__cause__, sqlite3.Error)
    (tmp_path / "things.db").unlink()
    with pytest.raises(StoreError, match="removed, replaced or emptied"):
        file.check()
    file.close()
    with pytest.raises(StoreError, match="is closed"):
        file.sync(lambda: None)


def test_a_megabyte_is_reached_by_its_last_page():
    layout = SqliteLayout(
        what="thing", application_id=1, version=1, tables="CREATE TABLE things (body BLOB);"
    )
    file = SqliteFile(None, layout)
    page = file.db.execute("PRAGMA page_size").fetchone()[0]
    count = 0
    while count * page < 1024 * 1024:
        assert not file.reaches(1)
        file.db.execute(f"CREATE TABLE t{count} (body BLOB)")
        count = file.db.execute("PRAGMA page_count").fetchone()[0]
    assert count * page == 1024 * 1024
    assert file.reaches(1)
    file.close()


async def test_what_no_backend_can_keep_is_not_kept_for_it(tmp_path):
    """Acknowledged, it would wait for ever."""

    class Narrow(Obedient):
        def native_scope(self, scope):
            if scope != ALICE:
                raise ScopeError("no such scope here")
            return super().native_scope(scope)

    async with MemorySlot(Narrow(), scope=ALICE) as slot:
        with pytest.raises(ScopeError):
            await slot.delivery.keep(event(1, BOB))
    async with MemorySlot(Narrow(), scope=ALICE, journal=open_journal(tmp_path)) as slot:
        with pytest.raises(ScopeError):
            await slot.delivery.keep(event(1, BOB))
        assert list(slot.delivery.journal.entries()) == []


@pytest.mark.parametrize(
    "answer", [["text"], [None], [], [WriteReceipt(event_id="another", status="committed")]]
)
async def test_a_bulk_answer_of_another_shape_is_no_receipt(answer):
    """Taken for one, an event of which nothing is known would be called stored."""

    class Bulk(Obedient):
        async def record_events(self, events):
            return answer

    async with MemorySlot(Bulk(), scope=ALICE) as slot:
        bulk = slot.capability(SupportsBulkIngest)
        with pytest.raises(BackendProtocolError, match="a write") as caught:
            await bulk.record_events([event(1)])
        assert caught.value.receipts == ()


async def test_a_call_of_a_closed_worker_was_never_sent():
    """Else a write refused by an adapter that is closed would be "unknown", and looked up in vain."""
    worker = NativeWorker(name="memslot-test")
    await worker.aclose()
    with pytest.raises(BackendUnavailable) as caught:
        await worker.run(lambda: 1)
    assert not caught.value.ambiguous


def failure(kind, **more):
    status = more.pop("status", None)
    return kind("x", diagnostics={"status": status} if status else {}, **more)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (failure(BackendUnavailable, status=500), True),
        (failure(BackendUnavailable, status=503), True),
        (failure(BackendUnavailable, status=501), False),
        (failure(BackendRejected, status=422), False),
        (failure(BackendUnavailable), True),
        (failure(BackendUnavailable, sent=False), False),
        (failure(BackendProtocolError), False),
    ],
)
def test_a_request_is_repeated_only_where_the_failure_may_pass(error, again):
    assert _may_pass(error) is again


@pytest.mark.parametrize("url", ["http://me:secret@host", "https://token@host/path", "http://@host"])
def test_credentials_in_an_address_are_refused(url):
    """They would stand in errors, logs and manifests, where addresses are shown."""
    for refuse in (check_url, lambda url: JsonHttp(check_url(url), backend="b")):
        with pytest.raises(InputError, match="must not hold credentials") as caught:
            refuse(url)
        assert "secret" not in str(caught.value)


def test_the_label_of_a_group_costs_of_the_budget():
    """Not counted, every group made a section longer than it may be."""
    counter = Utf8TokenCounter()
    entries = [ContextEntry("tea", group="a rather long label of a group " * 4), ContextEntry("tea")]
    plain = [ContextEntry("tea"), ContextEntry("tea")]
    budget = ContextBudget(max_tokens=20)
    assert fit_entries(plain, budget, counter, overhead=0) == (0, 1)
    assert fit_entries(entries, budget, counter, overhead=0) == (1,)
    same = [ContextEntry("tea", group="a group")] * 3
    label = counter.count("[a group]\n")
    exact = ContextBudget(max_tokens=label + 3 * entry_cost(same[0], counter))
    assert len(fit_entries(same, exact, counter, overhead=0)) == 3, "it is shown once"
    assert len(fit_entries(same, exact, counter, overhead=1)) == 2


async def test_a_caller_that_has_given_up_keeps_nothing_in_the_journal(tmp_path):
    """Kept behind its back, an event would be delivered that nobody was told of."""
    with open_journal(tmp_path) as journal:
        with anyio.CancelScope() as given_up:
            given_up.cancel()
            await keep(journal, event(1))
        assert given_up.cancelled_caught
        assert list(journal.entries()) == []


@pytest.mark.parametrize(
    ("native", "remedy"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "is full (ENOSPC)"),
        (OSError(errno.EROFS, "Read-only file system"), "must not write (EROFS)"),
        (PermissionError(errno.EACCES, "Permission denied"), "must not write (EACCES)"),
    ],
)
def test_a_full_or_read_only_disk_is_named_with_its_place(native, remedy):
    own = BackendUnavailable("it cannot be written", sent=False)
    own.__cause__ = native
    config = load_config({"memory": {"backend": "mem0", "data_dir": "/somewhere/else"}})
    for error in (native, own):
        failed = normalise_error(error, backend_name="mem0", operation="record_event")
        for hint in (Hints(config).fix(failed), Hints(config).unavailable(failed.diagnostics)):
            assert remedy in hint
            assert "/somewhere/else" in hint
            assert "reached" not in hint


def test_a_capability_is_offered_only_where_it_is_implemented_and_not_withheld():
    """Offered without either, a host would call what is not there, or what the configuration rules out."""

    class Bulk(Obedient):
        async def record_events(self, events):
            return []

    assert capabilities_of(Obedient()) == frozenset()
    assert capabilities_of(Bulk()) == {"bulk_ingest"}
    for withheld in (frozenset({"bulk_ingest"}), ["bulk_ingest"]):  # as a plugin may write it
        Bulk.withheld_capabilities = withheld
        assert capabilities_of(Bulk()) == frozenset()


async def test_a_switch_of_the_mode_waits_for_what_was_given_up_on_a_worker():
    """Else a write lands in a test session that is read-only."""

    class Working(Obedient):
        pass

    adapter, begun, go_on, done = Working(), threading.Event(), threading.Event(), []
    adapter.worker = NativeWorker(name="memslot-test")

    def write():
        begun.set()
        go_on.wait(60)
        done.append("written")

    async with anyio.create_task_group() as given_up:
        given_up.start_soon(adapter.worker.run, write)
        await anyio.to_thread.run_sync(begun.wait)
        given_up.cancel_scope.cancel()
    async with anyio.create_task_group() as group:

        async def switch():
            await adapter.set_mode(AdapterMode(read_only=True))
            done.append("switched")

        group.start_soon(switch)
        await anyio.sleep(0.05)
        go_on.set()
    assert done == ["written", "switched"]
    await adapter.worker.aclose()


async def test_a_row_that_comes_twice_is_shown_once_and_one_without_an_id_as_often_as_it_comes():
    """Servers give a record in several groups; it would take the place of another."""

    class Doubling(Obedient):
        async def retrieve(self, request):
            found = await super().retrieve(request)
            return found.model_copy(update={"entries": tuple(rows)})

    again = ContextEntry("tea", native_id="1", scope_ids={"id": ALICE.label})
    rows = [again, again, replace(again, text="milk"), replace(again, prose=True), replace(again, prose=True)]
    rows += [replace(again, native_id=None)] * 2
    async with MemorySlot(Doubling(), scope=ALICE) as slot:
        shown = (await slot.retrieve(ask())).entries
    assert list(shown) == [again, *rows[2:]]


@pytest.mark.parametrize("neutral", [False, True])
async def test_only_a_neutral_slot_gives_back_what_its_labels_do_not_take(neutral):
    """Else a provider with a long name has less room than one with a short name."""
    asked = []

    class Packs(Obedient):
        async def retrieve(self, request):
            asked.append(request.budget.max_tokens)
            return await super().retrieve(request)

    async with MemorySlot(Packs(), scope=ALICE, neutral_sections=neutral) as slot:
        for room in (500, None):
            await slot.retrieve(ask(budget=ContextBudget(max_tokens=room)))
        own, same = (
            section_overhead(*labels, slot.delivery.token_counter)
            for labels in (("obedient", ALICE.label), NEUTRAL_LABELS)
        )
    assert own != same
    assert slot.delivery.budget == ContextBudget()
    assert MemorySlot(Packs(), budget=ContextBudget(max_tokens=7)).delivery.budget.max_tokens == 7
    assert asked == [500 + own - same if neutral else 500, None]


@pytest.mark.parametrize(("kind", "answer"), [(dict, []), (list, {}), (str, 1), (int, "1")])
def test_an_answer_of_another_form_is_named(kind, answer):
    """Passed on, it fails later, without saying where, or reads as empty."""
    with pytest.raises(BackendProtocolError, match="GET /notes: expected"):
        expect(kind, answer, "GET /notes")
    assert expect(kind, kind(), "x") == kind()
