"""A provenance range means what changed in that time, by one rule for every backend."""

from datetime import UTC, datetime

import pytest

from memory import MemoryScope, ProvenanceRequest

SCOPE = MemoryScope(run_id="r", persona_id="p")
MARCH, APRIL, MAY = (datetime(2026, month, 1, tzinfo=UTC) for month in (3, 4, 5))


@pytest.mark.parametrize(
    ("since", "until", "changes", "included"),
    [
        (None, None, (), True),
        (None, None, (None,), True),
        (APRIL, None, (MARCH,), False),
        (APRIL, None, (MARCH, MAY), True),
        (None, APRIL, (MAY,), False),
        (None, APRIL, (APRIL,), True),
        (APRIL, APRIL, (APRIL,), True),
        (MARCH, APRIL, (None, None), False),
        (APRIL, APRIL, (MARCH, MAY), False),  # no single change lies in it
    ],
)
def test_a_record_is_in_the_range_of_any_of_its_changes(since, until, changes, included):
    assert ProvenanceRequest(scope=SCOPE, since=since, until=until).includes(*changes) is included
