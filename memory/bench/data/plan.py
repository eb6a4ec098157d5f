"""Plans a game: each persona's preferences, changes and tests, as numbers and names without sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from memory.bench.data.dice import Dice
from memory.bench.data.language import Attribute
from memory.bench.data.timeline import CONTEXTS, Cell

CHANGES = 5
"""Forced changes of a persona with enough tests.

One cell changes without an announcement, and one is told in the other context. A third cell changes three
times: twice announced, then reverted to its second value. The first value never returns, so a memory that
learns nothing is wrong after every change.
"""
TESTS_PER_CHANGE = 4
"""Tests that ask for a changed cell before it changes again or the game ends."""

Way = Literal["announced", "plain", "elsewhere", "reverted"]


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One change: session index, cell, new value, and its way of telling."""

    index: int
    cell: Cell
    value: str
    way: Way


class PlannedTest(NamedTuple):
    """One test session."""

    after: int  # number of sessions before it
    context: str
    cell: Cell | None = None  # the cell that it must ask for


@dataclass
class Plan:
    """One persona's plan."""

    dice: Dice
    attributes: Sequence[Attribute]
    sessions: int  # played sessions; changes are added
    test_count: int
    length: int = field(init=False)  # sessions including changes
    contexts: list[str] = field(init=False)  # of each session
    values: dict[Cell, str] = field(default_factory=dict)  # first values; a cell without one never gets one
    spare: dict[str, list[str]] = field(default_factory=dict)  # attribute -> values that no cell has at first
    changes: list[PlannedChange] = field(default_factory=list)
    tests: list[PlannedTest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._choose_values()
        wanted = {name: {self.values.get((context, name)) for context in CONTEXTS} for name in self.spare}
        names = self.dice.shuffled([name for name, both in wanted.items() if len(both - {None}) == 2])
        ways = [(number, way) for number, way in self._ways() if number < len(names)]
        self.length = self.sessions + len(ways)
        first = self.dice.below(2)
        self.contexts = [CONTEXTS[(index + first) % 2] for index in range(self.length)]
        self._place_changes(names, ways)
        self._place_tests()

    @property
    def known_by(self) -> int:
        """The number of sessions in which every preference is first stated. Changes come later."""
        return self.length * 2 // 5

    def _choose_values(self) -> None:
        """Draws first values: some attributes agree in both contexts, some have only one context."""
        count = len(self.attributes)
        same, one_sided = count // 5, max(2, count // 5)
        for position, attribute in enumerate(self.attributes):
            markers = self.dice.shuffled(attribute.markers)
            wanted = dict.fromkeys(CONTEXTS, markers[0])
            if position >= same:
                wanted["personal"] = markers[1]
            if same <= position < same + one_sided:
                del wanted[CONTEXTS[position % 2]]
            self.spare[attribute.name] = [marker for marker in markers if marker not in wanted.values()]
            self.values.update({(context, attribute.name): value for context, value in wanted.items()})

    def _ways(self) -> list[tuple[int, Way]]:
        """For each change in time order, the number of its cell and its way of telling."""
        room = max(1, min(CHANGES, (self.test_count - 1) // TESTS_PER_CHANGE))
        others: list[tuple[int, Way]] = [(1, "plain"), (2, "elsewhere")]
        if room < CHANGES:
            return [(0, "announced"), *others][:room]
        # Positions of the three changes of cell 0.
        places = sorted(self.dice.shuffled(range(CHANGES))[:3])
        again: list[tuple[int, Way]] = [(0, "announced"), (0, "announced"), (0, "reverted")]
        others = self.dice.shuffled(others)
        return [again.pop(0) if place in places else others.pop(0) for place in range(CHANGES)]

    def _place_changes(self, names: Sequence[str], ways: Sequence[tuple[int, Way]]) -> None:
        cells = [(self.dice.pick(CONTEXTS), name) for name in names[:3]]
        begin, end = self.known_by, self.length * 17 // 20
        gap = max(1, self.length // 20)
        room = max(len(ways), end - begin - (len(ways) - 1) * (gap - 1))
        drawn = sorted(self.dice.shuffled(range(room))[: len(ways)])
        times = [0, 0, 0]
        for place, (number, way) in enumerate(ways):
            index, cell = begin + drawn[place] + place * (gap - 1), cells[number]
            # The values of cell 0 are B, C, then B again.
            value = self.spare[cell[1]][times[number] % 2]
            times[number] += 1
            self.contexts[index] = other_context(cell[0]) if way == "elsewhere" else cell[0]
            self.changes.append(PlannedChange(index, cell, value, way))

    def _place_tests(self) -> None:
        """Places tests for each change while it holds, one at the end, and the others anywhere."""
        first, count = max(2, self.length // 8), self.test_count
        each = min(TESTS_PER_CHANGE, (count - 1) // len(self.changes))
        for change in self.changes:
            later = (other.index for other in self.changes if other.cell == change.cell)
            until = min((index for index in later if index > change.index), default=self.length)
            room = range(change.index + 1, until + 1)
            for number in range(each):
                # One test at a random place in each part of the time it holds.
                part = room[len(room) * number // each : len(room) * (number + 1) // each] or room
                self.tests.append(PlannedTest(self.dice.pick(part), change.cell[0], change.cell))
        for number in range(count - len(self.tests)):
            after = self.length if number == 0 else first + self.dice.below(self.length - first + 1)
            self.tests.append(PlannedTest(after, CONTEXTS[number % 2]))
        self.tests.sort(key=lambda test: test.after)


def other_context(context: str) -> str:
    """The other of the two contexts."""
    return next(name for name in CONTEXTS if name != context)
