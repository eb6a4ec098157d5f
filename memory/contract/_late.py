"""Names of a page that load when they are first used: a hook that needs one error class waits for nothing else."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def by_name(modules: Mapping[str, str]) -> dict[str, str]:
    """``{name: module}`` from ``{module: "name name"}``."""
    return {name: module for module, names in modules.items() for name in names.split()}


def loader(page: dict[str, Any], late: Mapping[str, str]) -> Callable[[str], Any]:
    """A page's ``__getattr__``: imports a name's module, and keeps the value on the page.

    Args:
        page: ``globals()`` of the page.
        late: ``{name: module below the package "memory"}``.
    """

    def __getattr__(name: str) -> Any:
        if name not in late:
            raise AttributeError(f"module {page['__name__']!r} has no attribute {name!r}")
        value = page[name] = getattr(importlib.import_module(f"memory.{late[name]}"), name)
        return value

    return __getattr__
