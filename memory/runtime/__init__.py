"""The agent's side of the slot: what a session needs beside a memory, and how a memory moves.

Enters: what a host would otherwise write itself. Stays out: SDKs of one host (``memory.hosts``) or of one backend.
"""
