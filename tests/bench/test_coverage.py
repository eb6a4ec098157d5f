"""What intervals are worth: how often they hold the truth, and how often they claim what is not so.

``tests/perf/interval_figures.py`` prints the same for more populations than a quick test can draw.
"""

import sys
from pathlib import Path

import pytest

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
