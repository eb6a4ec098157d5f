"""Claude Code, Codex and Cursor: what their hooks ask, answered by the process of the MCP server, without a daemon.

A hook is a process of its own and may not wait for Python to import a memory. So it asks over a socket of this
machine, and writes what was said into a spool, one file a turn, which is emptied here. A window that does not have
the socket leaves both to the one that has, also where that is another host's.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from memory import MemslotError, WriteReceipt
from memory.runtime import HostTurns, ShownSections, TurnMemory, strip_context

log = logging.getLogger("memslot.hosts")

_MAX_REQUEST = 10_000_000
_AGAIN_S = 5.0
_RECORDED_S = 0.8
_KEEPS_SECTIONS = ("claude-code", "codex")
_MAX_SOCKET_PATH = 104  # macOS has the shortest
# What a turn raises that is malformed, or no JSON. InputError is a ValueError.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def socket_path(spool: Path) -> Path:
    """The socket of a spool, the same whatever the environment: Codex hands its servers next to none of it."""
    path = spool.absolute() / "hooks.sock"
    if len(os.fsencode(path)) < _MAX_SOCKET_PATH:
        return path
    return Path(
        "/tmp", f"memslot-{os.getuid()}-{sha256(os.fsencode(spool.absolute())).hexdigest()[:16]}.sock"
    )


async def answer_hooks(memory: TurnMemory, spool: Path) -> None:
    """Answer the hooks and empty their spool until cancelled, for the slot's own scope."""
    hooks, path = _Hooks(memory, spool), socket_path(spool)
    os.makedirs(spool, mode=0o700, exist_ok=True)
    while _answers(path):  # noqa: ASYNC110 - another window has it, another process
        await anyio.sleep(_AGAIN_S)
    path.unlink(missing_ok=True)
    try:
        listener = await anyio.create_unix_listener(path, mode=0o600)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(hooks.drain_for_ever)
            await listener.serve(hooks.answer)
    finally:
        path.unlink(missing_ok=True)


class _Hooks:
    def __init__(self, memory: TurnMemory, spool: Path) -> None:
        self._memory = memory
        self._turns: dict[str, HostTurns] = {}
        self._spool = spool
        self._draining = anyio.Lock()
        self._shown = ShownSections(memory.slot)

    async def answer(self, connection: SocketStream) -> None:
        async with connection:
            try:
                line = await BufferedByteReceiveStream(connection).receive_until(b"\n", _MAX_REQUEST)
                request = _read(line)
                if request["do"] == "recall":
                    await self._recall(request, connection)
                else:
                    self._shown.forget(request.get("session_id"))
                    await self.drain()
                    await _send(connection, {"left": len(self._waiting())})
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.IncompleteRead):
                pass  # it did not wait, or another window looked who is there
            except Exception as error:  # whatever one hook asks, the server goes on
                log.warning("hooks: one asked what cannot be answered: %s", type(error).__name__)

    async def _recall(self, request: dict[str, Any], connection: SocketStream) -> None:
        # What the window before left may be about to be recorded.
        with anyio.move_on_after(_RECORDED_S):
            async with self._draining:
                pass
        host, session_id = request["host"], request["session_id"]
        recall = await self._turns_of(host).recall(request["turn"], request["user"], session_id=session_id)
        failure = str(recall.failure or "")
        if recall.result is None or host not in _KEEPS_SECTIONS:
            await _send(connection, {"section": recall.section, "failure": failure})
            return
        part = self._shown.new_in(session_id, recall.result)
        await _send(connection, {"section": part.section, "failure": failure})
        self._shown.add(session_id, part)

    async def drain_for_ever(self) -> None:
        while True:
            await self.drain()
            await anyio.sleep(_AGAIN_S)

    async def drain(self) -> None:
        """Record what lies in the spool, oldest first; what cannot be recorded stays."""
        async with self._draining:
            for file in self._waiting():
                try:
                    receipt = await self._record(_read(file.read_bytes()))
                except FileNotFoundError:  # forgotten meanwhile
                    continue
                except OSError as error:
                    log.warning("hooks: a turn stays in the spool: %s", error.strerror)
                    continue
                except _UNREADABLE as error:
                    log.error("hooks: a turn of the spool cannot be read: %s", type(error).__name__)
                    file.replace(file.with_suffix(".unreadable"))
                    continue
                except MemslotError as error:
                    log.warning("hooks: a turn is not recorded yet: %s", error)
                    return
                if receipt and receipt.status in ("unknown", "skipped_read_only"):
                    return  # the next time it is looked up by its event id
                file.unlink(missing_ok=True)

    async def _record(self, turn: dict[str, Any]) -> WriteReceipt | None:
        """None where nothing was said."""
        self._turns_of(turn["host"]).end(turn["session_id"])
        if not any(strip_context(turn[name]).strip() for name in ("user", "assistant")):
            return None
        return await self._memory.slot.for_scope().after_turn(
            session_id=turn["session_id"],
            user=turn["user"],
            assistant=turn["assistant"],
            event_id=f"{turn['host']}:{turn['turn']}",
            turn_id=turn["turn"],
            timestamp=datetime.fromtimestamp(turn["at"], UTC),
            agent_id=turn["host"],
        )

    def _turns_of(self, host: str) -> HostTurns:
        return self._turns.setdefault(host, HostTurns(self._memory, host))

    def _waiting(self) -> list[Path]:
        return sorted(self._spool.glob("*.json"))


def _read(line: bytes) -> Any:
    """JSON, with halves of surrogate pairs replaced, which hosts that shorten a text leave and no memory takes."""
    return json.loads(json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace"))


async def _send(connection: SocketStream, answer: dict[str, Any]) -> None:
    await connection.send(json.dumps(answer).encode() + b"\n")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True
