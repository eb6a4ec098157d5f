"""The kit on Graphiti: the real library on embedded Kuzu, its prompts answered by the scripted LLM."""

import pytest
from graphiti_support import NEEDS_GRAPHITI, config
from kit_selection import OF_THE_SLOT

from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.testing import MemoryContract, ScriptedLLM

pytestmark = NEEDS_GRAPHITI


@pytest.fixture(scope="module")
def llm():
    with ScriptedLLM() as llm:
        yield llm


class TestGraphiti(MemoryContract):
    config = config("http://127.0.0.1:9/v1")  # the fixture below puts the scripted LLM's address in
    anyio_backends = ("asyncio",)  # Graphiti gathers with asyncio
    thorough = OF_THE_SLOT

    @pytest.fixture
    def adapter_factory(self, tmp_path, llm):
        settings = load_config(config(llm.base_url))
        return lambda: MemoryAdapterRegistry().create(settings, data_dir=tmp_path)
