"""The real orders of calls, whatever is behind the server: found where a user looks, gone once forgotten."""

import pytest
from backends import double
from memos_support import config as memos
from served_windows import play, windows

pytestmark = pytest.mark.thorough

NEEDS_GRAPHITI = double("graphiti_support", "NEEDS_GRAPHITI")
graphiti = double("graphiti_support", "config")
MemosDouble = double("memos_double", "MemosDouble")


async def test_on_full_history(tmp_path):
    async with windows({"condition": "full_history"}, tmp_path) as served:
        await play(served)


async def test_on_mem0(tmp_path):
    async with windows({"backend": "mem0"}, tmp_path) as served:
        await play(served)


@NEEDS_GRAPHITI
async def test_on_graphiti(tmp_path, llm):
    async with windows(graphiti(llm.base_url)["memory"], tmp_path) as served:
        await play(served)


async def test_on_memos(tmp_path):
    with MemosDouble() as double:
        async with windows(memos(double.url)["memory"], tmp_path) as served:
            await play(served)
