"""Signet's runtime contract in Python: what a harness implements, a client of a daemon, and a server that is one.

Field names and traps are those of daemon 0.58.1, driven through its real clients; not those of the contract's text.
"""
