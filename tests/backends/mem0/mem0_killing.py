"""Processes that are killed (SIGKILL) at each of their operations on files, one process for each.

Run as a program, it makes a partition again and again in forked children, each killed one operation later than the
one before, until one of them gets to its end.

    python mem0_killing.py DIRECTORY
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from mem0_support import BOB, event, opened

OPERATIONS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "sqlite3.connect"}
"""Audit events of what changes files, or precedes a change."""


class Death:
    """Counts operations below a directory once it is armed, and kills the process at one of them."""

    def __init__(self, directory, count):
        self.directory, self.left, self.armed = str(directory), count, False
        sys.addaudithook(self.watch)

    def watch(self, kind, arguments):
        if not self.armed or kind not in OPERATIONS or isinstance(arguments[0], int):
            return
        if kind == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        within = (
            kind in ("os.remove", "os.rmdir") and arguments[-1] != -1
        )  # of an open directory, as in rmtree
        if within or self.directory in os.fsdecode(arguments[0]):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


async def make(data_dir, death):
    async with opened(data_dir) as slot:
        death.armed = True
        await slot.setup_scope(BOB)
        await slot.record_event(event("Bob's tea", scope=BOB))
        death.armed = False


def play(directory):
    import memory.backends.mem0.adapter
    import memory.backends.mem0.client  # noqa: F401 (once, before the children are forked)

    count = 1
    while True:
        child = os.fork()
        if child == 0:
            data_dir = directory / f"{count:03}"
            asyncio.run(make(data_dir, Death(data_dir, count)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            break
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        count += 1
    sys.stdout.write(str(count - 1))


def killed_at_every_step(directory):
    """What each of the killed processes left behind, a directory each."""
    program = [sys.executable, __file__, str(directory)]
    environment = {**os.environ, "MEM0_TELEMETRY": "False", "MEM0_DIR": str(directory)}
    done = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return [directory / f"{count:03}" for count in range(1, int(done.stdout.split()[-1]) + 1)]


if __name__ == "__main__":
    play(Path(sys.argv[1]))
