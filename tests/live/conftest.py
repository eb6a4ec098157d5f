"""Fixtures of the live tests: real servers, or the reason why there is none."""

import os

import pytest
from rig import Rig


@pytest.fixture(scope="session")
def memos_rig_process():
    """PostgreSQL, MemOS' server and the scripted LLM, all ours to break."""
    import memos_rig

    yield from _rig("memos", memos_rig.missing())


@pytest.fixture(scope="session")
def memos_redis_rig():
    """Another one, with the scheduler's queue in Redis."""
    import memos_rig

    yield from _rig("redis", memos_rig.missing(redis=True))


@pytest.fixture(scope="session")
def honcho_rig_process():
    """PostgreSQL, Honcho's server and worker, and the scripted LLM, all ours to break."""
    import honcho_rig

    yield from _rig("honcho", honcho_rig.missing())


def _rig(kind, missing):
    if missing:
        pytest.skip(missing)
    rig = Rig(kind)
    yield rig
    rig.close()


@pytest.fixture(scope="session")
def memos_url(request):
    """A MemOS server: the one that ``MEMOS_URL`` names, or ours."""
    return os.environ.get("MEMOS_URL") or str(request.getfixturevalue("memos_rig_process").url)


@pytest.fixture(scope="session")
def honcho_url(request):
    """A Honcho server: the one that ``HONCHO_URL`` names, or ours."""
    return os.environ.get("HONCHO_URL") or str(request.getfixturevalue("honcho_rig_process").url)
