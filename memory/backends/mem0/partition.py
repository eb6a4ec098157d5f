"""One scope's partition of the embedded store: its files, and mem0's Qdrant store over its rows.

    <path>/qdrant/.lock                                one owner at a time
    <path>/qdrant/scopes/<collection>/<scope>/         a partition:
        scope.json                                       whose it is
        meta.json, collection/*/storage.sqlite           Qdrant's
        history.db                                       mem0's
        logs.json                                        which files' logs there are, while it is written to
        rows                                             how many memories it holds, and how many are lost

One that lacks a file, or has an empty one, was damaged from outside; it is never taken for a new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import weakref
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from mem0.vector_stores.base import VectorStoreBase
from mem0.vector_stores.qdrant import Qdrant
from qdrant_client.http.models import CreateCollection, ScoredPoint
from qdrant_client.local.distances import EPSILON
from qdrant_client.local.local_collection import DEFAULT_VECTOR_NAME, LocalCollection
from qdrant_client.local.payload_filters import check_filter
from qdrant_client.local.qdrant_local import META_INFO_FILENAME, QdrantLocal

from memory import BackendError, IsolationError
from memory.adapter import Durability, IdAlphabet
from memory.backends.mem0.translate import Ids

Filters = Mapping[str, Any] | None
HISTORY = "history.db"
MARK = "scope.json"
_LOGS = "logs.json"
_LOG_BEGINS = b"\x37\x7f\x06"  # https://sqlite.org/walformat.html
_BATCH = 1024  # rows whose exact scores are computed at a time
# In small letters, which every file system keeps apart. No name starts with a dot.
NAMES = IdAlphabet(safe="-", escape="_", separator="_x", max_length=120)


def collection_file(collection: str) -> str:
    """Where Qdrant keeps the rows of a collection, below a partition."""
    return f"collection/{collection}/storage.sqlite"


class RowCount:
    """How many memories a partition holds, so that a log that was cut never reads as healthy. Noted after they
    are inserted and before they are deleted: wherever the process ends, no fewer are stored."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "rows"
        self.lost = 0  # memories that were acknowledged and are missing; kept until the file is removed

    def compare(self, stored: int) -> None:
        with suppress(FileNotFoundError, ValueError):
            noted, lost = map(int, self._path.read_bytes().split())
            self.lost = lost + max(0, noted - stored)
        self.write(stored)

    def write(self, rows: int) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.write(file, b"%012d %012d\n" % (rows, self.lost))
        finally:
            os.close(file)

    def warning(self) -> str:
        return (
            f"{self.lost} acknowledged memories of {self._path.parent.name} are gone; restore the partition from a "
            f"copy, or remove its file {self._path.name} to go on without them"
        )


class Logs:
    """The write-ahead logs of a partition's SQLite files: a commit waits for the disk once instead of several
    times. Until a file is closed, what was written may be in its log alone, and SQLite takes a file without it for
    what it was before. So the partition notes which logs there are: those of a killed process are missed. One that
    ends without closing anything lets SQLite close the files, so the note goes with whoever made it."""

    def __init__(self, directory: Path, durability: Durability) -> None:
        self._directory = directory
        self._durability = durability
        self._connections: dict[str, sqlite3.Connection] = {}
        self._begun: set[str] = set()
        self.dropped = False
        self._ending: weakref.finalize[..., Logs] | None = None

    def keep(self, file: str, connection: sqlite3.Connection) -> None:
        """The file, below the directory, has no other connection as long as this one is open."""
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if self._durability == 'machine' else 'NORMAL'}")
        self._connections[file] = connection

    def opened(self) -> None:
        """The files are open: the logs a killed process left have been read, and may be gone."""
        (self._directory / _LOGS).unlink(missing_ok=True)

    def begin(self) -> None:
        """Before a write. Every log has a beginning before it is noted."""
        if self.dropped:
            raise BackendError("the scope was reset meanwhile; nothing was stored", sent=False)
        if len(self._begun) == len(self._connections):
            return
        for name in self._connections.keys() - self._begun:
            self._connections[name].execute("PRAGMA user_version=1")
            self._begun.add(name)
        note = self._directory / _LOGS
        note.write_text(json.dumps(sorted(self._begun)), encoding="utf-8")
        if self._ending is None:
            self._ending = weakref.finalize(self, _forget, note, os.getpid())

    def end(self, *, dropped: bool = False) -> None:
        """Before the files are closed; or ``dropped`` while they are open: what takes their place is another."""
        self.dropped = self.dropped or dropped
        if self._ending is not None:
            self._ending.detach()
        if not self.dropped:
            (self._directory / _LOGS).unlink(missing_ok=True)


def _forget(note: Path, owner: int) -> None:
    if os.getpid() == owner:  # a fork of it has not ended for all
        note.unlink(missing_ok=True)


def check(directory: Path, ids: Ids, collection: str, history: str | None) -> None:
    """``history`` is the name of its own, where ``history_path`` puts it nowhere else."""
    for name in filter(None, (MARK, "meta.json", collection_file(collection), history)):
        path = directory / name
        if not path.exists():
            where = ", and history_path names no other" if name == history else ""
            raise damaged(directory, f"{name} is missing{where}")
        if path.stat().st_size == 0:
            raise damaged(directory, f"{name} is empty")
    try:
        noted: list[str] = json.loads((directory / _LOGS).read_bytes())
    except (FileNotFoundError, ValueError):  # killed while it was noted, so nothing is in the logs yet
        noted = []
    for name in noted:
        if not _begins(directory / f"{name}-wal"):
            raise damaged(directory, f"{name}-wal is missing or empty")
    try:
        marked = json.loads((directory / MARK).read_bytes())
    except ValueError:
        raise damaged(directory, f"{MARK} is unreadable") from None
    if marked != ids:
        raise IsolationError(f"the partition at {directory} is of another scope; nothing was done")


def _begins(log: Path) -> bool:
    try:
        with log.open("rb") as file:
            return file.read(len(_LOG_BEGINS)) == _LOG_BEGINS
    except FileNotFoundError:
        return False


def damaged(directory: Path, what: str) -> BackendError:
    text = f"the partition at {directory} is damaged: {what}; restore it from a backup, or reset the scope"
    return BackendError(text, sent=False)


class LocalClient(QdrantLocal):  # type: ignore[misc]
    """The embedded Qdrant of a directory that somebody else has locked. Not a ``QdrantClient``, which copies the
    schemas of every model it could embed with: 7 ms and 2 MB each. Without a lock: portalocker may import redis."""

    def __init__(self, directory: Path) -> None:
        # Several threads use it, one at a time. SQLite's own check, where it is built so, wants a single one.
        super().__init__(str(directory), force_disable_check_same_thread=True)

    def _load(self) -> None:
        listing = Path(self.location, META_INFO_FILENAME)
        if not listing.exists():
            return
        for name, config in json.loads(listing.read_bytes())["collections"].items():
            _assert_readable(Path(self.location, collection_file(name)))
            path = self._collection_path(name)
            rows = LocalCollection(CreateCollection(**config), path, force_disable_check_same_thread=True)
            self.collections[name] = rows
            loaded = rows.vectors.get(DEFAULT_VECTOR_NAME)
            # Qdrant loads them with 64 bits, and of the length they came in; here as inserting them gave them.
            if loaded is not None and loaded.dtype != np.float32:
                units = [_unit(row) for row in loaded.astype(np.float32)]
                rows.vectors[DEFAULT_VECTOR_NAME] = np.array(units, dtype=np.float32).reshape(loaded.shape)


def _assert_readable(file: Path) -> None:
    """Raise what SQLite says of a file that is damaged or missing; Qdrant would leave its own connection to one
    open, and make the other. Opened for writing: SQLite must be able to roll back what a killed process left."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)) as connection:
        connection.execute("SELECT name FROM sqlite_master").fetchall()


class _NoCommit(nullcontext[None]):
    """A connection whose blocks do not commit: whoever made this does."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self.execute = connection.execute


class ScopeStore(Qdrant):  # type: ignore[misc]
    """The rows of one scope: the native store without conditions that all of them meet. ``count`` is of memories.
    Qdrant's local mode evaluates a filter in Python over every row; it normalises its vectors in place with each
    search, so that equal questions get other last digits; and equal scores come as the rows lie in memory."""

    def __init__(
        self, native: Any, name: str, client: LocalClient, logs: Logs, ids: Ids, count: RowCount | None
    ) -> None:
        self._ids, self._logs, self._count = ids, logs, count
        super().__init__(name, native.embedding_model_dims, client=client, on_disk=native.on_disk)
        self.is_local = True
        rows = client.collections[name]
        logs.keep(collection_file(name), rows.storage.storage)
        if count is not None:
            for payload in rows.payload:
                text = str(payload.get("data", "")).encode()  # as mem0 computes it
                if hashlib.md5(text, usedforsecurity=False).hexdigest() != payload.get("hash"):
                    raise damaged(Path(client.location), "a memory is not as it was written")
            count.compare(len(rows.ids))

    @property
    def length(self) -> int:
        size: int = self.client.collections[self.collection_name].get_vector_params(DEFAULT_VECTOR_NAME).size
        return size

    def _create_filter_indexes(self) -> None:
        """Local mode has none."""

    def search(
        self, query: str, vectors: Sequence[float], top_k: int = 5, filters: Filters = None
    ) -> list[ScoredPoint]:
        """By cosine, equals newest first. Chosen by Qdrant's 32-bit vectors and ordered by their exact products:
        neither what lies beside a row nor what was asked before makes a difference."""
        rows = self.client._get_collection(self.collection_name)
        if not rows.payload:
            return []
        asked = np.asarray(vectors, dtype=np.float64)
        if np.isnan(asked).any():
            raise ValueError("Query vector must not contain NaN")
        asked = asked / max(float(np.linalg.norm(asked)), EPSILON)
        matrix = rows.vectors[DEFAULT_VECTOR_NAME][: len(rows.payload)]
        rough = matrix @ asked.astype(np.float32)
        alive = rows._payload_and_non_deleted_mask(None, DEFAULT_VECTOR_NAME).astype(bool)
        rough[~alive] = -np.inf
        near = self._candidates(rows, rough, top_k, self._create_filter(self._beyond_scope(filters)))
        return _ranked(rows, near, _products(matrix, near, asked), top_k)

    def _candidates(self, rows: Any, rough: Any, top_k: int, condition: Any) -> list[int]:
        """The best ``top_k`` rows that meet the condition, and all that rounding may have put behind them."""
        texts = _equal_texts(condition)

        def meets(index: int) -> Any:
            payload = rows.payload[index]
            if texts is not None and all(type(payload.get(name)) is str for name, _ in texts):
                return all(payload[name] == text for name, text in texts)
            return check_filter(condition, payload, rows.ids_inv[index], rows._calculate_has_vector(index))

        rounding = 2 * rough.dtype.type(np.finfo(np.float32).eps) * self.embedding_model_dims
        near: list[int] = []
        least = -np.inf
        for index in np.argsort(-rough, kind="stable"):
            if rough[index] == -np.inf or rough[index] < least:
                break
            if meets(index):
                near.append(int(index))
                if len(near) == top_k:
                    least = rough[index] - rounding
        return near

    # One after the other, where Qdrant's own has a search of its own.
    search_batch = VectorStoreBase.search_batch

    def keyword_search(self, query: str, top_k: int = 5, filters: Filters = None) -> list[ScoredPoint] | None:
        found: list[ScoredPoint] | None = super().keyword_search(query, top_k, self._beyond_scope(filters))
        return found

    def list(self, filters: Filters = None, top_k: int = 100) -> Any:
        return super().list(self._beyond_scope(filters), top_k)

    def insert(self, vectors: Any, payloads: Any = None, ids: Any = None) -> None:
        """All rows or none, where the native one commits each."""
        self._logs.begin()
        kept = self.client.collections[self.collection_name].storage
        connection = kept.storage
        kept.storage = _NoCommit(connection)
        try:
            with connection:
                super().insert(vectors, payloads, ids)
        except BaseException:
            kept.storage = connection
            for native_id in ids or ():  # of what the client holds in memory
                super().delete(native_id)
            raise
        finally:
            kept.storage = connection
        self._note(0)

    def _note(self, fewer: int) -> None:
        if self._count is not None:
            self._count.write(len(self.client.collections[self.collection_name].ids) - fewer)

    def delete(self, vector_id: str) -> None:
        self._logs.begin()
        self._note(1)
        super().delete(vector_id)

    def update(self, vector_id: str, vector: Any = None, payload: dict[str, Any] | None = None) -> None:
        """The vector as opening the store again would give it."""
        self._logs.begin()
        super().update(vector_id, vector, payload)
        rows = self.client._get_collection(self.collection_name)
        if vector is not None:
            rows.vectors[DEFAULT_VECTOR_NAME][rows.ids[vector_id]] = _unit(np.array(vector, dtype=np.float32))

    def _beyond_scope(self, filters: Filters) -> dict[str, Any]:
        return {name: value for name, value in (filters or {}).items() if self._ids.get(name) != value}


def _equal_texts(condition: Any) -> Sequence[tuple[str, str]] | None:
    """What a condition asks for that is only texts to be equal: Qdrant's check takes ten times as long."""
    given = condition.model_dump(exclude_none=True) if condition is not None else {}
    found = []
    for part in given.pop("must", ()):
        match part:
            case {"key": str(name), "match": {"value": str(text)}} if len(part) == 2 and name.isidentifier():
                found.append((name, text))
            case _:
                return None
    return None if given else found


def _unit(vector: Any) -> Any:
    norm = np.linalg.norm(vector)
    return vector / norm if norm > EPSILON else vector


def _products(matrix: Any, near: Sequence[int], asked: Any) -> list[float]:
    """Exact to the last digit of 64 bits, and the same for a row wherever it lies; a product of matrices is not."""
    found: list[float] = []
    for start in range(0, len(near), _BATCH):
        found += (matrix[near[start : start + _BATCH]].astype(np.float64) * asked).sum(axis=1).tolist()
    return found


def _ranked(rows: Any, near: Sequence[int], scores: Sequence[float], top_k: int) -> list[ScoredPoint]:
    """Best first; equals by time, newest first, then by text, so that two runs over the same events agree."""
    points = []
    for index, score in zip(near, scores, strict=True):
        native_id, payload = rows.ids_inv[index], rows.payload[index]
        points.append(ScoredPoint.model_construct(id=native_id, score=score, payload=payload, version=0))
    points.sort(key=lambda point: (str(point.payload.get("hash")), str(point.id)))
    points.sort(key=lambda point: str(point.payload.get("created_at")), reverse=True)
    points.sort(key=lambda point: point.score, reverse=True)
    for point in points[:top_k]:
        point.payload = {
            key: deepcopy(value) if isinstance(value, (list, dict)) else value
            for key, value in point.payload.items()
        }
    return points[:top_k]
