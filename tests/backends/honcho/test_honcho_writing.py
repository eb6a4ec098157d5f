"""Writes: who says what in which session, limits met without loss, nothing stored twice."""

import pytest
from both_loops import anyio_backend as anyio_backend
from honcho_support import ADA, BOB, FACT, adapter_of, config, event, sent, slot_on, stored

from memory import (
    AdapterMode,
    BackendError,
    BackendTimeout,
    InputError,
    MemoryScope,
    Message,
    SupportsBulkIngest,
    SupportsReadiness,
)
from memory.adapter import BackendRejected
from memory.plugins.opening import build_slot


async def test_the_first_write_makes_what_it_needs_and_later_ones_just_write(double):
    async with slot_on(double) as slot:
        before = len(double.requests)
        await slot.record_event(event(1, FACT, Message(role="assistant", content="Noted.")))
        made = sent(double, before)
        assert [call for call in made if not call.endswith(("/list", "/status"))] == [
            "POST", "POST peers", "POST peers", "POST sessions", "POST sessions/s1/messages",
        ]  # fmt: skip
        before = len(double.requests)
        await slot.record_event(event(2))
        assert sent(double, before) == ["POST sessions/s1/messages"]


async def test_user_assistant_and_others_are_three_peers(double):
    said = [
        Message(role="system", content="Be brief."),
        Message(role="user", content=FACT, name="Ada"),
        Message(
            role="assistant",
            content=" ",
            tool_calls=({"id": "c", "function": {"name": "f", "arguments": "{}"}},),
        ),
        Message(role="tool", content="nothing", tool_call_id="c"),
        Message(role="assistant", content="Noted."),
    ]
    async with slot_on(double) as slot:
        receipt = await slot.record_event(event(1, *said, context="work", metadata={"mood": "fine"}))
    rows = stored(double)
    assert [row["peer_id"] for row in rows] == ["system", "ada", "assistant", "system", "assistant"]
    assert receipt.status == "queued"
    assert receipt.native_ids == tuple(row["id"] for row in rows)
    assert rows[1]["metadata"] == {
        "event_id": "e1", "session_id": "s1", "turn_id": "t1", "agent_id": "agent", "context": "work",
        "metadata.mood": "fine", "message": 1, "role": "user", "name": "Ada",
    }  # fmt: skip
    assert rows[2]["metadata"]["tool_calls"] == '[{"id": "c", "function": {"name": "f", "arguments": "{}"}}]'
    assert rows[3]["metadata"]["tool_call_id"] == "c"
    assert {row["created_at"] for row in rows} == {"2024-05-01T12:01:00Z"}
    peers = double.model.workspaces["r_xada"].peers
    observed = {name: peer["configuration"].get("observe_me", True) for name, peer in peers.items()}
    assert observed == {"ada": True, "assistant": False, "system": False}
    assert peers["ada"]["metadata"] == {"run_id": "r", "persona_id": "ada"}


@pytest.mark.parametrize("persona", ["assistant", "system", "bot"])
async def test_a_persona_named_like_another_peer_is_still_itself(double, persona):
    scope = MemoryScope(run_id="r", persona_id=persona)
    async with slot_on(double, scope, assistant_peer="bot") as slot:
        said = (FACT, Message(role="assistant", content="Noted."), Message(role="tool", content="x"))
        await slot.record_event(event(1, *said, scope=scope))
        authors = [row["peer_id"] for row in stored(double, slot.native_scope(scope)["workspace_id"])]
        assert len(set(authors)) == 3
        assert authors[0] == slot.native_scope(scope)["peer_id"]


async def test_the_assistant_is_observed_only_on_request(double):
    said = Message(role="assistant", content="I recommend that I speak slowly.")
    async with slot_on(double, observe_assistant=True) as slot:
        await slot.record_event(event(1, FACT, said))
        await _wait_until_ready(slot)
    about = {conclusion.peer_id for conclusion in double.model.workspaces["r_xada"].conclusions}
    assert about == {"ada", "assistant"}


async def test_sessions_of_odd_names_do_not_meet(double):
    names = ["s 1", "s_1", "S 1", "s:1", "s/1", "é", "e\u0301", "list", "x" * 512]
    async with slot_on(double) as slot:
        for number, name in enumerate(names):
            await slot.record_event(event(number, f"I am in session {number}.", session_id=name))
    sessions = double.model.workspaces["r_xada"].sessions
    assert [session.metadata["session_id"] for session in sessions.values()] == names
    assert all(len(session.messages) == 1 for session in sessions.values())


async def test_long_and_special_texts_are_stored_in_parts_that_give_the_text_again(double):
    texts = [
        "w " * 30_000 + "end",
        "I say <|endoftext|> and <|fim_prefix|>.",
        "x" * 25_000 + " \n ",
        "a\x00b c",
    ]
    async with slot_on(double) as slot:
        for number, text in enumerate(texts):
            receipt = await slot.record_event(event(number, text))
            rows = [row for row in stored(double) if row["metadata"]["event_id"] == f"e{number}"]
            assert receipt.native_ids == tuple(row["id"] for row in rows)
            assert "".join(row["content"] for row in rows) == text.replace("\x00", "")
            parts = [row["metadata"].get("part") for row in rows]
            expected = [f"{index + 1}/{len(rows)}" for index in range(len(rows))] if len(rows) > 1 else [None]
            assert parts == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"metadata": {f"k{number}": 1 for number in range(91)}}, "too many keys"),
        ({"metadata": {"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}}, "nested too deeply"),
        ({"messages": (Message(role="user", content="a" + " " * 60_000 + "b"),)}, "blanks in a row"),
    ],
)
async def test_what_honcho_cannot_keep_is_an_input_error_before_anything_is_sent(double, fields, message):
    async with slot_on(double) as slot:
        before = len(double.requests)
        with pytest.raises(InputError, match=message):
            await slot.record_event(event(1, **fields))
        assert len(double.requests) == before


async def test_as_many_keys_and_levels_as_honcho_keeps_are_kept(double):
    metadata = {f"k{number}": number for number in range(89)} | {"deep": {"b": {"c": {"d": [{"e": 1}]}}}}
    async with slot_on(double) as slot:
        await slot.record_event(event(1, metadata=metadata))
    assert stored(double)[0]["metadata"]["metadata.deep"] == {"b": {"c": {"d": [{"e": 1}]}}}


@pytest.mark.parametrize("fault", ["lost", "truncated", "unreadable"])
async def test_a_write_whose_answer_was_lost_is_found_and_not_sent_again(double, fault):
    async with slot_on(double) as slot:
        await slot.record_event(event(0))
        double.faults.add(fault, endpoint="POST */messages")
        receipt = await slot.record_event(event(1, "I like tea.", "I like rain."))
    assert double.faults.fired
    rows = [row for row in stored(double) if row["metadata"]["event_id"] == "e1"]
    assert [row["content"] for row in rows] == ["I like tea.", "I like rain."]
    assert receipt.native_ids == tuple(row["id"] for row in rows)
    assert receipt.status == "queued", "stored; what Honcho concludes from it is still to come"


async def test_an_event_id_with_nul_is_found_again(double):
    """Honcho strips it from what it stores, and answers 500 to a filter that holds it."""
    async with slot_on(double) as slot:
        await slot.record_event(event(0))
        double.faults.add("lost", endpoint="POST */messages")
        receipt = await slot.record_event(event(1, event_id="e\x001"))
        assert receipt.status == "queued"
        assert receipt.native_ids
    assert [row["metadata"]["event_id"] for row in stored(double)] == ["e0", "e1"]


@pytest.mark.parametrize("fault", ["lost", "reset"])
async def test_an_event_stored_in_part_is_completed(double, fault):
    said = [f"I like number {number}." for number in range(250)]
    async with slot_on(double) as slot:
        await slot.record_event(event(0))
        double.faults.add("late", endpoint="POST */messages", delay_s=0)
        double.faults.add(fault, endpoint="POST */messages")
        receipt = await slot.record_event(event(1, *said))
        assert await adapter_of(slot).find_event(event(1, *said)) == receipt.native_ids
        assert await adapter_of(slot).find_event(event(1, *said, "One more.")) is None
        assert await adapter_of(slot).find_event(event(7)) is None
    rows = [row for row in stored(double) if row["metadata"]["event_id"] == "e1"]
    assert [row["content"] for row in rows] == said
    assert receipt.native_ids == tuple(row["id"] for row in rows)


async def test_a_session_that_another_client_deleted_is_made_again(double):
    async with slot_on(double) as slot:
        await slot.record_event(event(1))
        workspace = double.model.workspaces["r_xada"]
        double.model.advance(to_the_end=True)  # a session that the worker is at is never deleted
        double.model.delete_s = 1e9  # however slow this machine is, not before the write
        double.model.delete_session(workspace, workspace.sessions["s1"])
        with pytest.raises(BackendRejected):
            await slot.record_event(event(2))
        double.model.advance(to_the_end=True)
        workspace.ghosts.clear()  # as after five minutes
        await slot.record_event(event(3))
    assert workspace.sessions["s1"].metadata == {"session_id": "s1"}


async def test_a_session_that_haunts_the_cache_is_one_clear_error(double, monkeypatch):
    async with slot_on(double) as slot:
        workspace = double.model.workspace("r_xada")
        workspace.ghosts["s1"] = float("inf")
        with pytest.raises(BackendRejected, match="use another session_id"):
            await slot.record_event(event(1))
        workspace.ghosts.clear()
        assert (await slot.record_event(event(1))).status == "queued"


def _bulk(slot):
    return slot.capability(SupportsBulkIngest)


async def test_bulk_sends_a_hundred_messages_a_call_session_by_session_in_order(double):
    events = [event(number, f"I am {number}.", "Yes.", session_id=f"s{number % 2}") for number in range(130)]
    async with slot_on(double) as slot:
        receipts = await _bulk(slot).record_events(events)
    calls = [call for call in sent(double) if call.endswith("/messages")]
    assert calls == ["POST sessions/s0/messages"] * 2 + ["POST sessions/s1/messages"] * 2
    sizes = [
        len(request.json["messages"]) for request in double.requests if request.path.endswith("/messages")
    ]
    assert sizes == [100, 30, 100, 30]
    for name in ("s0", "s1"):
        rows = double.model.workspaces["r_xada"].sessions[name].messages
        assert [row["metadata"]["event_id"] for row in rows[::2]] == [
            event.event_id for event in events if event.session_id == name
        ]
    by_event = {}
    for row in stored(double):
        by_event.setdefault(row["metadata"]["event_id"], []).append(row["id"])
    assert [receipt.native_ids for receipt in receipts] == [
        tuple(by_event[event.event_id]) for event in events
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["lost", "reset", "422"])
async def test_a_bulk_that_failed_says_what_is_stored_and_goes_on_where_it_ended(double, fault):
    events = [event(number, f"I am {number}.") for number in range(230)]
    async with slot_on(double) as slot:
        await slot.record_event(event(999))
        double.faults.add("late", endpoint="POST */messages", delay_s=0)
        double.faults.add(fault, endpoint="POST */messages")
        with pytest.raises(BackendError) as raised:
            await _bulk(slot).record_events(events)
        done = [receipt.event_id for receipt in raised.value.receipts]
        assert done == [event.event_id for event in events[: 200 if fault == "lost" else 100]], (
            "looked up if lost"
        )
        left = events[len(done) :]
        receipts = await _bulk(slot).record_events(left)
        assert [receipt.event_id for receipt in receipts] == [event.event_id for event in left]
        assert all(len(receipt.native_ids) == 1 for receipt in receipts)
    ids = [row["metadata"]["event_id"] for row in stored(double)]
    assert ids == ["e999", *(event.event_id for event in events)]


async def test_scopes_are_workspaces(double):
    other = MemoryScope(run_id="r", persona_id="ada", backend_namespace="n", agent_id="a")
    async with slot_on(double, BOB, other) as slot:
        assert slot.native_scope(ADA) == {"workspace_id": "r_xada", "peer_id": "ada"}
        assert slot.native_scope(other) == {"workspace_id": "r_xada_xn_xa", "peer_id": "ada"}
        assert double.model.workspaces == {}
        await slot.record_event(event(1, scope=BOB))
        await slot.set_mode(AdapterMode(read_only=True))
    assert list(double.model.workspaces) == ["r_xbob"]


async def _wait_until_ready(slot):
    readiness = slot.capability(SupportsReadiness)
    answer = await readiness.wait_until_ready(ADA, 60.0)
    assert answer.state != "pending", answer


async def test_a_write_behind_one_that_got_no_answer_says_what_it_waited_for(double):
    """As after a connection that is half open: the first write is given up, and goes on."""
    settings = config(double)
    settings["memory"]["deadlines"] = {"write_s": 0.4, "query_s": 0.2}
    async with build_slot(settings, scope=ADA) as slot:
        await slot.record_event(event(1))
        double.faults.add("late", endpoint="POST */messages", delay_s=3.0)
        first = await slot.record_event(event(2))
        assert first.status == "unknown"
        with pytest.raises(
            BackendTimeout, match="for an earlier write that got no answer and goes on"
        ) as raised:
            await slot.record_event(event(3))
        assert not raised.value.ambiguous
