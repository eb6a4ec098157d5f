"""Tests do not teach: what a memory keeps of the questions of tests gains it nothing, and is seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from bench_support import registry_with
from game_support import begin, lines, verify
from test_liars import SEED, Honest, figures

from memory import MemoryEvent, RetrieveRequest, RetrieveResult, WriteReceipt
from memory.adapter import ContextEntry
from memory.bench.engine.experiment import Outcome
from memory.bench.engine.matrix import load_experiment

SIZE = {"users": 1, "sessions": 20, "tests": 9, "attributes": 5}


class QueriesOnly(Honest):
    """Ignores everything it is told, and shows what tests have asked, from some question on."""

    begins_after = 0

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        return self.receipt(event, "keep", [event.event_id])

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        if (request.session_id or "").startswith("test"):
            self.kept.append(request.query)
        entries = tuple(map(ContextEntry, self.kept[self.begins_after :]))
        return self.found(request, "show", entries, {})


class OnServer(QueriesOnly):
    """The same, on a server that no copy can be made of."""

    asked_of_server: ClassVar[list[str]] = []

    def __init__(self) -> None:
        super().__init__()
        self.kept = self.asked_of_server
        self.traits = replace(self.traits, store="https://memory.example")


class LateOnServer(OnServer):
    begins_after = 6


def played(out: Path, memory: Any) -> Outcome:
    OnServer.asked_of_server.clear()
    content = {
        "memory": {
            "condition": "no_memory",
            "budget": {"max_tokens": None, "max_items": None},
            "backends": {"fake": {}},
            "conditions": {"no_memory": {}},
        },
        "bench": {
            "game": SIZE,
            "seeds": [SEED],
            "providers": ["fake"],
            "doctor": False,
            "executor": {"kind": "local"},
        },
    }
    registry = registry_with(memory)
    return begin(load_experiment(content, output=out, registry=registry), registry=registry)


@pytest.mark.parametrize("memory", [QueriesOnly, OnServer, LateOnServer])
def test_who_keeps_only_the_questions_of_tests_gains_nothing(tmp_path: Path, memory: Any) -> None:
    outcome = played(tmp_path, memory)
    found = figures(outcome)
    assert found["style fit"] == 0.0
    assert not found["shown"]
    counts = [cell.counts for cell in outcome.manifest.cells]
    assert all(count["answered_otherwise"] for count in counts)
    checked = verify(outcome.directory)
    assert not checked.deviations
    assert len(checked.learning) == 1
    assert "learns from what it is asked" in checked.learning[0]
    page = outcome.report.read_text(encoding="utf-8")
    assert "Control of contamination" in page
    asked = sum(count["asked_again"] for count in counts)
    assert f"<td>{asked}</td>" in page.replace(' class="number"', "")
    assert all(measure.again is not None for measure in outcome.metrics.providers[0].measures
               if measure.estimate.value is not None)  # fmt: skip


def test_an_honest_memory_answers_the_same_again(tmp_path: Path) -> None:
    outcome = played(tmp_path, Honest)
    for cell in outcome.manifest.cells:
        assert cell.counts["asked_again"] > 0
        assert cell.counts["answered_otherwise"] == 0
    assert verify(outcome.directory).learning == ()
    ways = {
        row["way"]
        for cell in outcome.manifest.cells
        for row in lines(outcome.directory / "cells" / cell.cell_id / "journal.jsonl")
        if row["kind"] == "test"
    }
    assert ways == {"told again"}
