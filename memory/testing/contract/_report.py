"""What a run of the kit comes to: levels, counts apart, and the same words for people and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from memory.testing.contract._spec import DOCS, Failure, Spec, specs

Outcome = Literal["passed", "not applicable", "not declared", "excused", "not tested", "failed", "not run"]
OUTCOMES: tuple[Outcome, ...] = (
    "not run", "not applicable", "not declared", "passed", "excused", "not tested", "failed",
)  # fmt: skip
"""From what says nothing to what is worst: over several event loops the worst counts."""
SHOWN: tuple[Outcome, ...] = ("failed", "passed", "not declared", "excused", "not tested", "not run")
CORE, DECLARED, FULL = "CORE", "CORE+DECLARED", "FULL"
LEVELS = (CORE, DECLARED, FULL)
_COLOURS = {CORE: "yellow", DECLARED: "green", FULL: "brightgreen"}


@dataclass(frozen=True, slots=True)
class Result:
    """How a spec ended on one event loop.

    Attributes:
        spec: its name.
        loop: ``asyncio`` or ``trio``.
        outcome: see ``OUTCOMES``.
        why: of what was not looked at.
        failure: of what failed.
        seconds: how long it took.
    """

    spec: str
    loop: str
    outcome: Outcome
    why: str = ""
    failure: Failure | None = None
    seconds: float = 0.0


@dataclass
class Tally:
    """Outcomes of specs, and the levels they come to.

    Attributes:
        core: of each spec that should run, whether every memory promises it.
        not_run: further ones that did not run.
        outcomes: of each spec, the worst over its loops.
    """

    core: Mapping[str, bool]
    not_run: int = 0
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def add(self, spec: str, outcome: Outcome) -> None:
        """The worst outcome of a spec over its loops counts."""
        before = self.outcomes.get(spec, "not run")
        self.outcomes[spec] = max(before, outcome, key=OUTCOMES.index)

    def counts(self, level: str = FULL) -> Counter[str]:
        """How many specs of a level ended how; ``not applicable`` is counted nowhere."""
        found: Counter[str] = Counter(
            self.outcomes.get(spec, "not run") for spec, core in self.core.items() if level != CORE or core
        )
        found["not run"] += self.not_run
        del found["not applicable"]
        return found

    def reached(self, level: str) -> bool:
        """Whether every promise of a level was looked at and kept.

        What is not declared is in the way of ``FULL`` alone: a memory may lack it and keep all that it promises.
        """
        counts = self.counts(level)
        missing = counts["failed"] + counts["not tested"] + counts["excused"] + counts["not run"]
        return not missing and (level != FULL or not counts["not declared"])

    @property
    def level(self) -> str:
        """The highest that is reached, ``FAILED`` where a promise is broken, else ``BELOW CORE``."""
        if self.counts()["failed"]:
            return "FAILED"
        return next((level for level in reversed(LEVELS) if self.reached(level)), "BELOW CORE")

    def line(self, level: str) -> str:
        """The counts of a level in words."""
        reached = "reached" if self.reached(level) else "not reached"
        return f"{level:<14}{reached:<13}{in_words(self.counts(level))}"


def in_words(counts: Mapping[str, int]) -> str:
    """Outcomes that there are, each with its count."""
    return ", ".join(f"{counts[name]} {name}" for name in SHOWN if counts.get(name))


@dataclass
class Report:
    """A run of the kit.

    Attributes:
        memory: the name of what was tested.
        versions: distribution -> version of the plugin, where it is known.
        results: of every spec on every loop.
    """

    memory: str
    versions: Mapping[str, str] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)

    @property
    def tally(self) -> Tally:
        tally = Tally({spec.name: spec.core for spec in specs().values()})
        for result in self.results:
            tally.add(result.spec, result.outcome)
        return tally

    @property
    def level(self) -> str:
        """See :attr:`Tally.level`."""
        return self.tally.level

    @property
    def failed(self) -> list[Result]:
        """What failed, once for each loop."""
        return [result for result in self.results if result.outcome == "failed"]

    def reasons(self) -> Iterator[str]:
        """Why specs were not looked at, and how many."""
        for outcome in ("not declared", "not tested"):
            found = {(result.spec, result.why) for result in self.results if result.outcome == outcome}
            for why, count in Counter(why for _, why in found).most_common():
                yield f"{outcome}: {why} ({count})"

    def to_text(self) -> str:
        """For a terminal."""
        lines = []
        alike: dict[tuple[str, str], list[Result]] = {}
        for result in self.failed:
            alike.setdefault((result.spec, _problem(result)), []).append(result)
        for (spec, _), results in alike.items():
            loops = ", ".join(result.loop for result in results)
            lines += [f"FAILED {spec} ({loops})", f"  {results[0].failure}".replace("\n", "\n  "), ""]
        if lines:
            lines += [f"What stands in {DOCS}, memslot conform --specs prints.", ""]
        seconds = sum(result.seconds for result in self.results)
        lines.append(f"{self.memory}: {self.level} ({seconds:.1f} s)")
        lines += [f"  {self.tally.line(level)}" for level in LEVELS]
        lines += [f"  {reason}" for reason in self.reasons()]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        tally = self.tally
        return {
            "memory": self.memory,
            "versions": dict(self.versions),
            "level": self.level,
            "levels": {
                level: {
                    "reached": tally.reached(level),
                    **{name.replace(" ", "_"): tally.counts(level)[name] for name in SHOWN},
                }
                for level in LEVELS
            },
            "specs": [
                {**asdict(result), "why": result.why or None, "seconds": round(result.seconds, 3)}
                for result in self.results
            ],
        }

    def to_markdown(self) -> str:
        """For a README or a pull request."""
        lines = [f"### {self.memory}: {self.level}", "", "| level | " + " | ".join(SHOWN) + " |"]
        lines.append("|---" * (len(SHOWN) + 1) + "|")
        for level in LEVELS:
            counts = self.tally.counts(level)
            reached = "**reached**" if self.tally.reached(level) else "not reached"
            lines.append(f"| {level}, {reached} | " + " | ".join(str(counts[name]) for name in SHOWN) + " |")
        lines += ["", *(f"- {result.spec} ({result.loop}): {_problem(result)}" for result in self.failed)]
        lines += [f"- {reason}" for reason in self.reasons()]
        return "\n".join(lines).rstrip() + "\n"

    def to_badge(self) -> dict[str, Any]:
        """The JSON that shields.io's endpoint badge reads."""
        colour = _COLOURS.get(self.level, "red" if self.level == "FAILED" else "lightgrey")
        return {"schemaVersion": 1, "label": "memslot conformance", "message": self.level, "color": colour}


def _problem(result: Result) -> str:
    return result.failure.problem.splitlines()[0] if result.failure else ""


def catalogue(known: Iterable[Spec]) -> str:
    """The page of all specs: what each promises and what to do where it is broken. Written to ``DOCS``."""
    known = list(known)
    lines = [
        "# The specs of the kit", "",
        f"Written by `memslot conform --specs`: {len(known)} promises, {sum(spec.core for spec in known)} of them "
        "CORE. A failure names its promise here.",
    ]  # fmt: skip
    for area in dict.fromkeys(spec.area for spec in known):
        lines += ["", f"## {area[0].upper()}{area[1:]}"]
        for spec in (spec for spec in known if spec.area == area):
            lines += ["", f"### {spec.title} {{#{spec.name}}}", "", spec.promise, ""]
            lines += [f"- {remedy}" for remedy in spec.remedies]
            if spec.remedies:
                lines.append("")
            lines.append(f"`{spec.name}`, {'CORE' if spec.core else 'of a capability or a declaration'}.")
    return "\n".join(lines) + "\n"
