"""A slot's record of its writes: their receipts and failures, and those that are not retrievable yet."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime

from memory.contract._quantity import quantity
from memory.contract.errors import MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import WriteReceipt
from memory.contract.scope import MemoryScope
from memory.storage.entries import NO_ANSWER

_REMEMBERED = 10_000


class Written:
    """The writes of one slot.

    Attributes:
        last_at: when the backend last accepted an event; None if it never did.
        queued: writes that the backend did not store at once, by scope.
        unknown: writes that got no answer.
    """

    def __init__(self) -> None:
        self.last_at: datetime | None = None
        self.queued: Counter[MemoryScope] = Counter()
        self.unknown = 0
        self._derived: Counter[MemoryScope] = (
            Counter()
        )  # how many of ``queued`` were retrievable at the last look
        # (scope, event id) -> (hash of the messages, receipt)
        self._receipts: OrderedDict[tuple[MemoryScope, str], tuple[int, WriteReceipt]] = OrderedDict()
        self._failures: Counter[str] = Counter()  # since the last success, by class of the error

    def note(self, scope: MemoryScope, receipts: Sequence[WriteReceipt]) -> None:
        """Note the receipts that the backend gave."""
        for receipt in receipts:
            if receipt.status == "unknown":
                self.unknown += 1
                self._failures[NO_ANSWER] += 1
            elif receipt.status != "skipped_read_only":
                self.last_at = datetime.now(UTC)
                self._failures.clear()
            if receipt.status in ("queued", "pending"):
                self.queued[scope] += 1

    def note_failure(self, error: MemslotError) -> None:
        """Note a failed write."""
        self._failures[type(error).__name__] += 1

    def note_unanswered(self, count: int) -> None:
        """Note ``count`` events that got no answer."""
        self.unknown += count

    def remember(self, event: MemoryEvent, receipt: WriteReceipt) -> None:
        """Remember that an event was sent, so that a repetition is not."""
        if receipt.status == "skipped_read_only":
            return
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
        return [
            f"{quantity(count, 'writes')} since the last success failed ({name})"
            if name != NO_ANSWER
            else f"{quantity(count, 'writes')} since the last success got no answer, and may or may not be stored"
            for name, count in self._failures.items()
        ]


def repeated(receipt: WriteReceipt) -> WriteReceipt:
    """The receipt of a repeated event."""
    warning = "recorded before; it was not sent again"
    return receipt.model_copy(update={"warnings": (*receipt.warnings, warning)})


def _said(event: MemoryEvent) -> int:
    return hash(tuple((message.role, message.content) for message in event.messages))
