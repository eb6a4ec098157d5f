"""Finds the messages that conclusions were drawn from, by filters on Honcho's conclusions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from honcho import Session

from memory.backends.honcho.client import WorkspaceReader

_WIDEST = 128  # numbers per request; three hundred took the server a fifth of a second


# As text, the numbers of several messages contain a comma: ``[12, 14]``.
_OF_SEVERAL = {"metadata": {"message_ids": {"contains": ","}}}


class NamedMessages:
    """The messages of one peer in one session that a conclusion names alone, by Honcho's internal numbers.

    A conclusion keeps the numbers of all messages that the model received for it. Answers do not show them, but
    filters match them. Only a conclusion that names a single message proves that this message was used.
    """

    def __init__(self, workspace: WorkspaceReader, session: Session, peer_id: str) -> None:
        self._workspace = workspace
        self._about: dict[str, Any] = {"session_id": session.id, "level": "explicit", "NOT": [_OF_SEVERAL]}
        self._about |= {"observer_id": peer_id, "observed_id": peer_id}
        self._named: set[int] = set()
        self._looked_through: datetime | None = None

    async def unnamed(self, stored: int) -> int:
        if len(self._named) >= stored:
            return 0
        fresh = self._about
        if self._looked_through is not None:
            fresh = {**fresh, "created_at": {"gt": self._looked_through.isoformat()}}
        _, newest = await self._workspace.conclusions(fresh)
        if newest is not None:
            await self._search(fresh, stored)
        # A conclusion that arrives during a look may have an earlier time. So the next look starts from the
        # beginning if messages are missing.
        missing = max(0, stored - len(self._named))
        self._looked_through = None if missing else newest
        return missing

    async def _search(self, fresh: dict[str, Any], stored: int) -> None:
        """Add the numbers in the fresh conclusions: first upwards from the last known number, then others."""
        start, empty = max(self._named, default=0) + 1, 0
        if not self._named:
            start = await self._first_number(fresh)
        while start and len(self._named) < stored:
            width = _WIDEST if empty else min(_WIDEST, 2 * (stored - len(self._named)) + 4)
            found: set[int] = set()
            # A user's messages and an assistant's mostly alternate, and so do their numbers.
            for first in (start, start + 1):
                found |= await self._among(fresh, range(first, start + width, 2))
            self._named |= found
            start, empty = start + width, 0 if found else empty + 1
            if empty > 1:
                known = [_names(number) for number in sorted(self._named)]
                others = {**fresh, "NOT": [_OF_SEVERAL, *known]}
                start, empty = await self._first_number(others), 0

    async def _among(self, fresh: dict[str, Any], numbers: Sequence[int]) -> set[int]:
        if not numbers or not await self._exists({**fresh, "OR": [_names(number) for number in numbers]}):
            return set()
        if len(numbers) == 1:
            return set(numbers)
        half = len(numbers) // 2
        return await self._among(fresh, numbers[:half]) | await self._among(fresh, numbers[half:])

    async def _first_number(self, fresh: dict[str, Any]) -> int:
        """A number that a conclusion names alone, found digit by digit as text. 0 if no number is found."""
        number = ""
        while not number or not await self._begins(fresh, [f"[{number}]"]):
            digits = "0123456789"
            while len(digits) > 1:
                half = digits[: len(digits) // 2]
                known = await self._begins(fresh, [f"[{number}{digit}" for digit in half])
                digits = half if known else digits[len(half) :]
            number += digits
            if not await self._begins(fresh, [f"[{number}"]):
                return 0
        return int(number)

    async def _begins(self, fresh: dict[str, Any], texts: Sequence[str]) -> bool:
        alternatives = [{"metadata": {"message_ids": {"contains": text}}} for text in texts]
        return await self._exists({**fresh, "OR": alternatives})

    async def _exists(self, filters: dict[str, Any]) -> bool:
        return (await self._workspace.conclusions(filters))[0] > 0


def _names(number: int) -> dict[str, Any]:
    return {"metadata": {"contains": {"message_ids": [number]}}}
