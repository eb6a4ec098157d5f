"""Several ``memslot serve`` over one PostgreSQL."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import psutil

TOKEN = "a-token-of-this-test-alone"


class Servers:
    """Processes that serve one memory, behind a proxy: a request goes to any of them that takes connections."""

    def __init__(self, directory, config, count):
        self._files = []
        for number in range(count):
            memory = {**config["memory"], "data_dir": str(directory / f"machine{number}")}
            file = directory / f"machine{number}.json"
            file.write_text(json.dumps({**config, "memory": memory}))
            self._files.append(file)
        self._running: list[tuple[subprocess.Popen[str], str] | None] = [None] * count
        self._http = httpx.Client(timeout=60, headers={"authorization": f"Bearer {TOKEN}"})
        self.kills = 0

    def start(self, number):
        command = [
            sys.executable,
            "-c",
            "from memory.cli import main; main()",
            "serve",
            str(self._files[number]),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline()
        assert line.startswith("serving "), line
        self._running[number] = process, line.split()[-1]

    def kill(self, number):
        before = self._running[number]
        assert before is not None
        self._running[number] = None
        before[0].kill()
        before[0].communicate()
        self.kills += 1

    def cpu_s(self):
        """What they have taken of the processor so far."""
        times = [psutil.Process(server[0].pid).cpu_times() for server in self._running if server is not None]
        return sum(spent.user + spent.system for spent in times)

    @property
    def numbers(self):
        """Those that answer."""
        return [number for number, server in enumerate(self._running) if server is not None]

    @property
    def urls(self):
        """Where they answer."""
        return [server[1] for server in self._running if server is not None]

    def ask(self, path, body, choose):
        """The answer; None where the process that was asked died over it, so that nobody knows."""
        while True:
            try:
                return self._http.post(choose.choice(self.urls) + path, json=body)
            except (httpx.ConnectError, IndexError):
                time.sleep(0.02)  # it was not sent
            except httpx.TransportError:
                return None

    def close(self):
        for number, server in enumerate(self._running):
            if server is not None:
                self.kill(number)
        self._http.close()


@contextmanager
def served(directory, url, model=None, count=3):
    """``memslot serve`` of mem0 on pgvector, with its state in the same PostgreSQL; without a model verbatim."""
    block = {
        "vector_store": {"provider": "pgvector", "config": {"connection_string": url}},
        "collection": "many",
        **({"llm": {"base_url": model}, "embedder": {"base_url": model}, "threshold": 0.0} if model else {}),
    }
    config = {
        "memory": {"backend": "mem0", "backends": {"mem0": block}, "state": url},
        "serve": {"port": 0, "tokens": [{"token": TOKEN, "persona_id": "ada"}], "policy": {"recall_s": 30}},
    }
    servers = Servers(directory, config, count)
    try:
        for number in range(count):
            servers.start(number)
        yield servers
    finally:
        servers.close()
