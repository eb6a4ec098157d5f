"""The journal: the past of a memory, resets and forgetting, on a file and on a server."""

import anyio
import anyio.lowlevel
import pytest
from journals import backlog, keep, key, open_journal, waiting, wipe
from said import said
from slot_support import ALICE as ADA
from slot_support import BOB

from memory import InputError, WriteReceipt
from memory.contract.errors import JournalError
from memory.storage.entries import Verdict, list_entries
from memory.storage.journal import JournalEntry


def event(name, scope=ADA, text="Oolong."):
    return said(scope, text, number=1, event_id=name)


def committed(name):
    return Verdict("committed", outcome=WriteReceipt(event_id=name, status="committed").model_dump_json())


async def deliver(journal, name, verdict=None, scope=ADA, backend="obedient"):
    """Note what became of an event."""
    where = key(scope, backend)
    entry = await journal.find(where, name)
    async with journal.outbox.leasing(where.lane) as lease:
        await journal.store.run(
            lambda db: journal.outbox.note_one(db, lease, entry.kept.seq, verdict or committed(name))
        )
    await journal.refresh()


def names(entries):
    return [entry.event.event_id for entry in entries]


@pytest.fixture
def journal(each_store, tmp_path):
    with open_journal(tmp_path) as opened:
        yield opened


async def test_an_event_waits_until_the_backend_has_it(journal):
    assert await keep(journal, event("a"), event("b"), event("c", BOB)) == [None, None, None]
    assert (backlog(journal), journal.backlog(key(ADA)), journal.backlog(key(BOB))) == (3, 2, 1)
    await deliver(journal, "a")
    assert names(await waiting(journal, ADA)) == ["b"]
    assert (await journal.find(key(ADA), "a")).receipt == WriteReceipt(event_id="a", status="committed")


async def test_the_same_event_again_is_not_new(journal):
    await keep(journal, event("a"))
    await deliver(journal, "a")
    [before] = await keep(journal, event("a"))
    assert (before.kept.state, before.delivered) == ("committed", True)


async def test_an_id_used_for_other_words_is_refused_and_keeps_none_of_the_batch(journal):
    await keep(journal, event("a"))
    with pytest.raises(InputError, match="'a' stands in the journal for other messages"):
        await keep(journal, event("b"), event("a", text="Green."))
    assert names(journal.entries()) == ["a"]


async def test_one_id_in_two_scopes_is_two_events(journal):
    await keep(journal, event("a"), event("a", BOB))
    assert journal.scopes() == [(ADA, 1), (BOB, 1)]


async def test_what_one_backend_has_says_nothing_of_another(journal):
    await keep(journal, event("a"))
    await keep(journal, event("a"), backend="other")
    await deliver(journal, "a")
    assert names(await waiting(journal, ADA, "other")) == ["a"]
    assert names(journal.entries()) == ["a"], "the past has it once"
    assert names(journal.entries(everything=True)) == ["a", "a"]
    assert len(journal.forget(ADA.persona_id)) == 2


async def test_entries_come_in_order_and_in_pages(journal, monkeypatch):
    monkeypatch.setattr("memory.storage.entries._PAGE", 4)
    wanted = [f"e{number}" for number in range(23)]
    await keep(journal, *map(event, wanted))
    assert names(journal.entries()) == wanted


async def test_a_reset_ends_what_waits_of_its_scope(journal):
    await keep(journal, event("a"), event("b", BOB))
    await wipe(journal, ADA)
    assert (journal.backlog(key(ADA)), journal.backlog(key(BOB))) == (0, 1)
    assert names(journal.entries()) == ["b"]
    assert await keep(journal, event("a")) == [None]


async def test_a_reset_that_did_nothing_is_taken_back(journal):
    await keep(journal, event("a"), event("b"))
    await keep(journal, event("a"), backend="other")
    await deliver(journal, "a")
    before = [(entry.kept.destination, entry.kept.state) for entry in journal.entries(everything=True)]
    await journal.resets.begin(key(ADA))
    assert (list(journal.entries()), journal.resets.is_open(key(ADA))) == ([], True)
    assert not journal.resets.is_open(key(ADA, "other"))
    await journal.resets.cancel(key(ADA))
    await journal.refresh()
    assert [
        (entry.kept.destination, entry.kept.state) for entry in journal.entries(everything=True)
    ] == before
    assert (journal.resets.is_open(key(ADA)), journal.backlog(key(ADA))) == (False, 1)


async def test_a_reset_whose_end_is_unknown_is_known_to_the_next(journal, tmp_path):
    await keep(journal, event("a"))
    await journal.resets.begin(key(ADA))
    with open_journal(tmp_path) as later:
        assert await later.resets.refresh(key(ADA))
        assert await later.resets.end(key(ADA)), "its words are still there"
    assert not await journal.resets.refresh(key(ADA))


async def test_forgetting_leaves_nothing_of_a_person_on_the_disk(tmp_path):
    words = "a secret that nobody else knows"
    with open_journal(tmp_path) as journal:
        await keep(journal, event("a", text=words), event("b", BOB))
        assert journal.forget(ADA.persona_id) == [key(ADA)]
        assert names(journal.entries()) == ["b"]
        for file in tmp_path.rglob("*.db*"):
            assert not file.is_file() or words.encode() not in file.read_bytes()


async def test_a_row_that_is_no_event_blocks_nothing_and_repeats_nothing(journal):
    words = "words that must not be in the error"
    await keep(journal, event("a"), event("b", text=words), event("c"))
    await journal.store.run(
        lambda db: db.execute("UPDATE outbox SET payload = payload || 'x' WHERE key = 'b'")
    )
    assert names(journal.entries()) == ["a", "c"]
    [bad] = [entry for entry in list_entries(journal.store) if not entry.readable]
    with pytest.raises(JournalError, match="entry 2 of the journal is not as it was written") as caught:
        JournalEntry.of(bad)
    assert words not in str(caught.value)


async def test_a_cancelled_append_is_whole_or_not_at_all(journal):
    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(keep, journal, event(f"{number}a"), event(f"{number}b"))
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    found = set(names(journal.entries()))
    assert {name[0] for name in found if name[1] == "a"} == {name[0] for name in found if name[1] == "b"}


async def test_a_closed_journal_says_so(journal):
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        await keep(journal, event("a"))


async def test_nothing_on_the_way_of_an_event_goes_through_the_whole_journal(tmp_path):
    with open_journal(tmp_path) as journal:
        asked = []
        await keep(journal, event("z"))
        await journal.store.run(lambda db: db.set_trace_callback(asked.append))
        await keep(journal, event("a"), event("b"))
        await deliver(journal, "a")
        await waiting(journal, ADA)
        await journal.find(key(ADA), "a")
        await keep(journal, event("d"))
        assert len(list(journal.entries(ADA))) == 4
        await wipe(journal, ADA)
        await journal.store.run(lambda db: db.set_trace_callback(None))
        queries = [text for text in asked if "outbox" in text and "GROUP BY" not in text]
        assert len(queries) > 15

        def explained(db):
            for query in queries:
                steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()]
                assert not [step for step in steps if step.startswith("SCAN outbox")], (query, steps)

        await journal.store.run(explained, writes=False)
