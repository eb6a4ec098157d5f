"""What a Stigmem node answered, known to be of the shape we read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from memory.adapter import BackendProtocolError

__all__ = ["BACKEND", "mapping", "rows"]

BACKEND = "stigmem"


def mapping(answer: Any, operation: str) -> dict[str, Any]:
    """The answer, known to be an object; BackendProtocolError otherwise."""
    if not isinstance(answer, dict):
        raise BackendProtocolError(
            f"{BACKEND}: {operation} did not answer with an object", backend_name=BACKEND
        )
    return cast("dict[str, Any]", answer)


def rows(answer: Mapping[str, Any], name: str, operation: str) -> list[Any]:
    """The list under ``name``; BackendProtocolError where there is none."""
    found = answer.get(name)
    if not isinstance(found, list):
        raise BackendProtocolError(
            f"{BACKEND}: {operation} did not answer with a list of {name}", backend_name=BACKEND
        )
    return found
