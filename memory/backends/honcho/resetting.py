"""Emptying a workspace. Honcho deletes in its worker, so what is deleted is looked for until it is gone."""

from __future__ import annotations

import anyio
from honcho import Peer

from memory.adapter import unless_missing
from memory.backends.honcho.options import MAX_ROWS
from memory.backends.honcho.workspace import HonchoScope

__all__ = ["clear", "worked_off"]

_LOOKS = 2
_HELD_S = 45.0
"""Seconds after which work that waits is held back: an idle worker looks into its queue more often than that."""


async def worked_off(home: HonchoScope, timeout_s: float, poll_s: float) -> None:
    """Wait until the worker is done with the workspace, at most ``timeout_s`` seconds; not for what it holds back.

    While something is derived from a session Honcho fails to delete it, and it stays: not to be used, not to be
    deleted again.
    """
    seen, since = -1, anyio.current_time()
    with anyio.move_on_after(timeout_s):
        while (await home.watch.look()).state == "pending":
            waiting, running = await home.under_way()
            if running or waiting != seen:
                seen, since = waiting, anyio.current_time()
            elif anyio.current_time() - since > _HELD_S:
                return
            await anyio.sleep(poll_s)


async def clear(home: HonchoScope, timeout_s: float, poll_s: float) -> tuple[int, bool]:
    """Delete what a workspace holds.

    Returns:
        How many messages, conclusions of no session and card lines there were; and whether, within ``timeout_s``
        seconds, two looks in a row found nothing left.
    """
    removed, empty = 0, 0
    with anyio.move_on_after(timeout_s):
        deleted: dict[str, int] = {}
        while empty < _LOOKS:
            more = await _delete_sessions(home)
            removed += sum(more.values())
            deleted = {one: 0 for one in {**deleted, **more} if await _messages(home, one)}
            # Those of a session go with it.
            conclusions = 0 if deleted else await _delete_conclusions(home)
            removed += conclusions
            waiting = sum(await home.under_way())
            cards = await _clear_cards(home)
            removed += cards
            found = more or deleted or conclusions or waiting or cards
            empty = 0 if found else empty + 1
            if empty < _LOOKS:
                await anyio.sleep(poll_s)
    home.forget()
    home.uncertain.clear()
    home.watch.cleared()
    return removed, empty >= _LOOKS


async def _delete_sessions(home: HonchoScope) -> dict[str, int]:
    """Delete every session that is listed; how many messages each had."""
    deleted: dict[str, int] = {}
    while True:
        page = await home.reader.aio.sessions(size=MAX_ROWS)
        fresh = [session for session in page.items if session.id not in deleted]
        if not fresh:
            return deleted
        for session in fresh:
            deleted[session.id] = await _messages(home, session.id)
            await unless_missing(session.aio.delete())


async def _messages(home: HonchoScope, native_id: str) -> int:
    page = await home.native_session(native_id).aio.messages(size=1)
    return page.total or 0


async def _delete_conclusions(home: HonchoScope) -> int:
    page = await home.reader.aio.conclusions.list(size=MAX_ROWS)
    for conclusion in page.items:
        await unless_missing(home.user.conclusions.aio.delete(conclusion.id))
    return len(page.items)


async def _clear_cards(home: HonchoScope) -> int:
    """Empty the cards; only those with lines, because setting one would make a workspace that is not there."""
    lines = 0
    for peer_id in home.observed:
        peer = Peer(peer_id, home.reader)
        card = await unless_missing(peer.aio.get_card())
        if card:
            lines += len(card)
            await peer.aio.set_card([])
    return lines
