"""All data that memslot itself keeps on disk.

- ``store``: one database per memory: a SQLite file in ``data_dir``, or PostgreSQL behind the same calls.
- ``outbox``, ``entries`` and ``leases``: entries that wait for delivery, in order, with their attempts and
next try. - ``journal`` and ``resets``: the events of a memory in the outbox, with their history and resets.
- ``partitions``: every native partition, with its engine and embedder.
- ``kept``: JSON objects that hosts keep beside a memory.
- ``insert``: adds an entry to the outbox with only the standard library, for hook processes.
- ``lock`` and ``files``: one owner per file, and files that are written completely or not at all.

Enters: data that must survive a process. Stays out: backends, event loops' rules, configuration files and
every SDK. Opening a server imports psycopg.
"""
