"""Opens the memory of a cell: for its sessions, and for each test in its state before any test.

A test must not teach the memory, so each test opens it anew:

- as a copy of the store, if files hold all of the memory
- by a fresh reader of the same store, if a server or a path outside the cell holds it
- as a new memory that gets all events again, if it lives only in its process
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Literal, Self

from memory.bench.engine.files import HarnessFailed
from memory.contract.events import MemoryEvent
from memory.contract.requests import AdapterMode
from memory.contract.scope import MemoryScope
from memory.slot.slot import MemorySlot
from memory.storage.insert import FILE_NAME

Way = Literal["copy", "fresh reader", "told again"]
"""How a test opens the memory."""
_BESIDE = {"outbox", "journal", "partitions", "host store", "mirror"}
"""Groups of tables that memslot keeps beside a memory. Other groups belong to a memory."""
_BESIDE_DATA = re.compile(r"(-wal|-shm|-journal|\.lock|\.tmp|\.part)\Z")
ACCUMULATION = AdapterMode(read_only=False, reason="accumulation")


class Openings:
    """Opens the memory of a cell as often as its timeline needs it.

    Args:
        build: makes a slot on a directory.
        store: the memory's directory.
    """

    def __init__(self, build: Callable[[Path], MemorySlot], store: Path) -> None:
        self._build, self._store = build, store
        self._copy = store.with_name(f"{store.name}-test")
        self.slot = build(store)

    async def __aenter__(self) -> Self:
        self._drop_copy()  # left by a process that was killed in a test
        await self.slot.__aenter__()
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self.slot.aclose()
        self._drop_copy()

    def _drop_copy(self) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)

    def way(self) -> Way:
        """How tests open the memory, as far as its files and its declared store tell.

        memslot's own rows beside a server are not a memory. A copy of them would send waiting events twice.
        """
        files = (
            each for each in self._store.rglob("*") if each.is_file() and not _BESIDE_DATA.search(each.name)
        )
        if any(not each.name.startswith(FILE_NAME) for each in files) or self._keeps_rows():
            return "copy"
        return "fresh reader" if self.slot.traits.store else "told again"

    def _keeps_rows(self) -> bool:
        """Whether the memory has its own tables in memslot's store."""
        file = self._store / FILE_NAME
        if not file.exists():
            return False
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            groups = {what for (what,) in database.execute("SELECT what FROM versions")}
        return bool(groups - _BESIDE)

    @asynccontextmanager
    async def aside(self, scope: MemoryScope) -> AsyncIterator[Way]:
        """A context for tests. Afterwards, sessions continue with ``slot``, which may be a new one."""
        way = self.way()
        if way != "told again":
            await self.slot.aclose()
        yield way
        if self.slot.closed:
            self.slot = self._build(self._store)
            await self.slot.__aenter__()
            await self.slot.setup_scope(scope)

    @asynccontextmanager
    async def reader(
        self, way: Way, scope: MemoryScope, told: Sequence[MemoryEvent]
    ) -> AsyncIterator[MemorySlot]:
        """The memory in its state before any test, open for one test."""
        place = self._store if way == "fresh reader" else self._copy
        if way == "copy":
            self._copy_store()
        async with self._build(place) as slot:
            await slot.setup_scope(scope)
            if way == "told again":
                for event in told if slot.traits.recalls_writes else told[-1:]:
                    await slot.record_event(event)
            yield slot
        if way != "fresh reader":
            self._drop_copy()

    def _copy_store(self) -> None:
        try:
            shutil.copytree(self._store, self._copy, ignore=_special_files)
        except OSError as error:  # shutil.Error is one, without a reason
            why = error.strerror or "its files cannot be read"
            raise HarnessFailed(
                f"the store cannot be copied for a test ({why}); make room and resume"
            ) from error


def _special_files(directory: str, names: list[str]) -> list[str]:
    """Sockets and pipes, which hold no data."""
    place = Path(directory)
    modes = {name: (place / name).lstat().st_mode for name in names}
    return [name for name, mode in modes.items() if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)]
