"""The events of a cube that were sent and not yet seen stored and found: on disk, because MemOS forgets them.

Its scheduler replaces a raw memory by what its model makes of it, and where an answer of the model cannot be read,
nothing is left and nothing says so. A process that only sees what is stored would call that ready.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from memory.adapter import AppendLog, StoreError

_MAX_FILES = 8
"""Each process has a file of its own; more than so many are made one."""


@dataclass(frozen=True, slots=True)
class SentEvent:
    """An event that was sent to a cube."""

    event_id: str
    session_id: str
    place: str


class Ledger:
    """The open events of one cube. No text of them is kept.

    Args:
        directory: where its files stand: one of each process, and all are read.
        server: names the server, whose cube it is.
        cube: the cube's id.

    Attributes:
        problem: why what stands in the files cannot be relied on; empty where it can.
    """

    def __init__(self, directory: Path, server: str, cube: str) -> None:
        self._directory = directory
        self._name = hashlib.sha256(json.dumps([server, cube]).encode()).hexdigest()[:32]
        self._own: AppendLog | None = None
        self.problem = ""

    def load(self) -> list[SentEvent] | None:
        """The open events; None where nothing was ever noted of this cube."""
        logs = self._logs()
        opened: dict[tuple[str, str], SentEvent] = {}
        try:
            records = [json.loads(record) for log in logs for record in log.load()]
            lost = [warning for log in logs if log.lost for warning in log.warnings()]
            for kind, *fields in records:
                if kind == "sent":
                    opened[fields[2], fields[0]] = SentEvent(*fields)
            for kind, *fields in records:
                if kind == "closed":
                    opened.pop((fields[0], fields[1]), None)
        except (StoreError, OSError, ValueError, TypeError, LookupError) as error:
            lost = [str(error)]
        if lost:
            self.problem = f"what was sent is not known any more: {'; '.join(lost)}"
            return []
        if len(logs) > _MAX_FILES:
            self.begin(opened.values())
        return list(opened.values()) if records else None

    def begin(self, opened: Iterable[SentEvent] = ()) -> None:
        """A cube of which all is known: whatever is sent from now on is noted, besides the events that are open."""
        former = self._logs()
        self._own, self.problem = None, ""
        self._append(
            ["begun"], *(["sent", event.event_id, event.session_id, event.place] for event in opened)
        )
        for log in former:
            if not self.problem:
                log.remove()

    def sent(self, event: SentEvent) -> None:
        """Before an event is sent. Where it cannot be noted, :attr:`problem` says so and nothing is ever ready."""
        self._append(["sent", event.event_id, event.session_id, event.place])

    def close(self, places: Iterable[tuple[str, str]]) -> None:
        """Events, by place and id, that were seen stored and found, or certainly are not stored."""
        self._append(*(["closed", place, event_id] for place, event_id in places))

    def _logs(self) -> list[AppendLog]:
        return [AppendLog(path) for path in sorted(self._directory.glob(f"{self._name}.*.events"))]

    def _append(self, *records: list[str]) -> None:
        lines = [json.dumps(record).encode() for record in records]
        for _ in range(2):
            try:
                if self._own is None:
                    self._own = AppendLog(self._directory / f"{self._name}.{secrets.token_hex(8)}.events")
                self._own.append(*lines)
                return
            except StoreError:
                self._own = None  # another process has begun anew, and removed it
            except OSError as error:
                self.problem = f"what is sent cannot be noted: {error.strerror}"
                return
