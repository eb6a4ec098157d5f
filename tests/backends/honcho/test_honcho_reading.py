"""Retrieval: the configured calls and no other, nothing made by looking, prose as prose, budgets passed on."""

import pytest
from both_loops import anyio_backend as anyio_backend
from honcho_support import ADA, FACT, adapter_of, ask, config, event, sent, slot_on

from memory import (
    AdapterMode,
    BackendUnavailable,
    CapabilityNotSupported,
    ContextBudget,
    InputError,
    Message,
    NativeQueryRequest,
    ProvenanceRequest,
    SupportsNativeQuery,
    SupportsProvenance,
    SupportsReadiness,
)
from memory.adapter import BackendRejected
from memory.backends.honcho.adapter import QUERIES
from memory.plugins.opening import build_slot

MODES = {
    "context": {},
    "context and prose": {"supplement": "representation"},
    "search": {"retrieval": "search"},
    "search and prose": {"retrieval": "search", "supplement": "representation"},
}


async def _settle(slot):
    readiness = slot.capability(SupportsReadiness)
    assert (await readiness.wait_until_ready(ADA, 60.0)).state != "pending"


async def _query(slot, operation, **arguments):
    query = slot.capability(SupportsNativeQuery)
    assert query is not None
    request = NativeQueryRequest(scope=ADA, operation=operation, arguments=arguments)
    return (await query.native_query(request)).raw


@pytest.mark.parametrize("mode", MODES)
async def test_a_fresh_read_only_slot_makes_nothing(double, mode):
    async with build_slot(config(double, **MODES[mode])) as slot:
        await slot.set_mode(AdapterMode(read_only=True))
        await slot.setup_scope(ADA)
        assert (await ask(slot)).entries == ()
        await slot.after_turn(session_id="s", user=FACT, scope=ADA)
        await slot.health()
        readiness, provenance = slot.capability(SupportsReadiness), slot.capability(SupportsProvenance)
        assert provenance is not None
        assert (await readiness.wait_until_ready(ADA, 60.0)).state != "pending"
        await provenance.provenance(ProvenanceRequest(scope=ADA))
        for operation in QUERIES:
            arguments = {"chat": {"query": "Who?"}}
            if operation not in ("card", "chat"):
                await _query(slot, operation, **arguments.get(operation, {}))
                continue
            with pytest.raises(BackendRejected) as raised:
                await _query(slot, operation, **arguments.get(operation, {}))
            assert raised.value.diagnostics["status"] == 404
    assert double.model.workspaces == {}
    assert {"POST ", "POST peers", "POST sessions"}.isdisjoint(sent(double))


async def test_an_address_that_is_not_honchos_never_looks_empty(double):
    async with slot_on(double) as slot:
        double.faults.add("404", times=None)
        with pytest.raises(BackendRejected):
            await ask(slot)
        double.faults.clear()
        assert (await ask(slot)).entries == ()


async def test_models_down_behind_the_server_never_look_empty(double):
    for mode, fails in (("context", False), ("search", True)):
        async with slot_on(double, **MODES[mode]) as slot:
            double.model.failing = False
            await slot.record_event(event(1))
            double.model.failing = True
            if fails:
                for _ in range(2):
                    with pytest.raises(BackendUnavailable) as raised:
                        await ask(slot)
                    assert raised.value.diagnostics["status"] == 500
            else:
                assert FACT in (await ask(slot, session_id="s1")).formatted_context


async def test_one_call_with_the_budget_in_it(double):
    async with slot_on(double) as slot:
        await slot.record_event(event(1))
        before = len(double.requests)
        await ask(slot, context="work", budget=ContextBudget(max_tokens=900, max_items=7))
        (request,) = double.requests[before:]
    assert (request.method, request.path) == ("GET", "/v3/workspaces/r_xada/sessions/s2/context")
    assert request.params == {
        "summary": "true", "limit_to_session": "false", "tokens": "900", "peer_target": "ada",
        "search_query": "Where is my passport?\nwork", "search_top_k": "7", "max_conclusions": "7",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("budget", "block", "tokens", "items"),
    [
        (ContextBudget(), {}, "8000", "25"),
        (ContextBudget(), {"context_tokens": 300, "top_k": 4}, "300", "4"),
        (ContextBudget(max_tokens=500_000, max_items=5000), {}, "100000", "100"),
    ],
)
async def test_budgets_stay_within_what_honcho_takes(double, budget, block, tokens, items):
    async with slot_on(double, **block) as slot:
        await ask(slot, budget=budget)
    (asked,) = (request.params for request in double.requests if request.path.endswith("/context"))
    assert (asked["tokens"], asked["max_conclusions"]) == (tokens, items)


@pytest.mark.parametrize("mode", MODES)
async def test_each_mode_makes_its_own_calls(double, mode):
    calls = {
        "context": ["GET sessions/s2/context"],
        "search": ["POST search"],
        "prose": ["GET peers/ada/context"],
    }
    async with slot_on(double, **MODES[mode]) as slot:
        await slot.record_event(event(1))
        await _settle(slot)
        before = len(double.requests)
        result = await ask(slot)
        assert sorted(sent(double, before)) == sorted(
            call for word, made in calls.items() if word in mode for call in made
        )
        assert "blue drawer" in result.formatted_context
        texts = [entry.text for entry in result.entries]
        assert len(set(texts)) == len(texts), "the same must not be asked for twice"


async def test_a_long_or_special_question_is_shortened_and_made_harmless(double):
    async with slot_on(double, retrieval="search") as slot:
        await slot.record_event(event(1))
        result = await ask(slot, "Is it <|endoftext|> or <|fim_prefix|>\x00?" + " word" * 9000)
        asked = double.requests[-1].json["query"]
        assert asked.startswith("Is it <| endoftext|> or <| fim_prefix|>? word")
        assert len(asked) == 2000
        assert "shortened" in result.trace.warnings[0]
        assert (await ask(slot)).trace.warnings == ()


async def test_a_context_is_prose_card_summary_and_messages_in_that_order(double):
    async with slot_on(double) as slot:
        for number in range(11):
            await slot.record_event(
                event(number, f"I own {number} boats.", Message(role="assistant", content="Aye."))
            )
        await _settle(slot)
        double.model.workspaces["r_xada"].cards["ada"] = ["Name: Ada", "- (2020-01-01 00:00, #forged) Root"]
        result = await ask(slot, session_id="s1")
        groups = list(dict.fromkeys(entry.group for entry in result.entries))
        assert groups == ["Explicit Observations", "Peer card", "Summary", "Messages"]
        section = result.formatted_context
        assert "[Explicit Observations]\n[2024-05-01 12:1" in section
        assert "\n[Peer card]\nName: Ada\n· (2020-01-01 00:00, #forged) Root\n" in section
        assert "\n[Summary]\n- (summary short, until msg" in section
        prose = [entry for entry in result.entries if entry.prose]
        assert {(entry.native_id, entry.score, entry.timestamp) for entry in prose} == {("ada", None, None)}
        (*_, last) = result.entries
        rows = double.model.workspaces["r_xada"].sessions["s1"].messages
        assert (last.native_id, last.text, last.event_ids) == (rows[-1]["id"], "Aye.", ("e10",))
        assert last.labels == (("role", "assistant"),)
        assert str(last.timestamp) == "2024-05-01 12:10:00+00:00"
        assert result.raw["context"]["messages"][-1]["metadata"]["event_id"] == "e10"
        assert result.trace.native_ids[0] == "ada"
        assert len(set(result.trace.native_ids)) == len(result.trace.native_ids)


@pytest.mark.parametrize("mode", [mode for mode in MODES if "supplement" in MODES[mode]])
async def test_a_supplement_and_what_it_is_added_to_share_one_budget(double, mode):
    async with slot_on(double, **MODES[mode]) as slot:
        await slot.record_event(event(1, *(f"I own {number} old wooden boats." for number in range(20))))
        await _settle(slot)
        for budget in (ContextBudget(max_tokens=120), ContextBudget(max_items=3)):
            before = len(double.requests)
            result = await ask(slot, budget=budget)
            assert len(sent(double, before)) == 2
            section = result.formatted_context
            assert "boats" in section
            assert result.included
            if budget.max_items is not None:
                assert len(result.included) <= budget.max_items
            else:
                assert len(section.encode()) / 4 <= 120
                assert len(result.entries) > len(result.included)


async def test_the_trace_says_whether_all_that_was_written_is_in(double):
    async with slot_on(double) as slot:
        assert (await ask(slot)).trace.consistency == "pending"
        await slot.record_event(event(1))
        trace = (await ask(slot)).trace
        assert (trace.consistency, trace.last_derived_at) == ("pending", None)
        await _settle(slot)
        trace = (await ask(slot)).trace
        assert trace.consistency == "committed"
        assert trace.last_derived_at is not None
        (derived,) = double.model.workspaces["r_xada"].conclusions
        assert trace.last_derived_at.isoformat().replace("+00:00", "Z") == derived.created_at


async def test_filters_hold_in_a_search_and_are_refused_elsewhere(double):
    async with slot_on(double, retrieval="search") as slot:
        for number, region in enumerate(["north", "south", "*", "in"]):
            await slot.record_event(
                event(number, f"I am in {region}.", metadata={"region": region, "on": number < 1})
            )
        await slot.record_event(event(9, "I am nowhere.", context="*"))

        async def found(**filters):
            return {entry.event_ids[0] for entry in (await ask(slot, "Where am I?", **filters)).entries}

        assert await found(filters={"region": "north"}) == {"e0"}
        assert await found(filters={"region": {"ne": "north"}}) == {"e1", "e2", "e3", "e9"}
        assert await found(filters={"region": {"in": ["north", "in"]}}) == {"e0", "e3"}
        assert await found(filters={"region": {"nin": ["north", "in"]}}) == {"e1", "e2", "e9"}
        assert await found(filters={"region": {"icontains": "OUT"}}) == {"e1"}
        assert await found(filters={"on": True}) == {"e0"}
        assert await found(filters={"on": {"in": [True]}}) == {"e0"}
        assert await found(context="*") == {"e9"}, "a star is no wildcard here"
        assert await found(context="home") == set()
        assert await found() == {"e0", "e1", "e2", "e3", "e9"}
    for mode in ("context", "search and prose"):
        async with slot_on(double, **MODES[mode]) as slot:
            assert slot.traits.cs_filtering == "soft"
            with pytest.raises(CapabilityNotSupported):
                await ask(slot, filters={"region": "north"})


async def test_provenance_of_messages_conclusions_and_the_user(double):
    async with slot_on(double) as slot:
        receipt = await slot.record_event(event(1, FACT, Message(role="assistant", content="Noted.")))
        await slot.record_event(event(2, "I like tea.", session_id="other"))
        await _settle(slot)
        provenance = slot.capability(SupportsProvenance)
        assert provenance is not None

        async def of(**fields):
            return await provenance.provenance(ProvenanceRequest(scope=ADA, **fields))

        message = await of(native_id=receipt.native_ids[1])
        assert message.raw["message"]["content"] == "Noted."
        assert message.event_ids == ("e1",)
        tea, passport = double.model.workspaces["r_xada"].conclusions[::-1]
        conclusion = await of(native_id=passport.id)
        assert conclusion.native_ids == (passport.id,)
        assert [row["content"] for row in conclusion.raw["said_in_that_session"]] == [FACT]
        assert conclusion.event_ids == (), "Honcho does not say from which message"
        user = await of(native_id="ada")
        assert set(user.native_ids) == {tea.id, passport.id}
        said = {row["content"] for rows in user.raw["said_in_those_sessions"] for row in rows}
        assert said == {FACT, "I like tea."}
        assert set((await of(since="2020-01-01T00:00:00Z")).native_ids) == {tea.id, passport.id}
        assert (await of(until="2020-01-01T00:00:00Z")).native_ids == ()


async def test_native_queries_are_the_sdks_calls(double):
    async with slot_on(double) as slot:
        await slot.record_event(event(1))
        await _settle(slot)
        assert (await _query(slot, "conclusions"))["items"][0]["content"] == f"ada stated: {FACT}"
        assert FACT in await _query(slot, "representation", search_query="passport")
        assert FACT in await _query(slot, "representation", session_id="s1")
        assert await _query(slot, "representation", session_id="other") == ""
        assert (await _query(slot, "queue_status"))["completed_work_units"] == 1
        assert await _query(slot, "card") is None
        assert (
            FACT in (await _query(slot, "chat", query="Where is the passport?", session_id="s1"))["content"]
        )
        assert double.requests[-1].json["session_id"] == "s1"
        with pytest.raises(CapabilityNotSupported, match="card, chat"):
            await _query(slot, "sql")
        with pytest.raises(InputError, match=r"arguments\.limit"):
            await _query(slot, "conclusions", limit=3)
        with pytest.raises(InputError, match=r"arguments\.query"):
            await _query(slot, "chat", query=" ")


async def test_the_chat_stays_out_of_the_agent_loop(double):
    for block in MODES.values():
        async with slot_on(double, **block) as slot:
            await slot.record_event(event(1))
            await slot.before_turn("Where is my passport?", session_id="s2")
    assert not any("chat" in call for call in sent(double))


async def test_health_says_what_it_knows(double):
    async with slot_on(double) as slot:
        health = await slot.health()
        assert health.status == "ok"
        assert health.versions["honcho"] == "3.0.12"
        assert health.versions["honcho-ai"].startswith("2.")
        assert "worker" in health.warnings[0]
        double.faults.add("404", endpoint="GET /openapi.json")
        assert "honcho" not in (await slot.health()).versions
        double.faults.add("401", endpoint="POST */workspaces/list")
        double.faults.add("401", endpoint="GET */queue/status")
        assert (await slot.health()).status == "unavailable"


@pytest.mark.thorough
async def test_the_adapter_keeps_no_connection_per_scope(double):
    async with slot_on(double) as slot:
        for number in range(20):
            scope = ADA.model_copy(update={"persona_id": f"p{number}"})
            await slot.setup_scope(scope)
            await slot.record_event(event(number, scope=scope))
        assert adapter_of(slot)
    assert double.connections == 1
