"""The kit of a spec: one slot over the memory under test, and short ways to write to it and ask it."""

from __future__ import annotations

import hashlib
import inspect
import json
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from memory import (
    AdapterMode,
    BackendError,
    ContextBudget,
    LifecycleError,
    MemoryAdapter,
    MemoryEvent,
    MemoryFeedback,
    MemoryScope,
    MemorySlot,
    MemslotError,
    Message,
    NativeQueryRequest,
    ProvenanceRequest,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    ScopeError,
    SupportsNativeQuery,
    SupportsProvenance,
    SupportsReadiness,
    Trace,
    WriteReceipt,
)
from memory.adapter import CAPABILITIES, ContextEntry
from memory.testing._faults import FAKE_KEY, FaultKind
from memory.testing.contract._declared import Aids, Declarations
from memory.testing.contract._spec import NotRun

T = TypeVar("T")
_START = datetime(2024, 3, 1, 9, 0, tzinfo=UTC)
STORED = ("committed", "queued", "pending")


def unique_word(name: str) -> str:
    """A word of letters that no other text contains. The same name gives the same word."""
    digest = hashlib.sha256(name.encode()).digest()
    return "zq" + "".join(chr(ord("a") + byte % 26) for byte in digest[:9])


def messages(*said: tuple[str, str]) -> tuple[Message, ...]:
    """Messages from pairs of role and text. A tool's message gets the assistant's call before it."""
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    made: list[dict[str, Any]] = []
    for role, text in said:
        tool = role == "tool"
        made += [{"role": "assistant", "tool_calls": (call,)}] if tool else []
        made.append({"role": role, "content": text, "tool_call_id": "c1" if tool else None})
    return tuple(Message(**fields) for fields in made)


def long_list(lines: int) -> Iterator[tuple[str, str]]:
    return (("user", f"This is line {number} of a long list.") for number in range(lines))


class TraceList:
    def __init__(self) -> None:
        self.all: list[Trace] = []
        self.emit = self.all.append

    def last(self, operation: str) -> Trace:
        return next(trace for trace in reversed(self.all) if trace.operation == operation)


class Kit:
    """A slot, its adapter, a scope that is set up, and the writes so far.

    Args:
        adapter: the memory under test.
        declared: the promises that the memory does not make.
        aids: observations that only its author can offer.
        loop: the event loop of the spec.

    Attributes:
        slot: the slot under test.
        scope: its default scope, in a run of its own.
        traces: all traces of the slot.
    """

    def __init__(
        self,
        adapter: MemoryAdapter,
        *,
        declared: Declarations | None = None,
        aids: Aids | None = None,
        loop: str = "asyncio",
    ) -> None:
        self.adapter, self.loop = adapter, loop
        self.declared, self.aids = declared or Declarations(), aids or Aids()
        self.traces = TraceList()
        self.run_id = f"kit-{uuid.uuid4().hex[:12]}"
        self.scope = self.scope_of("ada")
        self.slot = self.make_slot(scope=self.scope, trace_sink=self.traces)
        self._scopes = [self.scope]
        self._remembered: list[str] = []
        self._turns = 0
        self.patched = ExitStack()

    def make_slot(self, **settings: Any) -> MemorySlot:
        """A slot with other settings over the same adapter. Only :attr:`slot` closes the adapter."""
        return MemorySlot(self.adapter, **settings)

    def another(self) -> Kit:
        """The same memory through another adapter and slot. The spec closes them."""
        make = self.aids.make_adapter
        if make is None:
            raise NotRun("not tested", "a function that makes adapters: one alone cannot be opened again")
        return Kit(make(), declared=self.declared, aids=Aids(make_adapter=make), loop=self.loop)

    def fault(self, kind: FaultKind) -> AbstractContextManager[object]:
        """Let native calls fail while the context is open."""
        if self.declared.cannot_fail:
            raise NotRun("not declared", f"a backend that can fail: {self.declared.cannot_fail}")
        if kind == "late" and self.declared.answers_at_once:
            raise NotRun("not declared", f"a backend that takes its time: {self.declared.answers_at_once}")
        if self.aids.native_fault is None:
            raise NotRun("not tested", "native_fault: without it nothing can be made to fail")
        return self.aids.native_fault(kind)

    def patch(self, owner: object, name: str, value: object) -> None:
        """Replace a method of an object until the spec ends."""
        setattr(owner, name, value)
        self.patched.callback(delattr, owner, name)

    def scope_of(self, persona: str, **fields: object) -> MemoryScope:
        """A scope in this spec's run."""
        return MemoryScope(**{"run_id": self.run_id, "persona_id": persona, **fields})

    async def setup(self, *scopes: MemoryScope) -> None:
        """Set scopes up in the slot."""
        for scope in scopes:
            await self.slot.setup_scope(scope)
            self._scopes.append(scope)

    async def another_scope(self, persona: str = "bob") -> MemoryScope:
        """Set up a second scope in this spec's run."""
        scope = self.scope_of(persona)
        await self.setup(scope)
        return scope

    def event(self, user: str, assistant: str | None = "Noted.", **fields: object) -> MemoryEvent:
        """A turn. Each turn is a minute later than the last. ``messages=`` replaces the two texts."""
        self._turns += 1
        said = [("user", user)] if assistant is None else [("user", user), ("assistant", assistant)]
        made: dict[str, Any] = {
            "event_id": f"event-{self.run_id}-{self._turns}",
            "scope": self.scope,
            "session_id": "session-1",
            "turn_id": f"turn-{self._turns}",
            "timestamp": _START + timedelta(minutes=self._turns),
            "messages": messages(*said),
        }
        return MemoryEvent(**{**made, **fields})

    def fact(self, name: str) -> str:
        """A user's words about themselves. They hold ``unique_word(name)``, which no other fact holds."""
        return f"I keep my {name} passport in the {unique_word(name)} drawer."

    def question(self, name: str, **fields: object) -> RetrieveRequest:
        """The question that :meth:`fact` answers. It does not hold the unique word."""
        return self.request(f"In which drawer do I keep my {name} passport?", **fields)

    def request(self, query: str, **fields: object) -> RetrieveRequest:
        """A request in the default scope, without a budget."""
        asked = {"scope": self.scope, "session_id": "session-2", "budget": ContextBudget(), **fields}
        return RetrieveRequest(query=query, **asked)

    def feedback(self, content: str = "No.", **fields: object) -> MemoryFeedback:
        """A user's correction, in the default scope."""
        given = {"feedback_id": "feedback-1", "scope": self.scope, "session_id": "session-1", **fields}
        return MemoryFeedback(**{"timestamp": _START, "content": content, **given})

    async def remember(self, name: str, assistant: str | None = "Noted.", **fields: object) -> WriteReceipt:
        """Write the fact ``name`` and wait until it can be recalled."""
        event = self.event(self.fact(name), assistant, **fields)
        receipt = await self.slot.record_event(event)
        await self.assert_stored(event, receipt)
        self._remembered.append(name)
        await self.until_ready(event.scope)
        return receipt

    async def assert_stored(self, event: MemoryEvent, receipt: WriteReceipt) -> None:
        """Check that a plain write is stored. On failure, ask the bare adapter, to name the line that failed."""
        if receipt.status in STORED:
            return
        problem = f"a plain write was {receipt.status}: {', '.join(receipt.warnings)}"
        try:
            await self.adapter.record_event(event)
        except Exception as error:
            raise AssertionError(f"{problem}: {type(error).__name__}: {error}") from error
        raise AssertionError(problem)

    async def ask(self, name: str, **fields: object) -> RetrieveResult:
        """Ask for the fact ``name``."""
        return await self.slot.retrieve(self.question(name, **fields))

    async def write(self, name: str, assistant: str | None = "Noted.", **fields: object) -> WriteReceipt:
        """Write the fact ``name`` without waiting for readiness."""
        return await self.slot.record_event(self.event(self.fact(name), assistant, **fields))

    async def entries(self, name: str, **fields: object) -> list[ContextEntry]:
        """The entries that answer the question of the fact ``name`` and hold the fact."""
        found = (await self.ask(name, **fields)).entries
        return [entry for entry in found if unique_word(name) in entry.text]

    async def native_ids(self, name: str, **fields: object) -> tuple[str, ...]:
        """The native ids of all entries that answer the question of the fact ``name``."""
        entries = (await self.ask(name, **fields)).entries
        return tuple(entry.native_id for entry in entries if entry.native_id)

    async def recalls(self, name: str, **fields: object) -> bool:
        """Whether the fact ``name`` reaches the prompt."""
        return unique_word(name) in (await self.ask(name, **fields)).formatted_context

    async def assert_recalled(self, name: str, problem: str, **fields: object) -> None:
        """Check that the fact ``name`` reaches the prompt, unless the memory recalls nothing."""
        assert await self.recalls(name, **fields) == self.recalls_writes, problem

    async def shown(self, name: str, **fields: object) -> str:
        """The whole answer to the question of the fact ``name``: the payload as JSON, and the section."""
        result = await self.ask(name, **fields)
        return as_json(result.raw) + result.formatted_context

    async def until_ready(self, scope: MemoryScope | None = None, *, required: bool = True) -> None:
        """Wait until the memory reports ``ready``, if it can tell. ``required`` fails the spec otherwise."""
        readiness = self.slot.capability(SupportsReadiness)
        if readiness is None:
            return
        answer = await readiness.wait_until_ready(scope or self.scope, self.declared.ready_timeout_s)
        derived = answer.state in ("ready", "unknown")
        assert derived or not required, f"not ready after a write: {answer.state} {answer.detail}"

    async def read_only(self, value: bool = True) -> None:
        """Switch the mode."""
        reason = "test_session" if value else "accumulation"
        await self.slot.set_mode(AdapterMode(read_only=value, reason=reason))

    @property
    def recalls_writes(self) -> bool:
        """False for controls whose context does not come from writes."""
        return self.slot.traits.recalls_writes

    def needs(self, capability: Callable[..., T]) -> T:
        """A capability of the slot. The spec is skipped if the memory does not declare it."""
        offered = self.slot.capability(capability)
        if offered is None:
            names = {protocol: name for name, protocol in CAPABILITIES.items()}
            raise NotRun("not declared", names[capability])  # type: ignore[index]
        return offered

    def query(self, scope: MemoryScope) -> NativeQueryRequest | None:
        """A native query that shows a scope's content: the declared one, else ``list`` if it needs no arguments."""
        listing, declared = (self.slot.traits.native_queries or {}).get("list"), self.declared.query(scope)
        if declared is not None or listing is None or listing.required:
            return declared
        return NativeQueryRequest(scope=scope, operation="list")

    async def queried(self, scope: MemoryScope) -> str:
        """The native query's view of a scope, as JSON. Empty if there is no such query."""
        query, request = self.slot.capability(SupportsNativeQuery), self.query(scope)
        return "" if query is None or request is None else as_json((await query.native_query(request)).raw)

    async def history(self, scope: MemoryScope | None = None, **fields: object) -> str:
        """Provenance, as JSON. Empty if the memory does not offer it, or refuses another scope's id."""
        provenance = self.slot.capability(SupportsProvenance)
        if provenance is None:
            return ""
        request = ProvenanceRequest(scope=scope or self.scope, **fields)
        try:
            return as_json((await provenance.provenance(request)).raw)
        except (BackendError, ScopeError):
            return ""

    async def reset(self, scope: MemoryScope | None = None) -> ResetReceipt:
        """Reset a scope. The adapter must have checked that the scope is empty."""
        receipt = await self.slot.reset_scope(scope or self.scope)
        assert receipt.verified, "a reset must look again whether the scope is empty"
        return receipt

    def needs_query(self) -> NativeQueryRequest:
        """:meth:`query` of the default scope. The spec is skipped without the capability or such an operation."""
        self.needs(SupportsNativeQuery)
        request = self.query(self.scope)
        if request is None:
            raise NotRun("not tested", "native_query: name an operation that shows what a scope holds")
        return request

    async def in_listed_order(self, names: Iterable[str]) -> list[str]:
        """Names of facts in the order in which the native query lists them."""
        self.needs_query()
        listed = await self.queried(self.scope)
        return sorted(names, key=lambda name: listed.find(unique_word(name)))

    def needs_recall(self) -> None:
        """Skip a spec whose promise concerns recalled writes alone."""
        if not self.recalls_writes:
            raise NotRun("not declared", "recall of what is written")

    @property
    def sees_native_state(self) -> bool:
        """Whether :meth:`observe` sees the native state."""
        return self.aids.fingerprint is not None

    async def observe(self) -> object:
        """The native state as a comparable value: the author's fingerprint, else all that a read returns."""
        if self.aids.fingerprint is not None:
            seen = self.aids.fingerprint()
            return await seen if inspect.isawaitable(seen) else seen
        found = []
        for scope in self._scopes:
            for name in self._remembered or ["some"]:
                result = await self.slot.retrieve(self.question(name, scope=scope))
                found.append(sorted((entry.native_id or "", entry.text) for entry in result.entries))
        return found

    def assert_explained(self, error: BackendError) -> None:
        """Check that an error names its operation, keeps the native error as its cause, and leaks nothing."""
        assert error.__cause__ is not None, "the native error is not the cause"
        assert error.operation, "the error does not name its operation"
        assert error.diagnostics, "the error has no diagnostics"
        self.assert_no_leak(str(error) + as_json(error.diagnostics))

    def assert_explained_or_unknown(self, receipt: WriteReceipt, error: BackendError | None) -> None:
        """Check that a write that met a fault raises a BackendError, or is ``unknown`` and says why."""
        if error is not None:
            return self.assert_explained(error)
        assert receipt.status == "unknown", f"a write that failed was {receipt.status}"
        assert receipt.warnings, "an unknown write must say why"
        self.assert_no_leak(receipt.model_dump_json())

    def assert_no_leak(self, shown: str) -> None:
        """Check that no user text appears. Native errors repeat the request; ours and their logs must not."""
        shown += "".join(trace.model_dump_json() for trace in self.traces.all)
        for secret in (unique_word("secret"), "secret passport", FAKE_KEY):
            assert secret not in shown, "what was sent, or a key, is repeated"

    async def close(self, *, clean_up: bool) -> None:
        """Close the slot. Reset every scope first if the native system outlives the spec."""
        if clean_up:
            with suppress(LifecycleError):  # the spec itself may have closed the slot
                await self.read_only(False)
                for scope in self._scopes:
                    await self.slot.reset_scope(scope)
        await self.slot.aclose()


def as_json(value: Any) -> str:
    """A native payload as JSON text. A TypeError means that it holds other values."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


async def attempt(call: Awaitable[Any]) -> tuple[Any, BackendError | None]:
    try:
        return await call, None
    except BackendError as error:
        return None, error


@contextmanager
def raises(kinds: type[BaseException] | tuple[type[BaseException], ...], doing: str) -> Iterator[list[Any]]:
    """The body must raise one of these exceptions, which is yielded. Another MemslotError breaks the promise."""
    caught: list[Any] = []
    wanted = kinds if isinstance(kinds, tuple) else (kinds,)
    problem = f"{doing} must raise {' or '.join(kind.__name__ for kind in wanted)}, and raised"
    try:
        yield caught
    except wanted as error:
        caught.append(error)
        return
    except MemslotError as error:
        cause = f", of {type(error.__cause__).__name__}" if error.__cause__ is not None else ""
        raise AssertionError(f"{problem} {type(error).__name__}{cause}: {error}") from error
    raise AssertionError(f"{problem} nothing")
