"""For those who test adapters and what is built on them.

``ScriptedLLM`` is a language model endpoint on the loopback. Names load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.testing.scripted_llm import ScriptedLLM

__all__ = ["ScriptedLLM"]

_HOME = {"ScriptedLLM": "scripted_llm"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
