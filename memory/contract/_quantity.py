"""Numbers with their nouns, as messages print them."""

from __future__ import annotations

import re

_PLURAL = re.compile(r"people\b|ies\b|s\b")
_SINGULAR = {"people": "person", "ies": "y", "s": ""}


def quantity(count: int, many: str, one: str | None = None) -> str:
    """Return a number with its noun: "1 person", "3,000 people", "1 message without text".

    Args:
        many: the words after any number but 1. Their first plural is the noun.
        one: the words after 1. By default ``many`` with its noun in the singular.
    """
    if count == 1:
        many = one or _PLURAL.sub(lambda plural: _SINGULAR[plural[0]], many, count=1)
    return f"{count:,} {many}"
