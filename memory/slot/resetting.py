"""Resets of scopes, each noted before it begins and after it ends, with or without a journal.

A reset without a noted end is carried out again before anything else happens to its scope.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import anyio
import anyio.to_thread

from memory.contract._quantity import quantity
from memory.contract.errors import BackendUnavailable, MemslotError
from memory.contract.receipts import ResetReceipt
from memory.contract.scope import MemoryScope
from memory.slot.calls import NativeCalls, Span
from memory.slot.sending import Written, ambiguous
from memory.storage.kept import reset_host_store
from memory.storage.resets import JournalKey, Resets
from memory.storage.store import Store


class Resetting:
    """Carries out the resets of one slot.

    Attributes:
        counts: resets that were carried out, or may have been, by scope.
    """

    def __init__(
        self,
        calls: NativeCalls,
        noted: Resets,
        host_store: Store | None,
        written: Written,
        key_of: Callable[[MemoryScope], JournalKey],
    ) -> None:
        self.counts: Counter[MemoryScope] = Counter()
        self._calls = calls
        self._noted = noted
        self._host_store = host_store
        self._written = written
        self._key_of = key_of
        self._under_way: set[MemoryScope] = set()  # by this slot

    def is_open(self, scope: MemoryScope) -> bool:
        """Whether a reset of the scope has begun without a noted end, as of the last look at the store."""
        return self._noted.is_open(self._key_of(scope))

    def check_readable(self, scope: MemoryScope) -> None:
        """Raises BackendUnavailable if a reset ended without an answer, because it may have left something.

        This slot's own reset does not count: a concurrent read sees the memory before or after it.
        """
        if scope not in self._under_way and self.is_open(scope):
            raise BackendUnavailable(
                f"a reset of scope {scope.label} was begun and its end is not known, so nothing of it is "
                "shown; set the scope up again, or call reset_scope, to have it finished",
                sent=False,
            )

    def warnings(self) -> list[str]:
        """A sentence for health if some resets have no known end."""
        begun = self._noted.count_open() - len(self._under_way)
        return [f"{quantity(begun, 'resets')} began, and the end is not known"] if begun > 0 else []

    async def carry_out(self, span: Span, scope: MemoryScope) -> ResetReceipt:
        """Reset a scope. Earlier events are no longer delivered or replayed.

        The reset is noted before the call, because a process that dies or gets no answer must not deliver to
        a cleared memory. The note is cancelled only if the backend certainly reset nothing.
        """
        key = self._key_of(scope)
        again = await self._noted.refresh(key)
        if not again:
            self._under_way.add(scope)
        try:
            await self._noted.begin(key)
            return await self._begun(span, scope)
        except BaseException as error:
            if _changed_nothing(span, error) and not again:
                with anyio.CancelScope(shield=True):
                    await self._noted.cancel(key)
            raise
        finally:
            self._under_way.discard(scope)

    async def finish(self, scope: MemoryScope) -> None:
        """Repeat a reset without a known end. Events recorded since then stay in the journal.

        Raises:
            BackendUnavailable: the reset could not be finished.
        """
        if not self.is_open(scope):
            return
        try:
            with Span(self._calls, "reset_scope", scope, {}, writes=True) as span:
                self._calls.traced(span, await self._begun(span, scope))
        except MemslotError as error:
            raise BackendUnavailable(
                f"a reset of scope {scope.label} was begun and could not be finished ({error}); until then "
                "nothing of it is read or delivered",
                backend_name=self._calls.backend_name,
                operation="reset_scope",
                sent=False,
            ) from error

    async def _begun(self, span: Span, scope: MemoryScope) -> ResetReceipt:
        calls = self._calls
        left: list[str] = []
        self._written.forget(scope)
        try:
            receipt = await calls.call(
                span, calls.deadlines.reset_s, lambda: calls.adapter.reset_scope(scope), ResetReceipt
            )
            if self._host_store is not None:
                of_hosts = (self._host_store, calls.backend_name, scope)
                left.extend(await anyio.to_thread.run_sync(reset_host_store, *of_hosts))
        except BaseException as error:
            self.counts[scope] += not _changed_nothing(span, error)
            raise
        self.counts[scope] += 1
        self._written.note_derived(scope, self._written.queued[scope])
        if await self._noted.end(self._key_of(scope)):
            left.append("its events in the journal, until they are forgotten")
        return receipt.model_copy(update={"left": (*receipt.left, *left)})


def _changed_nothing(span: Span, error: BaseException) -> bool:
    """Whether a call that failed with this error was certainly not carried out."""
    return not span.attempts or (isinstance(error, MemslotError) and not ambiguous(error))
