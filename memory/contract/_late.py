"""Loads a page's names at their first use, so that a hook that needs one error class imports nothing else."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def attach(
    page: dict[str, Any], late: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a page with these globals; ``late`` is module -> names, with spaces."""
    modules = {name: module for module, names in late.items() for name in names.split()}

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {page['__name__']!r} has no attribute {name!r}")
        value = page[name] = getattr(importlib.import_module(modules[name]), name)
        return value

    return __getattr__, lambda: sorted({*page, *page["__all__"]})
