"""A memory moves: what a journal keeps is written into another backend, and nothing of it is lost on the way."""

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import anyio
import anyio.to_thread
import pytest
from cli_support import invoke
from journals import open_journal

from memory import MemoryEvent, MemoryScope, Message, open_memory
from memory.contract.errors import JournalError
from memory.plugins.opening import build_slot
from memory.runtime import reports_file
from memory.storage.insert import insert
from memory.storage.journal import Journal
from memory.storage.kept import HostStore, StoredObject
from memory.testing import FAKE_KEY, ScriptedLLM

ADA, BOB = MemoryScope(run_id="r", persona_id="ada"), MemoryScope(run_id="r", persona_id="bob")
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
CITIES = ("Lisbon", "Oslo", "Quito", "Riga", "Tunis", "Sofia", "Lima")


def event(number, scope=ADA):
    return MemoryEvent(
        event_id=f"e{number}",
        scope=scope,
        session_id=f"s{number // 3}",
        turn_id=str(number),
        timestamp=START + timedelta(hours=number),
        messages=(
            Message(role="user", content=f"Trip number {number} took me to {CITIES[number % len(CITIES)]}."),
            Message(role="assistant", content=f"I noted trip {number}."),
        ),
        context="work" if number % 2 else "personal",
    )


async def memslot(*arguments, code=0):
    done = await anyio.to_thread.run_sync(invoke, *arguments)
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def files(tmp_path):
    """Configurations by provider, all with their data below the test's own directory."""

    def write(name, provider, block="{}", journal="", group="backends"):
        word = "backend" if group == "backends" else "condition"
        path = tmp_path / f"{name}.yaml"
        path.write_text(
            f"memory:\n  {word}: {provider}\n  scope: {{run_id: r, persona_id: ada}}\n"
            f"  data_dir: {tmp_path / name}\n{journal}  {group}:\n    {provider}: {block}\n",
            encoding="utf-8",
        )
        return path

    return write


async def recorded(config, count):
    async with open_memory(config) as memory:
        await memory.setup_scope(BOB)
        for number in range(count):
            await memory.record_event(event(number))
        await memory.record_event(event(0, BOB))


def bytes_below(directory):
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


def kept(journal):
    with open_journal(journal) as opened:
        return [entry.event for entry in opened.entries()]


@pytest.mark.thorough
async def test_from_mem0_to_graphiti_and_back_every_event_arrives(files, tmp_path):
    first = files("first", "mem0", journal="  journal: true\n")
    back = files("back", "mem0")
    await recorded(first, 7)
    with ScriptedLLM() as llm:
        graph = files(
            "graph",
            "graphiti",
            f"{{llm: {{model: scripted, base_url: '{llm.base_url}', api_key: {FAKE_KEY}}}}}",
            journal="  journal: true\n",
        )
        export, again = tmp_path / "past.jsonl", tmp_path / "again.jsonl"
        await memslot("export", first, "--out", export)
        await memslot("import", export, "--into", graph)
        await memslot("export", graph, "--out", again)
    assert kept(tmp_path / "graph") == kept(tmp_path / "first")
    await memslot("import", again, "--into", back)
    async with build_slot(back) as slot:
        await slot.setup_scope(BOB)
        for number in range(7):
            assert await slot.delivery.find_event(event(number)), number
        context = await slot.before_turn("Which trip took me to Quito?", session_id="later")
    assert "Quito" in context
    assert "2026-03-01" in context, "the original times came along"


async def test_one_person_moves_alone_and_is_forgotten_alone(files, tmp_path):
    first = files("first", "full_history", journal="  journal: true\n", group="conditions")
    await recorded(first, 3)
    moved = await memslot("export", first, "--persona", "bob")
    assert ('"bob"' in moved, '"persona_id": "ada"' in moved) == (True, False)
    beside = HostStore("full_history", tmp_path / "first")
    beside.put(StoredObject("note", ADA, "1", {"content": "Trip number 2, of a host"}))
    beside.close()
    insert(reports_file(tmp_path / "first"), "hook", "1", '"Trip number 2, of a hook"')
    await memslot("journal", "forget", first, "--persona", "ada", "--yes")
    assert [event.scope for event in kept(tmp_path / "first")] == [BOB]
    left = bytes_below(tmp_path)
    assert b"Trip number 2" not in left
    assert b"Trip number 0" in left, "bob's own"
    async with build_slot(first) as slot:
        await slot.setup_scope(ADA)
        assert await slot.before_turn("trip", session_id="s") == ""


async def test_another_store_of_the_same_backend_is_named_by_whoever_forgets(files, tmp_path):
    """What lies there is not reset, and nobody would know where to look for it."""
    first = files("first", "full_history", journal="  journal: true\n", group="conditions")
    await recorded(first, 3)
    with closing(sqlite3.connect(tmp_path / "first" / "memslot.db")) as db, db:
        db.execute("UPDATE outbox SET destination = 'full_history:0123456789ab'")
    printed = await memslot("journal", "forget", first, "--persona", "ada", "--yes")
    assert "left in the backend: what was delivered to full_history:0123456789ab" in printed
    assert kept(tmp_path / "first")


async def test_an_export_goes_through_a_pipe_and_leaves_no_half_of_a_file(files, tmp_path, monkeypatch):
    first = files("first", "full_history", journal="  journal: true\n", group="conditions")
    await recorded(first, 3)
    pipe, out = tmp_path / "pipe", tmp_path / "past.jsonl"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # an export that fails leaves nobody waiting
    with open(reader, "rb", closefd=True) as lines:  # noqa: ASYNC230
        await memslot("export", first, "--out", pipe)
        assert lines.read().count(b"\n") == 5
    assert pipe.is_fifo()
    assert "directory" in await memslot("export", first, "--out", tmp_path, code=2)
    out.write_text("before")

    def torn(self, *_):
        yield from entries(self)
        raise JournalError("memslot.db: damaged")

    entries = Journal.entries
    monkeypatch.setattr(Journal, "entries", torn)
    await memslot("export", first, "--out", out, code=1)
    assert out.read_text() == "before"
    assert not (tmp_path / "past.jsonl.part").exists()


async def test_a_person_nobody_recorded_is_not_called_forgotten(files):
    first = files("first", "full_history", journal="  journal: true\n", group="conditions")
    await recorded(first, 1)
    printed = await memslot("journal", "forget", first, "--persona", "adda", "--yes")
    assert "nothing was recorded of 'adda'" in printed


async def test_nobody_there_is_said(files):
    first = files("first", "full_history", journal="  journal: true\n", group="conditions")
    assert "nothing was recorded yet" in await memslot("journal", "list", first, code=2)
    await recorded(first, 1)
    assert "no events of persona 'eve'" in await memslot("export", first, "--persona", "eve", code=2)
