"""Stigmem: facts with sources on a node over HTTP."""
