"""The embedded store: a partition for each scope, opened when it is used. Embedded Qdrant reads a collection
whole when it opens it, and goes through all of it with every search. With a collection of its own a search
costs what its scope holds, a start what is used, and a reset removes the directory."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mem0 import Memory
from mem0.memory.main import _build_session_scope

from memory import BackendError, BackendUnavailable, IsolationError, MemslotError
from memory.adapter import FileLock, remove_directory, staged_directory, sweep_directories, trim_heap
from memory.backends.mem0 import partition
from memory.backends.mem0.client import History, NativeMem0, assemble, make_directory, opening
from memory.backends.mem0.models import Models, watch_inserts
from memory.backends.mem0.partition import LocalClient, ScopeStore
from memory.backends.mem0.translate import Ids

_FILES = 9  # that an open partition may have open: three of memories, of entities and of history


class ScopeMemory(Memory):  # type: ignore[misc]
    """A ``Memory`` on one partition; the collection of its entities is made with the first of them."""

    ids: Ids
    logs: partition.Logs
    count: partition.RowCount
    shares_history: bool
    users = 0
    _entity_store: ScopeStore | None

    @property
    def entity_store(self) -> ScopeStore:
        """mem0's own property would have it filtered and indexed like a server's."""
        if self._entity_store is None:
            name = f"{self.collection_name}_entities"
            native, client = self.config.vector_store.config, self.vector_store.client
            self._entity_store = ScopeStore(native, name, client, self.logs, self.ids, None)
        return self._entity_store

    def close(self) -> None:
        """mem0's own ``close`` does the history only, which may be others' as well."""
        self.logs.end()
        store = self.vector_store
        store.client.close()
        del store.insert  # the watch over it, which refers back to the store and keeps both for the collector
        if not self.shares_history:
            self.db.close()


class Partitions(NativeMem0):
    """Those last used are kept open. One call at a time may use it, see :class:`StoreLock`."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        native, where = self._config.vector_store.config, self.where
        self._base = Path(native.path)
        self._collection: str = native.collection_name
        self._root = self._base / "scopes" / partition.NAMES.encode(self._collection)
        self._lock = FileLock(
            self._base / ".lock",
            what=f"the embedded store at {self._base}",
            instead=f"give this one another {where}.path, or configure a server in {where}.vector_store",
        )
        self._open: OrderedDict[Path, ScopeMemory] = OrderedDict()
        self._history: History | None = None
        self._closed = 0

    @contextmanager
    def memory(self, ids: Ids) -> Iterator[ScopeMemory]:
        memory = self._opened(ids)
        memory.users += 1
        try:
            yield memory
        finally:
            memory.users -= 1
            if memory.logs.dropped and not memory.users:
                memory.close()

    def probe(self, ids: Ids | None = None) -> Models:
        models = self._start()
        if ids is not None:
            self._opened(ids)
            return models
        for directory, memory in self._open.items():
            memory.vector_store.col_info()
            self._check(directory, memory.ids)
        return models

    def entities(self, memory: ScopeMemory) -> ScopeStore | None:
        """None in a partition that never had one, in this process or another."""
        name = f"{self._collection}_entities"
        return memory.entity_store if name in memory.vector_store.client.collections else None

    def describe(self) -> tuple[dict[str, Any], list[str], list[str]]:
        details, warnings, _ = super().describe()
        found = sum(1 for path in self._root.iterdir() if not path.name.startswith("."))
        problems = [memory.count.warning() for memory in self._open.values() if memory.count.lost]
        return {**details, "partitions": found, "open_partitions": len(self._open)}, warnings, problems

    def purge(self, ids: Ids) -> tuple[int | None, bool, tuple[str, ...]]:
        """A directory that cannot be read goes as well, its memories uncounted."""
        removed: int | None = None
        left: tuple[str, ...] = ()
        session = _build_session_scope(ids)
        try:
            with self.memory(ids):
                rows = self.rows(ids, limit=sys.maxsize)
                removed = len(rows)
                if self._history is not None:
                    self._history.forget_session(session, [row["id"] for row in rows])
        except IsolationError:
            raise
        except BackendError as error:
            if error.ambiguous or isinstance(error, BackendUnavailable):
                raise
            if self._history is not None:  # by the ids of memories, which cannot be read
                self._history.forget_session(session, [])
                left = (f"the history of its memories in {self._options.history_path}",)
        self._start()
        directory = self._directory(ids)
        memory = self._open.pop(directory, None)
        if memory is not None:
            if not memory.users:  # a call that waits for a model keeps it open, and can write no more
                memory.close()
            memory.logs.end(dropped=True)
        remove_directory(directory)
        return removed, not directory.exists(), left

    def close(self) -> None:
        owned = self._lock.held  # else the files of these names are another's by now
        while self._open:
            memory = self._open.popitem()[1]
            memory.logs.end(dropped=not owned)
            memory.close()
        super().close()
        history, self._history = self._history, None
        if history is not None:
            history.close()
        self._lock.release()
        trim_heap()

    def _start(self) -> Models:
        if not self._lock.held:  # also where its directory was removed, and may be another's by now
            make_directory(self._root, self.where)
            self._lock.acquire()
        if self._models is not None:
            return self._models
        try:
            sweep_directories(self._root)
            with opening(self.where):
                self._models = self._build_models()
                shared = self._options.history_path
                if shared is not None:
                    make_directory(shared.parent, self.where)
                    self._history = History(shared, self._notes, shared=True)
        except BaseException:
            self.close()
            raise
        return self._models

    def _opened(self, ids: Ids) -> ScopeMemory:
        self._start()
        directory = self._directory(ids)
        if directory not in self._open:
            self._make_room()
            self._open[directory] = self._open_at(directory, dict(ids))
        elif not directory.exists():
            raise partition.damaged(directory, "it was removed while it was open")
        self._open.move_to_end(directory)
        return self._open[directory]

    def _directory(self, ids: Ids) -> Path:
        return self._root / partition.NAMES.encode(ids["user_id"], ids["run_id"], ids.get("agent_id"))

    def _make_room(self) -> None:
        idle = [directory for directory, memory in self._open.items() if not memory.users]
        for directory in idle[: max(0, len(self._open) - self._max_open() + 1)]:
            self._open.pop(directory).close()
            self._closed += 1
            if self._closed % 32 == 0:  # seldom: memory is given back to the system
                trim_heap()

    def _max_open(self) -> int:
        """As configured, or as many as the open files that the system allows."""
        try:
            import resource
        except ModuleNotFoundError:  # Windows, which allows thousands
            return self._options.open_partitions
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = (files - 64) // _FILES if files != resource.RLIM_INFINITY else sys.maxsize
        return max(1, min(self._options.open_partitions, allowed))

    def _open_at(self, directory: Path, ids: dict[str, str]) -> ScopeMemory:
        if not directory.exists():
            with staged_directory(directory) as making:
                self._open_files(making, ids).close()
                (making / partition.MARK).write_text(json.dumps(ids), encoding="utf-8")
        self._check(directory, ids)
        memory = None
        try:
            memory = self._open_files(directory, ids)
            memory.logs.opened()
            self._check_length(self._collection, memory.vector_store.length)
        except Exception as error:
            if memory is not None:
                memory.close()
            if isinstance(error, MemslotError):
                raise
            why = f"it cannot be opened ({type(error).__name__})"
            raise partition.damaged(directory, why) from error
        return memory

    def _check(self, directory: Path, ids: Ids) -> None:
        own = partition.HISTORY if self._history is None else None
        partition.check(directory, ids, self._collection, own)

    def _open_files(self, directory: Path, ids: Ids) -> ScopeMemory:
        client, logs = LocalClient(directory), partition.Logs(directory, self._options.durability)
        count = partition.RowCount(directory)
        history = self._history
        try:
            store = ScopeStore(self._config.vector_store.config, self._collection, client, logs, ids, count)
            if history is None:
                history = History(directory / partition.HISTORY, self._notes, shared=False)
                logs.keep(partition.HISTORY, history.connection)
        except BaseException:
            client.close()
            if history is not None and history is not self._history:
                history.close()
            raise
        watch_inserts(store, self._notes)
        memory: ScopeMemory = assemble(ScopeMemory, self._config, self._start(), store, history)
        memory.ids, memory.logs, memory.count = ids, logs, count
        memory.shares_history = self._history is not None
        return memory
