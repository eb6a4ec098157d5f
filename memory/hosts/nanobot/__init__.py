"""Nanobot (``nanobot-ai>=0.3.5``).

:mod:`.tool` is an entry point of ``nanobot.tools`` for a stock ``nanobot agent`` or gateway.
``MEMSLOT_CONFIG`` names its configuration. :func:`memory.hosts.nanobot.sdk.attach` is for your own bot.
"""
