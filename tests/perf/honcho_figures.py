"""Prints what memslot adds to Honcho's own calls, over the model server, in turns with them. Not a timed test.

python tests/perf/honcho_figures.py [rounds]
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "backends" / "honcho"))

from figures import event, finish, percentile, request, show
from honcho import Honcho
from honcho_double import HonchoDouble

from memory import MemoryEvent, MemoryScope, MemorySlot, SupportsBulkIngest
from memory.plugins.opening import build_slot
from memory.testing._loopback import LoopbackProcess

ADDED_MS = 0.5
TURNS = 1_000
AT_ONCE = 100


@contextmanager
def server() -> Iterator[str]:
    """The model, in another process, so that its work is not ours."""
    with LoopbackProcess(HonchoDouble, enqueue_s=0.0, derive_s=0.0, delete_s=0.0) as process:
        yield process.url


def make(url: str) -> MemorySlot:
    block = {"base_url": url, "poll_s": 0.01, "quiet_period_s": 0.05}
    return build_slot({"memory": {"backend": "honcho", "backends": {"honcho": block}}})


async def timed(call: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    await call()
    return (time.perf_counter() - started) * 1000


async def in_turns(
    bare: Callable[[int], Awaitable[Any]], ours: Callable[[int], Awaitable[Any]], rounds: int
) -> list[tuple[float, float]]:
    """(bare, ours) of as many calls, now one first, now the other."""
    pairs = []
    for number in range(rounds):
        took = {}
        for call in random.sample((bare, ours), 2):
            took[call] = await timed(lambda call=call, number=number: call(number))
        pairs.append((took[bare], took[ours]))
    return pairs[20:]


def report(name: str, pairs: list[tuple[float, float]]) -> bool:
    bare, ours = ([percentile(list(side), at) for at in (50, 95)] for side in zip(*pairs, strict=True))
    added = ours[1] - bare[1]
    measured = f"p50 {ours[0] - bare[0]:+.3f} ms, p95 {added:+.3f} ms"
    show(
        f"{name}: bare SDK {bare[0]:.2f} ms, with adapter and slot {ours[0]:.2f} ms",
        measured,
        f"p95 < {ADDED_MS} ms",
        added < ADDED_MS,
    )
    return added < ADDED_MS


def by_hand(event: MemoryEvent, peers: dict[str, Any]) -> list[Any]:
    """The messages of an event, as one would write them with the SDK."""
    known = {"event_id": event.event_id, "session_id": event.session_id, "turn_id": event.turn_id}
    return [
        peers[message.role].message(
            message.content, created_at=event.timestamp, metadata={**known, "role": message.role}
        )
        for message in event.messages
    ]


async def overhead(url: str, rounds: int) -> None:
    """One message written, and one context, by each."""
    ours_in = MemoryScope(run_id="perf", persona_id="ours")
    client = Honcho(base_url=url, workspace_id="bare", max_retries=0)
    user, bot = await client.aio.peer("user"), await client.aio.peer("assistant")
    session = await client.aio.session("s0")
    async with make(url) as slot:
        await slot.setup_scope(ours_in)

        async def bare_add(number: int) -> None:
            await session.aio.add_messages(by_hand(event(number), {"user": user, "assistant": bot}))

        async def our_add(number: int) -> None:
            await slot.record_event(event(number, ours_in).model_copy(update={"session_id": "s0"}))

        asked = request(ours_in, max_items=10)

        async def bare_context(number: int) -> None:
            await session.aio.context(
                summary=True,
                tokens=8000,
                peer_target="user",
                search_query=asked.query,
                search_top_k=10,
                max_conclusions=10,
            )

        async def our_context(number: int) -> None:
            await slot.retrieve(asked.model_copy(update={"session_id": "s0"}))

        for number in range(20):
            await bare_add(number)
            await our_add(number)
        report("session.context", await in_turns(bare_context, our_context, rounds))
        report("session.add_messages", await in_turns(bare_add, our_add, rounds // 2))
    await client._async_http_client.close()


async def bulk(url: str) -> None:
    """A preload against loops over the SDK: a call for each turn, and a call for each hundred messages."""
    ratios: dict[int, list[float]] = {2: [], AT_ONCE: []}
    for turn in range(6):
        size = list(ratios)[turn % 2]
        scope = MemoryScope(run_id="bulk", persona_id=f"p{turn}")
        events = [event(number, scope).model_copy(update={"session_id": "s"}) for number in range(TURNS)]
        client = Honcho(base_url=url, workspace_id=f"by-hand-{turn}", max_retries=0)
        async with make(url) as slot:
            await slot.setup_scope(scope)
            ingest = slot.capability(SupportsBulkIngest)
            assert ingest is not None

            async def loop(client: Any = client, events: Any = events, size: int = size) -> None:
                peers = {name: await client.aio.peer(name) for name in ("user", "assistant")}
                session = await client.aio.session("s")
                said = [message for event in events for message in by_hand(event, peers)]
                for start in range(0, len(said), size):
                    await session.aio.add_messages(said[start : start + size])

            async def ours(ingest: Any = ingest, events: Any = events) -> None:
                await ingest.record_events(events)

            took = {call: await timed(call) for call in random.sample((loop, ours), 2)}
            ratios[size].append(took[ours] / took[loop])
        await client._async_http_client.close()
    by_turn, by_batch = (statistics.median(ratios[size]) for size in ratios)
    show(
        f"bulk of {TURNS:,} turns over a call for each",
        f"x {by_turn:.2f}",
        "<= 1",
        by_turn <= 1,
        failed=by_turn > 2,
    )
    show("  over a loop of a hundred messages a call", f"x {by_batch:.2f}")


async def main(rounds: int) -> None:
    with server() as url:
        await overhead(url, rounds)
    with server() as url:
        await bulk(url)
    finish()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1600))
