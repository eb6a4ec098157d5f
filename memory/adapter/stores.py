"""For plugins that keep data on this machine: the memory's store, locks, whole files and bounded queues.

``settings.store`` is the memory's database. ``settings.partitions`` lists a plugin's native partitions. A
plugin gets a handle on its own :class:`Tables` by ``settings.store.handle(TABLES)``.
"""

from __future__ import annotations

from memory.slot.recent_keys import RecentKeys
from memory.storage.entries import OUTBOX, Entry, Lane, Verdict
from memory.storage.files import remove_directory, replace_file, staged_directory, sweep_directories
from memory.storage.insert import create_directory
from memory.storage.lock import FileLock
from memory.storage.outbox import Outbox
from memory.storage.partitions import Partition, Partitions
from memory.storage.shared_file import Durability
from memory.storage.store import SqliteStore, Store, scope_key, scope_of
from memory.storage.tables import Tables

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
    "create_directory",
    "remove_directory",
    "replace_file",
    "scope_key",
    "scope_of",
    "staged_directory",
    "sweep_directories",
]
