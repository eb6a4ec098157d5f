"""A bounded set of recently seen keys."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class RecentKeys(Generic[KeyT]):
    """The ``size`` most recently added keys, which tell a repetition from something new."""

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._keys: OrderedDict[KeyT, None] = OrderedDict()

    def __contains__(self, key: KeyT) -> bool:
        return key in self._keys

    def add(self, key: KeyT) -> bool:
        """Remember a key. False if it was known before."""
        if key in self._keys:
            return False
        self._keys[key] = None
        if len(self._keys) > self._size:
            self._keys.popitem(last=False)
        return True

    def discard(self, key: KeyT) -> None:
        """Forget a key, if it is known."""
        self._keys.pop(key, None)

    def discard_where(self, unwanted: Callable[[KeyT], bool]) -> None:
        """Forget every key for which ``unwanted`` is true."""
        for key in [key for key in self._keys if unwanted(key)]:
            del self._keys[key]
