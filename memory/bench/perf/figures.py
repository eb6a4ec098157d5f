"""What ``memslot perf`` finds: milliseconds by contestant and round, and the ratios that come of them."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any


def _ratios(more: list[float], less: list[float]) -> list[float]:
    return [late / early for late, early in zip(more, less, strict=True)]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    scopes: int = 50
    memories: int = 200  # of each of them, and of the single one they are compared with
    large: int = 10_000  # memories of the one large scope
    rounds: int = 30  # of calls; processes are started in a third of them, stores opened in a fifth


@dataclass(slots=True)
class Figure:
    """One thing that was measured: milliseconds by contestant (``bare``, ``async``, ``memslot``) and round."""

    name: str
    contestants: dict[str, list[float]] = field(default_factory=dict)

    def median(self, contestant: str) -> float | None:
        """Milliseconds; None where it did not take part."""
        times = self.contestants.get(contestant)
        return statistics.median(times) if times else None

    def ratios(self, over: str = "bare") -> list[float]:
        """memslot's time over another's, a value for each round."""
        return _ratios(self.contestants["memslot"], self.contestants[over])

    def to_json(self) -> dict[str, Any]:
        ratios = self.ratios()
        return {
            "name": self.name,
            "ms": {name: _summed_up(times) for name, times in self.contestants.items()},
            "memslot_over_bare": _summed_up(ratios),
            "rounds": len(ratios),
        }


def _summed_up(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values)}


@dataclass(slots=True)
class Report:
    """All figures of a run, in the order of a table."""

    sizes: Sizes
    single: Figure
    large: Figure
    many: Figure
    add: Figure
    spread: Figure
    open: Figure
    cold: Figure

    @property
    def figures(self) -> tuple[Figure, ...]:
        return (self.single, self.large, self.many, self.add, self.spread, self.open, self.cold)

    def growth(self, contestant: str) -> dict[str, list[float]]:
        """What many scopes cost beside one, a ratio for each round: of searches, and of adds."""
        pairs = {"search": (self.many, self.single), "add": (self.spread, self.add)}
        return {
            name: _ratios(more.contestants[contestant], less.contestants[contestant])
            for name, (more, less) in pairs.items()
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "sizes": asdict(self.sizes),
            "figures": [figure.to_json() for figure in self.figures],
            "many_scopes_over_one": {
                contestant: {name: _summed_up(ratios) for name, ratios in self.growth(contestant).items()}
                for contestant in ("bare", "memslot")
            },
        }
