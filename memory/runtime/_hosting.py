"""The base that the bindings of all hosts share.

Calls from other threads and loops run in the event loop that opened the memory. A failure does not reach the
host: it is logged, counted in :meth:`TurnMemory.status` and reported to ``on_trouble``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar, Unpack

import anyio
import pydantic_core

from memory.contract._loops import loop_or_none
from memory.contract.errors import ConfigError, LifecycleError, MemslotError, ScopeError
from memory.contract.events import MemoryEvent, Message
from memory.contract.scope import MemoryScope
from memory.runtime._policy import Recall, TurnMemory, TurnPolicy
from memory.runtime._provider import encodable
from memory.runtime._said import said_by_user
from memory.slot.slot import MemorySlot
from memory.slot.sync import SyncMemory
from memory.slot.turns import RecallFields, TurnFields, event_from_turn

log = logging.getLogger("memslot.hosts")

T = TypeVar("T")
OpenMemory = MemorySlot | SyncMemory
"""The result of ``open_memory`` or ``open_memory_sync``."""
UserOf = str | MemoryScope | Callable[[Any], str | MemoryScope]
"""A user id within the memory's scope, a whole scope, or a function that takes a run and returns either."""

_MAX_OPEN_TURNS = 1000
_MAX_VERSIONS = 100  # these are whole turns, which may be long
_OPEN_SO = "open the memory with open_memory_sync"
_making = threading.Lock()
_BEGIN_S = 5.0  # a busy loop answers by then; one that does not is blocked by the caller itself


_in_tool: ContextVar[bool] = ContextVar("memslot_in_tool", default=False)


@contextmanager
def tool_running() -> Iterator[None]:
    """Mark that a tool is running. An agent inside it got its question from a model, so it records nothing."""
    before = _in_tool.get()
    _in_tool.set(True)
    try:
        yield
    finally:
        _in_tool.set(before)  # no token: an abandoned generator is closed in another context


def turns_of(
    memory: OpenMemory,
    policy: TurnPolicy | None = None,
    *,
    on_trouble: Callable[[str, str], None] | None = None,
) -> TurnMemory:
    """Return the :class:`TurnMemory` that all bindings of a memory share.

    The first call creates it, which may be a binding's own call. It closes with the memory.

    Args:
        memory: an open memory.
        policy, on_trouble: as for :class:`TurnMemory`. Set them before you create the first binding.

    Raises:
        ConfigError: ``memory`` is not an open memory, or its turns already have another policy.
    """
    slot = memory.slot if isinstance(memory, SyncMemory) else memory
    if not isinstance(slot, MemorySlot):
        raise ConfigError(
            f"an agent takes the memory that 'async with open_memory(...)' gives, not {type(memory).__name__}"
        )
    with _making:
        turns = slot.companion(TurnMemory, partial(TurnMemory, slot, policy, on_trouble=on_trouble))
    if policy not in (None, turns.policy) or on_trouble not in (None, turns.on_trouble):
        raise ConfigError("this memory has a policy already; call turns_of before its first binding is made")
    turns.resume()
    return turns


class HostTurns:
    """The turns of a host over one memory. Each turn is recalled for once and recorded once.

    A memory that fails does not end the host's turn.

    Args:
        memory: an open memory. The code that opened it closes it, after the host.
        host: the host's name. It prefixes event ids, and is the ``agent_id`` of recorded events.
        user_id: whose memory it is, see :data:`UserOf`. None selects the memory's own scope.
        run: for a host with a single conversation, the argument for a function in ``user_id``.

    Raises:
        ScopeError: the memory has no scope, or ``user_id`` is blank.
        ConfigError: as for :func:`turns_of`.
    """

    def __init__(
        self, memory: OpenMemory, host: str, user_id: UserOf | None = None, run: object = None
    ) -> None:
        self.memory = turns_of(memory)
        self._user_id = user_id
        self.scope = None if callable(user_id) and run is None else self.scope_of(run)
        self.host = host
        self._pid = os.getpid()
        self._open: OrderedDict[tuple[MemoryScope | None, str, str], _OpenTurn] = OrderedDict()
        self._versions: OrderedDict[tuple[MemoryScope, str, str], MemoryEvent] = OrderedDict()

    def scope_of(self, run: object) -> MemoryScope:
        """Return the scope for a run, as the host describes it.

        Raises:
            ScopeError: no user is named, the user id is blank, or the memory has no scope. There is no
                fallback to another person's memory.
        """
        own = self.memory.slot.scope
        named = self._user_id(run) if callable(self._user_id) else self._user_id
        if named is None and callable(self._user_id):
            raise ScopeError("the function that names the user returned None; return a user id or a scope")
        if named is None or isinstance(named, MemoryScope):
            return self.memory.slot.delivery.scope_or_default(named)
        if not isinstance(named, str) or not named.strip():
            raise ScopeError("the user id is blank or no text; give the id of one person")
        if own is None:
            raise ScopeError("user_id names a person of memory.scope; set memory.scope in the configuration")
        return own.model_copy(update={"persona_id": named})

    async def recall(
        self,
        turn: str,
        user: str,
        *,
        session_id: str,
        scope: MemoryScope | None = None,
        **fields: Unpack[RecallFields],
    ) -> Recall:
        """Recall for a turn. Repeated calls before the turn is recorded return the first result.

        Args:
            turn: the turn's name, the same for all of its model calls and unique in the session.
            user: what the user said in this turn; empty if the host no longer knows it.
            session_id, scope, fields: as for :meth:`TurnMemory.recall`.

        Raises:
            MemslotError: recall failed, and the policy's ``on_failure`` is ``raise``.
        """
        try:
            return await self.call(partial(self._recall, turn, user, session_id, scope or self.scope, fields))
        except LifecycleError as error:
            return self._not_recalled(error)

    def recall_blocking(
        self,
        turn: str,
        user: str,
        *,
        session_id: str,
        scope: MemoryScope | None = None,
        **fields: Unpack[RecallFields],
    ) -> Recall:
        """Recall like :meth:`recall`, for synchronous hosts."""
        work = partial(self._recall, turn, user, session_id, scope or self.scope, fields)
        try:
            return self.call_blocking(work)
        except LifecycleError as error:
            return self._not_recalled(error)

    async def record(
        self,
        turn: str,
        *,
        session_id: str,
        scope: MemoryScope | None = None,
        left_out: Sequence[str] = (),
        **fields: Unpack[TurnFields],
    ) -> bool:
        """Record a turn once, as :meth:`TurnMemory.record_turn` does.

        An empty ``user`` stands for the text that this turn was recalled for. Other words under the same turn
        name are a new version of the turn, such as an edited question or a regenerated answer; see
        ``corrects`` of :meth:`TurnMemory.record`. ``left_out`` lists the kinds of parts without words, such
        as ``image``.

        Returns:
            False if nothing was recorded, as for an agent inside a tool (:func:`tool_running`).
            :meth:`TurnMemory.status` counts failures.
        """
        if _in_tool.get():
            return False
        work = partial(self._record, turn, session_id, scope or self.scope, fields, left_out)
        try:
            if self._is_here():
                return await work()
            sent, begun = self._send(work)
            self._expect(sent)
            # A blocked loop records the turn once it is free.
            return not await anyio.to_thread.run_sync(begun.wait, _BEGIN_S) or await asyncio.wrap_future(sent)
        except MemslotError as error:
            return self._not_recorded(error)

    def record_blocking(
        self,
        turn: str,
        *,
        session_id: str,
        scope: MemoryScope | None = None,
        left_out: Sequence[str] = (),
        **fields: Unpack[TurnFields],
    ) -> bool:
        """Record like :meth:`record`, for synchronous hosts."""
        if _in_tool.get():
            return False
        work = partial(self._record, turn, session_id, scope or self.scope, fields, left_out)
        try:
            sent, begun = self._send(work)
            self._expect(sent)
            return self._is_here() or not begun.wait(_BEGIN_S) or sent.result()
        except MemslotError as error:
            return self._not_recorded(error)

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` in the memory's event loop.

        Raises:
            LifecycleError: that loop does not run or is blocked.
        """
        if self._is_here():
            return await work()
        sent, begun = self._send(work)
        if not await anyio.to_thread.run_sync(begun.wait, _BEGIN_S):
            raise _blocked(sent)
        return await asyncio.wrap_future(sent)

    def call_blocking(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` like :meth:`call`, for synchronous hosts.

        Raises:
            LifecycleError: as in :meth:`call`, or this is the thread of the memory's event loop.
        """
        if self._is_here():
            why = (
                f"the agent was called without await in the event loop of its memory; await it, or {_OPEN_SO}"
            )
            raise LifecycleError(why)
        sent, begun = self._send(work)
        if not begun.wait(_BEGIN_S):
            raise _blocked(sent)
        return sent.result()

    def end(self, session_id: str, scope: MemoryScope | None = None) -> None:
        """Forget the recalls of a session, for a host that does not name the turns it records."""
        for key in [key for key in self._open if key[:2] == (scope or self.scope, session_id)]:
            del self._open[key]

    async def _recall(
        self, turn: str, user: str, session_id: str, scope: MemoryScope | None, fields: RecallFields
    ) -> Recall:
        key = scope, session_id, turn
        user = self._said(encodable(user))
        known = self._open.get(key)
        if known is not None and user in ("", known.user):
            await known.answered.wait()
            return known.recall or Recall("")
        asked = self._open[key] = _OpenTurn(user)
        with suppress(MemslotError):  # recall or record reports the same error
            asked.resets = self.memory.slot.delivery.resets_of(scope)
        if len(self._open) > _MAX_OPEN_TURNS:
            self._open.popitem(last=False)
        try:
            asked.recall = await self.memory.recall(user, session_id=session_id, scope=scope, **fields)
            return asked.recall
        finally:
            asked.answered.set()
            if asked.recall is None:  # cancelled: the host may ask again
                self._open.pop(key, None)

    async def _record(
        self,
        turn: str,
        session_id: str,
        scope: MemoryScope | None,
        fields: TurnFields,
        left_out: Sequence[str],
    ) -> bool:
        if (known := self._open.pop((scope, session_id, turn), None)) and fields.get("user") == "":
            fields = {**fields, "user": known.user}
        given: Any = {"turn_id": turn, "agent_id": self.host, **fields}
        given = {name: encodable(said) if isinstance(said, str) else said for name, said in given.items()}
        if not any(str(given.get(name) or "").strip() for name in ("user", "assistant", "messages")):
            return False  # nothing was said
        try:
            if known and known.resets not in (None, self.memory.slot.delivery.resets_of(scope)):
                return False  # a reset also erases turns that began before it
            scope = self.memory.slot.delivery.scope_or_default(scope)
            event = event_from_turn(session_id, scope, **given)
            if not (messages := self._of_the_conversation(event.messages)):
                return False
            event = event.model_copy(update={"messages": messages})
            if "event_id" in given:
                recorded = await self.memory.record(event)
            else:
                recorded = await self._record_version((scope, session_id, turn), event)
            if recorded and left_out:
                self.memory.note_left_out(left_out)
            return recorded
        except MemslotError as error:
            return self._not_recorded(error)

    async def _record_version(self, key: tuple[MemoryScope, str, str], event: MemoryEvent) -> bool:
        """Record a turn under an id made of its name and words. Changed words correct the last version."""
        before = self._versions.get(key)
        if before is not None and before.messages == event.messages:
            return await self.memory.record(before)
        named = [before and before.event_id, *((said.role, said.content) for said in event.messages)]
        digest = sha256(json.dumps(named).encode()).hexdigest()
        _, session_id, turn = key
        event = event.model_copy(update={"event_id": f"{self.host}:{session_id}:{turn}:{digest[:12]}"})
        recorded = await self.memory.record(event, corrects=before)
        if recorded:
            self._versions[key] = event
            self._versions.move_to_end(key)
            if len(self._versions) > _MAX_VERSIONS:
                self._versions.popitem(last=False)
        return recorded

    def _said(self, user: str) -> str:
        return said_by_user(user, self.host, self.memory.policy.not_said)

    def _of_the_conversation(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Reduce user messages to the user's own words. Returns no message if no words of the user remain."""
        kept = []
        for message in messages:
            if message.role == "user":
                message = message.model_copy(update={"content": self._said(message.content)})
            if message.role != "user" or message.content:
                kept.append(message)
        asked, left = (any(message.role == "user" for message in said) for said in (messages, kept))
        return () if asked and not left else tuple(kept)

    def _is_here(self) -> bool:
        """Whether this is the memory's event loop. A memory without one adopts the loop of the first call."""
        here = loop_or_none()
        if self.memory.loop is None:
            self.memory.loop = here
        return here is not None and here is self.memory.loop

    def _send(self, work: Callable[[], Awaitable[T]]) -> tuple[Future[T], threading.Event]:
        loop = self.memory.loop
        if os.getpid() != self._pid:
            why = "this memory was opened before the process was forked; open it in each worker"
            raise LifecycleError(why)
        if not isinstance(loop, asyncio.AbstractEventLoop) or not loop.is_running():
            why = "the event loop this memory was opened in does not run; call the agent in that loop"
            raise LifecycleError(f"{why}, or {_OPEN_SO}")
        begun = threading.Event()

        async def run() -> T:
            begun.set()
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), loop), begun

    def _expect(self, sent: Future[bool]) -> None:
        """Let the memory wait for a call before it drains or closes."""
        self.memory.arriving.add(sent)
        sent.add_done_callback(self.memory.arriving.discard)

    def _not_recalled(self, error: MemslotError) -> Recall:
        log.warning("%s: nothing is recalled in this turn: %s", self.host, error)
        self.memory.note_trouble("recall", str(error))
        return Recall("", error)

    def _not_recorded(self, error: MemslotError) -> bool:
        log.warning("%s: this turn is not recorded: %s", self.host, error)
        self.memory.note_trouble("write", str(error))
        return False


@dataclass(slots=True)
class _OpenTurn:
    user: str
    resets: int | None = None  # the scope's resets before the recall; None if unknown
    answered: anyio.Event = field(default_factory=anyio.Event)
    recall: Recall | None = None


def _blocked(sent: Future[Any]) -> LifecycleError:
    sent.cancel()
    why = f"the event loop of this memory is blocked by the agent's call; await the agent, or {_OPEN_SO}"
    return LifecycleError(why)


def answer_text(output: object) -> str:
    """Return an agent's answer as text. Unpaired surrogates are replaced, and objects become JSON."""
    return (
        encodable(output) if isinstance(output, str) else pydantic_core.to_json(output, fallback=str).decode()
    )
