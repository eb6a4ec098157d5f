"""Forgetting a person: what a journal keeps of them, their scopes where it was delivered, what hooks have left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from memory.slot.journal import Journal
from memory.slot.journal_file import JournalKey
from memory.slot.slot import MemorySlot


def spool_directory(data_dir: Path) -> Path:
    """Where the hooks of coding agents leave turns, until they are recorded in the configuration's own scope."""
    return data_dir / "hooks"


def drop_turns(spool: Path) -> bool:
    """Remove what hooks have left and nobody has recorded yet; whether there was anything."""
    left = [path for path in spool.rglob("*") if path.suffix in (".json", ".part", ".unreadable")]
    for path in left:
        path.unlink(missing_ok=True)
    return bool(left)


@dataclass
class Forgotten:
    scopes: int = 0  # that held events of theirs
    recorded: bool = False
    left: list[str] = field(default_factory=list)  # what is still somewhere, each as a phrase for the user


async def forget_person(
    journal: Journal,
    persona_id: str,
    provider: str,
    open_slot: Callable[[], AbstractAsyncContextManager[MemorySlot]] | None,
) -> Forgotten:
    """Reset a person's scopes, then remove their events from the journal for good: a backend that is down leaves
    the list of what to reset. ``open_slot`` opens the memory of ``provider``; None leaves it as it is.
    """
    events = (entry.event for entry in journal.entries(everything=True))
    scopes = {event.scope for event in events if event.scope.persona_id == persona_id}
    forgotten = Forgotten(scopes=len(scopes))
    reset: set[JournalKey] = set()
    if scopes and open_slot is not None:
        async with open_slot() as slot:
            for scope in scopes:
                reset.add(JournalKey.of_adapter(slot, scope))
                await slot.setup_scope(scope)
                receipt = await slot.reset_scope(scope)
                forgotten.left.extend(receipt.left)
                if not receipt.verified:
                    forgotten.left.append(f"scope {scope.label} was not verified empty")
    removed = journal.forget(persona_id)
    forgotten.recorded = bool(removed)
    for other in sorted({key.destination for key in removed if key not in reset}):
        another = other.split(":")[0] != provider
        if another or open_slot is not None:
            store = other if another else f"another store of {provider}, {other}"
            forgotten.left.append(f"what was delivered to {store}; run forget with its configuration")
    return forgotten
