"""Tools for testing adapters, and programs that use a memory.

- :func:`validate` and :class:`MemoryContract` run the conformance kit: as a function, and as pytest classes to
  subclass. A plugin's author declares its limits in a :class:`ConformanceProfile`.
- :class:`FakeBackend` over :class:`FakeNativeStore` is a complete adapter. Tests can watch and break its store.
- :class:`LoopbackServer` models a backend's server on real sockets, with faults on demand.
- :class:`ScriptedLLM` serves a scripted language model on the loopback. It needs no key.

Enters: tools for tests of memories, the scripted model too. Stays out: all that an agent in production
needs. Names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory.contract._late import attach as _attach

if TYPE_CHECKING:
    from memory.testing._fake_backend import FakeBackend
    from memory.testing._fake_store import FakeNativeError, FakeNativeStore, FakeRow
    from memory.testing._faults import FAKE_KEY, Faults
    from memory.testing._http_server import LoopbackAnswer, LoopbackRequest
    from memory.testing._loopback import LoopbackProcess, LoopbackServer
    from memory.testing._scripted_llm import ScriptedLLM
    from memory.testing.contract._classes import MemoryContract
    from memory.testing.contract._declared import (
        ConformanceProfile,
        FaultInjector,
        Fingerprint,
        HttpConformance,
    )
    from memory.testing.contract._kit import Kit, unique_word
    from memory.testing.contract._run import Report, validate

__all__ = [
    "ConformanceProfile",
    "FAKE_KEY",
    "FakeBackend",
    "FakeNativeError",
    "FakeNativeStore",
    "FakeRow",
    "FaultInjector",
    "Faults",
    "Fingerprint",
    "HttpConformance",
    "Kit",
    "LoopbackAnswer",
    "LoopbackProcess",
    "LoopbackRequest",
    "LoopbackServer",
    "MemoryContract",
    "Report",
    "ScriptedLLM",
    "unique_word",
    "validate",
]

# The same names at run time. A test keeps both lists equal.
_LATE = {
    "memory.testing._fake_backend": "FakeBackend",
    "memory.testing._fake_store": "FakeNativeError FakeNativeStore FakeRow",
    "memory.testing._faults": "FAKE_KEY Faults",
    "memory.testing._http_server": "LoopbackAnswer LoopbackRequest",
    "memory.testing._loopback": "LoopbackProcess LoopbackServer",
    "memory.testing._scripted_llm": "ScriptedLLM",
    "memory.testing.contract._classes": "MemoryContract",
    "memory.testing.contract._declared": "ConformanceProfile FaultInjector Fingerprint HttpConformance",
    "memory.testing.contract._kit": "Kit unique_word",
    "memory.testing.contract._run": "Report validate",
}

__getattr__, __dir__ = _attach(globals(), _LATE)
