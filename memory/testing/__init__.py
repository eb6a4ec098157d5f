"""For those who test adapters, and those who test what is built on memory.

- ``FakeBackend`` over ``FakeNativeStore``: a complete adapter, whose native side can be watched and broken.
- ``LoopbackServer``: a backend's server, modelled on real sockets, with faults on demand.
- ``ScriptedLLM``: a language model endpoint on the loopback, for what would otherwise need a key.

Names load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.testing.fake_backend import FakeBackend
    from memory.testing.fake_store import FakeNativeError, FakeNativeStore, FakeRow
    from memory.testing.faults import FAKE_KEY, Faults
    from memory.testing.http_server import LoopbackAnswer, LoopbackRequest
    from memory.testing.loopback import LoopbackServer
    from memory.testing.loopback_process import LoopbackProcess
    from memory.testing.scripted_llm import ScriptedLLM

__all__ = [
    "FAKE_KEY",
    "FakeBackend",
    "FakeNativeError",
    "FakeNativeStore",
    "FakeRow",
    "Faults",
    "LoopbackAnswer",
    "LoopbackProcess",
    "LoopbackRequest",
    "LoopbackServer",
    "ScriptedLLM",
]

_HOME = {
    "FakeBackend": "fake_backend",
    **dict.fromkeys(("FakeNativeError", "FakeNativeStore", "FakeRow"), "fake_store"),
    **dict.fromkeys(("FAKE_KEY", "Faults"), "faults"),
    **dict.fromkeys(("LoopbackAnswer", "LoopbackRequest"), "http_server"),
    "LoopbackProcess": "loopback_process",
    "LoopbackServer": "loopback",
    "ScriptedLLM": "scripted_llm",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
