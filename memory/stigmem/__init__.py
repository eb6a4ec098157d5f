"""Stigmem's protocol for agents: client, facts, the adapter ABI (Spec-19) and intents.

Enters: what speaks of facts and nodes. Stays out: memory scopes and the adapter contract, which belong to
``memory.backends.stigmem``. The room imports only the public pages for adapters and the common console.
"""
