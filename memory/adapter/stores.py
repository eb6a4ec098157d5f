"""For plugins that keep data on this machine: the memory's store, locks, whole files and bounded queues.

Most plugins need none of these. ``settings.store`` is the memory's database, which all parts of memslot
share. ``settings.partitions`` lists a plugin's native partitions. A plugin declares its own tables as
:class:`Tables`, and gets a handle on them by ``settings.store.handle(TABLES)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory.contract._late import attach as _attach
from memory.storage.files import (
    append_bytes,
    flush,
    remove_directory,
    replace_file,
    staged_directory,
    sweep_directories,
)
from memory.storage.insert import create_directory
from memory.storage.lock import FileLock
from memory.storage.partitions import Partition, Partitions
from memory.storage.shared_file import Durability
from memory.storage.store import SqliteStore, Store, digest_of, scope_key, scope_of
from memory.storage.tables import Tables

if TYPE_CHECKING:
    from memory.slot.recent_keys import RecentKeys
    from memory.storage.entries import OUTBOX, Entry, Lane, Verdict
    from memory.storage.outbox import Outbox

__all__ = [
    "OUTBOX",
    "Durability",
    "Entry",
    "FileLock",
    "Lane",
    "Outbox",
    "Partition",
    "Partitions",
    "RecentKeys",
    "SqliteStore",
    "Store",
    "Tables",
    "Verdict",
    "append_bytes",
    "create_directory",
    "digest_of",
    "flush",
    "remove_directory",
    "replace_file",
    "scope_key",
    "scope_of",
    "staged_directory",
    "sweep_directories",
]

# The same names for the running program. A test keeps both equal.
_LATE = {
    "memory.slot.recent_keys": "RecentKeys",
    "memory.storage.entries": "OUTBOX Entry Lane Verdict",
    "memory.storage.outbox": "Outbox",
}

__getattr__, __dir__ = _attach(globals(), _LATE)
