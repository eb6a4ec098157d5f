"""What a run of the kit under pytest comes to: for each class a level, and for each area what was seen.

The kit registers the plugin by itself; with pytest-xdist, whose tests run elsewhere, say
``pytest_plugins = ["memory.testing.pytest_plugin"]`` in your conftest.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest

from memory.testing.contract._report import LEVELS, SHOWN, Outcome, Tally
from memory.testing.contract._spec import specs

KEY = "memslot_conformance"
"""The property of a test report that names class, area, test and the number of standard tests."""

_LEFT: tuple[Outcome, ...] = ("not declared", "not applicable", "not tested")


def not_declared(what: str) -> NoReturn:
    """Skip a test of something that the provider says it does not have."""
    pytest.skip(f"not declared: {what}")


def register(config: pytest.Config) -> None:
    """Add the summary to a run of pytest, once."""
    if not config.pluginmanager.has_plugin(KEY):
        config.pluginmanager.register(Conformance(), KEY)


@dataclass
class _Class:
    """One test class: how many standard tests there are, how each ended, and what was not looked at."""

    name: str
    total: int = 0
    areas: dict[str, str] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    tally: Tally = field(default_factory=lambda: Tally({}))

    def add(self, test: str, area: str, outcome: Outcome) -> None:
        """One more run of a test."""
        spec = specs().get(test.removeprefix("test_"))
        self.areas[test] = area
        self.tally.core = {**self.tally.core, test: spec is None or spec.core}
        self.tally.add(test, outcome)
        self.tally.not_run = self.total - len(self.areas)

    def lines(self) -> list[str]:
        """The level, its counts, and those of each area."""
        counts = self.tally.counts()
        shown = ", ".join(f"{counts[name]} {name}" for name in SHOWN if counts[name])
        by_area: dict[str, Counter[str]] = {}
        for test, area in self.areas.items():
            by_area.setdefault(area, Counter())[self.tally.outcomes[test]] += 1
        areas = (
            f"{area} {', '.join(f'{found[name]} {name}' for name in SHOWN if found[name])}"
            for area, found in by_area.items()
        )
        first = f"{self.name}: {self.tally.level}: {shown}, of {self.total} promises ({self.seconds:.1f} s)"
        return [first, *(f"  {self.tally.line(level)}" for level in LEVELS), f"  {'; '.join(areas)}"]


class Conformance:
    """A pytest plugin that says at the end of a run what it showed of each provider."""

    def __init__(self) -> None:
        self._classes: dict[str, _Class] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        about = dict(report.user_properties).get(KEY)
        if about is None:
            return
        name, area, test, total = str(about).split("|")
        found = self._classes.setdefault(report.nodeid.rpartition("::")[0], _Class(name))
        found.total = int(total)
        found.seconds += report.duration
        outcome = _outcome(report)
        if outcome is not None:
            found.add(test, area, outcome)
        if outcome in ("not tested", "not declared"):
            found.reasons[_reason(report)] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._classes:
            return
        terminalreporter.section("memslot conformance")
        for found in self._classes.values():
            colour = {"FAILED": "red", "BELOW CORE": "yellow"}.get(found.tally.level, "green")
            first, *rest = found.lines()
            terminalreporter.line(first, **{colour: True})
            for line in (*rest, *(f"  {reason} ({count})" for reason, count in found.reasons.most_common())):
                terminalreporter.line(line)


def _outcome(report: pytest.TestReport) -> Outcome | None:
    """The outcome that a phase of a test decides, or None."""
    if report.failed:
        return "failed"
    if hasattr(report, "wasxfail"):
        return "excused"
    if report.skipped:
        why = _reason(report).partition(":")[0]
        return next((known for known in _LEFT if known == why), "not tested")
    return "passed" if report.when == "call" else None


def _reason(report: pytest.TestReport) -> str:
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    return said.removeprefix("Skipped: ")
