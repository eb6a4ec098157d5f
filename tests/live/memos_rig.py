"""A real MemOS product server on the loopback: PostgreSQL from ``pgserver``, the server, and the scripted LLM.

    python tests/live/memos_rig.py             starts everything, says where, and runs until its input ends
    python tests/live/memos_rig.py --redis     with the scheduler's queue in Redis (needs redis-server)

What this needs is installed by ``make live-memos``; :func:`missing` says what is not there. Lines of input order
faults of the language model, as the arguments of :meth:`memory.testing.Faults.add`; ``null`` ends them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memory.testing import ScriptedLLM

sys.path.append(str(Path(__file__).parents[1] / "backends" / "memos"))

from scripted_rules_memos import rules

_DIMENSIONS = 256
_START_S = 180.0
_STOP_S = 20.0


def missing(*, redis: bool = False) -> str:
    """What of the rig's needs is not installed, or an empty string."""
    needed = ("memos", "pgserver", "psycopg2", "jieba", "chonkie", "uvicorn")
    absent = [name for name in needed if find_spec(name) is None]
    if redis and shutil.which("redis-server") is None:
        absent.append("redis-server")
    return f"not installed: {', '.join(absent)}; run make live-memos" if absent else ""


@dataclass(frozen=True)
class MemosServer:
    """A server that runs.

    Attributes:
        url: where it listens.
        llm: what it asks for answers, vectors and ranks.
        settings: the environment it was started with; also what ``inprocess`` needs.
    """

    url: str
    llm: ScriptedLLM
    settings: Mapping[str, str]


@contextlib.contextmanager
def memos_server(*, redis: bool = False, port: int = 0) -> Iterator[MemosServer]:
    """Start it all, yield it, and leave nothing: no process, no file."""
    with memos_settings(redis=redis) as (llm, settings), _server(settings, port) as url:
        yield MemosServer(url, llm, settings)


@contextlib.contextmanager
def memos_settings(*, redis: bool = False) -> Iterator[tuple[ScriptedLLM, dict[str, str]]]:
    """What MemOS stands on: a database, a language model, and the environment that names them."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="memos-")))
        llm = stack.enter_context(ScriptedLLM(rules=rules))
        settings = {**_model_settings(llm.base_url), **stack.enter_context(_postgres(directory / "pg"))}
        settings |= (
            stack.enter_context(_redis(directory)) if redis else {"MEMSCHEDULER_USE_REDIS_QUEUE": "false"}
        )
        (directory / "files").mkdir()
        settings |= {"MEMOS_BASE_PATH": str(directory), "FILE_LOCAL_PATH": str(directory / "files")}
        yield llm, settings


def _model_settings(base_url: str) -> dict[str, str]:
    key = "unused"
    return {
        "OPENAI_API_KEY": key,
        "OPENAI_API_BASE": base_url,
        "MOS_CHAT_MODEL": "scripted",
        "MEMRADER_API_KEY": key,
        "MEMRADER_API_BASE": base_url,
        "MEMRADER_MODEL": "scripted",
        "MOS_EMBEDDER_BACKEND": "universal_api",
        "MOS_EMBEDDER_PROVIDER": "openai",
        "MOS_EMBEDDER_API_BASE": base_url,
        "MOS_EMBEDDER_API_KEY": key,
        "MOS_EMBEDDER_MODEL": "scripted-embedding",
        "EMBEDDING_DIMENSION": str(_DIMENSIONS),
        "MOS_RERANKER_BACKEND": "http_bge",
        "MOS_FEEDBACK_RERANKER_BACKEND": "http_bge",
        "MOS_RERANKER_URL": f"{base_url}/rerank",
        "ENABLE_INTERNET": "false",
        "ENABLE_PREFERENCE_MEMORY": "true",
        "MOS_ENABLE_REORGANIZE": "false",
        "HF_HUB_OFFLINE": "1",
    }


@contextlib.contextmanager
def _postgres(directory: Path) -> Iterator[dict[str, str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR
        import pgserver
    server = pgserver.get_server(directory, cleanup_mode="stop")
    try:
        # MemOS builds its approximate index on the empty table; with the default it then finds nothing.
        server.psql("ALTER DATABASE postgres SET ivfflat.probes = 100")
        yield {
            "GRAPH_DB_BACKEND": "postgres",
            "POSTGRES_HOST": str(server.get_postmaster_info().socket_dir),
            "POSTGRES_PORT": "5432",
            "POSTGRES_USER": "postgres",
            "POSTGRES_DB": "postgres",
            "POSTGRES_MAX_CONN": "60",
        }
    finally:
        server.cleanup()


@contextlib.contextmanager
def _redis(directory: Path) -> Iterator[dict[str, str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        "redis-server",
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        str(directory),
    ]
    with _process(command, directory / "redis.log", {}) as redis:
        _until(lambda: _listens(port), redis, "redis-server", directory / "redis.log")
        yield {
            "MEMSCHEDULER_USE_REDIS_QUEUE": "true",
            "MEMSCHEDULER_REDIS_HOST": "127.0.0.1",
            "MEMSCHEDULER_REDIS_PORT": str(port),
        }


@contextlib.contextmanager
def _server(settings: Mapping[str, str], port: int) -> Iterator[str]:
    directory = Path(settings["MEMOS_BASE_PATH"])
    port_file, log = directory / "port", directory / "server.log"
    command = [sys.executable, str(Path(__file__).with_name("memos_server.py")), str(port_file), str(port)]
    with _process(command, log, {"TMPDIR": str(directory), **settings}) as server:
        _until(lambda: port_file.exists() and bool(port_file.read_text()), server, "the MemOS server", log)
        url = f"http://127.0.0.1:{port_file.read_text()}"
        _until(lambda: _healthy(url), server, "the MemOS server", log)
        yield url


@contextlib.contextmanager
def _process(command: list[str], log: Path, settings: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A child with nothing of our environment but what it needs to run, ended with the context."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, cwd=log.parent, env=kept | settings, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _until(done: Any, child: subprocess.Popen[bytes], name: str, log: Path) -> None:
    began = time.monotonic()
    while not done():
        if child.poll() is not None or time.monotonic() - began > _START_S:
            tail = log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{name} did not start (exit code {child.poll()}):\n{tail}")
        time.sleep(0.1)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class MemosProcess:
    """The rig in a process of its own, so that its threads and sockets are not the tests'.

    Attributes:
        url: of the MemOS server.
        settings: the environment that MemOS was started with.
    """

    def __init__(self, *flags: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        said = self._read()
        self.url: str = said["url"]
        self.settings: dict[str, str] = said["settings"]

    @contextlib.contextmanager
    def llm_fault(self, kind: str, **order: Any) -> Iterator[None]:
        """Let every request to the language model fail, or those to one ``endpoint``."""
        self._order({"kind": kind, "times": None, **order})
        try:
            yield
        finally:
            self._order(None)

    @contextlib.contextmanager
    def no_database(self) -> Iterator[None]:
        """Refuse connections to the database, and end those there are."""
        import psycopg2

        where = {"host": self.settings["POSTGRES_HOST"], "user": "postgres", "dbname": "template1"}
        with contextlib.closing(psycopg2.connect(**where)) as database:
            database.autocommit = True
            with database.cursor() as cursor:
                cursor.execute("ALTER DATABASE postgres ALLOW_CONNECTIONS false")
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres'"
                )
                try:
                    yield
                finally:
                    cursor.execute("ALTER DATABASE postgres ALLOW_CONNECTIONS true")

    def memories(self) -> list[tuple[Any, ...]]:
        """Every row that MemOS holds, read past it."""
        import psycopg2

        where = {"host": self.settings["POSTGRES_HOST"], "user": "postgres", "dbname": "postgres"}
        with contextlib.closing(psycopg2.connect(**where)) as database, database.cursor() as cursor:
            cursor.execute("SELECT id, user_name, memory, properties::text FROM memos.memories ORDER BY id")
            return list(cursor.fetchall())

    def close(self) -> None:
        """End the rig by closing its input, and wait until all it started has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_STOP_S * 3)
        self._process.stdout.close()

    def _order(self, fault: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fault) + "\n")
        self._process.stdin.flush()
        self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"the MemOS rig ended (exit code {self._process.wait()}); see its output above"
            )
        return json.loads(line)


def _main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    port = int(sys.argv[sys.argv.index("--port") + 1]) if "--port" in sys.argv else 0
    with (
        contextlib.suppress(KeyboardInterrupt),
        memos_server(redis="--redis" in sys.argv, port=port) as server,
    ):
        _say({"url": server.url, "settings": dict(server.settings)})
        for line in sys.stdin:
            fault = json.loads(line)
            server.llm.faults.clear()
            if fault is not None:
                server.llm.faults.add(fault.pop("kind"), **fault)
            _say("ordered")


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main()
