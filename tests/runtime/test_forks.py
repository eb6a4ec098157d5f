"""Forked processes: a child uses nothing of its parent's, is told so at once, and keeps nothing of it alive."""

import json
import os
import signal
import subprocess
import sys

import pytest

from memory import LifecycleError, open_memory_sync
from memory.runtime import turns_of

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def config(tmp_path, backend="full_history"):
    memory = {
        "backend": backend,
        "scope": {"run_id": "r", "persona_id": "ada"},
        "data_dir": str(tmp_path / "data"),
    }
    file = tmp_path / "memslot.yaml"
    file.write_text(json.dumps({"memory": memory}), "utf-8")
    return file


def in_child(work):
    """What ``work`` gives in a forked child, which has 20 seconds."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.parametrize("backend", ["full_history", "no_memory", "mem0"])
def test_a_forked_child_is_told_to_open_its_own_memory_and_leaves_the_parents(tmp_path, backend):
    opening = open_memory_sync(config(tmp_path, backend))
    memory = opening.__enter__()
    memory.after_turn(user="I like oolong.", session_id="s")

    def use():
        for call in (
            lambda: memory.before_turn("oolong", session_id="q"),
            lambda: memory.for_scope(persona_id="bob").before_turn("oolong", session_id="q"),
        ):
            with pytest.raises(LifecycleError, match="open it in each worker"):
                call()
        opening.__exit__(None, None, None)
        return "told"

    assert in_child(use) == "told"
    assert backend == "no_memory" or "oolong" in memory.before_turn("oolong", session_id="q")
    opening.__exit__(None, None, None)


def test_a_forked_child_leaves_the_turns_of_a_memory_and_opens_its_own(tmp_path):
    file = config(tmp_path)
    opening = open_memory_sync(file)
    turns_of(opening.__enter__())

    def use():
        opening.__exit__(None, None, None)
        other = tmp_path / "child"
        other.mkdir()
        with open_memory_sync(config(other)) as own:
            own.after_turn(user="I like sencha.", session_id="s")
            return own.before_turn("sencha", session_id="q")

    assert "sencha" in in_child(use)
    opening.__exit__(None, None, None)


OWNER = """
import json, os, sys, anyio
from memory.runtime import open_shared
async def main():
    async with open_shared(sys.argv[1]) as slot:
        await slot.after_turn(user="My bike is red.", session_id="s")
        if not os.fork():
            import time
            time.sleep(120)
            os._exit(0)
        print("open", flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.mark.thorough
async def test_an_owner_that_forked_and_died_is_succeeded_at_once(tmp_path):
    import anyio

    from memory.runtime import open_shared

    file = config(tmp_path)
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-W", "ignore", "-c", OWNER, str(file)],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as owner:
        try:
            assert await anyio.to_thread.run_sync(owner.stdout.readline) == "open\n"
            async with open_shared(file) as second:
                assert "red" in await second.before_turn("bike", session_id="q")
                owner.kill()
                await anyio.to_thread.run_sync(owner.wait)
                with anyio.fail_after(20):
                    assert "red" in await second.before_turn("bike", session_id="q")
        finally:
            os.killpg(owner.pid, signal.SIGKILL)
