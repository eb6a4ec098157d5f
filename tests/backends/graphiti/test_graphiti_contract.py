"""The kit on Graphiti: the real library on embedded Kuzu, its prompts answered by the scripted LLM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from graphiti_support import NEEDS_GRAPHITI, config

from memory import MemoryAdapter
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import MemoryContract, ScriptedLLM
from memory.testing.contract._spec import specs

pytestmark = NEEDS_GRAPHITI
ITS_OWN = ("recording", "isolation", "failures")
"""Areas that make test plays; of the others most is the slot's doing, which the other providers show."""


@pytest.fixture(scope="module")
def llm() -> Iterator[ScriptedLLM]:
    with ScriptedLLM() as llm:
        yield llm


class TestGraphiti(MemoryContract):
    config = config("http://127.0.0.1:9/v1")  # the fixture below puts the scripted LLM's address in
    anyio_backends = ("asyncio",)  # Graphiti gathers with asyncio
    # The first two open dozens of graphs: the one is shown by test_many_scopes_at_once_open_few_graphs, the other
    # by the encoder's own tests and by the kit on every other provider.
    thorough = (
        "test_concurrent_scopes_never_cross",
        "test_lookalike_scopes_never_meet",
        "test_the_event_loop_is_never_blocked",
        "test_time_grows_no_faster_than_the_text",
        *(f"test_{name}" for name, spec in specs().items() if spec.area not in ITS_OWN),
    )

    @pytest.fixture
    def adapter_factory(self, tmp_path: Path, llm: ScriptedLLM) -> Callable[[], MemoryAdapter]:
        settings = load_config(config(llm.base_url))
        return lambda: MemoryAdapterRegistry().create(settings, data_dir=tmp_path)
