"""A pytest plugin that summarises a run of the kit: a level for each class, and counts for each area.

The kit registers the plugin. Set ``pytest_plugins = ["memory.testing.pytest_plugin"]`` in your conftest.py for the
fixture ``scripted_llm``, or if you use pytest-xdist.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

import pytest

from memory.testing.contract._run import LEVELS, Outcome, Tally, in_words
from memory.testing.contract._spec import WhyNot, specs

if TYPE_CHECKING:
    from memory.testing._scripted_llm import ScriptedLLM

# The name of the report property with class, area, test and the number of standard tests.
KEY = "memslot_conformance"


def pytest_configure(config: pytest.Config) -> None:
    """Add the summary to a pytest run, once."""
    if not config.pluginmanager.has_plugin(KEY):
        config.pluginmanager.register(Conformance(), KEY)


@dataclass
class _Class:
    name: str
    total: int = 0  # the number of its standard tests
    areas: dict[str, str] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    tally: Tally = field(default_factory=lambda: Tally({}))

    def add(self, test: str, area: str, outcome: Outcome) -> None:
        spec = specs().get(test.removeprefix("test_"))
        self.areas[test] = area
        self.tally.core = {**self.tally.core, test: spec is None or spec.core}
        self.tally.add(test, outcome)
        self.tally.not_run = self.total - len(self.areas)

    def lines(self) -> list[str]:
        by_area: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for test, area in self.areas.items():
            by_area[area][self.tally.outcomes[test]] += 1
        areas = (f"{area} {in_words(found)}" for area, found in by_area.items())
        shown = in_words(self.tally.counts())
        first = f"{self.name}: {self.tally.level}: {shown}, of {self.total} promises ({self.seconds:.1f} s)"
        return [first, *(f"  {self.tally.line(level)}" for level in LEVELS), f"  {'; '.join(areas)}"]


class Conformance:
    """Prints the result of each provider at the end of a run."""

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
    if report.failed:
        return "failed"
    if hasattr(report, "wasxfail"):
        return "excused"
    if report.skipped:
        why = _reason(report).partition(":")[0]
        return next((known for known in get_args(WhyNot) if known == why), "not tested")
    return "passed" if report.when == "call" else None


def _reason(report: pytest.TestReport) -> str:
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    return said.removeprefix("Skipped: ")


@pytest.fixture
def scripted_llm() -> Iterator[ScriptedLLM]:
    """A running :class:`memory.testing.ScriptedLLM`."""
    from memory.testing._scripted_llm import ScriptedLLM

    with ScriptedLLM() as llm:
        yield llm
