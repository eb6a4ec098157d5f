"""The session loop, in the order of Signet's runtime contract (DESIGN section 12): recall, then the model.

A session keeps the conversation that the model sees; the slot keeps the memory. A write never delays a token.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio

from memory.contract._surviving import ends_the_task, words_of
from memory.contract.adapter import SupportsReadiness
from memory.contract.errors import BackendError, InputError, LifecycleError, MemslotError, StoreError
from memory.contract.events import Message
from memory.contract.scope import MemoryScope
from memory.runtime._channel import (
    AgentOutput,
    Channel,
    ChannelClosed,
    Checkpoint,
    SessionSettings,
    TurnReport,
    UserTurn,
)
from memory.runtime._items import MemoryItems, Part, digest_of, fit_parts
from memory.runtime._policy import Recall, TurnMemory
from memory.runtime._provider import CompletionOptions, CompletionResult, Provider, ToolCall
from memory.runtime._tools import ToolContext, ToolRegistry, ToolResult, failed_call

log = logging.getLogger(__name__)

_SUMMARISE = """Summarise the conversation so far for yourself: decisions and why, what was learned about the user,
open threads. Be concise but complete."""
Emit = Callable[[AgentOutput], Awaitable[None]]


class AgentSession:
    """One conversation.

    Args:
        provider: the model.
        memory: the slot's turns. Its policy should exclude the session, which the model sees anyway.
        tools: the tools that the model may call.
        session_key: the conversation's name; a fresh one by default.
        scope: by default the slot's.
        project: the project's name, for tools.
        settings: see :class:`SessionSettings`.
        checkpoint: the session to resume, in place of ``session_key``.

    Raises:
        InputError: ``session_key`` is blank or longer than 512 characters.
    """

    def __init__(
        self,
        provider: Provider,
        memory: TurnMemory,
        tools: ToolRegistry | None = None,
        *,
        session_key: str | None = None,
        scope: MemoryScope | None = None,
        project: str = "",
        settings: SessionSettings | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.provider = provider
        self.memory = memory
        self.tools = tools
        self.settings = settings or SessionSettings()
        self.scope = memory.slot.delivery.scope_or_default(scope)
        checkpoint = checkpoint or Checkpoint(session_key=session_key or uuid.uuid4().hex)
        self.session_key = checkpoint.session_key
        self.history: list[Message] = [Message(**message) for message in checkpoint.history]
        self.last: TurnReport | None = None
        self._epoch = checkpoint.epoch
        self._context = ToolContext(self.session_key, project, MemoryItems(memory.slot, self.scope))
        self._opening: Recall | None = None
        self._resets: int | None = None
        self._drop_erased()

    @property
    def session_id(self) -> str:
        """The session id for the memory. Compaction changes it, so that recall can find earlier turns."""
        return self.session_key if self._epoch == 1 else f"{self.session_key}~{self._epoch}"

    async def start(self, context: str = "What is known about the user?") -> Recall:
        """Recall for the session. The result goes into the first turn's system prompt."""
        recall = await self._recall(context)
        self._opening = None if self.history else recall
        return recall

    async def turn(self, turn: UserTurn, emit: Emit | None = None) -> TurnReport:
        """Answer and record one turn.

        Args:
            turn: what the user said.
            emit: called with each piece of the answer.

        Returns:
            The report. If the model fails, the report's output has an ``error``, and the session goes on. If
            the memory is reset during the turn, the turn is not recorded.

        Raises:
            InputError: nothing was said.
            ChannelClosed: ``emit`` raised it because the other side has left. The turn is recorded first.
        """
        started = time.perf_counter()
        self._drop_erased()
        resets = self._resets
        said = _with_attachments(turn)
        if (window := self.settings.window_tokens) is not None:
            await self._fit(said, window)  # before recall, because it decides which turns recall excludes
        recall = await self._recall(turn.content)
        research = await self._research(turn.content)
        found = [f"Result of {result.name}:\n{result.content}" for result in research]
        known = (self.settings.identity, self.settings.soul, self._remembered(recall), *found)
        system = "\n\n".join(filter(None, known))
        before_ms = (time.perf_counter() - started) * 1000
        conversation = [*self.history, said]
        results: list[ToolResult] = []
        gone: ChannelClosed | None = None
        failure: BaseException | None = None
        rounds, content, error = 0, "", None
        try:
            with anyio.move_on_after(self.settings.turn_s) as limit:
                while True:
                    rounds += 1
                    answer = await self._complete(conversation, system, emit)
                    content = answer.content
                    if answer.stop_reason != "tool_use" or not answer.tool_calls:
                        # A conversation must not end in a tool call without a result.
                        answer = answer.model_copy(update={"tool_calls": ()})
                    message = answer.to_message()
                    if message is not None:
                        conversation.append(message)
                    if not answer.tool_calls:
                        break
                    results += await self._dispatch(answer.tool_calls, conversation)
                    if rounds >= self.settings.max_tool_rounds:
                        error = f"the model called tools {rounds} times and gave no answer"
                        break
            if limit.cancelled_caught:
                content, error = "", f"the answer did not end within {self.settings.turn_s:g} s"
        except ChannelClosed as closed:
            gone = closed
        except BaseException as problem:
            if ends_the_task(problem):
                raise
            failure = problem
            error = f"the model gave no answer: {words_of(problem)}"
        if not content.strip() and error is None:
            error = "the model answered nothing"
        output = AgentOutput(content=content, tool_results=tuple(results), error=error)
        took_ms = (time.perf_counter() - started) * 1000
        self._drop_erased()
        erased = resets not in (None, self._resets)
        recorded = not erased and await self._record(said, conversation[len(self.history) + 1 :])
        report = TurnReport(output, recall, research, recorded, rounds, took_ms, before_ms, failure)
        if not erased:
            self.history = conversation if output.error is None else [*self.history, said]
            self._opening, self.last = None, report
        if gone is not None:
            raise gone
        return report

    async def compact(self) -> bool:
        """Replace the conversation by the model's summary, and record it. Returns whether it has one."""
        if not self.history:
            return False
        asked = Message(role="user", content=_SUMMARISE)
        try:
            answer = await self.provider.complete([*self.history, asked], self._options("", tools=False))
            summary = answer.content.strip()
        except BaseException as error:
            if ends_the_task(error):
                raise
            log.warning("the conversation could not be summarised (%s)", type(error).__name__)
            return False
        if not summary or self._drop_erased():
            return False
        await self.memory.record_turn(
            session_id=self.session_id,
            scope=self.scope,
            messages=[Message(role="assistant", content=f"Summary of the session: {summary}")],
            metadata={"type": "session_summary"},
        )
        self.history = [Message(role="user", content=f"(Summary of our conversation so far: {summary})")]
        self._epoch += 1
        return True

    async def end(self, ready_s: float = 5.0) -> bool:
        """End the session: wait until the recorded events are written, and ``ready_s`` seconds for the backend.

        A backend that does not report readiness is not waited for.

        Returns whether all recorded events were written within the policy's ``drain_s``.
        """
        written = await self.memory.drain(self.memory.policy.drain_s)
        readiness = self.memory.slot.capability(SupportsReadiness)
        if written and readiness is not None and not self.memory.slot.read_only:
            try:
                await readiness.wait_until_ready(self.scope, ready_s)
            except MemslotError as error:
                log.warning("%s: not known to be ready: %s", self.memory.slot.backend_name, error)
        return written

    def clear(self) -> None:
        """Forget the conversation and its opening recall, because the memory was reset."""
        self.history, self._opening, self.last = [], None, None

    def checkpoint(self) -> Checkpoint:
        """The state that a later :class:`AgentSession` resumes from."""
        self._drop_erased()
        history = tuple(message.model_dump(mode="json", exclude_none=True) for message in self.history)
        return Checkpoint(session_key=self.session_key, epoch=self._epoch, history=history)

    def _drop_erased(self) -> bool:
        """Drop the conversation if any process has reset the memory. Returns whether that happened."""
        before = self._resets
        with suppress(StoreError):  # recording reports it
            self._resets = self.memory.slot.delivery.resets_of(self.scope)
        if erased := before not in (None, self._resets):
            self.clear()
        return erased

    def _recall(self, text: str) -> Awaitable[Recall]:
        return self.memory.recall(text, session_id=self.session_id, scope=self.scope)

    async def _research(self, text: str) -> tuple[ToolResult, ...]:
        """Run the tools that come before the model."""
        results = []
        for name in self.tools.before_generation() if self.tools else ():
            asked = ToolCall(id=f"research-{name}", name=name, arguments={"query": text})
            results += await self._execute([asked])
        return tuple(results)

    def _remembered(self, recall: Recall) -> str:
        """Return the context section of a turn. The first turn also shows the session's opening recall."""
        opening, turn = self._opening.result if self._opening else None, recall.result
        if opening is None or turn is None:
            return recall.section or (self._opening.section if self._opening else "")
        slot, recalled = self.memory.slot, {digest_of(entry) for entry in turn.context_entries}
        parts = [Part("user", opening), Part("user", turn)]
        return fit_parts(slot, parts, lambda part, entry: part == 0 and digest_of(entry) in recalled)

    def _options(self, system: str, *, tools: bool = True) -> CompletionOptions:
        offered = self.tools.definitions() if self.tools and tools else ()
        return self.settings.options.model_copy(update={"system_prompt": system or None, "tools": offered})

    async def _complete(
        self, conversation: Sequence[Message], system: str, emit: Emit | None
    ) -> CompletionResult:
        options = self._options(system)
        if emit is None:
            return await self.provider.complete(conversation, options)
        whole: CompletionResult | None = None
        stream: Any = self.provider.stream(conversation, options)
        try:
            async for chunk in stream:
                if chunk.text:
                    await emit(AgentOutput(content=chunk.text, streaming=True))
                whole = chunk.result or whole
        finally:
            if hasattr(stream, "aclose"):
                await stream.aclose()
        if whole is None:
            raise BackendError(f"{self.provider.id}: the stream ended without an answer")
        return whole

    async def _dispatch(self, calls: Sequence[ToolCall], conversation: list[Message]) -> list[ToolResult]:
        """Run the calls. Each gets a result in the conversation, even if it is refused."""
        allowed, refused = calls[: self.settings.max_tool_calls], calls[self.settings.max_tool_calls :]
        results = await self._execute(allowed) + [failed_call(call, "too many calls") for call in refused]
        for result in results:
            conversation.append(Message(role="tool", tool_call_id=result.call_id, content=result.content))
        return results

    async def _execute(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        if self.tools is None:
            return [failed_call(call, "not called; there are no tools") for call in calls]
        return [await self.tools.execute(call, self._context) for call in calls]

    async def _record(self, said: Message, answered: Sequence[Message]) -> bool:
        """Record the spoken messages, but no tool results: those may repeat the memory's own answers."""
        spoken = [message for message in answered if message.role == "assistant" and message.content.strip()]
        messages = [said, *(message.model_copy(update={"tool_calls": None}) for message in spoken)]
        with suppress(InputError):  # nothing was said
            return await self.memory.record_turn(
                session_id=self.session_id, scope=self.scope, messages=messages
            )
        return False

    async def _fit(self, said: Message, window: int) -> None:
        """Fit the conversation into the window by a summary, or else by dropping the oldest turns."""
        if self._tokens([*self.history, said]) <= window:
            return
        if await self.compact() and self._tokens([*self.history, said]) <= window:
            return
        self._epoch += 1
        while self.history and self._tokens([*self.history, said]) > window:
            del self.history[0]
            while self.history and self.history[0].role != "user":
                del self.history[0]

    def _tokens(self, messages: Sequence[Message]) -> int:
        count = self.memory.slot.delivery.token_counter.count
        return sum(
            count(message.content) + (count(json.dumps(message.tool_calls)) if message.tool_calls else 0)
            for message in messages
        )


def _with_attachments(turn: UserTurn) -> Message:
    parts = [turn.content, *(f"[{attached.name}]\n{attached.content}" for attached in turn.attachments)]
    return Message(role="user", content="\n\n".join(parts))


async def run_session(session: AgentSession, channel: Channel) -> None:
    """Start a session, answer the turns of a channel until it is closed, and end the session.

    Blank turns get no answer.

    Raises:
        LifecycleError: the channel failed.
    """
    await session.start()
    try:
        while True:
            turn = await channel.receive()
            if not turn.content.strip() and not turn.attachments:
                continue
            report = await session.turn(turn, channel.send)
            if report.failure is not None:
                log.warning("%s", report.output.error)
            await channel.send(report.output)
    except ChannelClosed as closed:
        if closed.args:
            raise LifecycleError(str(closed)) from closed
    finally:
        with anyio.CancelScope(shield=True):
            await session.end()
