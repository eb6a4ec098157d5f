"""What a mirror's log says of its shadows: traces, and differences between two answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory import RetrieveRequest
from memory.adapter import ContextEntry


@dataclass
class ShadowLog:
    """A file with the shadows' traces and differences. It counts lines that cannot be written."""

    path: Path | None
    lost: int = 0

    def write(self, kind: str, shadow: str, details: dict[str, Any]) -> None:
        if self.path is None:
            return
        line = json.dumps({"kind": kind, "shadow": shadow, **details}, ensure_ascii=False)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            self.lost += 1


def differences(
    request: RetrieveRequest, primary: Iterable[ContextEntry], shadow: Iterable[ContextEntry]
) -> dict[str, Any]:
    """Compare two answers in numbers. ``same_events`` is None if the entries of one have no event ids."""
    own = request.session_id if request.exclude_session else None
    ours = [entry for entry in primary if own is None or entry.session_id != own]
    theirs = list(shadow)
    texts = [Counter(" ".join(entry.text.split()).casefold() for entry in part) for part in (ours, theirs)]
    events = [{event_id for entry in part for event_id in entry.event_ids} for part in (ours, theirs)]
    known = all(found or not part for found, part in zip(events, (ours, theirs), strict=True))
    return {
        "primary": len(ours),
        "shadow": len(theirs),
        "same_text": (texts[0] & texts[1]).total(),
        "same_events": len(events[0] & events[1]) if known else None,
    }
