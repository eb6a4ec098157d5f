"""What of a test is plain, and what only ``make test-all`` runs."""

import pytest
from hypothesis import settings

_OF_HYPOTHESIS = 100  # examples by default; those of --fast are fewer


def plain(*quick, of):
    """Values of a parameter, or tuples of several, known by their first; all that are not quick are thorough."""
    return [
        value if (value[0] if isinstance(value, tuple) else value) in quick else _thorough(value)
        for value in of
    ]


def examples(count):
    """How many examples to make up where a test says so itself; with ``--fast`` no more than for any other."""
    usual = settings.default.max_examples
    return min(count, usual) if usual < _OF_HYPOTHESIS else count


def _thorough(value):
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.thorough)
