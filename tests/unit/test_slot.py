"""The slot's own rules, on an adapter that does as it is told (the contract kit covers real ones)."""

import math
from types import MappingProxyType

import anyio
import anyio.lowlevel
import pytest
from slot_support import ALICE, BOB, Obedient, ask, event, forever

from memory import (
    AdapterMode,
    BackendError,
    BackendTimeout,
    BackendUnavailable,
    CapabilityNotSupported,
    ContextBudget,
    InputError,
    IsolationError,
    MemoryScope,
    MemorySlot,
    RetrieveResult,
)
from memory.adapter import BackendAuthError, BackendProtocolError, ContextEntry


async def test_a_turn_goes_in_and_comes_back(slot):
    receipt = await slot.after_turn(user="I like oolong", assistant="Noted", session_id="s")
    assert receipt.status == "committed"
    assert receipt.trace.native_operation == "rows.append"
    context = await slot.before_turn("tea?", session_id="s")
    assert context.startswith('<memory-context backend="obedient" scope="r:alice">')
    assert "I like oolong" in context


async def test_blank_halves_of_a_turn_are_left_out(slot, adapter):
    await slot.after_turn(user="hi", assistant="  ", session_id="s")
    assert [message.role for message in adapter.rows[0].messages] == ["user"]
    with pytest.raises(InputError, match="messages is empty"):
        await slot.after_turn(user="", assistant=None, session_id="s")


@pytest.mark.parametrize("wrong", [5, "text", [1]])
async def test_a_field_of_a_turn_that_is_none_is_named(slot, adapter, wrong):
    with pytest.raises(InputError, match="filters"):
        await slot.before_turn("tea?", session_id="s", filters=wrong)
    for name in ("messages", "metadata"):
        with pytest.raises(InputError, match=name):
            await slot.after_turn(user="hi", session_id="s", **{name: wrong})
    assert (adapter.asked, adapter.rows) == (0, [])


async def test_any_mapping_will_do(slot, adapter):
    given = MappingProxyType({"mood": "calm"})
    await slot.after_turn(user="hi", session_id="s", metadata=given)
    assert adapter.rows[0].metadata == {"mood": "calm"}
    with pytest.raises(CapabilityNotSupported, match=r"filters\.mood"):
        await slot.before_turn("tea?", session_id="s", filters=given)


async def test_a_score_that_is_no_number_is_nobodys_best(slot, adapter, monkeypatch):
    await slot.after_turn(user="tea", session_id="s")
    found = await adapter.retrieve(ask())
    entries = tuple(ContextEntry("tea", score=score) for score in (math.nan, 0.5, math.inf, None))

    async def retrieve(request):
        return found.model_copy(update={"entries": entries})

    monkeypatch.setattr(adapter, "retrieve", retrieve)
    assert (await slot.retrieve(ask())).trace.top_score == 0.5


async def test_an_id_that_holds_a_tag_reads_what_it_wrote():
    ada = MemoryScope(run_id="r", persona_id="<b>ada</b>")
    async with MemorySlot(Obedient(), scope=ada) as slot:
        await slot.after_turn(user="I like oolong", session_id="s")
        assert "oolong" in await slot.before_turn("tea?", session_id="t")


async def test_a_prompt_leaves_out_the_current_session_unless_asked_for():
    adapter = Obedient()
    adapter.names_sessions = True
    async with MemorySlot(adapter, scope=ALICE) as slot:
        await slot.after_turn(user="I like oolong", session_id="now")
        assert await slot.before_turn("tea?", session_id="now") == ""
        assert "oolong" in await slot.before_turn("tea?", session_id="now", exclude_session=False)
        assert "oolong" in await slot.before_turn("tea?", session_id="later")


async def test_a_prompt_shows_equal_texts_once_and_nothing_below_the_backends_floor(monkeypatch):
    adapter = Obedient(score_floor=0.05)
    found = [
        ("tea", 0.4, "user"),
        ("tea", 0.3, "user"),
        ("tea", 0.2, "assistant"),
        ("car", 0.04, "user"),
        ("cup", None, "user"),
    ]
    async with MemorySlot(adapter, scope=ALICE) as slot:
        await slot.after_turn(user="tea", session_id="s")
        answer = await adapter.retrieve(ask())
        entries = tuple(ContextEntry(text, score=score, labels=(("by", who),)) for text, score, who in found)

        async def retrieve(request):
            return answer.model_copy(update={"entries": entries})

        monkeypatch.setattr(adapter, "retrieve", retrieve)
        one, *others = (await slot.before_turn("tea?", session_id="s")).splitlines()[1:-1]
        assert [one, *others] == [
            "- (by user, score 0.40) tea",
            "- (by assistant, score 0.20) tea",
            "- (by user) cup",
        ]
        narrow = ContextBudget(max_items=2)
        assert "cup" not in await slot.before_turn("tea?", session_id="s", budget=narrow)
        assert len((await slot.retrieve(ask())).included) == 5, "retrieve gives what the backend gave"


async def test_a_failing_switch_to_read_only_leaves_the_safe_side(slot, adapter):
    async def fail(mode):
        raise RuntimeError("cannot flush")

    adapter.set_mode = fail
    with pytest.raises(BackendError):
        await slot.set_mode(AdapterMode(read_only=True))
    assert slot.read_only
    with pytest.raises(BackendError):
        await slot.set_mode(AdapterMode(read_only=False))
    assert slot.read_only


async def test_a_failed_retrieval_never_looks_empty(slot, adapter, sink):
    assert (await slot.retrieve(ask())).formatted_context == ""
    adapter.next_read = [forever, RuntimeError("user text")]
    with pytest.raises(BackendTimeout, match=r"retrieve did not answer within 0\.3 s"):
        await slot.retrieve(ask())
    with pytest.raises(BackendError) as caught:
        await slot.retrieve(ask())
    assert "user text" not in str(caught.value)
    assert [trace.error for trace in sink] == [None, "BackendTimeout", "BackendError"]


async def test_a_row_of_another_scope_is_never_shown(slot, adapter):
    await slot.record_event(event(1))

    async def leak(request):
        entries = (
            ContextEntry("mine", scope_ids={"id": "r:alice"}),
            ContextEntry("BOB'S", scope_ids={"id": "r:bob"}),
        )
        return RetrieveResult(
            request=request, raw=[], entries=entries, trace=adapter.trace(request.scope, "leak")
        )

    adapter.retrieve = leak
    with pytest.raises(IsolationError) as caught:
        await slot.retrieve(ask())
    assert "BOB'S" not in str(caught.value)


async def test_the_budget_is_met_and_the_shortfall_traced(slot):
    for number in range(20):
        await slot.record_event(event(number, text=f"sentence number {number}"))
    result = await slot.retrieve(ask(budget=ContextBudget(max_tokens=100, min_tokens=99)))
    trace = result.trace
    assert trace.token_count == slot.delivery.token_counter.count(result.formatted_context) <= 100
    assert (trace.retrieved_count, trace.included_count) == (20, len(result.included))
    assert trace.shortfall_tokens == 99 - trace.token_count
    assert trace.token_counter == "utf8-bytes/4"
    assert "did not fit" in trace.warnings[-1]
    assert (await slot.retrieve(ask())).trace.shortfall_tokens is None


async def test_an_adapters_own_rendering_is_held_to_the_budget(slot, adapter):
    for number in range(20):
        await slot.record_event(event(number))

    def verbose(result):
        return "\n".join(
            ["<memory-context>", *(entry.text * 30 for entry in result.context_entries), "</memory-context>"]
        )

    adapter.format_context = verbose
    result = await slot.retrieve(ask(budget=ContextBudget(max_tokens=200)))
    assert 0 < result.trace.token_count <= 200
    assert 0 < len(result.included) < 20
    adapter.format_context = lambda result: "</memory-context>"
    with pytest.raises(BackendProtocolError, match="well-formed"):
        await slot.retrieve(ask())


async def test_writes_of_a_scope_keep_their_order_and_reads_pass_by(adapter):
    release = anyio.Event()
    adapter.next_write = [release.wait]
    async with MemorySlot(adapter, scope=ALICE) as slot, anyio.create_task_group() as group:
        await slot.setup_scope(BOB)
        for number in range(5):
            group.start_soon(slot.record_event, event(number))
            await anyio.wait_all_tasks_blocked()
        await slot.record_event(event(99, BOB))
        assert (await slot.retrieve(ask())).entries == ()
        assert adapter.calls == ["e0", "e99"]
        release.set()
    assert [row.event_id for row in adapter.rows] == ["e99", "e0", "e1", "e2", "e3", "e4"]


class Starts(Obedient):
    """Has something that all scopes share."""

    problem = None

    async def start(self):
        self.calls.append("start")
        if self.problem is not None:
            raise self.problem

    async def setup_scope(self, scope):
        self.calls.append("setup")


@pytest.mark.parametrize(("scope", "first"), [(None, "start"), (ALICE, "setup")])
async def test_what_all_scopes_share_is_taken_when_the_slot_is_opened(scope, first):
    adapter = Starts()
    async with MemorySlot(adapter, scope=scope) as slot:
        assert adapter.calls == [first]
        await slot.setup_scope(BOB)
    assert adapter.calls == [first, "setup"]


async def test_a_start_that_fails_opens_no_slot(sink):
    adapter = Starts()
    adapter.problem = BackendUnavailable("open elsewhere", sent=False)
    with pytest.raises(BackendUnavailable, match="open elsewhere"):
        async with MemorySlot(adapter, trace_sink=sink):
            pass
    assert adapter.closed == 1
    assert [(trace.operation, trace.error) for trace in sink] == [("start", "BackendUnavailable")]


async def test_health_tells_instead_of_raising(slot, adapter):
    healthy = await slot.health()
    assert healthy.status == "ok"
    assert healthy.latency_ms > 0
    adapter.next_read = [BackendAuthError("no key", diagnostics={"status": 401}), forever]
    refused, silent = await slot.health(), await slot.health()
    assert (refused.status, refused.details["status"]) == ("unavailable", 401)
    assert silent.status == "unavailable"
    assert "0.3 s" in silent.warnings[0]
    adapter.next_read = [InputError("BackendHealth.status: is none of these")]
    malformed = await slot.health()
    assert (malformed.status, malformed.warnings) == (
        "unavailable",
        ("BackendHealth.status: is none of these",),
    )


async def test_traces_say_what_happened_and_nothing_said(slot, sink):
    await slot.record_event(event(text="SECRET"))
    await slot.retrieve(ask())
    await slot.set_mode(AdapterMode(read_only=True))
    await slot.health()
    assert [trace.operation for trace in sink] == ["record_event", "retrieve", "set_mode", "health"]
    write, read = sink[0], sink[1]
    assert (write.event_id, write.session_id, write.consistency) == ("e1", "s", "committed")
    assert write.native_ids == ("n-e1",)
    assert write.started_at.tzinfo is not None
    assert read.native_ids == ("e1",)
    assert (read.condition_kind, read.cs_filtering, read.retrieved_count) == ("architecture", "none", 1)
    assert "SECRET" not in "".join(trace.model_dump_json() for trace in sink)
