"""The embedded store: a directory for each scope, opened when it is used.

    <path>/qdrant/.lock                        one owner at a time
    <path>/qdrant/scopes/<collection>/<scope>/ Qdrant's files of one scope, and mem0's history of it

Embedded Qdrant reads a collection whole when it opens it, and goes through all of it with every search. With a
directory of its own, a search costs what its scope holds, a start what is used, and a reset removes the directory.
Qdrant and SQLite guard their own files; the table of partitions says which scopes there are.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mem0 import Memory

from memory import BackendError, BackendUnavailable, ConfigError, IsolationError, MemslotError
from memory.adapter import IdAlphabet, StoreError, trim_heap
from memory.adapter.stores import (
    FileLock,
    Partition,
    remove_directory,
    staged_directory,
    sweep_directories,
)
from memory.backends.mem0.client import NativeMem0
from memory.backends.mem0.models import Models
from memory.backends.mem0.opening import make_directory, opening
from memory.backends.mem0.stores import WatchedStore
from memory.backends.mem0.translate import Ids

# In small letters, which every file system keeps apart. No name starts with a dot.
NAMES = IdAlphabet(safe="-", escape="_", separator="_x", max_length=120)


class _Opened:
    """A partition that is open: its ``Memory``, and how many calls use it."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.users = 0
        self.dropped = False

    def close(self) -> None:
        _close(self.memory)


class EmbeddedMem0(NativeMem0):
    """Keeps the partitions that were used last open. One call at a time may use it, see :class:`StoreLock`."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._base = Path(self._config.vector_store.config.path)
        self._root = self._base / "scopes" / NAMES.encode(self._collection)
        self._lock = FileLock(
            self._base / ".lock",
            what=f"the embedded store at {self._base}",
            instead=f"give this one another {self.where}.path, or configure a server in {self.where}.vector_store",
        )
        self._open: OrderedDict[Path, _Opened] = OrderedDict()

    @contextmanager
    def memory(self, ids: Ids) -> Iterator[Memory]:
        opened = self._opened(ids)
        opened.users += 1
        try:
            yield opened.memory
        finally:
            opened.users -= 1
            if opened.dropped and not opened.users:
                opened.close()

    def probe(self, ids: Ids | None = None) -> Models:
        models = self._start()
        if ids is not None:
            self._opened(ids)
            return models
        for directory, opened in self._open.items():
            opened.memory.vector_store.col_info()
            self._assert_there(directory)
        return models

    def describe(self) -> tuple[dict[str, Any], list[str]]:
        details, warnings = super().describe()
        return {
            **details,
            "partitions": len(self._partitions.all()),
            "open_partitions": len(self._open),
        }, warnings

    def purge(self, ids: Ids) -> tuple[int | None, bool, tuple[str, ...]]:
        """A directory that cannot be read goes as well, its memories uncounted."""
        removed: int | None = None
        try:
            removed = len(self.rows(ids, limit=sys.maxsize))
        except IsolationError:
            raise
        except (BackendError, ConfigError, StoreError) as error:
            if isinstance(error, BackendUnavailable) or getattr(error, "ambiguous", False):
                raise
        self._start()
        directory = self._place(ids)
        opened = self._open.pop(directory, None)
        if opened is not None:
            opened.dropped = True
            if not opened.users:  # else a call waits for a model; it closes what it can no longer reach
                opened.close()
        self._partitions.drop(self._key(ids))  # killed before the next line, the scope is as it was
        remove_directory(directory)
        return removed, not directory.exists(), ()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
        super().close()
        self._lock.release()
        trim_heap()

    def _start(self) -> Models:
        if not self._lock.held:  # also where its directory was removed, and may be another's by now
            self._refuse_mem0s_own()
            make_directory(self._root, self.where)
            self._lock.acquire()
        if self._models is None:
            try:
                sweep_directories(self._root)
                with opening(self.where):
                    self._models = self._build_models()
            except BaseException:
                self.close()
                raise
        return self._models

    def _refuse_mem0s_own(self) -> None:
        """A store that mem0's own class made would read as empty.

        Raises:
            ConfigError: there is one; names it and its collections.
        """
        for place in {self._base, self._base.parent}:
            try:
                names = list(json.loads((place / "meta.json").read_bytes())["collections"])
            except (OSError, ValueError, LookupError, TypeError):
                continue
            if names:
                raise ConfigError(
                    f"{self.where}.path: {place} holds a Qdrant store that memslot did not make (collections "
                    f"{', '.join(names)}); give another path, and record the events of the old store again"
                )

    def _opened(self, ids: Ids) -> _Opened:
        models = self._start()
        directory = self._place(ids)
        if directory in self._open:
            self._assert_there(directory)
        else:
            self._make_room()
            self._open[directory] = self._open_at(directory, ids, models)
        self._open.move_to_end(directory)
        return self._open[directory]

    def _place(self, ids: Ids) -> Path:
        return self._root / self._name_of(ids)

    @staticmethod
    def _name_of(ids: Ids) -> str:
        return NAMES.encode(ids["user_id"], ids["run_id"], ids.get("agent_id"))

    def _key(self, ids: Ids) -> str:
        return f"{self._collection}/{self._name_of(ids)}"

    def _make_room(self) -> None:
        idle = [directory for directory, opened in self._open.items() if not opened.users]
        for directory in idle[: max(0, len(self._open) - self._options.open_partitions + 1)]:
            self._open.pop(directory).close()

    def _assert_there(self, directory: Path) -> None:
        if not self._is_there(directory):
            raise _damaged(directory, "files were removed while it was open")

    def _is_there(self, directory: Path) -> bool:
        """Whether Qdrant has rows to read; without these files it would begin anew, and read as empty."""
        files = (directory / "meta.json", directory / "collection" / self._collection / "storage.sqlite")
        return all(file.is_file() and file.stat().st_size for file in files)

    def _open_at(self, directory: Path, ids: Ids, models: Models) -> _Opened:
        try:
            location = directory.relative_to(self._data_dir).as_posix()
        except ValueError:  # an absolute path elsewhere
            location = str(directory)
        embedder = models.embedder
        wanted = Partition(
            self._key(ids),
            location,
            "qdrant",
            embedder.embedder.name,
            embedder.dimensions,
            *embedder.embedder.prefixes,
        )
        new = self._partitions.listed(wanted.scope) is None
        if not new:
            self._partitions.open(
                wanted, exists=self._is_there(directory), is_empty=lambda: self._holds_nothing(directory)
            )
        try:
            if not directory.exists():
                with staged_directory(directory) as making:
                    _close(self._memory_at(making, models))
            opened = self._opened_files(directory, ids, models)
        except MemslotError:
            raise
        except Exception as error:
            raise _damaged(directory, f"it cannot be opened ({type(error).__name__})") from error
        if new:  # listed once it is there, and before anything is acknowledged
            self._partitions.note(wanted)
        return opened

    def _opened_files(self, directory: Path, ids: Ids, models: Models) -> _Opened:
        memory = self._memory_at(directory, models)
        vectors = memory.vector_store.client.get_collection(self._collection).config.params.vectors
        if vectors.size != models.embedder.dimensions:
            empty = not memory.vector_store.list(top_k=1)[0]
            _close(memory)
            if not empty:
                raise ConfigError(
                    f"{self.where}.embedder: the collection {self._collection!r} holds vectors of {vectors.size}, "
                    f"the embedder makes {models.embedder.dimensions}; use the embedder it was written with, or "
                    "another collection"
                )
            remove_directory(directory)
            make_directory(directory, self.where)
            memory = self._memory_at(directory, models)
        memory.reranker = models.reranker
        memory.vector_store = WatchedStore(
            memory.vector_store, self._notes, ids=ids, vectors_only=self.no_keywords is not None
        )
        return _Opened(memory)

    def _memory_at(self, directory: Path, models: Models) -> Memory:
        store = self._config.vector_store
        native = store.config.model_copy(update={"path": str(directory)})
        return Memory(
            models.injected(
                self._config,
                vector_store=store.model_copy(update={"config": native}),
                history_db_path=str(directory / "history.db"),
            )
        )

    def _holds_nothing(self, directory: Path) -> bool:
        from qdrant_client import QdrantClient

        client = QdrantClient(path=str(directory))
        try:
            return bool(client.count(self._collection).count == 0)
        finally:
            client.close()


def _close(memory: Memory) -> None:
    """Both of its engines; mem0's own ``close`` does the history alone."""
    memory.vector_store.client.close()
    memory.close()


def _damaged(directory: Path, what: str) -> BackendError:
    text = f"the partition at {directory} is damaged: {what}; restore it from a backup, or reset the scope"
    return BackendError(text, sent=False)
