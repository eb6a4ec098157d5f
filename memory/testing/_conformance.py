"""What a run of the conformance kit comes to: for each class a level, and for each area what was seen.

``FULL`` is said only where every promise was tested that the provider does not exclude by declaration. The kit
registers the plugin by itself; with pytest-xdist, whose tests run elsewhere, say
``pytest_plugins = ["memory.testing.pytest_plugin"]`` in your conftest.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest

KEY = "memslot_conformance"
"""The property of a test report that names class, area, test and the number of standard tests."""

_NOT_DECLARED, _NOT_TESTED = "not declared: ", "not tested: "
_ORDER = ("not declared", "passed", "excused", "not tested", "failed")  # from good to bad, for one test
_SHOWN = ("passed", "failed", "not declared", "excused", "not tested", "not run")


def not_declared(what: str) -> NoReturn:
    """Skip a test of something that the provider says it does not have."""
    pytest.skip(f"{_NOT_DECLARED}{what}")


def not_tested(why: str) -> NoReturn:
    """Skip a test for want of something that whoever wrote the test class can give."""
    pytest.skip(f"{_NOT_TESTED}{why}")


def register(config: pytest.Config) -> None:
    """Add the summary to a run of pytest, once."""
    if not config.pluginmanager.has_plugin(KEY):
        config.pluginmanager.register(Conformance(), KEY)


@dataclass
class _Class:
    """One test class: test -> its area and outcome, the standard tests there are, and what was not tested."""

    name: str
    total: int = 0
    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def note(self, test: str, area: str, outcome: str) -> None:
        """The worst outcome of a test over its parameters counts."""
        before = self.outcomes.get(test, (area, _ORDER[0]))[1]
        self.outcomes[test] = area, max(before, outcome, key=_ORDER.index)

    @property
    def counts(self) -> Counter[str]:
        counts = Counter(outcome for _, outcome in self.outcomes.values())
        counts["not run"] = self.total - len(self.outcomes)
        return counts

    @property
    def level(self) -> str:
        counts = self.counts
        if counts["failed"]:
            return "FAILED"
        return "PARTIAL" if counts["not tested"] or counts["excused"] or counts["not run"] else "FULL"

    @property
    def headline(self) -> str:
        counts = self.counts
        shown = ", ".join(f"{counts[name]} {name}" for name in _SHOWN if counts[name])
        return f"{self.name}: {self.level}: {shown}, of {self.total} promises ({self.seconds:.1f} s)"

    @property
    def areas(self) -> str:
        by_area: dict[str, Counter[str]] = {}
        for area, outcome in self.outcomes.values():
            by_area.setdefault(area, Counter())[outcome] += 1
        return "; ".join(
            f"{area} {', '.join(f'{counts[name]} {name}' for name in _SHOWN if counts[name])}"
            for area, counts in by_area.items()
        )


class Conformance:
    """A pytest plugin that says at the end of a run what it showed of each provider."""

    def __init__(self) -> None:
        self._classes: dict[str, _Class] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = dict(report.user_properties).get(KEY)
        if told is None:
            return
        name, area, test, total = str(told).split("|")
        one = self._classes.setdefault(report.nodeid.rpartition("::")[0], _Class(name))
        one.total = int(total)
        one.seconds += report.duration
        outcome = _outcome(report)
        if outcome is not None:
            one.note(test, area, outcome)
        if outcome == "not tested":
            one.reasons[_reason(report)] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._classes:
            return
        terminalreporter.section("memslot conformance")
        for one in self._classes.values():
            colour = {"FULL": "green", "PARTIAL": "yellow", "FAILED": "red"}[one.level]
            terminalreporter.line(one.headline, **{colour: True})
            terminalreporter.line(f"  {one.areas}")
            for reason, count in one.reasons.most_common():
                terminalreporter.line(f"  not tested: {reason} ({count})")


def _outcome(report: pytest.TestReport) -> str | None:
    """The outcome that a phase of a test decides, or None."""
    if report.failed:
        return "failed"
    if hasattr(report, "wasxfail"):
        return "excused"
    if report.skipped:
        return "not declared" if _said(report).startswith(_NOT_DECLARED) else "not tested"
    return "passed" if report.when == "call" else None


def _reason(report: pytest.TestReport) -> str:
    return _said(report).removeprefix(_NOT_TESTED)


def _said(report: pytest.TestReport) -> str:
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    return said.removeprefix("Skipped: ")
