"""What conditions do with text grows with its length, not with its square."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest
from growth_support import RUNS, Run, assert_growth, assert_linear
from hypothesis import given, settings
from rolling_support import ALICE, COUNTER, Host, event

from conditions import _extractive, full_history
from conditions._control import pack_document
from conditions._extractive import ExtractiveSummariser
from conditions._llm_summariser import LlmOptions, LlmSummariser
from conditions._notebook import Line, Source
from conditions._storage import Known
from conditions.rolling_summary import RollingSummary
from memory import ContextBudget, MemoryEvent, MemoryScope, Message, RetrieveRequest

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


@pytest.mark.thorough
@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_on_top_of_a_memory(flood: str) -> None:
    def prepare(count: int) -> Callable[[], object]:
        summariser = ExtractiveSummariser(10_000_000, COUNTER)
        known = summariser.draft("", {}, FLOODS[flood](count))
        return lambda: summariser.draft(known.memory, known.sources, FLOODS[flood](count))

    assert_growth(prepare, smallest=100, largest=800)


def test_what_others_wrote() -> None:
    def prepare(count: int) -> Callable[[], object]:
        foreign = "\n".join(f"remark {number}" for number in range(count))
        return lambda: ExtractiveSummariser(100, COUNTER).draft(foreign, {}, [line(1, "I prefer tea.")])

    assert_growth(prepare, smallest=1_000, largest=64_000)


def test_a_models_answer_of_many_lines() -> None:
    options = LlmOptions(base_url="http://127.0.0.1:1/v1", model="m")
    summariser = LlmSummariser(options, 100, COUNTER, "rolling_summary")
    assert_growth(lambda count: partial(summariser._bounded, "a\n" * count), smallest=1_000, largest=64_000)
    anyio.run(summariser.aclose)


@pytest.mark.thorough
@given(run=RUNS)
@settings(max_examples=20)
def test_any_message(run: Run) -> None:
    def work(text: str) -> None:
        draft = ExtractiveSummariser(10_000_000, COUNTER).draft("", {}, [line(1, text)])
        sources = {kept: (Source("e1"),) for kept in draft.memory.splitlines()}
        ExtractiveSummariser(10_000, COUNTER).draft(draft.memory, sources, [line(1, "x")])
        pack_document(text, ContextBudget(max_tokens=len(text) // 8), COUNTER, overhead=10)

    assert_linear(work, run)


async def test_long_texts_are_read_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[threading.Thread] = []
    render = _extractive._render
    monkeypatch.setattr(
        _extractive, "_render", lambda *given: (seen.append(threading.current_thread()), render(*given))[1]
    )
    summariser = ExtractiveSummariser(1000, COUNTER)
    await summariser.summarise("", {}, [line(1, "I prefer tea.")])
    await summariser.summarise("", {}, [line(1, "I prefer tea. " * 20_000)])
    await summariser.aclose()
    assert seen[0] is threading.current_thread()
    assert seen[1] is not seen[0]
    assert not seen[1].is_alive()


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
    adapter = full_history.FullHistory("full_history", options, COUNTER, tmp_path)
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
