"""Writes the ``<memory-context>`` section, fits it to a budget, and strips it from texts (DESIGN section 8).

Stored text cannot close or forge the fence, look like another entry, or carry control characters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from memory.contract._fence import count_beginnings, escape_tags, find_tags
from memory.contract.receipts import ContextEntry
from memory.contract.requests import ContextBudget


@runtime_checkable
class TokenCounter(Protocol):
    """Counts the tokens of a text. ``name`` goes into every trace and manifest."""

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int:
        """The number of tokens in ``text``; never negative."""


class Utf8TokenCounter:
    """``ceil(utf8_bytes / 4)``, without a vocabulary: within about 15 % for English, 5-30 % for Chinese."""

    name = "utf8-bytes/4"

    def count(self, text: str) -> int:
        """The number of tokens in ``text``, rounded up."""
        return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


@dataclass(frozen=True)
class CallableTokenCounter:
    """A counter made from a function, such as ``lambda text: len(encoding.encode(text))``."""

    name: str
    function: Callable[[str], int]

    def count(self, text: str) -> int:
        return self.function(text)


_PLAIN_FENCE = re.compile(r"<memory-context\b[^<>]{0,1000}+>")
# C0 and C1 controls except tab and newline; bidirectional overrides, which can hide a line's meaning; and
# invisible characters, which a model can still read. Joiners and single variation selectors stay, for
# scripts and emoji.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u180e\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e01ef]|(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]+"
)
# The part of _CONTROL that str.isprintable accepts.
_PRINTABLE_CONTROL = re.compile("[\u034f\U000e0100-\U000e01ef]|[\ufe00-\ufe0f]{2}")
# A label writes "<" of an id as "%3c". A reader may decode that, and the tag would seem to end there.
_ANGLE_IN_PERCENT = re.compile("%(?=3[ce])", re.IGNORECASE)
_LINE_BREAK = re.compile("\r\n|[\r\u2028\u2029\x0b\x0c\x85]")

JsonT = TypeVar("JsonT")


def clean_text(text: str) -> str:
    """Make stored text safe for the section: escape fences, remove control characters, unify line breaks."""
    if text.isprintable() and not _PRINTABLE_CONTROL.search(text) and not count_beginnings(text):
        return text  # by far the most common case, at a tenth of the cost of the rest
    return escape_tags(without_controls(_LINE_BREAK.sub("\n", text)))


def without_controls(text: str) -> str:
    """The text without characters that move a terminal or hide a line's meaning. Tabs and line feeds stay."""
    return _CONTROL.sub("", text)


def strip_context(text: str) -> str:
    """Remove every memory section from a text, so that memory never feeds on itself. Takes linear time.

    An unclosed section with attributes goes up to the end of the text. Any other lone tag goes alone.
    """
    tags = find_tags(text)
    if not tags:
        return text
    kept: list[str] = []
    # Open tags: the length of ``kept`` at each, and whether the tag has attributes.
    open_at: list[tuple[int, bool]] = []
    position = 0
    for tag in tags:
        kept.append(text[position : tag.start])
        position = tag.end
        if not tag.is_end:
            open_at.append((len(kept), tag.has_attributes))
        elif open_at:
            del kept[open_at.pop()[0] :]
    kept.append(text[position:])
    for length, has_attributes in open_at:
        if has_attributes:
            del kept[length:]
            break
    left = "".join(kept).strip()
    return escape_tags(left) if find_tags(left) else left


def strip_json(value: JsonT) -> JsonT:
    """Apply :func:`strip_context` to every text in a JSON value, keys included."""
    stripped: Any = value
    if isinstance(value, dict):
        stripped = {strip_context(key): strip_json(item) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        stripped = type(value)(strip_json(item) for item in value)
    elif isinstance(value, str):
        stripped = strip_context(value)
    return cast(JsonT, stripped)


def render_entry(entry: ContextEntry) -> str:
    """One entry as the section shows it, without its native id, so that equal memories give equal bytes."""
    text = clean_text(entry.text).strip()
    if entry.prose:
        return text
    labels = [] if entry.timestamp is None else [_time(entry.timestamp)]
    for name, value in entry.labels:
        labels.append(f"{_name(name)} {_one_line(value)}")
    if entry.score is not None and math.isfinite(entry.score):
        labels.append(f"score {entry.score:.2f}")
    body = text.replace("\n", "\n  ")
    return f"- ({', '.join(labels)}) {body}" if labels else f"- {body}"


@lru_cache(1024)  # entries often share a time, and successive answers often share entries
def _time(moment: datetime) -> str:
    try:
        return moment.astimezone(UTC).isoformat(" ", "minutes")[:-6]
    except OverflowError:  # a backend's time at either end of the calendar: shown unchanged
        return moment.isoformat(" ", "minutes")


def _one_line(text: str) -> str:
    if text.isalnum():
        return text
    return clean_text(text).replace("\n", " ").replace(")", "]").replace("(", "[")


_name = lru_cache(256)(_one_line)  # an adapter has few label names, and every entry repeats them


def _attribute(text: str) -> str:
    text = _one_line(text).replace("&", "&amp;").replace('"', "&quot;")
    text = text.replace("<", "&lt;").replace(">", "&gt;")
    return _ANGLE_IN_PERCENT.sub("&#37;", text)


@lru_cache(256)  # all answers of a scope share it
def _fence(backend: str, scope: str) -> tuple[str, str]:
    opening = f'<memory-context backend="{_attribute(backend)}" scope="{_attribute(scope)}">'
    return opening, "</memory-context>"


def wrap_section(backend: str, scope: str, lines: Iterable[str]) -> str:
    """Rendered lines inside the fence. Without lines the result is empty: no prompt gets an empty fence."""
    body = "\n".join(line for line in lines if line)
    if not body:
        return ""
    opening, closing = _fence(backend, scope)
    # Lines that are harmless alone can form a tag together.
    return f"{opening}\n{escape_tags(body)}\n{closing}"


NEUTRAL_LABELS = ("memory", "current")  # backend and scope in a section that reveals neither


def neutral_section(section: str) -> str:
    """The section with neutral labels in place of its own. Any other text stays unchanged."""
    opening = _PLAIN_FENCE.match(section)
    return section if opening is None else _fence(*NEUTRAL_LABELS)[0] + section[opening.end() :]


def relabel_section(section: str, scope: str) -> str:
    """The section with another label for its scope. A section with neutral labels stays unchanged."""
    opening = _PLAIN_FENCE.match(section)
    if opening is None or opening.group() == _fence(*NEUTRAL_LABELS)[0]:
        return section
    tag = re.sub(r'scope="[^"]*"', lambda _: f'scope="{_attribute(scope)}"', opening.group())
    return tag + section[opening.end() :]


def section_overhead(backend: str, scope: str, counter: TokenCounter) -> int:
    """The tokens that the fence itself costs."""
    return counter.count("\n".join((*_fence(backend, scope), "")))


def render_section(backend: str, scope: str, entries: Sequence[ContextEntry]) -> str:
    """The section of these entries, in order, with each native group together under its label."""
    lines: list[str] = []
    groups: dict[str | None, list[ContextEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append(entry)
    for group, members in groups.items():
        if group is not None:
            lines.append(f"[{_one_line(group)}]")
        lines.extend(render_entry(entry) for entry in members)
    return wrap_section(backend, scope, lines)


def entry_cost(entry: ContextEntry, counter: TokenCounter) -> int:
    """The tokens of one entry in the section, its line break included."""
    return counter.count(render_entry(entry) + "\n")


def fit_entries(
    entries: Sequence[ContextEntry], budget: ContextBudget, counter: TokenCounter, *, overhead: int
) -> tuple[int, ...]:
    """Indexes of the entries that fit the budget, in the backend's order.

    No entry is cut. One that is too large is skipped, and smaller entries after it may still fit.
    """
    included: list[int] = []
    spent = overhead
    groups: set[str] = set()
    for index, entry in enumerate(entries):
        if budget.max_items is not None and len(included) >= budget.max_items:
            break
        if not entry.text.strip():
            continue
        cost = 0
        if budget.max_tokens is not None:
            cost = entry_cost(entry, counter)
            if entry.group is not None and entry.group not in groups:
                cost += counter.count(f"[{_one_line(entry.group)}]\n")
            if spent + cost > budget.max_tokens:
                continue
        spent += cost
        if entry.group is not None:
            groups.add(entry.group)
        included.append(index)
    return tuple(included)


def is_well_formed(section: str) -> bool:
    """Whether a section is empty, or one fence around text without another fence."""
    if not section:
        return True
    plain = _PLAIN_FENCE.match(section) and section.endswith("</memory-context>")
    if plain and count_beginnings(section) == 2:
        return True  # by far the most common case: nothing but the fence's own two tags might begin a tag
    tags = find_tags(section)
    if len(tags) != 2 or escape_tags(section).count("&lt;") - section.count("&lt;") != 2:
        return False
    first, last = tags
    return first.start == 0 and not first.is_end and last.is_end and last.end == len(section)
