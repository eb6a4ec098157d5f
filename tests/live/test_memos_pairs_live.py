"""The recorded pairs are held to a real server: MemOS still answers as it did when they were recorded."""

import os

import pytest
from memos_pairs import PAIRS, load, replay
from memos_record import Asker


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_the_server_answers_as_recorded(path, request):
    history = load(path)
    rig = request.getfixturevalue("memos_redis_rig" if history.get("redis") else "memos_rig_process")
    for step, status, body in replay(history, f"pairs-{os.urandom(4).hex()}", Asker(rig)):
        assert (status, body) == (step["status"], step["body"]), step["name"]
