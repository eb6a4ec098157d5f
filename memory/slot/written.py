"""A slot's record of its writes: their receipts and failures, and those that are not retrievable yet."""

from __future__ import annotations

from collections import Counter, OrderedDict
from datetime import UTC, datetime

from memory.contract._quantity import quantity
from memory.contract.errors import MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope

_REMEMBERED = 10_000


class Written:
    """The writes of one slot.

    Args:
        remembers: whether receipts are kept here, because no journal keeps them.

    Attributes:
        last_at: when the backend last accepted an event; None if it never did.
        queued: writes that the backend did not store at once, by scope.
        unknown: writes that got no answer.
    """

    def __init__(self, *, remembers: bool) -> None:
        self.last_at: datetime | None = None
        self.queued: Counter[MemoryScope] = Counter()
        self.unknown = 0
        self._remembers = remembers
        # Of the queued writes, those that were retrievable at the last look.
        self._derived: Counter[MemoryScope] = Counter()
        # (scope, event id) -> (hash of the messages, receipt)
        self._receipts: OrderedDict[tuple[MemoryScope, str], tuple[int, WriteReceipt]] = OrderedDict()
        self._failures: Counter[str] = Counter()  # since the last success, by reason

    def note(self, event: MemoryEvent, receipt: WriteReceipt) -> None:
        """Note the receipt of an event that was sent."""
        if receipt.status == "skipped_read_only":
            return
        if receipt.status == "unknown":
            self.unknown += 1
            self._failures["got no answer, and may or may not be stored"] += 1
        else:
            self.last_at = datetime.now(UTC)
            self._failures.clear()
        if receipt.status in ("queued", "pending"):
            self.queued[event.scope] += 1
        self.remember(event, receipt)

    def note_failure(self, error: MemslotError) -> None:
        """Note a failed write."""
        self._failures[f"failed ({type(error).__name__})"] += 1

    def remember(self, event: MemoryEvent, receipt: WriteReceipt) -> None:
        """Remember that the backend has an event, so that a repetition is not sent."""
        if self._remembers:
            self._receipts[event.scope, event.event_id] = (_said(event), receipt)
            if len(self._receipts) > _REMEMBERED:
                self._receipts.popitem(last=False)

    def receipt_of(self, event: MemoryEvent) -> WriteReceipt | None:
        """The receipt of an event that was sent before with the same messages, or None."""
        said, receipt = self._receipts.get((event.scope, event.event_id), (0, None))
        return receipt if receipt is not None and said == _said(event) else None

    def forget(self, scope: MemoryScope) -> None:
        """Forget a scope's events: its contents may have changed, so a known id is no longer a repetition."""
        for key in [key for key in self._receipts if key[0] == scope]:
            del self._receipts[key]

    def note_derived(self, scope: MemoryScope, queued: int) -> None:
        """The first ``queued`` of a scope's queued writes are retrievable, or gone."""
        if queued:
            self._derived[scope] = max(queued, self._derived[scope])

    def is_pending(self, scope: MemoryScope) -> bool:
        """Whether some writes of a scope may not be retrievable yet."""
        return self.queued[scope] > self._derived[scope]

    def warnings(self) -> list[str]:
        """Sentences about writes that failed since the last success, for health."""
        failures = self._failures.items()
        return [f"{quantity(count, 'writes')} since the last success {why}" for why, count in failures]


def _said(event: MemoryEvent) -> int:
    return hash(tuple((message.role, message.content) for message in event.messages))
