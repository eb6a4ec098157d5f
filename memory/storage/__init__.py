"""Everything of memslot's own that lies on disk.

- ``store``: one database per memory: a SQLite file in ``data_dir``, or PostgreSQL behind the same calls.
- ``outbox``, ``entries`` and ``leases``: what waits for its delivery, in order, with its attempts and next try.
- ``journal`` and ``resets``: the events of a memory in the outbox, their past and resets.
- ``partitions``: every native partition, with the engine and the embedder it was made with.
- ``kept``: JSON objects that hosts keep beside a memory.
- ``insert``: adds an entry to the outbox with the standard library alone, for hook processes.
- ``lock`` and ``files``: one owner per file, and files that are written whole or not at all.

Enters: what must survive a process. Stays out: backends, event loops' rules, configuration files and every SDK;
psycopg is imported when a server is opened.
"""
