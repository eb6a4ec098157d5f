"""rolling_summary with the extractive summariser: when it summarises, what it keeps, what it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conditions import rolling_summary
from conditions._extractive import ExtractiveSummariser
from conditions._notebook import Draft, Line, Source
from conditions.rolling_summary import RollingSummary, RollingSummaryOptions
from memory import (
    AdapterMode,
    BackendProtocolError,
    BackendReadiness,
    BackendUnavailable,
    CapabilityNotSupported,
    ConfigError,
    ContextBudget,
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    Message,
    NativeQueryRequest,
    RetrieveRequest,
    RetrieveResult,
    SupportsNativeQuery,
    SupportsReadiness,
    Utf8TokenCounter,
    WriteReceipt,
    open_memory,
)

ALICE = MemoryScope(run_id="run", persona_id="alice")
BOB = MemoryScope(run_id="run", persona_id="bob")
START = datetime(2026, 1, 1, 10, tzinfo=UTC)
COUNTER = Utf8TokenCounter()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling_summary, "_PAUSE_S", 0.001)


def event(
    number: int,
    *texts: str,
    session: str = "s1",
    scope: MemoryScope = ALICE,
    context: str | None = None,
    day: int = 0,
) -> MemoryEvent:
    roles = ("user", "assistant")
    return MemoryEvent(
        event_id=f"e{number}",
        scope=scope,
        session_id=session,
        turn_id=str(number),
        timestamp=START + timedelta(days=day, minutes=number),
        messages=tuple(
            Message(role=roles[index % 2], content=text) for index, text in enumerate(texts or ("x",))
        ),
        context=context,
    )


class Noting:
    """A summariser that notes what it is given: the memory becomes all lines so far, or none of them."""

    label = "noting"

    def __init__(self, *, keeps: bool = True) -> None:
        self.keeps = keeps
        self.calls: list[list[str]] = []
        self.faults = 0
        self.hold: anyio.Event | None = None
        self.closed = False

    async def summarise(self, memory: str, sources: Mapping[str, Source], lines: list[Line]) -> Draft:
        if self.hold is not None:
            await self.hold.wait()
        if self.faults:
            self.faults -= 1
            raise BackendUnavailable("down", diagnostics={"status": 503})
        said = [line.text for line in lines]
        self.calls.append(said)
        kept = [memory, *said] if self.keeps else []
        return Draft("\n".join(filter(None, kept)), f"[entry] {len(said)}")

    async def problem(self) -> str | None:
        return "down" if self.faults else None

    async def aclose(self) -> None:
        self.closed = True


class Host:
    """A slot over rolling_summary, and short names for what tests do with it."""

    def __init__(self, summariser: Any = None, deadline_s: float | None = None, **options: Any) -> None:
        chosen = RollingSummaryOptions(**options)
        self.summariser = summariser or ExtractiveSummariser(chosen.max_tokens, COUNTER)
        self.adapter = RollingSummary("rolling_summary", chosen, self.summariser, COUNTER, deadline_s)
        self.slot = MemorySlot(self.adapter)

    async def __aenter__(self) -> Host:
        for scope in (ALICE, BOB):
            await self.slot.setup_scope(scope)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.slot.aclose()

    async def write(self, *events: MemoryEvent) -> list[WriteReceipt]:
        return [await self.slot.record_event(one) for one in events]

    async def ready(self, scope: MemoryScope = ALICE, timeout_s: float = 5) -> BackendReadiness:
        readiness = self.slot.capability(SupportsReadiness)
        assert readiness is not None
        return await readiness.wait_until_ready(scope, timeout_s)

    async def state(self, scope: MemoryScope = ALICE) -> BackendReadiness:
        readiness = self.slot.capability(SupportsReadiness)
        assert readiness is not None
        return await readiness.readiness(scope)

    async def ask(self, scope: MemoryScope = ALICE, budget: ContextBudget | None = None) -> RetrieveResult:
        return await self.slot.retrieve(
            RetrieveRequest(query="?", scope=scope, session_id="t", budget=budget or ContextBudget())
        )

    async def native(self, operation: str, scope: MemoryScope = ALICE) -> Any:
        query = self.slot.capability(SupportsNativeQuery)
        assert query is not None
        return (await query.native_query(NativeQueryRequest(scope=scope, operation=operation))).raw


# -- when -----------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_session_is_summarised_when_the_next_one_begins() -> None:
    async with Host(Noting()) as host:
        first, second = await host.write(event(1, "a", "b"), event(2, "c"))
        assert (first.status, second.status) == ("pending", "pending")
        assert (await host.ask()).formatted_context == ""
        (third,) = await host.write(event(3, "d", session="s2"))
        assert host.summariser.calls == [["a", "b", "c"]]
        assert third.trace is not None
        assert third.trace.native_operation == "memory.consolidate"
        result = await host.ask()
    assert [entry.text for entry in result.entries] == ["a\nb\nc"]
    assert result.trace.consistency == "pending"
    assert result.trace.representation_version == "1"
    assert result.trace.last_derived_at is not None
    assert result.trace.condition_kind == "control"
    assert result.raw["messages_pending"] == 1


@pytest.mark.anyio
async def test_what_is_not_summarised_yet_is_never_shown() -> None:
    """Fairness rule, spec section 2.2: no context that real backends do not get."""
    async with Host(Noting()) as host:
        await host.write(event(1, "old words"), event(2, "fresh words", session="s2"))
        result = await host.ask()
    assert "old words" in result.formatted_context
    assert "fresh words" not in result.formatted_context
    assert "fresh words" not in str(result.raw)
    assert "1 messages are not summarised yet" in result.trace.warnings


@pytest.mark.anyio
async def test_a_test_point_ends_the_session() -> None:
    async with Host(Noting()) as host:
        await host.write(event(1, "a"), event(2, "b"))
        before = await host.state()
        assert (before.state, before.pending_count) == ("pending", 2)
        assert before.detail == "2 messages are not summarised yet"
        after = await host.ready()
        assert (after.state, after.pending_count, after.detail) == ("ready", 0, "")
        assert after.last_derived_at is not None
        assert after.waited_ms is not None
        assert [entry.text for entry in (await host.ask()).entries] == ["a\nb"]
        assert (await host.ask()).trace.consistency == "committed"
        assert (await host.ready(BOB)).state == "ready"
    assert host.summariser.closed


@pytest.mark.anyio
async def test_becoming_read_only_ends_the_session() -> None:
    async with Host(Noting()) as host:
        await host.write(event(1, "a"), event(2, "b", scope=BOB))
        await host.slot.set_mode(AdapterMode(read_only=True))
        assert [entry.text for entry in (await host.ask()).entries] == ["a"]
        assert [entry.text for entry in (await host.ask(BOB)).entries] == ["b"]


@pytest.mark.anyio
async def test_read_only_summarises_nothing() -> None:
    noting = Noting()
    noting.faults = 1
    async with Host(noting) as host:
        await host.write(event(1, "a"))
        await host.slot.set_mode(AdapterMode(read_only=True))
        waited = await host.ready()
        assert (waited.state, waited.pending_count) == ("pending", 1)
        assert "nothing is summarised while read-only" in waited.detail
        (skipped,) = await host.write(event(2, "b", session="s2"))
        assert skipped.status == "skipped_read_only"
        assert noting.calls == []
        await host.slot.set_mode(AdapterMode(read_only=False))
        assert (await host.ready()).state == "ready"
    assert noting.calls == [["a"]]


@pytest.mark.anyio
async def test_a_summary_that_comes_back_after_the_switch_to_read_only_is_discarded() -> None:
    noting = Noting()
    noting.hold = anyio.Event()
    async with Host(noting, deadline_s=0.05) as host:
        await host.write(event(1, "a"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.ready)
            await anyio.wait_all_tasks_blocked()
            await host.slot.set_mode(AdapterMode(read_only=True))
            noting.hold.set()
        assert noting.calls == [["a"]], "it did come back"
        assert (await host.ask()).formatted_context == ""
        assert (await host.state()).pending_count == 1


@pytest.mark.anyio
async def test_token_policy_waits_for_the_window_and_cuts_where_a_user_speaks() -> None:
    # 5120 of the window are kept free, so 400 are left; each of these turns costs about 60.
    window = 5120 + 400
    noting = Noting(keeps=False)
    async with Host(noting, update_policy="token_threshold", context_window_tokens=window) as host:
        number = 0
        while not noting.calls:
            assert number < 20, "the window overflowed and nothing was summarised"
            number += 1
            await host.write(event(number, f"{number:03} " + "x" * 160, f"reply {number:03}"))
            before = (await host.state()).pending_count
        assert number >= 6, "a new session or a long turn is no reason; the window is"
        (said,) = noting.calls
        assert said[0].startswith("001")
        assert said[-1].startswith("reply"), "cut before a message of the user"
        assert before == 2 * number - len(said)
        assert number <= len(said) <= number + 2, "half of the window is freed, not everything"
        await host.ready()
        assert sum(map(len, noting.calls)) == 2 * number, "a test point summarises the rest"


@pytest.mark.anyio
async def test_token_policy_ignores_sessions() -> None:
    async with Host(Noting(), update_policy="token_threshold") as host:
        await host.write(event(1, "a"), event(2, "b", session="s2"))
    assert host.summariser.calls == []


@pytest.mark.anyio
async def test_token_policy_stops_after_five_rounds() -> None:
    noting = Noting(keeps=False)
    window = 5120 + 200
    async with Host(noting, update_policy="token_threshold", context_window_tokens=window) as host:
        flood = event(1).with_messages([Message(role="user", content="x" * 600) for _ in range(20)])
        await host.write(flood)
        assert [len(call) for call in noting.calls] == [1, 1, 1, 1, 1], "one call takes what fits the window"
        assert (await host.state()).pending_count == 15


@pytest.mark.anyio
async def test_a_session_too_long_for_one_call_is_taken_in_parts() -> None:
    noting = Noting()
    async with Host(noting, context_window_tokens=5120 + 300) as host:
        for number in range(12):
            await host.write(event(number, f"{number:02} " + "x" * 100, "y" * 100))
        await host.ready()
    assert len(noting.calls) > 2
    assert [text for call in noting.calls for text in call] == [
        text for number in range(12) for text in (f"{number:02} " + "x" * 100, "y" * 100)
    ]
    assert all(call[0].endswith("x") for call in noting.calls[:2]), "parts begin where the user speaks"


# -- failure --------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_failure_is_tried_again_and_nothing_is_lost() -> None:
    noting = Noting()
    noting.faults = 2
    async with Host(noting) as host:
        await host.write(event(1, "a"))
        (second,) = await host.write(event(2, "b", session="s2"))
        assert second.status == "pending"
        assert second.warnings == ("summarising failed: BackendUnavailable, HTTP 503",)
        (third,) = await host.write(event(3, "c", session="s2"))
        assert third.warnings == second.warnings
        state = await host.state()
        assert state.state == "pending"
        assert state.detail == "3 messages are not summarised yet (BackendUnavailable, HTTP 503)"
        (fourth,) = await host.write(event(4, "d", session="s2"))
        assert fourth.warnings == ()
        assert (await host.ready()).state == "ready"
    assert noting.calls == [["a"], ["b", "c", "d"]]


@pytest.mark.anyio
async def test_after_three_failures_the_messages_go_into_the_history_as_they_are() -> None:
    noting = Noting()
    noting.faults = 3
    async with Host(noting) as host:
        await host.write(event(1, "secret words", "answer"))
        state = await host.ready()
        assert state.state == "failed"
        assert state.pending_count == 0
        assert state.detail == (
            "2 messages went into the history unsummarised (BackendUnavailable, HTTP 503)"
        )
        assert await host.native("history") == [
            "[2026-01-01 10:01] [RAW] 2 messages\n"
            "[2026-01-01 10:01] USER: secret words\n"
            "[2026-01-01 10:01] ASSISTANT: answer"
        ]
        result = await host.ask()
        assert result.formatted_context == ""
        assert "2 messages could not be summarised" in result.trace.warnings
        # What comes later is summarised, but the gap stays visible.
        await host.write(event(2, "later", session="s2"))
        assert (await host.ready()).state == "failed"
        assert [entry.text for entry in (await host.ask()).entries] == ["later"]
        await host.slot.reset_scope(ALICE)
        assert (await host.state()).state == "ready"


@pytest.mark.anyio
async def test_waiting_ends_in_time() -> None:
    noting = Noting()
    noting.hold = anyio.Event()
    async with Host(noting) as host:
        await host.write(event(1, "a"))
        state = await host.ready(timeout_s=0.05)
        assert (state.state, state.pending_count) == ("pending", 1)
        noting.hold.set()
        assert (await host.ready()).state == "ready"


@pytest.mark.anyio
async def test_a_slow_summariser_does_not_turn_a_write_into_a_timeout() -> None:
    noting = Noting()
    noting.hold = anyio.Event()
    async with Host(noting, deadline_s=0.05) as host:
        await host.write(event(1, "a"))
        (second,) = await host.write(event(2, "b", session="s2"))
        assert second.status == "pending"
        assert second.warnings == (
            "summarising took too long for a write; it is tried again with the next one",
        )
        noting.hold.set()
        await host.ready()
    assert noting.calls == [["a", "b"]]


@pytest.mark.anyio
async def test_health_says_what_does_not_work() -> None:
    noting = Noting()
    async with Host(noting) as host:
        assert (await host.slot.health()).status == "ok"
        noting.faults = 1
        health = await host.slot.health()
    assert health.status == "unavailable"
    assert health.warnings == ("the summariser does not work: down",)


# -- scopes ---------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_scopes_are_apart_and_reset_clears_one() -> None:
    async with Host(Noting()) as host:
        await host.write(event(1, "mine"), event(2, "yours", scope=BOB))
        await host.ready(ALICE)
        await host.ready(BOB)
        await host.write(event(3, "mine too"))
        receipt = await host.slot.reset_scope(ALICE)
        assert (receipt.verified, receipt.removed) == (True, 2)
        assert (await host.ask()).formatted_context == ""
        assert (await host.state()).state == "ready"
        assert await host.native("history") == []
        assert await host.native("pending") == []
        assert [entry.text for entry in (await host.ask(BOB)).entries] == ["yours"]
        await host.write(event(1, "again"))
        await host.ready()
        assert [entry.text for entry in (await host.ask()).entries] == ["again"]


@pytest.mark.anyio
async def test_an_event_is_kept_once() -> None:
    async with Host(Noting()) as host:
        await host.write(event(1, "a"))
        (again,) = await host.write(event(1, "other words"))
        assert again.warnings == ("this event_id was recorded before; the first version is kept",)
        await host.ready()
        (known,) = await host.write(event(1, "other words"))
        assert known.status == "committed"
        await host.ready()
    assert host.summariser.calls == [["a"]]


@pytest.mark.anyio
async def test_diagnostics() -> None:
    async with Host(Noting()) as host:
        await host.write(event(1, "a"))
        assert await host.native("pending") == ["[2026-01-01 10:01] USER: a"]
        with pytest.raises(CapabilityNotSupported):
            await host.native("everything")
        await host.ready()
        assert await host.native("memory") == ["a"]


# -- what the extractive summariser keeps ---------------------------------------------------------------


async def summary(*events: MemoryEvent, **options: Any) -> list[str]:
    async with Host(**options) as host:
        await host.write(*events)
        assert (await host.ready()).state == "ready"
        return (await host.ask()).raw["memory"].splitlines()  # type: ignore[no-any-return]


@pytest.mark.anyio
async def test_preferences_first_newest_first_and_small_talk_goes() -> None:
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


@pytest.mark.anyio
@pytest.mark.parametrize("changed", ["work", "personal"])
async def test_the_newest_version_of_a_preference_wins_within_its_context(changed: str) -> None:
    old, new = "Please answer my mail in one short line.", "Please answer my mail in one long line."
    first = [event(1, old, context="work"), event(2, old, context="personal")]
    change = event(3, new, context=changed, session="s2", day=5)
    async with Host() as host:
        await host.write(*first, change)
        await host.ready()
        result = await host.ask()
        (entry,) = result.entries
        kept = "e2" if changed == "work" else "e1"
        assert entry.text.splitlines()[1:] == [f"- 2026-01-06 user: {new}", f"- 2026-01-01 user: {old}"]
        assert entry.event_ids == ("e3", kept)
        both = event(4, new, context={"work": "personal", "personal": "work"}[changed], session="s3", day=6)
        await host.write(both)
        await host.ready()
        assert old not in (await host.ask()).formatted_context


@pytest.mark.anyio
async def test_what_is_said_twice_is_kept_once() -> None:
    lines = await summary(
        event(1, "The depot in Rostock opens at nine."),
        event(2, "the depot in Rostock opens at nine!", session="s2", day=1),
        event(3, "The depot in Rostock closes at nine.", session="s2", day=1),
    )
    assert lines[1:] == [
        "- 2026-01-02 user: The depot in Rostock closes at nine.",
        "- 2026-01-02 user: the depot in Rostock opens at nine!",
    ]


@pytest.mark.anyio
async def test_chinese_preferences() -> None:
    lines = await summary(event(1, "今天天气不错。"), event(2, "我更喜欢简短的回答。请不要用表格。"))
    assert lines[:2] == [
        "## Preferences, newest first",
        "- 2026-01-01 user: 我更喜欢简短的回答。 请不要用表格。",
    ]


@pytest.mark.anyio
async def test_the_summary_is_bounded_and_drops_what_says_least() -> None:
    facts = [event(number, f"Shipment {number} left dock {number} yesterday.") for number in range(60)]
    wish = event(99, "I prefer the long form.", day=-3)
    lines = await summary(wish, *facts, max_tokens=200)
    assert COUNTER.count("\n".join(lines)) <= 200
    assert "- 2025-12-29 user: I prefer the long form." in lines
    assert len(lines) > 8


@pytest.mark.anyio
async def test_what_someone_else_wrote_is_bounded_too() -> None:
    foreign = "\n".join(f"remark {number} by hand" for number in range(50))
    line = Line("e1", "s1", START, "user", None, "I prefer oolong tea.", None)
    draft = await ExtractiveSummariser(100, COUNTER).summarise(foreign, {}, [line])
    assert COUNTER.count(draft.memory) <= 100
    assert draft.memory.startswith("remark 0 by hand\nremark 1 by hand")


@pytest.mark.anyio
async def test_provenance_of_what_is_shown() -> None:
    async with Host() as host:
        await host.write(event(1, "I prefer oolong tea."), event(2, "The harbour crane in Busan is broken."))
        await host.ready()
        result = await host.ask()
        assert [entry.event_ids for entry in result.entries] == [("e1",), ("e2",)]
        assert all(entry.prose for entry in result.entries)
        cut = await host.ask(budget=ContextBudget(max_items=1))
        assert [entry.event_ids for entry in cut.entries] == [("e1",)]
    assert [source["event_id"] for source in result.raw["sources"]] == ["e1", "e2"]
    assert cut.raw["sources"] == [
        {
            "event_id": "e1",
            "session_id": "s1",
            "turn_id": "1",
            "agent_id": "agent",
            "timestamp": "2026-01-01T10:01:00+00:00",
        }
    ]


@pytest.mark.anyio
async def test_it_says_everywhere_that_it_is_no_llm() -> None:
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


@settings(max_examples=100, deadline=None)
@given(rounds=st.lists(STATEMENTS, min_size=1, max_size=4), max_tokens=st.integers(1, 400))
def test_any_text_makes_a_bounded_summary_that_reads_back(
    rounds: list[list[tuple[str, str, str | None]]], max_tokens: int
) -> None:
    summariser = ExtractiveSummariser(max_tokens, COUNTER)

    async def run() -> None:
        memory, sources = "", {}
        for number, said in enumerate(rounds):
            lines = [
                Line(f"e{number}.{index}", "s", START + timedelta(days=number), role, name, text, None)
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


@settings(max_examples=100, deadline=None)
@given(said=STATEMENTS, max_tokens=st.integers(1, 300), max_items=st.none() | st.integers(1, 3))
def test_what_is_retrieved_fits_the_budget_and_is_all_shown(
    said: Sequence[tuple[str, str, str | None]], max_tokens: int, max_items: int | None
) -> None:
    budget = ContextBudget(max_tokens=max_tokens, max_items=max_items)

    async def run() -> RetrieveResult:
        async with Host() as host:
            for number, (role, text, name) in enumerate(said):
                message = Message(role="user" if role == "user" else "assistant", content=text, name=name)
                await host.write(event(number, "x").with_messages([message]))
            await host.ready()
            return await host.ask(budget=budget)

    result = anyio.run(run)
    assert len(result.included) == len(result.entries) <= (max_items or 3)
    assert result.trace.token_count is not None
    assert result.trace.token_count <= max_tokens
    assert result.formatted_context.count("</memory-context>") <= 1


# -- files ----------------------------------------------------------------------------------------------


def only_directory(path: Path) -> Path:
    (directory,) = [item for item in path.iterdir() if any(item.iterdir())]
    return directory


@pytest.mark.anyio
async def test_everything_outlives_the_process(tmp_path: Path) -> None:
    async with Host(path=tmp_path) as host:
        await host.write(
            event(1, "I prefer oolong tea."), event(2, "Books about ships please.", session="s2")
        )
        before = await host.ask()
    directory = only_directory(tmp_path)
    assert "I prefer oolong tea." in (directory / "MEMORY.md").read_text(encoding="utf-8")
    assert "1 messages until" in (directory / "HISTORY.md").read_text(encoding="utf-8")
    async with Host(path=tmp_path) as host:
        after = await host.ask()
        assert (after.raw, after.entries) == (before.raw, before.entries)
        assert await host.native("pending") == ["[2026-01-01 10:02] USER: Books about ships please."]
        (again,) = await host.write(event(1, "I prefer coffee."))
        assert again.warnings
        assert (await host.ready()).state == "ready"
        assert "Books about ships" in (await host.ask()).formatted_context
        assert len(await host.native("history")) == 2
        assert (await host.slot.reset_scope(ALICE)).verified
    assert list_directory(tmp_path) == []


def list_directory(path: Path) -> list[str]:
    return sorted(item.name for item in path.iterdir())


@pytest.mark.anyio
async def test_reset_leaves_other_scopes_and_foreign_files(tmp_path: Path) -> None:
    async with Host(path=tmp_path) as host:
        await host.write(event(1, "I prefer tea."), event(2, "I prefer coffee.", scope=BOB))
        await host.ready(ALICE)
        await host.ready(BOB)
        mine = tmp_path / host.adapter.native_scope(ALICE)["directory"]
        (mine / "notes.txt").write_text("my own")
        assert (await host.slot.reset_scope(ALICE)).verified
        assert list_directory(mine) == ["notes.txt"]
        assert "I prefer coffee." in (await host.ask(BOB)).formatted_context
    async with Host(path=tmp_path) as host:
        assert (await host.ask()).formatted_context == ""
        assert "I prefer coffee." in (await host.ask(BOB)).formatted_context


@pytest.mark.anyio
async def test_the_memory_may_be_edited_by_hand(tmp_path: Path) -> None:
    async with Host(path=tmp_path) as host:
        await host.write(event(1, "I prefer oolong tea."))
        await host.ready()
    memory = only_directory(tmp_path) / "MEMORY.md"
    memory.write_text("She is called Alice.\n\n" + memory.read_text(encoding="utf-8"), encoding="utf-8")
    async with Host(path=tmp_path) as host:
        assert (await host.ask()).entries[0].text == "She is called Alice."
        await host.write(event(2, "Never call me before nine."))
        await host.ready()
        lines = (await host.ask()).raw["memory"].splitlines()
    assert lines[0] == "She is called Alice."
    assert len([line for line in lines if line.startswith("- ")]) == 2


@pytest.mark.anyio
async def test_failed_archives_are_remembered(tmp_path: Path) -> None:
    noting = Noting()
    noting.faults = 3
    async with Host(noting, path=tmp_path) as host:
        await host.write(event(1, "one\n\n\n\ntwo"))
        await host.ready()
    async with Host(Noting(), path=tmp_path) as host:
        state = await host.state()
        assert state.state == "failed"
        assert "BackendUnavailable, HTTP 503" in state.detail
        (entry,) = await host.native("history")
        assert "one\ntwo" in entry


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("state.json", b"{"),
        ("state.json", b"[]"),
        ("state.json", b'{"consolidated": 1}'),
        ("MEMORY.md", b"\xff"),
    ],
)
async def test_damaged_files_are_an_error(tmp_path: Path, name: str, content: bytes) -> None:
    async with Host(path=tmp_path) as host:
        await host.write(event(1, "I prefer oolong tea."))
        await host.ready()
    (only_directory(tmp_path) / name).write_bytes(content)
    with pytest.raises(BackendProtocolError, match=name):
        async with Host(path=tmp_path):
            pass


@pytest.mark.anyio
async def test_a_lost_event_log_is_an_error(tmp_path: Path) -> None:
    async with Host(path=tmp_path) as host:
        await host.write(event(1, "I prefer oolong tea."))
        await host.ready()
    (only_directory(tmp_path) / "events.jsonl").unlink()
    with pytest.raises(BackendProtocolError, match=r"events\.jsonl lacks"):
        async with Host(path=tmp_path):
            pass


@pytest.mark.anyio
async def test_a_crash_between_the_files_loses_nothing(tmp_path: Path) -> None:
    """state.json is written last: without it, the messages are simply summarised again."""
    async with Host(path=tmp_path) as host:
        await host.write(event(1, "I prefer oolong tea."))
        await host.ready()
        before = (await host.ask()).raw["memory"]
    (only_directory(tmp_path) / "state.json").unlink()
    async with Host(path=tmp_path) as host:
        assert (await host.state()).pending_count == 1
        await host.ready()
        assert (await host.ask()).raw["memory"] == before


# -- configuration --------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"summariser": "llm"}, "summariser llm needs the block llm with base_url and model"),
        ({"llm": {"base_url": "http://x/v1", "model": "m"}}, "llm is given but summariser is extractive"),
        ({"summariser": "llm", "llm": {"base_url": "x", "model": "m"}}, "rolling_summary.llm.base_url"),
        ({"summariser": "llm", "llm": {"base_url": "http://x", "model": " "}}, "rolling_summary.llm.model"),
        ({"max_tokens": 0}, "rolling_summary.max_tokens"),
        ({"context_window_tokens": 5120}, "rolling_summary.context_window_tokens"),
        ({"update_policy": "always"}, "rolling_summary.update_policy"),
    ],
)
async def test_wrong_options_name_the_field(options: dict[str, Any], message: str) -> None:
    config = {"memory": {"condition": "rolling_summary", "conditions": {"rolling_summary": options}}}
    with pytest.raises(ConfigError) as caught:
        async with open_memory(config, scope=ALICE):
            pass
    assert message in str(caught.value)


@pytest.mark.anyio
async def test_from_configuration() -> None:
    config = {"memory": {"condition": "rolling_summary", "conditions": {"rolling_summary": {}}}}
    async with open_memory(config, scope=ALICE) as slot:
        await slot.after_turn(session_id="s1", user="I prefer oolong tea.")
        await slot.after_turn(session_id="s2", user="Hello again.")
        assert "I prefer oolong tea." in await slot.before_turn("?", session_id="s2")
