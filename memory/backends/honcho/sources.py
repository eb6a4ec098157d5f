"""Which messages Honcho's conclusions were drawn from: the only proof of a derivation that its API gives.

Of a message the API tells neither whether it was processed nor the error that its derivation ended with. But a
conclusion keeps the inner numbers of the messages that the model was given for it (``message_ids``): no answer
shows them, a filter sees them. All are messages of the conclusion's session, said by the peer that it is about. So
where conclusions name as many different numbers as that peer said messages there, each of them was derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from memory.backends.honcho.reading import WorkspaceReader

_WIDEST = 128
"""Numbers asked for at once; three hundred took the server a fifth of a second."""
_AHEAD = 4
"""Numbers beyond those expected, for messages of others that came in between."""


class NamedMessages:
    """The messages of one peer in one session that conclusions name, by Honcho's inner numbers.

    They are found by asking: how many conclusions name one of these numbers, and does one conclusion name all of
    them? Numbers of a session that nobody else wrote to meanwhile cost a few requests for each call of the model.
    """

    def __init__(self, workspace: WorkspaceReader, session: str, peer_id: str) -> None:
        self._workspace = workspace
        about = {"session_id": session, "observer_id": peer_id, "observed_id": peer_id, "level": "explicit"}
        self._about: dict[str, Any] = about
        self._named: set[int] = set()
        self._looked_through: datetime | None = None

    async def unnamed(self, stored: int) -> int:
        """How many of so many stored messages no conclusion names."""
        if len(self._named) >= stored:
            return 0
        fresh = self._about
        if self._looked_through is not None:
            fresh = {**fresh, "created_at": {"gt": self._looked_through.isoformat()}}
        _, newest = await self._workspace.conclusions(fresh)
        if newest is not None:
            await self._search(fresh, stored)
        # What was derived while we looked may have an earlier time: where something is missing, all is read again.
        missing = max(0, stored - len(self._named))
        self._looked_through = None if missing else newest
        return missing

    async def _search(self, fresh: dict[str, Any], stored: int) -> None:
        """Add the numbers that the fresh conclusions name: upwards from the last known, then others."""
        start, empty = max(self._named, default=0) + 1, 0
        if not self._named:
            start = await self._first_number(fresh)
        while start and len(self._named) < stored:
            width = _WIDEST if empty else min(_WIDEST, 2 * (stored - len(self._named)) + _AHEAD)
            found: set[int] = set()
            # A user's messages and an assistant's mostly alternate, and so do their numbers.
            for first in (start, start + 1):
                found |= await self._among(fresh, range(first, start + width, 2))
            self._named |= found
            start, empty = start + width, 0 if found else empty + 1
            if empty > 1:
                others = {**fresh, "NOT": [_names([number]) for number in sorted(self._named)]}
                start, empty = await self._first_number(others), 0

    async def _among(self, fresh: dict[str, Any], numbers: Sequence[int]) -> set[int]:
        if not numbers or not await self._exists({**fresh, "OR": [_names([number]) for number in numbers]}):
            return set()
        if len(numbers) == 1 or await self._exists({**fresh, **_names(numbers)}):
            return set(numbers)
        half = len(numbers) // 2
        return await self._among(fresh, numbers[:half]) | await self._among(fresh, numbers[half:])

    async def _first_number(self, fresh: dict[str, Any]) -> int:
        """The first number that one of the conclusions names, digit by digit: as text they are ``[12, 14]``.

        0 where none names any.
        """
        number = ""
        while not number or not await self._begins(fresh, (f"[{number},", f"[{number}]")):
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


def _names(numbers: Sequence[int]) -> dict[str, Any]:
    return {"metadata": {"contains": {"message_ids": list(numbers)}}}
