"""An embedded graph under several processes, kills, resets and writes given up: nothing acknowledged is ever lost.

``MEMSLOT_ROUNDS`` says how many rounds; a few by default, 200 in CI.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from graphiti_support import NEEDS_GRAPHITI

from memory.testing import ScriptedLLM

pytestmark = NEEDS_GRAPHITI

ROUNDS = int(os.environ.get("MEMSLOT_ROUNDS", "6"))
HERE = Path(__file__).parent
ROUNDS_OF_A_SCOPE = 6


class Expected:
    """What a scope must hold, and what it may, as told by its processes in the order of their lines."""

    def __init__(self) -> None:
        self.must: set[str] = set()
        self.may: set[str] = set()
        self.cleared: set[str] = set()

    def take(self, lines: list[tuple[int, str, str]]) -> None:
        for _, what, word in sorted(lines):
            if what == "sent":
                self.may.add(word)
            elif what == "stored":
                self.must.add(word)
            elif what == "resetting":
                self.cleared, self.must = self.must, set()
            elif what == "reset":
                self.may.clear()
                self.cleared = set()

    def check(self, found: set[str]) -> None:
        assert not self.must - found, "stored and lost"
        assert not found - self.may, "not written, or reset"
        assert not self.cleared or found & self.cleared in (set(), self.cleared), "a reset by halves"
        self.must |= found & self.cleared
        self.cleared = set()


class Rounds:
    """The process that forks others, and what its rounds are made of."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self._process = process
        self._directory = directory
        self._used_words: list[str] = []
        self._words = (f"q{''.join(letters)}x" for letters in itertools.product("abcdefgh", repeat=5))
        self._logs = itertools.count()

    def run(self, scope: str, *jobs: dict[str, Any]) -> tuple[list[int], list[tuple[int, str, str]]]:
        """Exit codes, and the lines of all jobs."""
        logs = [self._directory / f"log{next(self._logs)}" for _ in jobs]
        given = [{**job, "scope": scope, "log": str(log)} for job, log in zip(jobs, logs, strict=True)]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"jobs": given}) + "\n")
        self._process.stdin.flush()
        codes = json.loads(self._process.stdout.readline())
        lines = [line.split() for log in logs if log.exists() for line in log.read_text().splitlines()]
        return codes, [(int(when), what, word) for when, what, word in lines]

    def jobs(self, chance: random.Random, at: int) -> list[dict[str, Any]]:
        """One to three processes, some of them killed."""
        made = []
        for _ in range(chance.choice((1, 2, 2, 3)) if at % ROUNDS_OF_A_SCOPE else 2):
            steps = [
                (chance.choices(("write", "give_up", "reset"), (6, 4, 0.8))[0], self._word(chance))
                for _ in range(chance.randint(1, 4))
            ]
            job = {"steps": steps, "seed": chance.random()}
            if chance.random() < 0.6:
                job["kill_after_s"] = chance.uniform(0.02, 1.2)
            made.append(job)
        return made

    def _word(self, chance: random.Random) -> str:
        """A new one, or one of the last few: a fact told again is updated."""
        if chance.random() < 0.3 and len(self._used_words) > 3:
            return chance.choice(self._used_words[-3:])
        self._used_words.append(next(self._words))
        return self._used_words[-1]


@pytest.fixture
def rounds(tmp_path: Path, llm: ScriptedLLM) -> Iterator[Rounds]:
    with subprocess.Popen(
        [sys.executable, str(HERE / "graphiti_rounds.py"), str(tmp_path), llm.base_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Rounds(process, tmp_path)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(300) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.thorough
def test_nothing_acknowledged_is_lost(rounds: Rounds) -> None:
    seed = int(os.environ.get("MEMSLOT_SEED", "1"))
    expected, scope, stored = Expected(), "", 0
    for at in range(ROUNDS):
        chance = random.Random(f"{seed} {at}")
        if at % ROUNDS_OF_A_SCOPE == 0:
            expected, scope = Expected(), f"p{at}"
        jobs = rounds.jobs(chance, at)
        codes, lines = rounds.run(scope, *jobs)
        for job, code in zip(jobs, codes, strict=True):
            allowed = (0, -signal.SIGKILL) if "kill_after_s" in job else (0,)
            assert code in allowed, f"seed {seed}, round {at}: a process ended with {code}"
        expected.take(lines)
        new = {word for _, what, word in lines if what == "stored"} & expected.must
        steps = [("look", "-"), *(("search", word) for word in sorted(new))]
        codes, seen = rounds.run(scope, {"steps": steps, "seed": 0})
        assert codes == [0], f"seed {seed}, round {at}: looking ended with {codes[0]}"
        lost = [word for _, what, word in seen if what == "not_recalled"]
        assert not lost, f"seed {seed}, round {at}: in the graph and not found by a search"
        expected.check({word for _, what, word in seen if what == "found"})
        stored += len(new)
    # Kills and resets on a busy machine leave fewer than were written.
    assert stored > ROUNDS // 3, "or this test proves nothing"
