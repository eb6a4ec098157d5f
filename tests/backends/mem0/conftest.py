"""One warning is no failure in the tests of mem0."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Embedded Qdrant leaves a connection to a database in memory open. Python 3.13 warns of it."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(
                pytest.mark.filterwarnings("ignore:unclosed database in <sqlite3.Connection:ResourceWarning")
            )
