"""The conformance kit: what every memory promises, as specs, played by ``memslot conform``, by pytest's
:class:`~memory.testing.MemoryContract`, and by ``await validate(make_adapter)``, all in the same words.

A level is reached where every promise that belongs to it was looked at and kept: ``CORE``, ``CORE+DECLARED``, and
``FULL``, which leaves nothing undeclared.
"""
