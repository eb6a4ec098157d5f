"""An adapter over a primary and its shadows. It returns the primary's answers and traces the shadows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import anyio

from memory import (
    AdapterMode,
    BackendError,
    BackendHealth,
    Deadlines,
    MemoryAdapter,
    MemoryEvent,
    MemoryScope,
    MemslotError,
    ModeReceipt,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    SupportsBulkIngest,
    WriteReceipt,
)
from memory.adapter import (
    CAPABILITIES,
    AdapterSettings,
    AdapterTraits,
    BaseAdapter,
    SupportsStart,
    close_adapter,
    native_scope_of,
    normalise_error,
    release,
)
from memory.adapter.stores import OUTBOX, Outbox
from memory.backends.mirror import Mirrored, MirrorOptions
from memory.backends.mirror.shadow import KIND, Shadow

T = TypeVar("T")
_BY_PRIMARY = (
    "readiness", "wait_until_ready", "find_event",
    "apply_feedback", "native_mutation", "provenance", "native_query",
)  # fmt: skip


class MirrorAdapter(BaseAdapter):
    """Answers like its primary, with the primary's capabilities. Traces name the primary.

    A shadow gets only a part of each deadline, so that it never delays the primary.
    """

    def __init__(
        self,
        name: str,
        primary: MemoryAdapter,
        shadows: Sequence[Shadow],
        drain_s: float,
        deadlines: Deadlines,
        outbox: Outbox,
    ) -> None:
        self.backend_name = name
        self._outbox = outbox
        adapters = (primary, *(shadow.adapter for shadow in shadows))
        traits = [AdapterTraits.of(adapter) for adapter in adapters]
        self.traits = replace(
            traits[0],
            store=f"{primary.backend_name}|{traits[0].store}",
            counts_llm_calls=all(each.counts_llm_calls for each in traits),
            extracts=any(each.extracts for each in traits),
            asyncio_only=any(each.asyncio_only for each in traits),
        )
        lacking = {kind for kind, protocol in CAPABILITIES.items() if not isinstance(primary, protocol)}
        self.withheld_capabilities = getattr(primary, "withheld_capabilities", frozenset()) | lacking
        self.shadows = tuple(shadows)
        self._primary = primary
        self._switch_s = min(drain_s, deadlines.write_s / 4)
        self._close_s = min(drain_s, deadlines.close_s / 3)
        self._health_s = deadlines.health_s / 2
        self._reset_s = deadlines.reset_s * 0.9
        self.native_scope = partial(native_scope_of, primary)
        # The slot detects these by their presence, so they are set only if the primary has them.
        vars(self).update({name: getattr(primary, name) for name in _BY_PRIMARY if hasattr(primary, name)})
        if isinstance(primary, SupportsStart):
            self.start = self._start

    async def setup_scope(self, scope: MemoryScope) -> None:
        await self._primary.setup_scope(scope)
        for shadow in self.shadows:
            await shadow.start()

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        """Switch the primary and the shadows. While read-only, writes that a shadow still lacks wait.

        The mirror becomes read-only before its primary, and writable after it. So no shadow gets a write that
        the primary skipped.
        """
        if mode.read_only:
            await super().set_mode(mode)
        receipt = await self._primary.set_mode(mode)
        await self._each(lambda shadow: shadow.set_mode(mode, self._switch_s))
        if not mode.read_only:
            await super().set_mode(mode)
        return receipt

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        return await self._copied([event], self._primary.record_event(event))

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        call = cast(SupportsBulkIngest, self._primary).record_events(events)
        return await self._copied(events, call)

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        began = anyio.current_time()
        result = await self._primary.retrieve(request)
        took_ms = (anyio.current_time() - began) * 1000
        for shadow in self.shadows:
            shadow.ask(request, result, took_ms)
        return result

    def format_context(self, result: RetrieveResult) -> str:
        section = self._primary.format_context(result)
        theirs, ours = (f'backend="{name}"' for name in (self._primary.backend_name, self.backend_name))
        return section.replace(theirs, ours, 1)

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Reset the primary, then the shadows. A shadow that fails gets no writes until its reset succeeds.

        The mirror's slot repeats a reset that a process did not finish.
        """
        left: list[str] = []
        ends = anyio.current_time() + self._reset_s

        async def clear(shadow: Shadow) -> None:
            if why := await shadow.reset(scope, max(0.0, ends - anyio.current_time())):
                left.append(f"shadow {shadow.name}: {why}")

        receipt = await self._primary.reset_scope(scope)
        await self._each(clear)
        if not left:
            return receipt
        return receipt.model_copy(update={"verified": False, "left": (*receipt.left, *sorted(left))})

    async def health(self) -> BackendHealth:
        states: dict[str, Any] = {}
        problems: list[str] = []

        async def ask(shadow: Shadow) -> None:
            status = "unavailable"
            with anyio.move_on_after(self._health_s):
                status = (await shadow.slot.health()).status
            problems.extend(await shadow.warnings())
            states[shadow.name] = {"status": status, **shadow.counts, "behind": await shadow.behind()}
            if status == "unavailable":
                problems.append(f"shadow {shadow.name} is unavailable")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._each, ask)
            health = await self._primary.health()
        status = "degraded" if health.status == "ok" and problems else health.status
        return health.model_copy(
            update={
                "status": status,
                "backend_name": self.backend_name,
                "warnings": (*health.warnings, *sorted(problems)),
                "details": {**health.details, "primary": self._primary.backend_name, "shadows": states},
            }
        )

    async def aclose(self) -> None:
        shadows = partial(self._each, lambda shadow: shadow.aclose(self._close_s))
        try:
            await release(partial(close_adapter, self._primary), shadows)
        finally:
            self._outbox.close()
            self._outbox.store.close()

    async def _copied(self, events: Sequence[MemoryEvent], call: Awaitable[T]) -> T:
        """Call the primary. Shadows get the events that the primary has stored, or may have stored."""
        goes = events
        try:
            return await call
        except BaseException as error:
            if not self._may_be_stored(error):
                stored = {receipt.event_id for receipt in getattr(error, "receipts", ())}
                goes = [event for event in events if event.event_id in stored]
            raise
        finally:
            with anyio.CancelScope(shield=True):
                for shadow in self.shadows:
                    await shadow.keep(goes)

    def _may_be_stored(self, error: BaseException) -> bool:
        if isinstance(error, MemslotError) and not isinstance(error, BackendError):
            return False
        if not isinstance(error, Exception):
            return True
        name, table = self.backend_name, self.traits.errors
        return normalise_error(error, backend_name=name, operation="the write", table=table).ambiguous

    async def _each(self, do: Callable[[Shadow], Coroutine[Any, Any, None]]) -> None:
        """Call ``do`` for all shadows concurrently."""
        async with anyio.create_task_group() as tasks:
            for shadow in self.shadows:
                tasks.start_soon(do, shadow)

    async def _start(self) -> None:
        await cast(SupportsStart, self._primary).start()
        for shadow in self.shadows:
            await shadow.start()


def build_mirror(settings: AdapterSettings[MirrorOptions]) -> MirrorAdapter:
    """Build a mirror. The primary keeps its usual place, so that it continues with its existing memory."""
    options, names = settings.options, Counter[str]()
    deadlines = Deadlines(**settings.deadlines)
    apart = deadlines.model_copy(update={"close_s": deadlines.close_s / 3})
    services = {"deadlines": apart, "token_counter": settings.token_counter}

    def create(mirrored: Mirrored, where: str) -> tuple[str, MemoryAdapter]:
        """A provider that is named twice needs a separate place."""
        backend = mirrored.backend
        names[backend] += 1
        name = backend if names[backend] == 1 else f"{backend}-{names[backend]}"
        place = None if name == backend else settings.data_dir / name
        return name, settings.create(backend, mirrored.options, f"{where}.options", place)

    _, primary = create(options.primary, "primary")
    outbox = Outbox(settings.store.handle(OUTBOX), KIND)
    shadows = []
    for position, mirrored in enumerate(options.shadows):
        name, adapter = create(mirrored, f"shadows.{position}")
        shadows.append(Shadow(name, adapter, outbox, options.log, **services))
    return MirrorAdapter(settings.name, primary, shadows, options.drain_s, deadlines, outbox)
