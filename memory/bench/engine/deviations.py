"""What deviates in something that was computed anew."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from memory.bench.engine.files import read_lines
from memory.contract.errors import ConfigError
from memory.contract.receipts import Trace

_MAX_LINES = 20


@dataclass(frozen=True, slots=True)
class Deviation:
    """Something that is not what it was computed from. ``where`` names file and field."""

    where: str
    recorded: str
    computed: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What was looked at, what of it deviates, and what could not be looked at and why."""

    checked: tuple[str, ...]
    deviations: tuple[Deviation, ...]
    unchecked: tuple[str, ...]


def read_traces(file: Path) -> list[tuple[Trace, str | None]]:
    """Traces, each with the probe it belongs to.

    Raises:
        ConfigError: they cannot be read.
    """
    found = []
    for row in read_lines(file):
        probe = row.pop("probe_id", None)
        try:
            found.append((Trace.model_validate(row), probe))
        except ValidationError:
            raise ConfigError(f"{file} is damaged, or of another version of memslot") from None
    return found


def same(where: str, recorded: object, computed: object) -> Iterator[Deviation]:
    """A value against what it was computed from."""
    if recorded != computed:
        yield Deviation(where, str(recorded), str(computed))


def compared(where: str, recorded: Any, computed: Any) -> Iterator[Deviation]:
    """What differs, leaf by leaf, in two records, or two values of JSON."""
    before, now = (
        dict(_leaves(item.model_dump(mode="json") if isinstance(item, BaseModel) else item))
        for item in (recorded, computed)
    )
    for name in {**before, **now}:
        yield from same(f"{where}: {name}", before.get(name, "absent"), now.get(name, "absent"))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield f"{path}.length", len(value)
        for place, item in enumerate(value):
            yield from _leaves(item, f"{path}[{place}]")
    else:
        yield path, value


def rows_differ(
    where: str, recorded: Sequence[Mapping[str, Any]], computed: Sequence[Mapping[str, Any]]
) -> Iterator[Deviation]:
    """Rows against rows, as JSON has them."""
    for number, (item, other) in enumerate(zip_longest(recorded, computed), start=1):
        yield from compared(f"{where}, line {number}", item, json.loads(json.dumps(other)))


def page_differs(where: str, recorded: str, computed: str) -> Iterator[Deviation]:
    """The first line in which a page is not what it was computed from."""
    if recorded == computed:
        return
    pairs = zip(recorded.splitlines(), computed.splitlines(), strict=False)
    place, (first, other) = next(
        ((at, pair) for at, pair in enumerate(pairs, start=1) if pair[0] != pair[1]),
        (0, ("shorter", "longer")),
    )
    yield Deviation(f"{where}, line {place}", first.strip()[:80], other.strip()[:80])


def few(found: Iterable[Deviation]) -> Iterator[Deviation]:
    """The first ones, and how many more there are."""
    more: Counter[str] = Counter()
    for number, item in enumerate(found):
        if number < _MAX_LINES:
            yield item
        else:
            more[item.where.split(",")[0].split(":")[0]] += 1
    for file, count in more.items():
        yield Deviation(file, f"{count} further deviations", "")
