"""A reset, and what a process killed at any of its steps leaves behind.

Steps are what the store does to its files, its SQLite statements and its calls of a server. A killed process leaves
its files as they are, so before each step they are copied; a server, which goes on, sees the process really killed.
"""

import os
import re
import shutil
import sqlite3
import sys
from pathlib import Path

from embedded_stores import SCOPE, config, event

from memory import BackendUnavailable, MemoryScope, MemslotError, SupportsReadiness, open_memory

BYSTANDER = MemoryScope(run_id="run", persona_id="bob")
ANSWERS = ("done", "refused", "lost")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGING = re.compile(r"\b(INSERT|UPDATE|DELETE|DROP|COMMIT)\b")
_CONNECT = sqlite3.connect
_CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link")


def words(name):
    """Two of them that nobody else says; long enough that no store keeps them in pieces."""
    return f"{name}-oolong-of-the-north", f"{name}-rooibos-of-the-south"


class Steps:
    """Watches a directory's stores, and calls ``step`` with a name before each change while it is ``on``."""

    def __init__(self, directory, step):
        self.on = False
        self._directory = str(directory)
        self._step = step
        sys.addaudithook(self._seen)
        sqlite3.connect = self._connected

    def take(self, name):
        """A step of that name."""
        if self.on:
            self.on = False
            try:
                self._step(name)
            finally:
                self.on = True

    def _connected(self, *given, **named):
        connection = _CONNECT(*given, **named)
        connection.set_trace_callback(self._statement)
        return connection

    def _statement(self, statement):
        if _CHANGING.search(statement):
            self.take(f"SQL {statement[:20]}")

    def _seen(self, name, given):
        if self.on and (name in _CHANGES or (name == "open" and given[2] & _WRITES)):
            path = str(given[0])  # relative to a descriptor where a tree is deleted
            if path.startswith(self._directory) or not path.startswith("/"):
                self.take(f"{name} {Path(path).name}")

    def around(self, owner, name, shown=""):
        """A step before and after a method of an object, under the name ``shown``."""
        shown = shown or name
        carry_out = getattr(owner, name)

        async def watched(*given):
            self.take(f"before {shown}")
            try:
                return await carry_out(*given)
            finally:
                self.take(f"after {shown}")

        setattr(owner, name, watched)

    def each_query(self):
        """Every statement sent to PostgreSQL is a step."""
        import psycopg

        execute = psycopg.Cursor.execute

        def watched(cursor, query, *given, **named):
            self._statement(str(query))
            return execute(cursor, query, *given, **named)

        psycopg.Cursor.execute = watched


async def reset(store, data_dir, base_url, answer, copies, die_at):
    """Write, reset and be gone, with copies of the files before each step; or be gone at the one of that number."""
    taken = []

    def step(name):
        if die_at:
            if not taken and name != "before reset_scope":
                return  # the journal's own steps are the same for every store
            if len(taken) == int(die_at):
                os._exit(9)
        else:
            shutil.copytree(
                data_dir, Path(copies, f"{len(taken):03d} {name}".replace("/", "_")), symlinks=True
            )
        taken.append(name)

    steps = Steps(Path(data_dir), step)
    async with open_memory(config(store, data_dir, base_url, journal=True), scope=SCOPE) as slot:
        await slot.setup_scope(BYSTANDER)
        for number in (1, 2):
            await slot.record_event(event(number, *words(f"erased{number}")))
        await slot.record_event(event(3, *words("bystander"), scope=BYSTANDER))
        readiness = slot.capability(SupportsReadiness)
        if readiness is not None:
            await readiness.wait_until_ready(SCOPE, 30)
        adapter, journal = slot._adapter, slot.delivery.journal
        _answer(adapter, answer)
        if "pgvector" in store:
            steps.each_query()
        steps.around(adapter, "reset_scope")
        for name in ("begin", "cancel", "end"):
            steps.around(journal.resets, name, f"{name}_reset")
        steps.on = True
        try:
            await slot.reset_scope(SCOPE)
        except MemslotError:
            assert answer != "done"
        steps.take("the answer")
        os._exit(0)


def _answer(adapter, answer):
    """A reset that is ``refused``, or ``lost`` its answer after it was done."""
    carry_out = adapter.reset_scope

    async def answered(scope):
        if answer == "refused":
            raise BackendUnavailable("refused", sent=False)
        receipt = await carry_out(scope)
        if answer == "lost":
            raise ConnectionResetError("lost")
        return receipt

    adapter.reset_scope = answered
