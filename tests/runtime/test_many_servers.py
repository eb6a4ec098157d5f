"""Three ``memslot serve`` over one PostgreSQL, a proxy that sends each request anywhere, and kills."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from postgres import NEEDS_POSTGRES, ask

from memory.testing import ScriptedLLM

SECONDS = min(2.0 * int(os.environ.get("MEMSLOT_ROUNDS", "8")), 40.0)
SESSIONS = 4
TOKEN = "a-token-of-this-test-alone"


class Servers:
    """Processes that serve one memory, behind a proxy: a request goes to any of them that takes connections."""

    def __init__(self, directory: Path, config: dict[str, Any], count: int = 3) -> None:
        self._files = []
        for number in range(count):
            memory = {**config["memory"], "data_dir": str(directory / f"machine{number}")}
            file = directory / f"machine{number}.json"
            file.write_text(json.dumps({**config, "memory": memory}))
            self._files.append(file)
        self._running: list[tuple[subprocess.Popen[str], str] | None] = [None] * count
        self._http = httpx.Client(timeout=60, headers={"authorization": f"Bearer {TOKEN}"})
        self.kills = 0

    def start(self, number: int) -> None:
        command = [
            sys.executable,
            "-c",
            "from memory.cli import main; main()",
            "serve",
            str(self._files[number]),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving "), line
        self._running[number] = process, line.split()[-1]

    def kill(self, number: int) -> None:
        before = self._running[number]
        assert before is not None
        self._running[number] = None
        before[0].kill()
        before[0].communicate()
        self.kills += 1

    def cpu_s(self) -> float:
        import psutil

        times = [psutil.Process(one[0].pid).cpu_times() for one in self._running if one is not None]
        return sum(spent.user + spent.system for spent in times)

    def ask(self, path: str, body: dict[str, Any], choose: random.Random) -> httpx.Response | None:
        """The answer; None where the process that was asked died over it, so that nobody knows."""
        while True:
            there = [one[1] for one in self._running if one is not None]
            try:
                return self._http.post(choose.choice(there) + path, json=body)
            except (httpx.ConnectError, IndexError):
                time.sleep(0.02)  # it was not sent
            except httpx.TransportError:
                return None

    def close(self) -> None:
        for number, one in enumerate(self._running):
            if one is not None:
                self.kill(number)
        self._http.close()


@contextmanager
def served(directory: Path, url: str, model: str, **more: Any) -> Iterator[Servers]:
    block = {
        "vector_store": {"provider": "pgvector", "config": {"connection_string": url}},
        "collection": "many",
        "llm": {"base_url": model},
        "embedder": {"base_url": model},
        "threshold": 0.0,
    }
    config = {
        "memory": {"backend": "mem0", "backends": {"mem0": block}, "state": url, **more},
        "serve": {"port": 0, "tokens": [{"token": TOKEN, "persona_id": "ada"}], "policy": {"recall_s": 30}},
    }
    servers = Servers(directory, config)
    try:
        for number in range(3):
            servers.start(number)
        yield servers
    finally:
        servers.close()


@pytest.fixture
def clean(state_url: str) -> str:
    ask(state_url, "CREATE EXTENSION IF NOT EXISTS vector", "DROP TABLE IF EXISTS many")
    return state_url


def prompt(number: int, session: int) -> dict[str, Any]:
    said = f"In project {session} I bought tea number {number}x."
    return {"harness": "t", "sessionKey": f"s{session}", "project": f"/p{session}", "userMessage": said}


@NEEDS_POSTGRES
@pytest.mark.thorough
def test_a_kill_every_two_seconds_loses_nothing_doubles_nothing_and_keeps_each_scopes_order(
    tmp_path: Path, clean: str
) -> None:
    pytest.importorskip("mem0")
    acknowledged: list[list[int]] = [[] for _ in range(SESSIONS)]
    unanswered: list[list[int]] = [[] for _ in range(SESSIONS)]
    ended = threading.Event()

    def speak(session: int) -> None:
        choose, number = random.Random(session), 0
        while not ended.is_set():
            answer = servers.ask("/api/hooks/user-prompt-submit", prompt(number, session), choose)
            if answer is None:
                unanswered[session].append(number)
            else:
                assert (answer.status_code, answer.json()["queued"]) == (200, "journal"), answer.text
                acknowledged[session].append(number)
            number += 1
            time.sleep(0.05)

    with ScriptedLLM() as model, served(tmp_path, clean, model.base_url) as servers:
        speakers = [threading.Thread(target=speak, args=(session,)) for session in range(SESSIONS)]
        for speaker in speakers:
            speaker.start()
        choose, until = random.Random(0), time.monotonic() + SECONDS
        try:
            while time.monotonic() < until:
                victim = choose.randrange(3)
                servers.kill(victim)
                time.sleep(0.5)
                servers.start(victim)
                time.sleep(1.5)
        finally:
            ended.set()
            for speaker in speakers:
                speaker.join()
        for _ in range(600):
            [(waiting,)] = ask(
                clean, "SELECT count(*) FROM memslot.events WHERE status IN ('waiting', 'unknown')"
            )
            if not waiting:
                break
            time.sleep(0.1)
        else:
            raise AssertionError(f"{waiting} events still wait")
        # In the order of the transactions that wrote them; nothing is changed or deleted.
        texts = [
            text for (text,) in ask(clean, "SELECT payload->>'data' FROM many ORDER BY xmin::text::bigint")
        ]
    assert servers.kills >= 3
    assert sum(map(len, acknowledged)) > 10 * SESSIONS
    for session in range(SESSIONS):
        mine = [text for text in texts if f"project {session} " in text]
        numbers = [int(text.rpartition(" ")[2].rstrip("x.")) for text in mine]
        assert len(numbers) == len(set(numbers)), "0 double"
        assert set(acknowledged[session]) <= set(numbers), "0 lost"
        assert set(numbers) <= {*acknowledged[session], *unanswered[session]}
        kept = set(acknowledged[session])
        assert [number for number in numbers if number in kept] == acknowledged[session], "in their order"
