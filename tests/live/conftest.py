"""Fixtures of the live tests: real servers, or the reason why there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator

import honcho_rig
import memos_rig
import pytest
from rig import Rig


@pytest.fixture(scope="session")
def memos_rig_process() -> Iterator[Rig]:
    """PostgreSQL, MemOS' server and the scripted LLM, all ours to break."""
    yield from _rig("memos", memos_rig.missing())


@pytest.fixture(scope="session")
def memos_redis_rig() -> Iterator[Rig]:
    """Another one, with the scheduler's queue in Redis."""
    yield from _rig("redis", memos_rig.missing(redis=True))


@pytest.fixture(scope="session")
def honcho_rig_process() -> Iterator[Rig]:
    """PostgreSQL, Honcho's server and worker, and the scripted LLM, all ours to break."""
    yield from _rig("honcho", honcho_rig.missing())


def _rig(kind: str, missing: str) -> Iterator[Rig]:
    if missing:
        pytest.skip(missing)
    rig = Rig(kind)
    yield rig
    rig.close()


@pytest.fixture(scope="session")
def memos_url(request: pytest.FixtureRequest) -> str:
    """A MemOS server: the one that ``MEMOS_URL`` names, or ours."""
    return os.environ.get("MEMOS_URL") or str(request.getfixturevalue("memos_rig_process").url)


@pytest.fixture(scope="session")
def honcho_url(request: pytest.FixtureRequest) -> str:
    """A Honcho server: the one that ``HONCHO_URL`` names, or ours."""
    return os.environ.get("HONCHO_URL") or str(request.getfixturevalue("honcho_rig_process").url)
