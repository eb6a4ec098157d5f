"""What a report page consists of, and its rendering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from memory.bench.scores.model import Difference, Estimate


@dataclass(frozen=True, slots=True)
class Card:
    """A headline figure."""

    name: str
    figure: str
    aside: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A section: any of a plot, a table and points, with a note below.

    ``half`` puts two side by side. A table without ``columns`` is a list of facts. ``details`` are titles,
    each with a text that opens below it. ``groups`` tell rows apart: architecture, control or reference.
    """

    heading: str
    plot: Markup | None = None
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    points: Sequence[str] = ()
    details: Sequence[tuple[str, str]] = ()
    note: str = ""
    half: bool = False
    groups: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report.

    Attributes:
        badges: pairs of text and kind (``good``, ``bad`` or empty).
        verdict: who won, in sentences.
        quotes: whether it quotes texts.
    """

    title: str
    heading: str
    badges: Sequence[tuple[str, str]]
    verdict: Sequence[str]
    lines: Sequence[str]
    cards: Sequence[Card]
    blocks: Sequence[Block]
    problems: Sequence[str] = ()
    quotes: bool = False

    def render(self) -> str:
        """The page as one HTML text; everything but our own plots is escaped."""
        return _environment().get_template("report.html.j2").render(page=self, version=version("memslot"))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=False,
    )


def share(value: float | None) -> str:
    """A share as per cent."""
    return "–" if value is None else f"{value:.1%}"


def stacked(estimate: Estimate) -> str:
    """A share, its interval in a second line."""
    known = share(estimate.value)
    if estimate.low is None or estimate.high is None:
        return known
    return f"{known}\n{estimate.low:.0%} to {estimate.high:.0%}"


def interval(estimate: Estimate | Difference) -> str:
    """From where to where."""
    if estimate.low is None or estimate.high is None:
        return "–"
    sign = "+" if isinstance(estimate, Difference) else ""
    return f"{estimate.low:{sign}.1%} to {estimate.high:{sign}.1%}"


def spanned(estimate: Estimate) -> str:
    """A share with its interval."""
    known = estimate.low is not None
    return f"{share(estimate.value)} ({interval(estimate)})" if known else share(estimate.value)


def count(value: float | None) -> str:
    """A number of things."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
