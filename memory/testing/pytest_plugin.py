"""A thin pytest plugin: say ``pytest_plugins = ["memory.testing.pytest_plugin"]`` in your conftest.py.

The conformance kit needs it for its summary under pytest-xdist alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from memory.testing._conformance import register

if TYPE_CHECKING:
    from memory.testing._scripted_llm import ScriptedLLM


def pytest_configure(config: pytest.Config) -> None:
    register(config)


@pytest.fixture
def scripted_llm() -> Iterator[ScriptedLLM]:
    """A running :class:`memory.testing.ScriptedLLM`."""
    from memory.testing._scripted_llm import ScriptedLLM

    with ScriptedLLM() as llm:
        yield llm
