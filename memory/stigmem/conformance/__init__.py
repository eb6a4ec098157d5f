"""The Stigmem project's conformance vectors, run against any node, and ours beside them, marked so."""
