"""Signet's runtime contract in Python: an interface for harnesses, a client for a daemon, and a daemon.

Field names and behaviour are those of daemon 0.58.1 and its real clients, not those of the contract's text.
"""
