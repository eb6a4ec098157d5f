"""The conformance kit: the promises of a memory as specs, for the command line, pytest and code.

``CORE`` means that the memory keeps the promises that all memories make. ``FULL`` means that it declares every
capability and keeps every promise, and that every spec ran.
"""
