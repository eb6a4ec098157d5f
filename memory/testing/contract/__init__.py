"""The conformance kit: what every memory promises, as specs, and three ways to play them.

- ``memslot conform my.yaml``: without pytest; a spec that does not come back is cut off.
- :class:`~memory.testing.MemoryContract`: a class of pytest to subclass.
- ``await validate(make_adapter)``: in code.

All three play the functions of ``specs``, and say the same in the same words. A level is reached where every
promise that belongs to it was looked at and kept: ``CORE``, ``CORE+DECLARED``, and ``FULL``, which leaves nothing
undeclared.
"""
