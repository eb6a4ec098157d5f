"""Resets of embedded stores through the journal, killed at every step: no erased word is left, no receipt lies."""

import hashlib
import os
import shutil
import subprocess
import sys
import uuid

import pytest
from embedded_stores import LOCAL, SCOPE, config, event, postgres, require, stored_text
from reset_steps import ANSWERS, BYSTANDER, words

from memory import open_memory

pytestmark = pytest.mark.thorough

CHILD = "import sys, anyio; from reset_steps import reset; anyio.run(reset, *sys.argv[1:])"
FAST = {("full_history", "done"), ("mem0", "lost"), ("rolling_summary", "refused")}
IN_THE_STORE = ("full_history", "rolling_summary")  # they have no files beside memslot's own store
MATRIX = [
    pytest.param(store, answer, marks=() if (store, answer) in FAST else pytest.mark.thorough)
    for store in LOCAL
    for answer in ANSWERS
]


def play(store, directory, base_url, answer, copies="", die_at=""):
    """Reset in a process that does not come to its end; its exit code."""
    given = [store, str(directory), base_url, answer, str(copies), die_at]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run([sys.executable, "-W", "ignore", "-c", CHILD, *given], env=environment).returncode


def on_disk(directory, *names):
    """Which files of the store hold a word of those. The journal's do until they are forgotten; receipts say so."""
    wanted = [word.encode() for name in names for word in words(name)]
    files = [path for path in directory.rglob("*") if path.is_file() and "memslot.db" not in str(path)]
    return [path.name for path in files if any(word in path.read_bytes() for word in wanted)]


def digest(directory):
    """Of all files below, their names and what they hold."""
    found = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        found.update(f"{path.relative_to(directory)}\0".encode())
        found.update(path.read_bytes() if path.is_file() else b"")
    return found.hexdigest()


async def stored(slot, name, scope=SCOPE):
    """Whether all of an event is stored; half of one never is."""
    text = await stored_text(slot, scope)
    found = [word in text for word in words(name)]
    assert len(set(found)) == 1, f"half of {name} is stored"
    return found[0]


async def erased_or_kept(store, directory, base_url):
    """Open what a killed process left, and say whether the scope was erased: all of it, or nothing."""
    block = config(store, directory, base_url, journal=True)
    async with open_memory(block, scope=SCOPE) as slot:
        await slot.setup_scope(BYSTANDER)
        kept = await stored(slot, "erased1")
        assert await stored(slot, "erased2") == kept
        assert await stored(slot, "bystander", BYSTANDER)
        journal = slot.delivery.journal
        assert len([entry for entry in journal.entries() if entry.event.scope == SCOPE]) == (2 if kept else 0)
    if not kept:
        assert not on_disk(directory, "erased1", "erased2")
    async with open_memory(block, scope=SCOPE) as slot:
        receipt = await slot.record_event(event(1, *words("erased1")))
        assert receipt.status in ("committed", "pending")
        assert bool(receipt.warnings) == kept, receipt.warnings
        assert await stored(slot, "erased1"), "what is acknowledged is there"
    async with open_memory(block, scope=SCOPE) as slot:
        assert await stored(slot, "erased1"), "the reset is over"
        assert await stored(slot, "erased2") == kept
    return not kept


@pytest.mark.parametrize(("store", "answer"), MATRIX)
async def test_a_kill_at_any_step_of_a_reset_leaves_all_or_nothing(store, answer, tmp_path, llm):
    require(store)
    directory, copies = tmp_path / "data", tmp_path / "copies"
    assert play(store, directory, llm.base_url, answer, copies) == 0
    steps = sorted(copies.iterdir())
    names = [path.name[4:] for path in steps]
    if store not in IN_THE_STORE:
        assert on_disk(steps[0], "erased1"), "a search for words that never finds any shows nothing"
    begun, never_was = names.index("after begin_reset"), len(names)
    if answer == "refused":
        never_was = names.index("after cancel_reset")
    outcomes = {}
    for number, copy in enumerate(steps):
        files = digest(copy)
        if files not in outcomes:  # most steps of the journal change no file
            shutil.rmtree(directory)
            shutil.move(copy, directory)
            outcomes[files] = await erased_or_kept(store, directory, llm.base_url)
        erased = outcomes[files]
        if number == 0 or number >= never_was:
            assert not erased, names[number]
        elif begun <= number and (answer != "refused" or number <= names.index("before cancel_reset")):
            assert erased, names[number]


@pytest.fixture(scope="module")
def server():
    with postgres() as uri:
        yield uri


@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_kill_between_any_two_queries_of_a_reset_leaves_all_or_nothing(answer, tmp_path, server):
    store = "mem0 on pgvector"
    outcomes = []
    while True:
        directory = tmp_path / f"d{uuid.uuid4().hex}"
        code = play(store, directory, server, answer, die_at=str(len(outcomes)))
        assert code in (0, 9)
        outcomes.append(await erased_or_kept(store, directory, server))
        if code == 0:
            break
    assert outcomes[0], "it was begun"
    if answer == "refused":
        assert outcomes == sorted(outcomes, reverse=True)
        assert not outcomes[-1]
    else:
        assert all(outcomes)
        assert len(outcomes) > 12
