"""The double is held to a real server: what one was asked and answered, asked again here."""

import httpx
import pytest
from memos_double import MemosDouble
from memos_pairs import PAIRS, agrees, load, replay


class _Asker:
    def __init__(self, double):
        self._double = double

    def __call__(self, step):
        request, model = step["request"], self._double.model
        if step.get("idle"):
            self._work()
        for flag in step.get("double", ()):
            setattr(model, flag, True)
        answer = httpx.request(
            request["method"],
            self._double.url + request["path"],
            json=request.get("json"),
            params=request.get("params"),
        )
        if step.get("settle"):
            self._work()
        for flag in step.get("double", ()):
            setattr(model, flag, False)
        return answer.status_code, answer.json()

    def _work(self):
        for task in self._double.model.queue:
            task.due = 0.0
        self._double.model.work()


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_the_double_answers_as_the_server_did(path):
    history = load(path)
    with MemosDouble(redis=history.get("redis", False), delay_s=3600) as double:
        for step, status, body in replay(history, "pairs", _Asker(double)):
            assert status == step["status"], step["name"]
            assert list(agrees(step["body"], body)) == [], step["name"]


def test_there_are_pairs_of_every_route():
    asked = {step["request"]["path"] for path in PAIRS for step in load(path)["steps"]}
    assert asked >= {
        "/product/add",
        "/product/search",
        "/product/get_memory",
        "/product/delete_memory",
        "/product/feedback",
        "/product/scheduler/allstatus",
        "/product/scheduler/status",
        "/health",
    }
