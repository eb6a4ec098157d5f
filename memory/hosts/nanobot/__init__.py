"""Nanobot (``nanobot-ai>=0.3.5``): by its entry point ``nanobot.tools``, and by its SDK.

- :mod:`memory.hosts.nanobot.tool`: a stock ``nanobot agent`` or gateway; ``MEMSLOT_CONFIG`` names its file.
- :mod:`memory.hosts.nanobot.sdk`: :func:`attach` a memory to a ``Nanobot`` of your own.
- :mod:`memory.hosts.nanobot.turns`: what both do to sessions.
"""
