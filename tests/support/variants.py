"""Which variants of a test are plain, and which only ``make test-all`` runs."""

from collections.abc import Iterable
from typing import Any

import pytest


def plain(*quick: Any, of: Iterable[Any]) -> list[Any]:
    """Values of a parameter, or tuples of several, known by their first; all that are not quick are thorough."""
    return [
        value if (value[0] if isinstance(value, tuple) else value) in quick else _thorough(value)
        for value in of
    ]


def _thorough(value: Any) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.thorough)
