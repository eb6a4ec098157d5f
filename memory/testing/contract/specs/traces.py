"""Every call leaves a trace that is complete, honest and free of user text (spec 2.1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from memory import Trace
from memory.testing.contract._kit import Kit, unique_word
from memory.testing.contract._spec import promise

_TRACE = "give every answer trace=self.trace(scope, 'name of the native call'); the slot fills in the rest"


@promise(_TRACE)
async def every_call_is_traced(kit: Kit) -> None:
    """DESIGN 5.7: every call of the contract leaves a trace with scope, operation, time and duration."""
    began = datetime.now(UTC) - timedelta(minutes=5)  # setup_scope ran earlier and may be slow
    await kit.remember("blue")
    await kit.ask("blue")
    await kit.slot.health()
    await kit.read_only()
    await kit.read_only(False)
    await kit.slot.reset_scope(kit.scope)
    for operation in ("setup_scope", "record_event", "retrieve", "health", "set_mode", "reset_scope"):
        trace, of = kit.traces.last(operation), f"the trace of {operation}"
        assert trace.backend_name == kit.slot.backend_name, f"{of} names another backend"
        assert trace.native_operation, f"{of} does not name the native call"
        assert trace.condition_kind == kit.slot.traits.kind, f"{of} names another kind"
        assert trace.cs_filtering == kit.slot.traits.cs_filtering, f"{of} declares another CS filtering"
        assert trace.started_at is not None, f"{of} has no start"
        ended = datetime.now(UTC) + timedelta(seconds=1)
        assert began < trace.started_at < ended, f"{of} started at {trace.started_at}"
        assert trace.latency_ms is not None, f"{of} has no latency"
        assert trace.latency_ms >= 0, f"{of} took less than no time"
        assert trace.attempts >= 1, f"{of} counts no attempt"
        assert trace.error is None, f"{of} has an error"
        assert trace.read_only is not None, f"{of} does not say the mode"


@promise(_TRACE)
async def the_trace_of_a_write_names_its_event(kit: Kit) -> None:
    """Spec 2.1: the trace names the write's scope, session, event, native ids and consistency."""
    receipt = await kit.remember("blue")
    trace = kit.traces.last("record_event")
    assert receipt.trace == trace, "the receipt has another trace"
    assert (trace.scope, trace.session_id) == (kit.scope, "session-1"), "another scope or session is traced"
    assert trace.event_id == receipt.event_id, "the trace does not name the event"
    assert trace.native_ids == receipt.native_ids, "receipt and trace name different records"
    assert trace.consistency == receipt.status, "receipt and trace tell different statuses"


@promise(_TRACE)
async def the_trace_of_a_retrieval_counts(kit: Kit) -> None:
    """Spec 2.1: tokens, entries, scores and times are the result's. An unknown value is None."""
    await kit.remember("blue")
    result = await kit.ask("blue")
    trace = kit.traces.last("retrieve")
    assert result.trace == trace, "the result has another trace"
    assert (trace.scope, trace.session_id) == (kit.scope, "session-2"), "another scope or session is traced"
    assert trace.retrieved_count == len(result.entries), "the trace counts other entries than came back"
    assert trace.included_count == len(result.included), "the trace counts other entries than are included"
    assert trace.token_counter == kit.slot.delivery.token_counter.name, (
        "the trace names another token counter"
    )
    expected = (
        kit.slot.delivery.token_counter.count(result.formatted_context) if result.formatted_context else 0
    )
    assert trace.token_count == expected, "the trace counts other tokens than the section has"
    scored = any(entry.score is not None for entry in result.entries)
    assert scored or trace.top_score is None, "the trace has a score that no entry has"


@promise("trace ids, counts and the name of the native call, never texts")
async def traces_hold_no_user_text(kit: Kit) -> None:
    """DESIGN 4: traces may be logged and published, so they hold no user text."""
    await kit.remember("blue", metadata={"note": unique_word("note")})
    await kit.ask("blue")
    await kit.slot.before_turn(kit.fact("asked"), session_id="s")
    written = [trace.model_dump_json() for trace in kit.traces.all]
    for word in (unique_word("blue"), unique_word("note"), unique_word("asked"), "passport"):
        assert word not in "".join(written), f"{word!r} stands in a trace"
    again = [Trace.model_validate_json(text) for text in written]
    assert again == kit.traces.all, "a trace does not survive JSON"
