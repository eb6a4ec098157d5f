"""All data that memslot itself keeps on disk.

Enters: data that must survive a process. Stays out: backends, event loops' rules, configuration files and
every SDK. Opening a server imports psycopg.
"""
