"""The conformance kit on a real MemOS server, and MemOS' traps as they really are.

    make live-memos                                              starts everything it needs
    MEMOS_URL=http://127.0.0.1:8001 pytest tests/live/test_memos_live.py

With ``MEMOS_URL``, ``MEMOS_GRAPH_DB`` names that server's GRAPH_DB_BACKEND (``postgres`` if unset), and what needs
the model to fail is skipped. A server keeps the canary's cube; all other cubes are emptied again.
"""

import os
from typing import Any, ClassVar

import pytest

from memory.backends.memos.conformance import MemosConformance
from memory.doctor.runner import Doctor
from memory.testing import MemoryContract


def config(url, **block):
    graph_db = os.environ.get("MEMOS_GRAPH_DB", "postgres")
    block = {"url": url, "graph_db": graph_db, **block}
    scope = {"run_id": "live", "persona_id": "ada"}
    return {"memory": {"backend": "memos", "scope": scope, "backends": {"memos": block}}}


class OnServer(MemoryContract):
    block: ClassVar[dict[str, Any]] = {}
    anyio_backends = ("asyncio",)

    @pytest.fixture
    def configured(self, memos_url):
        return config(memos_url, **self.block)


class TestAsync(OnServer):
    """As configured by default: a raw memory at once, the scheduler's later."""


class _Synchronous(MemosConformance):
    without_ids: ClassVar[dict[str, str]] = {}


class TestFine(OnServer):
    """The answer to a write waits for the model."""

    profile = _Synchronous
    block: ClassVar[dict[str, Any]] = {"async_mode": "sync", "mode": "fine"}


class TestFast(OnServer):
    """Text as it is, without a model."""

    profile = _Synchronous
    block: ClassVar[dict[str, Any]] = {"async_mode": "sync", "mode": "fast"}


class TestRedis(OnServer):
    """The scheduler's queue is in Redis."""

    @pytest.fixture
    def configured(self, memos_redis_rig):
        return config(memos_redis_rig.url, graph_db="postgres")


async def test_the_doctor_is_content(memos_url):
    report = await Doctor(config(memos_url)).run()
    assert report.ok, report
