"""Opening, closing and cancelling leave nothing behind and nothing stuck (DESIGN 5.8)."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import anyio

from memory import MemoryAdapter, MemslotError, WriteReceipt
from memory.adapter import close_adapter
from memory.testing.contract._kit import Kit
from memory.testing.contract._spec import ON_A_WORKER, SHIELDED, NotRun, of_recall, promise


@promise("derive from BaseAdapter, and keep the methods' signatures")
async def is_an_adapter(kit: Kit) -> None:
    """DESIGN 4: the contract is structural. The slot satisfies it too."""
    for contract in (kit.adapter, kit.slot):
        assert isinstance(contract, MemoryAdapter), f"{type(contract).__name__} lacks some of its methods"
        assert contract.backend_name == kit.slot.backend_name, "adapter and slot have two names"
    assert kit.slot.backend_name, "the adapter's name is empty"


@promise(
    "release in close_native (on the worker) and aclose_native what was opened",
    "end threads that the SDK starts, or keep one client for the process",
)
async def closing_leaves_nothing_behind(kit: Kit) -> None:
    """DESIGN 5.8: no thread, file, socket, process or lock remains. A second adapter can open."""
    await kit.slot.aclose()
    before: Counter[str] = Counter()
    for number in range(6):
        opened = kit.another()
        async with opened.slot:
            await opened.remember("blue")
            await opened.ask("blue")
            await opened.close(clean_up=True)
        found = _resources()
        # Other code may open and close resources too. A leak of the adapter grows with every round.
        if not (left := found - before) and number >= 2:  # an SDK may keep its first resources for ever
            return
        before = found
    raise AssertionError(f"left after closing: {', '.join(sorted(left))}")


@of_recall(
    "write to disk before the receipt says committed",
    "say so in every receipt: warnings=('volatile: kept until this process ends',)",
)
async def stored_events_outlive_the_adapter(kit: Kit) -> None:
    """DESIGN 4: a ``committed`` write outlives the process, or its receipt says ``volatile``."""
    _needs_to_last(await kit.remember("blue"))
    await kit.slot.aclose()
    again = kit.another()
    async with again.slot:
        await again.setup(kit.scope)
        kept = await again.recalls("blue", scope=kit.scope)
    assert kept, "another adapter does not find what was stored, and the receipt does not say volatile"


@of_recall(
    "ask the backend each time; keep answers only where it tells of changes",
    "where one process alone may write, refuse the second adapter",
)
async def writes_of_another_adapter_are_found(kit: Kit) -> None:
    """A ``committed`` write is visible to another adapter, even if that one answered the same question before."""
    await kit.remember("blue")
    await kit.ask("green")
    second = kit.another()
    try:
        async with second.slot:
            await second.setup(kit.scope)
            _needs_to_last(await second.remember("green", scope=kit.scope))
            found = await kit.recalls("green")
    except MemslotError:
        raise NotRun("not applicable", "two adapters at a time, which are refused") from None
    assert found, "what another adapter wrote is not found: an answer was kept from before"


def _needs_to_last(receipt: WriteReceipt) -> None:
    if any(warning.startswith("volatile") for warning in receipt.warnings):
        raise NotRun("not declared", "a memory that lasts; its receipts say volatile")


@promise("let close_native and aclose_native return where nothing is open")
async def closing_twice_is_no_error(kit: Kit) -> None:
    """DESIGN 5.8: ``aclose`` of slot and adapter is idempotent."""
    if kit.aids.make_adapter is None:  # the caller owns the adapter
        raise NotRun("not tested", "a function that makes adapters: one alone cannot be closed")
    await kit.remember("blue")
    for owner in (kit.slot, kit.slot, kit.adapter, kit.adapter):
        await close_adapter(owner)


@promise("release locks in finally, or by with", SHIELDED, ON_A_WORKER)
async def cancellation_leaves_the_slot_usable(kit: Kit) -> None:
    """DESIGN 5: a cancelled call releases its gate, lock and turn."""
    for steps, delay_s in (*((steps, 0.0) for steps in range(12)), (0, 0.0005), (0, 0.002), (0, 0.01)):
        for call in (kit.write, kit.ask):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, "cancelled")
                for _ in range(steps):  # turns of the loop lead to the same place on a busy machine
                    await anyio.lowlevel.checkpoint()
                if delay_s:
                    await anyio.sleep(delay_s)
                tasks.cancel_scope.cancel()
    with anyio.fail_after(max(60.0, kit.declared.ready_timeout_s)):
        await kit.read_only()
        await kit.read_only(False)
        await kit.remember("blue")
    await kit.assert_recalled("blue", "the slot does not work after cancelled calls")
    health = (await kit.slot.health()).model_dump()
    assert health["details"]["slot"]["writes_in_flight"] == 0, "a cancelled write still counts as under way"


def _resources() -> Counter[str]:
    """The number of threads by name, and of open files and child processes if the system shows them."""
    gc.collect()
    names = (thread.name for thread in threading.enumerate())
    pools = ("AnyIO worker thread", "Trio thread", "asyncio_")  # of the event loops; they end with them
    found = Counter(f"thread {name}" for name in names if not name.startswith(pools))
    files = Path("/proc/self/fd")
    found["files"] = len(os.listdir(files)) if files.exists() else 0
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended meanwhile
            found.update(f"process {child}" for child in children.read_text().split())
    return found
