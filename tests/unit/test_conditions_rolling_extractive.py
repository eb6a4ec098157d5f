"""What the extractive summariser of rolling_summary keeps."""

from datetime import timedelta

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rolling_support import COUNTER, START, Host, event

from conditions import rolling_summary
from conditions._extractive import ExtractiveSummariser
from conditions._notebook import Line
from memory import ContextBudget, Message


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(rolling_summary, "_PAUSE_S", 0.001)


async def summary(*events, **options):
    async with Host(**options) as host:
        await host.write(*events)
        assert (await host.ready()).state == "ready"
        return (await host.ask()).raw["memory"].splitlines()


async def test_preferences_first_newest_first_and_small_talk_goes():
    lines = await summary(
        event(1, "Hello!", "Hi, how can I help?"),
        event(2, "I moved to Lisbon in March 2025.", "Noted."),
        event(3, "Please keep your answers short at work.", "Will do.", day=1),
        event(4, "Thanks.", "You are welcome.", session="s2", day=2),
        event(5, "I really like tables with numbers.", session="s2", day=3),
    )
    assert lines == [
        "## Preferences, newest first",
        "- 2026-01-04 user: I really like tables with numbers.",
        "- 2026-01-02 user: Please keep your answers short at work.",
        "",
        "## Statements, newest first",
        "- 2026-01-01 user: I moved to Lisbon in March 2025.",
    ]


async def test_a_sentence_that_is_said_again_moves_to_the_top():
    lines = await summary(
        event(1, "I prefer oolong tea."),
        event(2, "I prefer long walks.", day=1),
        event(3, "I PREFER oolong tea.", session="s2", day=5),
    )
    assert lines[1:] == [
        "- 2026-01-06 user: I PREFER oolong tea.",
        "- 2026-01-02 user: I prefer long walks.",
    ]


async def test_chinese_preferences():
    lines = await summary(event(1, "今天天气不错。"), event(2, "我更喜欢简短的回答。请不要用表格。"))
    assert lines[:2] == [
        "## Preferences, newest first",
        "- 2026-01-01 user: 我更喜欢简短的回答。 请不要用表格。",
    ]


async def test_the_summary_is_bounded_and_drops_what_says_least():
    facts = [event(number, f"Shipment {number} left dock {number} yesterday.") for number in range(60)]
    wish = event(99, "I prefer the long form.", day=-3)
    lines = await summary(wish, *facts, max_tokens=200)
    assert COUNTER.count("\n".join(lines)) <= 200
    assert "- 2025-12-29 user: I prefer the long form." in lines
    assert len(lines) > 8


async def test_provenance_of_what_is_shown():
    async with Host() as host:
        await host.write(event(1, "I prefer oolong tea."), event(2, "The harbour crane in Busan is broken."))
        await host.ready()
        result = await host.ask()
        assert [entry.event_ids for entry in result.entries] == [("e1",), ("e2",)]
        assert all(entry.prose for entry in result.entries)
        cut = await host.ask(budget=ContextBudget(max_items=1))
        assert [entry.event_ids for entry in cut.entries] == [("e1",)]


async def test_it_says_everywhere_that_it_is_no_llm():
    async with Host() as host:
        await host.write(event(1, "I prefer oolong tea."))
        await host.ready()
        result, health = await host.ask(), await host.slot.health()
    assert result.raw["summariser"] == "extractive, not an LLM"
    assert "summariser: extractive, not an LLM" in result.trace.warnings
    assert health.warnings == ("summariser: extractive, not an LLM",)
    assert health.consistency_model == "async_derived"


STATEMENTS = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant"]),
        st.text(min_size=1, max_size=80).filter(str.strip) | st.just("- 2026-01-01 user: I like tea."),
        st.none() | st.text(min_size=1, max_size=10),
    ),
    min_size=1,
    max_size=12,
)


@given(rounds=st.lists(STATEMENTS, min_size=1, max_size=4), max_tokens=st.integers(1, 400))
def test_any_text_makes_a_bounded_summary_that_reads_back(rounds, max_tokens):
    summariser = ExtractiveSummariser(max_tokens, COUNTER)

    async def run():
        memory, sources = "", {}
        for number, said in enumerate(rounds):
            lines = [
                Line(number, f"e{number}-{index}", "s", START + timedelta(days=number), role, name, text)
                for index, (role, text, name) in enumerate(said)
            ]
            draft = await summariser.summarise(memory, sources, lines)
            memory, sources = draft.memory, dict(draft.sources)
            assert COUNTER.count(memory) <= max_tokens
            entries = [line for line in memory.splitlines() if line.startswith("- ")]
            assert set(entries) == set(sources), "every kept line knows where it comes from"
            again = await summariser.summarise(memory, sources, lines[:1])
            assert COUNTER.count(again.memory) <= max_tokens

    anyio.run(run)


@pytest.mark.thorough
@given(said=STATEMENTS, max_tokens=st.integers(1, 300), max_items=st.none() | st.integers(1, 3))
def test_what_is_retrieved_fits_the_budget_and_is_all_shown(said, max_tokens, max_items):
    budget = ContextBudget(max_tokens=max_tokens, max_items=max_items)

    async def run():
        async with Host() as host:
            for number, (role, text, name) in enumerate(said):
                message = Message(role="user" if role == "user" else "assistant", content=text, name=name)
                await host.write(event(number, "x").model_copy(update={"messages": (message,)}))
            await host.ready()
            return await host.ask(budget=budget)

    result = anyio.run(run)
    assert len(result.included) == len(result.entries) <= (max_items or 3)
    assert result.trace.token_count is not None
    assert result.trace.token_count <= max_tokens
    assert result.formatted_context.count("</memory-context>") <= 1
