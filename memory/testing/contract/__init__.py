"""The conformance kit: what every memory promises, as specs, in one set of words for commands, pytest and code.

``FULL`` is reached where all was looked at and kept, and nothing is undeclared; ``CORE`` by what all promise.
"""
