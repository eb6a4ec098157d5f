"""Nanobot (``nanobot-ai>=0.3.5``).

:mod:`.tool` is an entry point of ``nanobot.tools`` for a stock ``nanobot agent`` or gateway.
``MEMSLOT_CONFIG`` names its configuration. A program that builds a bot uses :func:`.sdk.attach`.
"""
