"""Numbers with their nouns, as messages print them."""

from __future__ import annotations

import re

_PLURAL = re.compile(r"people\b|ies\b|s\b")
_SINGULAR = {"people": "person", "ies": "y", "s": ""}


def quantity(count: int, many: str, one: str | None = None) -> str:
    """A number with its noun: "1 person", "3,000 people". ``one`` replaces the singular of the first plural."""
    if count == 1:
        many = one or _PLURAL.sub(lambda plural: _SINGULAR[plural[0]], many, count=1)
    return f"{count:,} {many}"
