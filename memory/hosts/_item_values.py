"""Values of a store's items: their text for the memory, and the filters that they fit."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from memory import InputError

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def check_value(value: Mapping[str, Any]) -> None:
    """Raise InputError if a value is not JSON-ready."""
    try:
        json.dumps(dict(value), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"an item's value is kept as JSON: {error}") from error


def text_of(value: Mapping[str, Any]) -> str:
    """Return a value's text for the memory: its only leaf, or all leaves with their paths."""
    leaves = list(_leaves(value, ()))
    if len(leaves) == 1:
        return leaves[0][1]
    return "\n".join(f"{'.'.join(path)}: {text}" for path, text in leaves)


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner, path)
    elif value is not None and str(value).strip():
        yield path, str(value)


def fits(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether a value has every wanted field, by equality or by an operator such as ``{"$gt": 3}``.

    Raises:
        InputError: an operator is unknown.
    """
    return all(_is(value.get(key), want) for key, want in (wanted or {}).items())


def _is(have: Any, want: Any) -> bool:
    if not isinstance(want, Mapping):
        return bool(have == want)
    if not any(str(key).startswith("$") for key in want):
        return isinstance(have, Mapping) and fits(have, want)
    if unknown := [key for key in want if key not in _COMPARE]:
        raise InputError(f"filter: {unknown[0]} is unknown; use {', '.join(_COMPARE)}")
    try:
        return all(_COMPARE[key](have, bound) for key, bound in want.items())
    except TypeError:
        return False


def matches(kind: str, path: tuple[str, ...], namespace: tuple[str, ...]) -> bool:
    """Whether a namespace has a path as its ``prefix`` or ``suffix``. ``*`` matches any label."""
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if kind == "prefix" else namespace[len(namespace) - len(path) :]
    return all(want in ("*", have) for have, want in zip(part, path, strict=True))
