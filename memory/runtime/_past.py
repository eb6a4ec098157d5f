"""Export and permanent removal of the events that a journal keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from memory.contract.errors import InputError
from memory.plugins.config import MemslotConfig
from memory.plugins.opening import build_slot
from memory.storage.journal import Journal
from memory.storage.resets import JournalKey

FORMAT = "memslot-journal-1"


def exported(journal: Journal, persona_id: str | None = None) -> Iterator[str]:
    """Yield the lines of an export, without line breaks. They hold user text.

    Raises:
        InputError: the journal holds no events, or none of this person.
    """
    if not any(persona_id in (None, scope.persona_id) for scope, _ in journal.scopes()):
        whom = f" of persona {persona_id!r}" if persona_id else ""
        raise InputError(f"{journal.place} holds no events{whom}; nothing was exported")
    yield json.dumps({"format": FORMAT})
    for entry in journal.entries():
        if persona_id in (None, entry.event.scope.persona_id):
            event = entry.event.model_dump(mode="json", exclude_none=True)
            line = {"event": event, "status": entry.kept.state, "destination": entry.kept.destination}
            yield json.dumps(line, ensure_ascii=False)


@dataclass
class Forgotten:
    scopes: int = 0  # how many scopes held the person's events
    recorded: bool = False
    left: list[str] = field(default_factory=list)  # data that remains elsewhere, as phrases for the user


async def forget_person(journal: Journal, persona_id: str, config: MemslotConfig) -> Forgotten:
    """Reset a person's scopes, then remove their events from the journal for good.

    If the backend is down, the events stay, because they tell which scopes to reset.
    ``config`` describes the memory whose scopes are reset. It has no scope and no journal.
    """
    events = (entry.event for entry in journal.entries(everything=True))
    scopes = {event.scope for event in events if event.scope.persona_id == persona_id}
    forgotten = Forgotten(scopes=len(scopes))
    reset: set[JournalKey] = set()
    if scopes:
        async with build_slot(config) as slot:
            for scope in scopes:
                reset.add(JournalKey.of_adapter(slot, scope))
                await slot.setup_scope(scope)
                receipt = await slot.reset_scope(scope)
                forgotten.left.extend(receipt.left)
                if not receipt.verified:
                    forgotten.left.append(f"scope {scope.label} was not verified empty")
    removed = journal.forget(persona_id)
    forgotten.recorded = bool(scopes or removed)  # the resets have already removed some events
    for other in sorted({key.destination for key in removed if key not in reset}):
        kind = (
            other
            if other.split(":")[0] != config.provider
            else f"another store of {config.provider}, {other}"
        )
        forgotten.left.append(f"what was delivered to {kind}; run forget with its configuration")
    return forgotten
