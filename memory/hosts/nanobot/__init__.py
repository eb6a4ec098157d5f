"""Nanobot (``nanobot-ai>=0.3.5``): by its entry point ``nanobot.tools`` (:mod:`.tool`: a stock ``nanobot agent`` or
gateway; ``MEMSLOT_CONFIG`` names its file), and by :func:`memory.hosts.nanobot.sdk.attach` for a bot of your own.
"""
