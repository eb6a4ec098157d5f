"""The conformance kit on a real MemOS server, and MemOS' traps as they really are.

    make live-memos                                              starts everything it needs
    MEMOS_URL=http://127.0.0.1:8001 pytest tests/live/test_memos_live.py

With ``MEMOS_URL``, ``MEMOS_GRAPH_DB`` names that server's GRAPH_DB_BACKEND (``postgres`` if unset), and what needs
the model to fail is skipped. A server keeps the canary's cube; all other cubes are emptied again.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

import pytest
from memos_rig import MemosProcess

from memory.backends.memos.answers import items
from memory.doctor.runner import run_doctor
from memory.testing import Fingerprint, MemoryContract


def config(url: str, **block: Any) -> dict[str, Any]:
    graph_db = os.environ.get("MEMOS_GRAPH_DB", "postgres")
    block = {"url": url, "graph_db": graph_db, **block}
    scope = {"run_id": "live", "persona_id": "ada"}
    return {"memory": {"backend": "memos", "scope": scope, "backends": {"memos": block}}}


REPLACED = {"native_ids": "of raw memories, which MemOS replaces by what it makes of them"}


class OnServer(MemoryContract):
    block: ClassVar[dict[str, Any]] = {}
    native_query = ("get_memory", {})
    rewrites = "MemOS makes memories of what is said"
    ready_timeout_s = 30.0
    concurrent_scopes = 8
    clean_up = True

    @pytest.fixture
    def configured(self, memos_url: str) -> dict[str, Any]:
        return config(memos_url, **self.block)

    def native_rows(self, raw: Any) -> list[Any]:
        return [item for _, _, item in items(raw, "search")]

    @pytest.fixture
    def fingerprint(self, request: pytest.FixtureRequest) -> Fingerprint | None:
        """Every row of the database, read past MemOS; of a server that is not ours, nothing can be read."""
        if os.environ.get("MEMOS_URL"):
            return None
        rig: MemosProcess = request.getfixturevalue("memos_rig_process")
        return rig.memories


class TestAsync(OnServer):
    """As configured by default: a raw memory at once, the scheduler's later."""

    without_ids = REPLACED


class TestFine(OnServer):
    """The answer to a write waits for the model."""

    block: ClassVar[dict[str, Any]] = {"async_mode": "sync", "mode": "fine"}


class TestFast(OnServer):
    """Text as it is, without a model."""

    block: ClassVar[dict[str, Any]] = {"async_mode": "sync", "mode": "fast"}


class TestRedis(OnServer):
    """The scheduler tells of single tasks, where its queue is in Redis."""

    anyio_backends = ("asyncio",)
    without_ids = REPLACED
    block: ClassVar[dict[str, Any]] = {"scheduler": "redis"}

    @pytest.fixture
    def configured(self, memos_redis_rig: MemosProcess) -> dict[str, Any]:
        return config(memos_redis_rig.url, graph_db="postgres", **self.block)

    @pytest.fixture
    def fingerprint(self, memos_redis_rig: MemosProcess) -> Fingerprint:
        return memos_redis_rig.memories


async def test_the_doctor_is_content(memos_url: str) -> None:
    report = await run_doctor(config(memos_url))
    assert report.ok, report
