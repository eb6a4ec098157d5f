"""Stigmem's protocol for agents: client, facts, the adapter ABI (Spec-19), intents, conformance. Enters: what
speaks of facts and nodes. Stays out: memory scopes and the adapter contract, the business of
``memory.backends.stigmem``. Imports the pages of adapters; its commands print as all others do."""
