"""The process that sends the writes of concurrent hooks (:mod:`memory.stigmem.spool`)."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from memory.contract._surviving import Failures, words_of
from memory.contract.errors import StoreError
from memory.stigmem.abi import StigmemAbi
from memory.stigmem.commands import _abi, commands, failure_line, strict
from memory.stigmem.spool import KIND
from memory.storage.entries import OUTBOX, Entry
from memory.storage.insert import FILE_NAME
from memory.storage.outbox import Outbox
from memory.storage.store import SqliteStore

_AT_A_TIME = 8
_LINGER_S = 2.0
_POLL_S = 0.02
_HANGING_S = 2.0

log = logging.getLogger("memslot.stigmem")
_BEGUN = "UPDATE outbox SET sent = 1 WHERE seq = ? AND state = 'waiting'"
_ANSWERED = "UPDATE outbox SET state = 'sent', outcome = ? WHERE kind = ? AND key = ? AND state = 'waiting'"
_stderr: ContextVar[list[str]] = ContextVar("_stderr")


class _HookLogHandler(logging.Handler):
    """Passes log lines of a write to the hook that asked for it."""

    def emit(self, record: logging.LogRecord) -> None:
        if (lines := _stderr.get(None)) is not None:
            lines.append(f"{record.getMessage()}\n")


@dataclass
class Sender:
    """Works on one directory until it was idle for :data:`_LINGER_S` seconds."""

    directory: Path
    _failures: Failures = field(default_factory=lambda: Failures("stigmem", log))
    _under_way: dict[str, float] = field(default_factory=dict)  # job -> monotonic time after which it hangs

    def __post_init__(self) -> None:
        self._store = SqliteStore(self.directory / FILE_NAME, (OUTBOX,))

    async def run(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()
        limiter = anyio.CapacityLimiter(_AT_A_TIME)
        idle_since = time.monotonic()
        async with anyio.create_task_group() as tasks:
            while self._under_way or time.monotonic() - idle_since < _LINGER_S:
                with self._failures.survived("reading the outbox"):
                    for entry in await self._store.run(_waiting, writes=False):
                        if entry.key not in self._under_way:
                            self._under_way[entry.key] = float("inf")
                            tasks.start_soon(self._handle, entry, limiter)
                if self._under_way:
                    idle_since = time.monotonic()
                await anyio.sleep(_POLL_S)
        with contextlib.suppress(StoreError):
            self._store.call(_drop_unread)
            self._store.fold()  # erases the sent text from the disk
            self._store.close()

    async def _handle(self, entry: Entry, limiter: anyio.CapacityLimiter) -> None:
        lines: list[str] = []
        _stderr.set(lines)
        stdout = ""
        try:
            async with limiter:
                with self._failures.survived("a hand-over") as handled:
                    if not await self._store.run(lambda db: db.execute(_BEGUN, (entry.seq,)).rowcount):
                        return  # the hook took the entry back
                    stdout = await self._send(entry, lines)
                if handled.error is not None:
                    lines.append(f"warning: stigmem: {words_of(handled.error)}\n")
            with self._failures.survived("an answer"):
                self._answer(entry.key, stdout, "".join(lines))
        finally:
            del self._under_way[entry.key]

    async def _send(self, entry: Entry, lines: list[str]) -> str:
        wanted: _abi.WriteCommand | None = None
        try:
            wanted, refused = _read_command(entry.payload)
            if wanted is None:
                lines.append(refused)
                return ""
            abi = StigmemAbi.from_env("process")
            # The ids derive from the entry's key, so that the next sender would repeat the same write.
            write = wanted.build(replace(abi.surfaces, unique=entry.key))
            with anyio.fail_after(wanted.wait) as limit:
                go_on = partial(self._go_on, entry.key, limit, wanted.wait)
                go_on()
                facts = await abi.perform(write, go_on)
            return _abi.result_line(write, facts, as_json=wanted.as_json)
        except TimeoutError:
            within = f" within {wanted.wait:g} s" if wanted else ""
            lines.append(f"warning: stigmem: not finished{within}\n")
        except Exception as error:
            lines.append(f"warning: {failure_line(error)}\n")
        return ""

    def _go_on(self, name: str, limit: anyio.CancelScope, wait: float, *_: object) -> None:
        """Begin the wait for the node's next answer."""
        limit.deadline = anyio.current_time() + wait
        self._under_way[name] = time.monotonic() + wait + _HANGING_S

    def _answer(self, name: str, stdout: str, stderr: str) -> None:
        answer = json.dumps({"stdout": stdout, "stderr": stderr})
        self._store.call(lambda db: db.execute(_ANSWERED, (answer, KIND, name)))

    def _watch(self) -> None:
        """End the process if a cancellation hangs, because a name look-up cannot be cancelled."""
        while True:
            time.sleep(_HANGING_S / 4)
            if any(hangs < time.monotonic() for hangs in list(self._under_way.values())):
                for name, hangs in list(self._under_way.items()):
                    if hangs != float("inf"):
                        with contextlib.suppress(StoreError):
                            self._answer(name, "", "warning: stigmem: not finished in time\n")
                os._exit(1)


def _waiting(db: Any) -> list[Entry]:
    return Outbox.read(db, "kind = ? AND state = 'waiting' ORDER BY seq LIMIT 100", (KIND,))


def _drop_unread(db: Any) -> None:
    """Remove old answers that no hook has read."""
    db.execute(
        "DELETE FROM outbox WHERE kind = ? AND state = 'sent' AND "
        "recorded_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-120 seconds')",
        (KIND,),
    )


def _read_command(payload: str) -> tuple[_abi.WriteCommand | None, str]:
    """Return the write that a hook's command line asks for, or None, and the messages for the hook."""
    arguments: list[str] = json.loads(payload)["arguments"]
    collected: list[_abi.WriteCommand] = []
    said = io.StringIO()
    _abi.handed_over.set(collected)
    strict.set(False)
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            commands.main(args=arguments, prog_name="memslot tools stigmem", standalone_mode=False)
        except Exception as error:
            said.write(f"warning: {failure_line(error)}\n")
    return (collected[0] if collected else None), said.getvalue()


async def main(directory: str) -> None:
    """Send for the hooks that share a directory. The lock is inherited from the starting process."""
    log.addHandler(_HookLogHandler())
    log.propagate = False
    await Sender(Path(directory)).run()
    os._exit(0)  # a normal end would wait for pending name look-ups while it holds the lock


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
