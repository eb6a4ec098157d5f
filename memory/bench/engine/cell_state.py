"""A cell's state: the sums over the lines of its journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memory.bench.scores.model import ProbeRecord

TEST_COUNTS = (
    "skipped",
    "asked_tokens",
    "context_tokens",
    "recalled",
    "dated",
    "versioned",
    "asked_again",
    "answered_otherwise",
    "failed_again",
)
"""Counts of a test session. The last three count requests that were asked again, got another section, or
failed then."""


def _record(item: ProbeRecord | Mapping[str, Any]) -> ProbeRecord:
    return item if isinstance(item, ProbeRecord) else ProbeRecord.load(item)


@dataclass
class CellState:
    """The state of a cell, summed over the lines of its journal.

    ``records`` holds the results of requests, and ``again`` the records that differ the second time.
    ``texts`` holds what was said and shown, if it is kept. The other fields belong to :class:`CellRecord`.
    """

    sessions: int = 0
    tests: int = 0
    probes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    readiness: Counter[str] = field(default_factory=Counter)
    store: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    records: list[ProbeRecord] = field(default_factory=list)
    again: list[ProbeRecord] = field(default_factory=list)
    texts: list[Mapping[str, Any]] = field(default_factory=list)
    models: dict[str, Counter[str]] = field(default_factory=dict)
    resumed: int = 0

    @property
    def steps(self) -> int:
        return self.sessions + self.tests + self.probes

    def of_record(self) -> dict[str, Any]:
        """The fields of a cell's record that its journal decides."""
        counts = self.counts
        observed = "dated" if counts["dated"] else "versioned" if counts["versioned"] else "weak"
        sums = ("counts", "writes", "readiness", "store", "models")
        return {
            "sessions": self.sessions,
            "tests": self.tests,
            "probes": self.probes,
            "resumed": self.resumed,
            **{name: dict(sorted(getattr(self, name).items())) for name in sums},
            "pet_observability": observed if counts["recalled"] else None,
            "warnings": tuple(f"{text} ({count}x)" for text, count in self.warnings.most_common(40)),
        }

    def texts_of(self, persona_id: str) -> list[dict[str, Any]]:
        """The rows of ``texts.jsonl``."""
        return [{"persona_id": persona_id, **text} for text in self.texts]

    def add(self, row: Mapping[str, Any]) -> None:
        """Add one line of the journal."""
        kind = row["kind"]
        if kind == "resumed":
            self.resumed += 1
        elif kind == "turn":
            self.counts["turns"] += 1
            self.counts["context_tokens"] += row["tokens"] or 0
            self.counts["asked_tokens"] += row["asked"]
            self.counts["retrieve_errors"] += row["error"] is not None
        elif kind == "written":
            self.writes[row["status"]] += 1
            self.counts["events"] += 1
            self.counts["native_records"] += row["native"]
            self.counts["written_tokens"] += row["tokens"]
            self.counts["messages"] += row["messages"]
        elif kind == "session":
            self.sessions += 1
        elif kind == "probes_ended":
            self.probes += 1
        elif kind in ("test", "probes"):
            self.tests += kind == "test"
            self.probes += row.get("last", False)
            self.readiness[row["readiness"]] += 1
            self.store[row["store"]] += 1
            for count in TEST_COUNTS:
                self.counts[count] += row[count]
            self.again += map(_record, row["again"])
            self.records += map(_record, row["records"])
            self.texts += row.get("texts", ())
        if warnings := row.get("warnings"):
            self.warnings.update(warnings)
        for role, spent in row.get("models", {}).items():
            self.models.setdefault(role, Counter()).update(spent)
