"""A journal as JSON lines, to be kept elsewhere and taken over again: a head, then one event a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memory.contract.errors import InputError, MemslotError
from memory.contract.events import MemoryEvent
from memory.slot.journal import Journal
from memory.slot.journal_file import JournalStatus

FORMAT = "memslot-journal-1"


def exported(journal: Journal, persona_id: str | None = None) -> Iterator[str]:
    """The lines of an export, without their line breaks; they hold what was said."""
    yield json.dumps({"format": FORMAT})
    for entry in journal.entries():
        if persona_id in (None, entry.event.scope.persona_id):
            event = entry.event.model_dump(mode="json", exclude_none=True)
            line = {"event": event, "status": entry.status, "destination": entry.destination}
            yield json.dumps(line, ensure_ascii=False)


def read_export(file: Path) -> Iterator[tuple[MemoryEvent, JournalStatus, str]]:
    """What an export holds, line by line, so that a file of any size can be read.

    Returns:
        Events, each with its status and the destination it was meant for.

    Raises:
        InputError: the file is no export, or a line of it is malformed; names file and line.
    """
    if not file.stat().st_size:
        raise InputError(f"{file}: holds no head; is it an export of a journal?")
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            where = f"{file}:{number}"
            try:
                row: Any = json.loads(line.decode("utf-8"))
            except (ValueError, RecursionError) as error:
                raise InputError(f"{where}: not a line of JSON") from error
            if number == 1:
                if not isinstance(row, dict) or row.get("format") != FORMAT:
                    raise InputError(f"{where}: not an export of a journal; its first line says {FORMAT!r}")
                continue
            status = row.get("status") if isinstance(row, dict) else None
            if status not in ("waiting", "unknown", "committed", "queued", "pending", "rejected"):
                raise InputError(f"{where}: status: give one that 'memslot journal export' writes")
            given = row.get("event")
            try:
                event = MemoryEvent(**given) if isinstance(given, dict) else None
            except (MemslotError, TypeError) as error:
                raise InputError(f"{where}: event: {error}") from error
            if event is None:
                raise InputError(f"{where}: event: is missing; give it as 'memslot journal export' does")
            destination = row.get("destination")
            if not isinstance(destination, str) or not destination:
                raise InputError(f"{where}: destination: give the one that 'memslot journal export' writes")
            yield event, status, destination
