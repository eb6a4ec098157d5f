"""Two windows on one memory: later processes attach to the first, and one of them takes over when it ends."""

import asyncio
import json
import stat
import subprocess
import sys
from contextlib import AsyncExitStack, ExitStack

import anyio
import anyio.to_thread
import pytest
from backends import of_backend

from conditions.full_history import FullHistory
from memory import AdapterMode, BackendUnavailable, InputError, SupportsNativeMutation, SupportsProvenance
from memory.runtime import MemoryItems, SocketOwner, TurnMemory, load_config, open_shared
from memory.runtime import _attach_owner as attach_owner
from memory.runtime._attach import RemoteAdapter
from memory.runtime._attach_owner import socket_of
from memory.runtime._sockets import connected_to
from memory.storage import outbox

OWNER = """
import sys, json, anyio
from memory.runtime import open_shared
async def main():
    async with open_shared(json.loads(sys.argv[1])) as slot:
        await slot.after_turn(user="My bike is red.", session_id="s")
        print("open", flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


def config(tmp_path, **memory):
    given = {
        "backend": "mem0",
        "scope": {"run_id": "r", "persona_id": "ada"},
        "data_dir": str(tmp_path / "kept"),
    }
    return {"memory": {**given, **memory}}


def place(tmp_path):
    return socket_of(load_config(config(tmp_path)))


async def text(slot, query="bike tea"):
    return await slot.before_turn(query, session_id="asking")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "memory", [{}, {"backend": None, "condition": "full_history"}], ids=["mem0", "full_history"]
)
async def test_what_one_window_writes_the_other_reads(tmp_path, memory):
    given = config(tmp_path, **memory)
    given["memory"] = {name: value for name, value in given["memory"].items() if value is not None}
    async with open_shared(given) as first, open_shared(given) as second:
        assert first.capabilities() == second.capabilities()
        await first.after_turn(user="My bike is red.", session_id="a")
        receipt = await second.after_turn(user="My tea is oolong.", session_id="b")
        assert receipt.status == "committed"
        for slot in (first, second):
            assert "My bike is red." in await text(slot)
            assert "My tea is oolong." in await text(slot)
        assert (await second.health()).status == "ok"
        assert second.scope is not None
        await second.reset_scope(second.scope)
        assert await text(first) == ""


async def test_capabilities_and_errors_come_through(tmp_path):
    async with open_shared(config(tmp_path)) as first, open_shared(config(tmp_path)) as second:
        assert second.scope is not None
        receipt = await first.after_turn(user="My bike is red.", session_id="a")
        items = MemoryItems(second)
        found = await items.get(receipt.native_ids[0])
        assert found.content == "My bike is red."
        await items.modify(receipt.native_ids[0], "My bike is blue.")
        assert "blue" in await text(first)
        assert await items.get("nobody") is None
        assert second.capability(SupportsProvenance) is not None
        assert second.capability(SupportsNativeMutation) is not None


@pytest.mark.parametrize("journal", [True, False])
async def test_the_outbox_is_the_owners(tmp_path, journal):
    given = config(tmp_path, journal=journal)
    async with open_shared(given) as first, open_shared(given) as second, TurnMemory(second) as memory:
        assert await memory.record_turn(session_id="s", user="My bike is red.")
        with anyio.fail_after(20):
            while "red" not in await text(first):  # noqa: ASYNC110
                await anyio.sleep(0.02)


@pytest.mark.thorough
async def test_a_killed_owner_is_succeeded_and_loses_nothing(tmp_path):
    given = config(tmp_path)
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", OWNER, json.dumps(given)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert await anyio.to_thread.run_sync(owner.stdout.readline) == "open\n"
        async with open_shared(given) as second, open_shared(given) as third:
            await second.after_turn(user="My tea is oolong.", session_id="s")
            owner.kill()
            await anyio.to_thread.run_sync(owner.wait)
            for slot in (second, third):
                assert "red" in await text(slot)
                assert "oolong" in await text(slot)
            await third.after_turn(user="My hat is green.", session_id="s")
            assert "green" in await text(second, "hat")
    async with open_shared(given) as again:
        assert "green" in await text(again, "hat")


async def test_only_its_user_may_enter(tmp_path):
    async with open_shared(config(tmp_path)):
        socket = place(tmp_path)
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(socket.parent.stat().st_mode) & 0o077 == 0
    assert not socket.exists()


async def test_no_socket_lies_in_a_shared_temporary_directory(tmp_path, monkeypatch):
    """There, another user could create its path first."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(shared))
    monkeypatch.setattr("tempfile.tempdir", None)
    async with AsyncExitStack() as opened:
        for user in ("ada", "long" * 30):  # a long path is no obstacle
            given = config(tmp_path, data_dir=str(tmp_path / user))
            first = await opened.enter_async_context(open_shared(given))
            second = await opened.enter_async_context(open_shared(given))
            assert await text(first) == ""
            await second.after_turn(user=f"The bike of {user} is red.", session_id="a")
            assert user in await text(first)
        assert list(shared.iterdir()) == []


async def test_an_event_of_70_mb_is_refused_in_one_sentence(tmp_path):
    given = config(tmp_path, journal=True)
    async with open_shared(given) as first, open_shared(given) as second:
        for slot in (first, second):
            with pytest.raises(
                InputError, match=r"takes 70000[0-9]+ bytes; at most 16000000 are allowed"
            ) as found:
                await slot.after_turn(user="x" * 70_000_000, session_id="a")
            assert len(str(found.value)) < 200
            assert slot.delivery.waiting() == 0
        await second.after_turn(user="My bike is red.", session_id="a")
        assert "red" in await text(first)


async def test_it_opens_although_the_backend_is_down(tmp_path):
    of_backend("honcho")
    block = {"honcho": {"base_url": "http://127.0.0.1:9", "timeout_s": 1}}
    given = config(tmp_path, backend="honcho", backends=block)
    async with open_shared(given, setup=False) as first, open_shared(given, setup=False) as second:
        for slot in (first, second):
            assert slot.scope is not None
            with pytest.raises(BackendUnavailable):
                await slot.setup_scope(slot.scope)


@pytest.mark.parametrize("then", ["goes on", "first ends", "second ends"])
async def test_a_reset_in_one_window_erases_what_still_waits_in_another(tmp_path, monkeypatch, then):
    """Words that were acknowledged before the reset and not sent yet do not come back."""
    record = FullHistory.record_event

    async def down(self, event):
        raise BackendUnavailable("down", sent=False)

    monkeypatch.setattr(FullHistory, "record_event", down)
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.01)
    given = {"memory": {**config(tmp_path)["memory"], "condition": "full_history"}}
    del given["memory"]["backend"]
    async with AsyncExitStack() as windows:
        first = await windows.enter_async_context(open_shared(given))
        async with open_shared(given) as second, TurnMemory(second) as memory:
            assert second.scope is not None
            assert await memory.record_turn(session_id="s", user="My bike is red.")
            await first.reset_scope(second.scope)
            if then != "second ends":
                assert await memory.record_turn(session_id="s", user="My tea is oolong.")
            if then == "first ends":
                await windows.aclose()
            monkeypatch.setattr(FullHistory, "record_event", record)
    async with open_shared(given) as again, TurnMemory(again) as memory:
        assert await memory.drain(20)
        assert ("oolong" in await text(again)) == (then != "second ends")
        assert "red" not in await text(again)


async def test_a_window_that_owns_the_memory_is_read_only_for_every_window(tmp_path):
    async with open_shared(config(tmp_path)) as first, open_shared(config(tmp_path)) as second:
        await second.set_mode(AdapterMode(read_only=True, reason="looking"))
        assert (await first.after_turn(user="My bike is red.", session_id="a")).status == "committed"
        assert (
            await second.after_turn(user="My hat is green.", session_id="b")
        ).status == "skipped_read_only"
        await second.set_mode(AdapterMode(read_only=False))
        await first.set_mode(AdapterMode(read_only=True, reason="looking"))
        assert (
            await second.after_turn(user="My hat is green.", session_id="b")
        ).status == "skipped_read_only"
        await first.set_mode(AdapterMode(read_only=False))
        assert (await second.after_turn(user="My hat is green.", session_id="b")).status == "committed"


async def test_what_its_owner_does_not_take_is_counted_and_breaks_no_host(tmp_path, monkeypatch):
    async def refuse(self, name, *arguments):
        raise BackendUnavailable("it does not answer", sent=False)

    given = config(tmp_path)
    async with open_shared(given), open_shared(given) as second, TurnMemory(second) as memory:
        with monkeypatch.context() as broken:
            broken.setattr(RemoteAdapter, "call", refuse)
            assert not await memory.record_turn(session_id="s", user="My bike is red.", event_id="e")
            assert memory.status()["not_recorded"] == 1
        assert await memory.record_turn(session_id="s", user="My bike is red.", event_id="e")


@pytest.mark.thorough
async def test_a_busy_owner_costs_no_call(tmp_path):
    slow = {"setup_s": 300, "write_s": 300}  # a slow machine changes nothing
    given = config(tmp_path, backend=None, condition="full_history", deadlines=slow)
    given["memory"].pop("backend")
    busy = OWNER.replace(
        "await anyio.sleep_forever()",
        "import time\n        sys.stdin.readline()\n        time.sleep(2)\n        await anyio.sleep_forever()",
    )
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", busy, json.dumps(given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdin is not None
        assert await anyio.to_thread.run_sync(owner.stdout.readline) == "open\n"
        async with open_shared(given, setup=False) as second:
            owner.stdin.write("\n")
            owner.stdin.flush()
            receipts = []

            async def write(number):
                receipt = await second.for_scope().after_turn(user=f"Note {number}.", session_id=f"s{number}")
                receipts.append(receipt.status)

            async with anyio.create_task_group() as tasks:
                for number in range(200):
                    tasks.start_soon(write, number)
            assert receipts == ["committed"] * 200
            owner.kill()


def test_as_many_calls_as_a_busy_host_makes_wait_at_the_socket(tmp_path):
    """98 of 200 failed with the event loop's own 100 places."""
    with ExitStack() as opened, SocketOwner(tmp_path / "s.sock", what="a test") as owner:
        assert owner.take()
        opened.enter_context(owner.listen())
        for _ in range(120):
            opened.enter_context(connected_to(owner.path))


@pytest.mark.parametrize("line", [b"[]\n", b"5\n", b"\xff\n", b'{"method": 5}\n', b"x" * 1000 + b"\n"])
async def test_a_frame_that_cannot_be_used_is_answered_in_one_sentence(tmp_path, line, monkeypatch, caplog):
    monkeypatch.setattr(attach_owner, "MAX_LINE", 500)
    async with open_shared(config(tmp_path)) as first:
        lines, writer = await asyncio.open_unix_connection(place(tmp_path))
        writer.write(line)
        answer = json.loads(await lines.readline())
        assert answer["error"]
        assert "Traceback" not in caplog.text
        writer.close()
        assert await text(first) == ""


async def test_what_lies_in_the_sockets_place_is_named(tmp_path):
    place(tmp_path).mkdir(parents=True)
    with pytest.raises(BackendUnavailable, match=r"is no socket.*remove it"):
        async with open_shared(config(tmp_path)):
            pytest.fail("it opened")
