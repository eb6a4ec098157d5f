"""The recorded pairs are held to a real server: MemOS still answers as it did when they were recorded."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from memos_rig import MemosProcess

sys.path.insert(0, str(Path(__file__).parents[1] / "backends" / "memos"))

from memos_pairs import PAIRS, load, replay
from memos_record import Asker


@pytest.fixture(scope="module")
def redis_rig(memos_rig_process: MemosProcess) -> Iterator[MemosProcess]:
    """A second server, its queue in Redis."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    rig = MemosProcess("--redis")
    yield rig
    rig.close()


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_the_server_answers_as_recorded(path: Path, request: pytest.FixtureRequest) -> None:
    history = load(path)
    rig = request.getfixturevalue("redis_rig" if history.get("redis") else "memos_rig_process")
    for step, status, body in replay(history, f"pairs-{os.urandom(4).hex()}", Asker(rig)):
        assert (status, body) == (step["status"], step["body"]), step["name"]
