"""Giving freed memory back to the system, after something large was closed."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any


def trim_heap() -> None:
    """What is freed stays with glibc otherwise, for each thread that has used it. Takes some milliseconds."""
    if sys.platform == "linux" and (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
