"""Nanobot (``nanobot-ai>=0.3.5``).

:mod:`.tool` is an entry point of ``nanobot.tools`` for a stock ``nanobot agent`` or gateway.
``MEMSLOT_CONFIG`` names its configuration; else it is ``memslot.yaml`` in the workspace of the bot.
"""
