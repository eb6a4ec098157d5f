"""Names of a page that load when they are first used: a hook that needs one error class waits for nothing else."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import cache
from typing import Any

_IMPORTS = re.compile(r"^    from (memory\.\S+) import (\([^)]*\)|.*)$", re.M)


def attach(page: dict[str, Any]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A page's ``__getattr__`` and ``__dir__``: what it imports ``if TYPE_CHECKING`` loads when first used."""

    @cache
    def modules() -> dict[str, str]:
        source = page["__spec__"].loader.get_source(page["__name__"])
        found = _IMPORTS.findall(source.partition("\nif TYPE_CHECKING:\n")[2])
        return {name: module for module, names in found for name in re.findall(r"\w+", names)}

    def __getattr__(name: str) -> Any:
        if name not in page["__all__"] or name not in modules():
            raise AttributeError(f"module {page['__name__']!r} has no attribute {name!r}")
        value = page[name] = getattr(importlib.import_module(modules()[name]), name)
        return value

    return __getattr__, lambda: sorted({*page, *page["__all__"]})
