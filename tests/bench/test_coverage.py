"""What intervals are worth: how often they hold the truth, and how often they claim what is not so.

``tests/perf/interval_figures.py`` prints the same for more populations than a quick test can draw.
"""

import sys
from pathlib import Path

import pytest

from memory.bench.scores.intervals import Waited, latency, survival

sys.path.insert(0, str(Path(__file__).parents[1] / "perf"))
from interval_figures import POPULATIONS, claims, coverage


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(("personas", "share"), [(8, 0.5), (20, 0.3)])
def test_an_interval_holds_the_truth_about_95_times_of_100(population, personas, share):
    found = coverage(population, personas, each=20, share=share, draws=300)
    assert found > 0.9


def test_rare_people_are_missed_and_the_page_says_so():
    """Where a fiftieth of the people have all of a share, 20 personas seldom hold one of them."""
    found = coverage("two-point", 20, each=36, share=0.02, draws=300)
    assert found < 0.7
    page = (Path(__file__).parents[2] / "docs" / "experiment.md").read_text(encoding="utf-8")
    assert "two-point" in page


@pytest.mark.thorough
@pytest.mark.parametrize("controls", [1, 4])
def test_among_equals_a_difference_is_claimed_on_one_page_of_twenty_at_most(controls):
    """Eight architectures that are all as good as the controls: 3.3 points are three standard errors."""
    assert claims(architectures=8, controls=controls, personas=20, draws=400) <= 0.05 + 0.033


def test_the_median_wait_counts_those_who_still_wait():
    waits = [Waited(1 + n % 5, happened=n % 3 > 0) for n in range(60)]
    without = [wait for wait in waits if wait.happened]
    assert (latency(waits).median or 99) > (latency(without).median or 0)
    assert latency(waits).censored == 20
    curve = survival([Waited(1, True), Waited(2, False), Waited(3, True), Waited(3, True)])
    assert curve == [(1, 0.75), (3, 0.0)]
    none = latency([Waited(9, False) for n in range(6)])
    assert (none.median, none.censored) == (None, 6)


def test_replicates_of_a_wait_are_one_wait():
    once = [Waited(1 + n % 4, happened=n % 3 > 0) for n in range(24)]
    copies = [wait._replace(weight=0.25) for wait in once for _ in range(4)]
    assert latency(copies) == latency(once)
