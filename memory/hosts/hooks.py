"""Claude Code, Codex and Cursor: the MCP server's process answers their hooks, without a daemon.

A hook runs as a separate process and has no time to import a memory. It asks over a local socket, and inserts
its reports into the outbox of ``memory.data_dir``. The first server process of a memory owns the socket, for
the windows of all hosts. When it ends, another process takes over.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketListener, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from memory import MemorySlot, WriteReceipt
from memory.adapter import PluginOptions
from memory.runtime import (
    Failures,
    HookQueue,
    HookTurn,
    HostTurns,
    MemslotConfig,
    ShownSections,
    SocketOwner,
    TurnPolicy,
    socket_in,
    turns_of,
)

log = logging.getLogger("memslot.hosts")

_MAX_REQUEST = 10_000_000
_AGAIN_S = 5.0
_RECORDED_S = 0.8
_KEEPS_SECTIONS = ("claude-code", "codex")


class HookSettings(PluginOptions):
    """The ``hooks:`` block."""

    not_said: tuple[re.Pattern[str], ...] = ()
    """Regular expressions. A prompt that one of them matches from its beginning is not the user's."""


def socket_path(data_dir: Path) -> Path:
    """Return the socket's path. It needs no environment variable: Codex passes almost none to its servers."""
    return socket_in(data_dir, "hooks.sock")


@asynccontextmanager
async def hooks_answered(slot: MemorySlot, config: MemslotConfig) -> AsyncIterator[None]:
    """Answer the hooks in the background. Their failures are logged and do not stop the server."""
    turns_of(slot, TurnPolicy(not_said=config.section("hooks", HookSettings).not_said))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer_hooks, slot, config.data_dir)
        yield
        tasks.cancel_scope.cancel()


async def answer_hooks(slot: MemorySlot, data_dir: Path) -> None:
    """Answer the hooks and record their reports in the slot's scope, until cancelled.

    A failure is logged, and the server starts again after some seconds.
    """
    failures = Failures("hooks", log)
    while True:
        before = failures.last
        with (
            failures.survived("the socket of the hooks"),
            SocketOwner(socket_path(data_dir), what="the hooks of this memory") as owner,
        ):
            while not owner.take():  # noqa: ASYNC110 - another process has it
                await anyio.sleep(_AGAIN_S)
            with HookQueue(data_dir) as queue:
                hooks = _Hooks(slot, queue, failures)
                listening = await SocketListener.from_socket(owner.listen())
                async with listening as listener, anyio.create_task_group() as tasks:
                    tasks.start_soon(hooks.drain_for_ever)
                    await listener.serve(hooks.answer)
        if failures.last == before:
            return
        await anyio.sleep(_AGAIN_S)


class _Hooks:
    def __init__(self, slot: MemorySlot, queue: HookQueue, failures: Failures) -> None:
        self._slot = slot
        self._not_said = turns_of(slot).policy.not_said
        self._turns: dict[str, HostTurns] = {}
        self._queue = queue
        self._failures = failures
        self._draining = anyio.Lock()
        self._shown = ShownSections(slot)

    async def answer(self, connection: SocketStream) -> None:
        async with connection:
            try:
                line = await BufferedByteReceiveStream(connection).receive_until(b"\n", _MAX_REQUEST)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.IncompleteRead):
                return  # the hook gave up waiting, or another process only probed the socket
            with self._failures.survived("a hook's request"):
                request = _read(line)
                if request["do"] == "recall":
                    await self._recall(request, connection)
                else:
                    self._shown.forget(request.get("session_id"))
                    await self.drain()
                    await _send(connection, {"left": await self._queue.left()})

    async def _recall(self, request: dict[str, Any], connection: SocketStream) -> None:
        # Wait a little, because the previous owner's reports may not be recorded yet.
        with anyio.move_on_after(_RECORDED_S):
            async with self._draining:
                pass
        host, session_id = request["host"], request["session_id"]
        recall = await self._turns_of(host).recall(request["turn"], request["text"], session_id=session_id)
        section, failure = recall.section, str(recall.failure or "")
        if recall.result is None or host not in _KEEPS_SECTIONS:
            await _send(connection, {"section": section, "failure": failure})
            return
        part = self._shown.new_in(session_id, recall.result)
        await _send(connection, {"section": part.section, "failure": failure})
        self._shown.add(session_id, part)

    async def drain_for_ever(self) -> None:
        while True:
            await self.drain()
            await anyio.sleep(_AGAIN_S)

    async def drain(self) -> None:
        """Record the finished turns, each session in order. A turn that cannot be recorded now waits."""
        async with self._draining:
            with self._failures.survived("reading the outbox"):
                await self._queue.drain(self._record, self._failures.note)

    async def _record(self, turn: HookTurn) -> WriteReceipt | None:
        first = turn.rows[0]
        self._turns_of(first.host).end(first.session_id)
        slot = self._slot
        event = turn.event(slot.delivery.scope_or_default(), self._not_said)
        if event is None:
            return None
        await slot.delivery.set_up(event.scope)
        if turn.attempted and slot.delivery.can_look_up and await slot.delivery.find_event(event) is not None:
            return None
        return await slot.record_event(event)

    def _turns_of(self, host: str) -> HostTurns:
        return self._turns.setdefault(host, HostTurns(self._slot, host))


def _read(line: bytes) -> Any:
    """Parse JSON, and replace unpaired surrogates, which remain where a host cuts a text short."""
    return json.loads(json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace"))


async def _send(connection: SocketStream, answer: dict[str, Any]) -> None:
    await connection.send(json.dumps(answer).encode() + b"\n")
