"""Fixtures of the live tests: real servers, or the reason why there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator

import memos_rig
import pytest


@pytest.fixture(scope="session")
def memos_rig_process() -> Iterator[memos_rig.MemosProcess]:
    """PostgreSQL, MemOS' server and the scripted LLM, all ours to break."""
    yield from _rig()


@pytest.fixture(scope="session")
def memos_redis_rig() -> Iterator[memos_rig.MemosProcess]:
    """Another one, with the scheduler's queue in Redis."""
    yield from _rig("--redis")


def _rig(*flags: str) -> Iterator[memos_rig.MemosProcess]:
    if reason := memos_rig.missing(redis="--redis" in flags):
        pytest.skip(reason)
    rig = memos_rig.MemosProcess(*flags)
    yield rig
    rig.close()


@pytest.fixture(scope="session")
def memos_url(request: pytest.FixtureRequest) -> str:
    """A MemOS server: the one that ``MEMOS_URL`` names, or ours."""
    named = os.environ.get("MEMOS_URL")
    if named:
        return named
    rig: memos_rig.MemosProcess = request.getfixturevalue("memos_rig_process")
    return rig.url
