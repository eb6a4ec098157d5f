"""What conditions do with text grows with its length, not with its square."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from growth_support import assert_growth
from rolling_support import ALICE, COUNTER, Host, event

from conditions import full_history
from conditions._extractive import ExtractiveSummariser
from conditions._notebook import Line
from conditions._storage import Known
from conditions.rolling_summary import RollingSummary
from memory import ContextBudget, MemoryEvent, MemoryScope, Message, RetrieveRequest
from memory.adapter.stores import SqliteStore

CHANCE = random.Random(7)
WORDS = [f"w{number}" for number in range(40)]


def line(number: int, text: str, context: str | None = None) -> Line:
    known = Known.of(event(number, context=context))
    return Line(known, "user", None, text)


def near_repeats(count: int) -> Iterator[str]:
    """Preferences of few words in all, so that any two share some and no two are alike."""
    for _ in range(count):
        yield "I prefer " + " ".join(CHANCE.sample(WORDS, 9)) + "."


FLOODS: dict[str, Callable[[int], list[Line]]] = {
    "near repeats": lambda count: [line(at, text) for at, text in enumerate(near_repeats(count))],
    "distinct": lambda count: [line(at, f"I prefer a{at} b{at} c{at}.") for at in range(count)],
    "repeats": lambda count: [line(at, "I prefer oolong tea.", f"c{at}") for at in range(count)],
    "one message": lambda count: [line(0, " ".join(near_repeats(count)))],
    "long sentences": lambda count: [
        line(at, f"I prefer {' '.join(WORDS * 5)} {at}.") for at in range(count)
    ],
}


@pytest.mark.thorough
@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_preferences(flood: str) -> None:
    def prepare(count: int) -> Callable[[], object]:
        lines = FLOODS[flood](count)
        return lambda: ExtractiveSummariser(10_000_000, COUNTER).draft("", {}, lines)

    assert_growth(prepare, smallest=100, largest=1600)


SOME = 400


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["after_accumulation_session", "token_threshold"])
def test_one_more_write_costs_the_same_however_many_messages_wait(policy: str) -> None:
    """Replies alone are no place to cut, so under either policy all of them wait."""
    adapters: dict[int, RollingSummary] = {}
    events = [
        event(number).model_copy(
            update={"messages": (Message(role="assistant", content=f"I prefer a{number}."),)}
        )
        for number in range(40_000)
    ]

    async def write(adapter: RollingSummary, some: list[MemoryEvent]) -> None:
        for turn in some:
            await adapter.record_event(turn)

    def prepare(count: int) -> Callable[[], object]:
        if count not in adapters:
            adapters[count] = Host(update_policy=policy, context_window_tokens=5120 + 600).adapter
            anyio.run(write, adapters[count], events[:count])
        notebook = adapters[count]._notebooks[ALICE]
        start = len(notebook.pending)
        assert count <= start <= count + 30 * SOME
        return lambda: anyio.run(write, adapters[count], events[start : start + SOME])

    assert_growth(prepare, smallest=12_000, largest=24_000, max_ratio=1.5)


@pytest.mark.thorough
def test_one_more_turn_costs_the_same_however_long_the_history_is(tmp_path: Path) -> None:
    options = full_history.FullHistoryOptions()
    adapter = full_history.FullHistory("full_history", options, COUNTER, SqliteStore(tmp_path / "memslot.db"))
    scopes = {count: MemoryScope(run_id="run", persona_id=str(count)) for count in (10_000, 20_000)}
    written = dict.fromkeys(scopes, 0)

    async def turns(count: int, more: int) -> None:
        for number in range(written[count], written[count] + more):
            await adapter.record_event(event(number, "x", scope=scopes[count]))
            if number % 50 == 0:
                budget = ContextBudget(max_tokens=500)
                await adapter.retrieve(
                    RetrieveRequest(query="?", scope=scopes[count], session_id="t", budget=budget)
                )
        written[count] += more

    def prepare(count: int) -> Callable[[], object]:
        if not written[count]:
            anyio.run(turns, count, count)
        return lambda: anyio.run(turns, count, SOME)

    assert_growth(prepare, smallest=10_000, largest=20_000, max_ratio=1.5)
