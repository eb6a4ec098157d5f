"""Taking back what a scope wrote: all of its own cube, and in those that scopes share what is its alone."""

from __future__ import annotations

from collections.abc import Sequence

from memory.backends.memos.answers import event_ids, metadata_of
from memory.backends.memos.client import Native
from memory.backends.memos.ids import MemosScope

__all__ = ["clear"]


async def clear(
    native: Native, home: MemosScope, shared: Sequence[MemosScope]
) -> tuple[int, bool, tuple[str, ...]]:
    """Delete, and look whether it is gone, which MemOS' answer does not tell.

    Returns:
        How many memories went; whether all did that are the scope's alone; and what stays.
    """
    before = (await native.listing(home)).by_id
    await native.clear(home)
    rest = tuple((await native.listing(home)).by_id)
    if rest:  # written into this cube by another user than ours
        await native.delete(rest, home)
        rest = tuple((await native.listing(home)).by_id)
    removed, gone, left = len(before) - len(rest), not rest, []
    for place in shared:
        mine = await native.stored(home, place)
        # One that MemOS has merged may be another scope's as well.
        alone = [one for one, item in mine.items() if len(event_ids(metadata_of(item))) < 2]
        after = mine
        if alone:
            await native.delete(alone, place)
            after = await native.stored(home, place)
        removed += len(mine) - len(after)
        gone = gone and after.keys().isdisjoint(alone)
        if merged := len(mine) - len(alone):
            left.append(f"{merged} memories in the shared cube {place.cube_id}, made of more than one event")
    return removed, gone, tuple(left)
