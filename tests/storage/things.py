"""A table for tests of the store."""

from memory.storage.tables import Tables

THINGS = Tables("things", 1, "CREATE TABLE IF NOT EXISTS things (id TEXT PRIMARY KEY, n INTEGER NOT NULL);")
