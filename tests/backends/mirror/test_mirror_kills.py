"""A mirror killed at any moment: erased words are found nowhere, and health tells of each difference.

A kill between the primary's answer and the outbox costs a shadow that one write, which nobody was told is kept.
"""

import os
import random
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from both_loops import anyio_backend as anyio_backend

from memory import MemoryScope, open_memory
from memory.backends.mirror.adapter import MirrorAdapter

pytestmark = pytest.mark.thorough

ROUNDS = int(os.environ.get("MIRROR_KILLS", "4"))
SCOPE = MemoryScope(run_id="r", persona_id="p")
CONFIG = {
    "memory": {
        "backend": "mirror",
        "backends": {"mirror": {"primary": "full_history", "shadows": ["full_history"]}},
    }
}
CHILD = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_mirror_kills import CONFIG, SCOPE
from memory import open_memory

async def main():
    async with open_memory(CONFIG, scope=SCOPE, data_dir=Path({data!r})) as memory:
        for cycle in range({first}, {first} + 1000):
            for number in range(4):
                await memory.after_turn(user=f"word-{{cycle}}-{{number}}", session_id="s")
            print(f"erasing {{cycle}}", flush=True)
            await memory.reset_scope(SCOPE)
            print(f"erased {{cycle}}", flush=True)

asyncio.run(main())
"""


def _killed(data, first, after_s):
    """A process that writes and resets, killed so long after its first reset: the last cycle erased, and begun."""
    code = CHILD.format(tests=str(Path(__file__).parent), data=str(data), first=first)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        lines = [child.stdout.readline()]
        threading.Timer(after_s, child.send_signal, [signal.SIGKILL]).start()
        lines += child.stdout.readlines()
    assert child.returncode == -signal.SIGKILL
    numbers = {
        what: [int(n) for n in re.findall(rf"{what} (\d+)", "".join(lines))] for what in ("erased", "erasing")
    }
    return max(numbers["erased"], default=first - 1), max(numbers["erasing"])


def _words(directory):
    """Words in the files of each memory."""
    found = {"primary": set(), "shadow": set()}
    for file in directory.rglob("*"):
        if file.is_file() and "shadows" not in file.parts:
            which = "shadow" if any(part.startswith("full_history-2") for part in file.parts) else "primary"
            found[which] |= set(re.findall(r"word-\d+-\d+", file.read_bytes().decode("utf-8", "replace")))
    return found


async def test_killed_at_any_moment(tmp_path):
    chance, first = random.Random(7), 0
    for _ in range(ROUNDS):
        erased, erasing = _killed(tmp_path, first, chance.uniform(0.0, 0.4))
        async with open_memory(CONFIG, scope=SCOPE, data_dir=tmp_path) as memory:
            adapter = memory._adapter
            assert isinstance(adapter, MirrorAdapter)
            assert await adapter.shadows[0].drained(30.0)
            health = await memory.health()
        words = _words(tmp_path)
        gone = {f"word-{cycle}-{number}" for cycle in range(erased + 1) for number in range(4)}
        assert not gone & words["primary"]
        assert not gone & words["shadow"], "the mirror's own promise: erased words stay nowhere"
        if words["primary"] != words["shadow"] and health.status == "ok":
            last = max(words["primary"], key=lambda word: [int(number) for number in word.split("-")[1:]])
            assert words["primary"] - words["shadow"] == {last}, "the write under way alone"
            assert words["shadow"] < words["primary"]
        first = erasing + 1
        async with open_memory(CONFIG, scope=SCOPE, data_dir=tmp_path) as memory:
            assert (await memory.reset_scope(SCOPE)).verified
            assert (await memory.health()).status == "ok"
        assert _words(tmp_path) == {"primary": set(), "shadow": set()}
