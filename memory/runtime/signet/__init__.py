"""Signet's runtime contract in Python: what a harness implements, a client of a daemon, and a server that is one.

- :mod:`.types`: ``RuntimeAdapter``, and what travels.
- :mod:`.client`: ``AdapterClient`` and ``create_adapter``, every row of the contract's dependency map.
- :mod:`.server`: ``RuntimeAdapterServer``, the same endpoints over any memslot backend.

Field names and traps are those of daemon 0.58.1, recorded and driven through its real clients; not those of the
contract's text, where the two differ.
"""
