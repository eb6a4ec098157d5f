"""The agent's side of the slot: what a session needs beside a memory, and how a memory moves.

- :mod:`memory.runtime.policy`: how a host lives with a memory that may be slow or down; every host builds on it.
- :mod:`memory.runtime.provider` and :mod:`memory.runtime.providers`: language models.
- :mod:`memory.runtime.loop`, :mod:`.channel`, :mod:`.tools`: an agent's session.
- :mod:`memory.runtime.conversations`: many of them, by HTTP.
- :mod:`memory.runtime.items`: single memories, for tools and servers.
- :mod:`memory.runtime.signet`: Signet's runtime contract: adapter, client, server.
- :mod:`memory.runtime.replay`: a journal's events, written into another backend.

Enters: what a host would otherwise write itself. Stays out: SDKs of one host (``memory.hosts``) or of one backend.
"""
