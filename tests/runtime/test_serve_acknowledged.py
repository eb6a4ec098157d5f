"""What ``memslot serve`` has answered 200 to is kept: over SIGTERM with a slow backend, and over SIGKILL."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import httpx
import pytest

from memory.testing import ScriptedLLM

pytestmark = pytest.mark.thorough

SCOPE = {"run_id": "r", "persona_id": "ada"}


def write(directory, memory, **serve):
    file = directory / "serve.yaml"
    given = {"scope": SCOPE, "data_dir": "kept", **memory}
    file.write_text(json.dumps({"memory": given, "serve": {"port": 0, **serve}}))
    return file


@contextmanager
def serving(config):
    command = [sys.executable, "-c", "from memory.cli import main; main()", "serve", str(config)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("serving "), process.stderr.read()
        with httpx.Client(base_url=line.split()[-1], timeout=60) as http:
            yield http, process
    finally:
        process.kill()
        process.communicate()


def ended(process):
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def submit(http, number):
    body = {"harness": "t", "sessionKey": f"s{number % 3}", "userMessage": f"I bought tea number {number}x."}
    answer = http.post("/api/hooks/user-prompt-submit", json=body)
    assert answer.status_code == 200
    result = answer.json()
    return result


def found(http, wanted):
    """Which of the texts recall finds, once what waits is delivered."""
    texts = set()
    for _ in range(300):
        rows = http.post("/api/memory/recall", json={"query": "tea number", "limit": 1000}).json()["results"]
        texts = {text for text in wanted if any(text in row["content"] for row in rows)}
        if texts == wanted:
            break
        time.sleep(0.1)
    return texts


class SlowModel:
    """A model that answers every completion late, until it is told to hurry."""

    def __init__(self):
        self.hurry = threading.Event()

    def __call__(self, _):
        self.hurry.wait(20)


@pytest.fixture
def slow():
    model = SlowModel()
    with ScriptedLLM([model]) as server:
        yield server, model
        model.hurry.set()


def inferring(server):
    model = {"base_url": server.base_url}
    block = {"llm": model, "embedder": model, "threshold": 0.0}
    return {"backend": "mem0", "backends": {"mem0": block}}


def test_what_a_slow_model_left_at_sigterm_is_delivered_by_the_next_start(tmp_path, slow):
    server, model = slow
    config = write(tmp_path, inferring(server), policy={"drain_s": 0.5})
    with serving(config) as (http, process):
        for number in range(4):
            submit(http, number)
        code, said = ended(process)
    assert code == 0
    assert "4 events wait for the next start" in said
    assert "tea" not in said
    model.hurry.set()
    wanted = {f"I bought tea number {number}x" for number in range(4)}
    with serving(config) as (http, process):
        assert found(http, wanted) == wanted
        assert ended(process)[0] == 0
    with serving(config) as (http, process):
        assert found(http, wanted) == wanted
        rows = http.post("/api/memory/recall", json={"query": "tea number", "limit": 100}).json()["results"]
        assert len([row for row in rows if "tea" in row["content"]]) == 4, "and delivered once"


@pytest.mark.parametrize("journal", [True, False])
def test_a_slow_model_and_a_kill_lose_nothing(tmp_path, slow, journal):
    server, model = slow
    config = write(tmp_path, {**inferring(server), "journal": journal})
    with serving(config) as (http, process):
        for number in range(4):
            submit(http, number)
        process.kill()
        process.wait()
    model.hurry.set()
    wanted = {f"I bought tea number {number}x" for number in range(4)}
    with serving(config) as (http, _):
        assert found(http, wanted) == wanted


@pytest.mark.parametrize(
    "memory",
    [
        pytest.param({"backend": "mem0"}, id="mem0", marks=pytest.mark.thorough),
        pytest.param({"condition": "full_history"}, id="full_history"),
    ],
)
@pytest.mark.parametrize("round_", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, 10))])
def test_a_kill_at_any_moment_loses_no_acknowledged_prompt(tmp_path, memory, round_):
    config = write(tmp_path, {**memory, "journal": bool(round_ % 2)})
    chance = random.Random(f"{memory} {round_}")
    wanted = set()
    with serving(config) as (http, process):
        submit(http, 1000)  # the first one opens the store
        threading.Timer(chance.uniform(0.05, 0.6), process.kill).start()
        with suppress(httpx.HTTPError):
            for number in range(400):
                submit(http, number)
                wanted.add(f"I bought tea number {number}x")
        process.wait()
    assert wanted
    with serving(config) as (http, _):
        assert found(http, wanted) == wanted
