"""A fixture with the scripted model, for ``pytest_plugins = ["memory.testing.pytest_plugin"]`` in a conftest.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from memory.testing._scripted_llm import ScriptedLLM


@pytest.fixture
def scripted_llm() -> Iterator[ScriptedLLM]:
    """A running :class:`memory.testing.ScriptedLLM`."""
    from memory.testing._scripted_llm import ScriptedLLM

    with ScriptedLLM() as llm:
        yield llm
