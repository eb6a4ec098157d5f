"""Real servers on the loopback, each with its own PostgreSQL and a scripted language model.

    python tests/live/rig.py memos     needs what make live-memos installs
    python tests/live/rig.py redis     the same, with the scheduler's queue in Redis
    python tests/live/rig.py honcho    needs HONCHO_SOURCE, a checkout of plastic-labs/honcho

The rig prints one line of JSON (``url``, ``database``, ``settings``, ``pids``) and runs until its input ends. An
order is a line of input: arguments of :meth:`memory.testing.Faults.add`, ``null`` for no faults, or ``"restart"``.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memory.testing import ScriptedLLM

_START_S = 240.0
_STOP_S = 20.0
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR")


@dataclass
class Server:
    """What a rig runs: programs that are started together and can be started again.

    Attributes:
        url: where the first program answers ``GET /health``.
        settings: the environment of every program.
        commands: command lines, by name. Each writes ``NAME.log`` into ``directory``.
        directory: the working directory of every program.
    """

    url: str
    settings: Mapping[str, str]
    commands: Mapping[str, Sequence[str]]
    directory: Path

    def __post_init__(self):
        self.children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self):
        for name, command in self.commands.items():
            self.children[name] = self.child(name, command)
        first = next(iter(self.commands))
        self.wait(first, self._healthy)

    def child(self, name, command):
        """A process that sees of our environment only what it needs to run."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        with (self.directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                env={**kept, **self.settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self, name, done):
        until = time.monotonic() + _START_S
        while not done():
            child = self.children[name]
            if child.poll() is not None or time.monotonic() > until:
                tail = (self.directory / f"{name}.log").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{name} did not start (exit code {child.poll()}):\n{tail}")
            time.sleep(0.1)

    def stop(self, how=signal.SIGTERM):
        for child in self.children.values():
            child.send_signal(how)
        for child in self.children.values():
            try:
                child.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self.children.clear()

    def _healthy(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextlib.contextmanager
def postgres(directory):
    """A PostgreSQL of its own with pgvector, by the package ``pgserver``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR
        import pgserver
    server = pgserver.get_server(directory, cleanup_mode="stop")
    try:
        yield server
    finally:
        server.cleanup()


def free_port():
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Rig:
    """A rig in a process of its own, so that its threads and sockets are not the tests'.

    Attributes:
        url: of the server.
        database: the address of its PostgreSQL.
        settings: the environment of the server's programs.
    """

    def __init__(self, kind):
        self._process = subprocess.Popen(
            [sys.executable, __file__, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        said = self._read()
        self.url: str = said["url"]
        self.database: str = said["database"]
        self.settings: dict[str, str] = said["settings"]
        self._pids: dict[str, int] = said["pids"]

    @contextlib.contextmanager
    def llm_fault(self, kind, **order):
        """Let every request to the language model fail, or those to one ``endpoint``."""
        self._order({"kind": kind, "times": None, **order})
        try:
            yield
        finally:
            self._order(None)

    def restart(self):
        """Kill the server's programs and start them again."""
        self._pids = self._order("restart")

    @contextlib.contextmanager
    def stopped(self, name):
        """Let one program, or ``database``, take nothing and answer nothing."""
        group = self._group(self._pids[name])
        try:
            self._signal(group, signal.SIGSTOP)
            yield
        finally:
            self._signal(group, signal.SIGCONT)

    @contextlib.contextmanager
    def no_database(self):
        """Refuse connections to the database, and end those there are."""
        with self._psycopg(self.database.replace("/postgres?", "/template1?")) as admin:
            admin.execute("ALTER DATABASE postgres ALLOW_CONNECTIONS false")
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres'")
            try:
                yield
            finally:
                admin.execute("ALTER DATABASE postgres ALLOW_CONNECTIONS true")

    def rows(self, query):
        """The rows of a query, read past the server."""
        with self._psycopg(self.database) as database:
            return list(database.execute(query).fetchall())

    def close(self):
        """End the rig by closing its input, and wait until all it started has ended."""
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_STOP_S * 3)
        self._process.stdout.close()

    @staticmethod
    def _signal(group, what):
        for pid in group:
            with contextlib.suppress(ProcessLookupError):  # a database's own processes come and go
                os.kill(pid, what)

    @staticmethod
    def _psycopg(address):
        import psycopg

        return psycopg.connect(address, autocommit=True)

    @staticmethod
    def _group(pid):
        """The process and its descendants."""
        found = [pid]
        for parent in found:
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, task.read_text().split())
        return found

    def _order(self, order):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self):
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise RuntimeError(f"the rig ended (exit code {code}); see its output above")
        return json.loads(line)


def main(kind):
    """Run a rig; every process and file goes with it."""
    import honcho_rig
    import memos_rig

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    module = honcho_rig if kind == "honcho" else memos_rig
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{kind}-")))
        llm = stack.enter_context(ScriptedLLM(rules=module.rules))
        database = stack.enter_context(postgres(directory / "pg"))
        server = stack.enter_context(module.server(directory, llm.base_url, database, redis=kind == "redis"))
        stack.callback(server.stop)
        server.start()

        def pids():
            postmaster = database.get_postmaster_info().pid
            return {"database": postmaster, **{name: child.pid for name, child in server.children.items()}}

        _say({"url": server.url, "database": database.get_uri(), "settings": server.settings, "pids": pids()})
        for line in sys.stdin:
            order = json.loads(line)
            if order == "restart":
                server.stop(signal.SIGKILL)
                server.start()
            else:
                llm.faults.clear()
                if order is not None:
                    llm.faults.add(order.pop("kind"), **order)
            _say(pids())


def _say(what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
