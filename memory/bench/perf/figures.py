"""What ``memslot perf`` finds: milliseconds by contestant and round, and the ratios that come of them."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        memories: of each of ``scopes``, and of the single one they are compared with.
        large: memories of the one large scope.
        rounds: of calls; processes are started in a third of them, stores opened in a fifth.
    """

    scopes: int = 50
    memories: int = 200
    large: int = 10_000
    rounds: int = 30


@dataclass(slots=True)
class Figure:
    """One thing that was measured: milliseconds by contestant, a value for each round.

    Attributes:
        contestants: ``bare``, ``async`` and ``memslot``, as far as they took part.
    """

    name: str
    contestants: dict[str, list[float]] = field(default_factory=dict)

    def median(self, contestant: str) -> float | None:
        """Milliseconds; None where it did not take part."""
        times = self.contestants.get(contestant)
        return statistics.median(times) if times else None

    def ratios(self, over: str = "bare") -> list[float]:
        """memslot's time over another's, a value for each round."""
        pairs = zip(self.contestants["memslot"], self.contestants[over], strict=True)
        return [ours / other for ours, other in pairs]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready: medians, minima and ratios."""
        ratios = self.ratios()
        return {
            "name": self.name,
            "ms": {
                name: {"median": statistics.median(times), "min": min(times)}
                for name, times in self.contestants.items()
            },
            "memslot_over_bare": {"median": statistics.median(ratios), "min": min(ratios)},
            "rounds": len(ratios),
        }


@dataclass(slots=True)
class Report:
    """All figures of a run."""

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
        """In the order of a table."""
        return (self.single, self.large, self.many, self.add, self.spread, self.open, self.cold)

    def growth(self, contestant: str) -> dict[str, list[float]]:
        """What many scopes cost beside one, a ratio for each round: of searches, and of adds."""
        pairs = {"search": (self.many, self.single), "add": (self.spread, self.add)}
        return {
            name: [
                late / early
                for late, early in zip(
                    more.contestants[contestant], less.contestants[contestant], strict=True
                )
            ]
            for name, (more, less) in pairs.items()
        }

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "sizes": asdict(self.sizes),
            "figures": [figure.to_json() for figure in self.figures],
            "many_scopes_over_one": {
                contestant: {
                    name: {"median": statistics.median(ratios), "min": min(ratios)}
                    for name, ratios in self.growth(contestant).items()
                }
                for contestant in ("bare", "memslot")
            },
        }
