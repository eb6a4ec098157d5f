"""The long game: 200,000 tokens a person, and budgets that tell kinds of memory apart.

``python tests/bench/game/test_long_game.py`` prints the table of ``docs/experiment.md``.
"""

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import pytest

from memory.bench.data.asked import as_probes
from memory.bench.data.generate import GameSize, make_game
from memory.bench.data.language import load_language
from memory.bench.data.timeline import PreferenceTruth, Probe, Turn
from memory.bench.engine.roles import reader_of
from memory.contract.formatting import Utf8TokenCounter

BUDGETS = (300, 1000, 3000, 8000)
COUNT = Utf8TokenCounter().count
Ranked = Sequence[Turn]
Memory = Callable[["Life", Probe, Sequence[Turn]], Ranked]


class Life:
    """One person's turns, with what the memories below look up."""

    def __init__(self, data, timeline):
        self.timeline, self.language = timeline, load_language().speaking(data.wordings)
        self.words = {turn.event_id: re.findall(r"\w+", turn.text.casefold()) for turn in timeline.turns}
        self.counts = {name: Counter(words) for name, words in self.words.items()}
        self.common = Counter(word for counts in self.counts.values() for word in counts)
        self.about = {
            turn.event_id: {
                self.language.settings[" ".join(found[0].split())][0]
                for found in self.language.any_wording.finditer(turn.messages[0].content.casefold())
            }
            for turn in timeline.turns
        }

    def bm25(self, query, turn):
        counts, length = self.counts[turn.event_id], len(self.words[turn.event_id])
        total = 0.0
        for word in set(re.findall(r"\w+", query.casefold())) & counts.keys():
            rare = math.log(1 + (len(self.words) - self.common[word] + 0.5) / (self.common[word] + 0.5))
            total += rare * counts[word] * 2.2 / (counts[word] + 1.2 * (0.25 + 0.75 * length / 150))
        return total


def newest(life, probe, told):
    return told[::-1]


def oldest(life, probe, told):
    return told


def keyword(life, probe, told):
    return sorted(told, key=lambda turn: -life.bm25(probe.query, turn))


def phrases(life, probe, told):
    return [turn for turn in told[::-1] if life.about[turn.event_id]]


def semantic(life, probe, told):
    return [turn for turn in told[::-1] if probe.attribute in life.about[turn.event_id]]


def stale(life, probe, told):
    """The same, by a memory that learns nothing once it knows somebody: from the first change on."""
    change = next(session for session in life.timeline.sessions if session.change)
    return [turn for turn in semantic(life, probe, told) if turn.timestamp < change.turns[0].timestamp]


MEMORIES = {
    "semantic, newest first": semantic,
    "knows every phrase, newest first": phrases,
    "semantic, stale": stale,
    "keyword (BM25)": keyword,
    "newest first": newest,
    "oldest first": oldest,
}


def fit(life, memory, budget):
    """Of each request, whether an assistant that reads the section would act as is wanted."""
    reader, found = reader_of(life.language), []
    for probe in life.timeline.probes:
        told = [turn for session in life.timeline.sessions[: probe.after] for turn in session.turns]
        room, lines = budget, list[tuple[str, str]]()
        for turn in memory(life, probe, told):
            when = f"{turn.timestamp:%Y-%m-%d %H:%M}"
            line = f"- ({when}, {turn.context}) {turn.messages[0].content}"
            room -= COUNT(line)
            if room < 0:
                break
            lines.append((when, line))
        section = "\n".join(line for _, line in sorted(lines))
        truth = probe.truth
        assert isinstance(truth, PreferenceTruth)
        assert probe.attribute is not None
        shown = reader.choose(reader.read(section), probe.attribute, probe.context)
        found.append(shown == truth.current)
    return found


@cache
def lives(users):
    data = as_probes(make_game(GameSize(users=users, tokens=200_000), seed=11))
    return [Life(data, timeline) for timeline in data.timelines]


def table(users):
    rows = {}
    for name, memory in MEMORIES.items():
        rows[name] = []
        for budget in BUDGETS:
            found = [hit for life in lives(users) for hit in fit(life, memory, budget)]
            rows[name].append(sum(found) / len(found))
    return rows


@pytest.mark.thorough
def test_a_life_is_long_and_budgets_tell_memories_apart():
    (life,) = lives(1)
    said = [message.content for turn in life.timeline.turns for message in turn.messages]
    assert sum(map(COUNT, said)) >= 200_000
    rows = table(1)
    best = rows["semantic, newest first"]
    assert best == sorted(best)
    assert best[-1] > 0.95
    for number, budget in enumerate(BUDGETS):
        column = {name: row[number] for name, row in rows.items()}
        assert best[number] - column["semantic, stale"] > 0.05, budget
        assert best[number] - column["keyword (BM25)"] > 0.3, budget
        assert best[number] - column["knows every phrase, newest first"] > 0.2, budget
        assert best[number] - max(column["newest first"], column["oldest first"]) > 0.3, budget


def test_distractors_tell_no_preference():
    data = make_game(GameSize(users=1, sessions=10, tests=2, attributes=6, tokens=20_000), seed=4)
    (timeline,) = data.timelines
    talk = [turn for turn in timeline.turns if ".t" in turn.turn_id]
    assert sum(COUNT(message.content) for turn in talk for message in turn.messages) >= 20_000
    language = load_language().speaking(data.wordings)
    reader = reader_of(language)
    section = "\n".join(f"- {turn.messages[0].content}" for turn in talk)
    assert not reader.read(section)
    assert any(language.any_wording.search(turn.text.casefold()) for turn in talk), "they share phrases"
    assert all(turn.attribute is None for turn in talk)


if __name__ == "__main__":
    lines = [f"| Style fit | {' | '.join(f'{budget:,}' for budget in BUDGETS)} |", "|---|---|---|---|---|"]
    for label, row in table(3).items():
        lines.append(f"| {label} | {' | '.join(f'{100 * share:.0f}' for share in row)} |")
    sys.stdout.write("\n".join([*lines, ""]))
