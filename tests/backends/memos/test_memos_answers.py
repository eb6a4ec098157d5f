"""What MemOS answers, understood: groups and exact types apart, times of the event, shapes that are none."""

from datetime import UTC, datetime

import pytest

from memory.adapter import BackendProtocolError
from memory.backends.memos.answers import (
    added,
    count_busy,
    data_of,
    event_ids,
    feedback_ids,
    to_entries,
    unextracted,
)
from memory.contract.formatting import render_section


def envelope(data, code=200):
    return {"code": code, "message": "done", "data": data}


def memory(native_id="m1", text="Likes tea.", **metadata):
    return {
        "id": native_id,
        "memory": text,
        "metadata": {"created_at": "2026-01-01T00:00:00+00:00", **metadata},
    }


def bucket(*memories, cube="run1.alice"):
    return [{"cube_id": cube, "memories": list(memories), "total_nodes": len(memories)}]


def test_groups_and_native_types_stay_apart():
    data = {
        "text_mem": bucket(
            memory("m1", memory_type="LongTermMemory"),
            memory("m2", memory_type="UserMemory"),
            memory("m3", memory_type="LongTermMemory"),
        ),
        "act_mem": bucket(memory("m4")),
        "para_mem": [],
        "pref_mem": bucket(memory("m5", memory_type="PreferenceMemory")),
        "tool_mem": bucket(
            memory("m6", memory_type="ToolSchemaMemory"), memory("m7", memory_type="ToolTrajectoryMemory")
        ),
        "skill_mem": bucket(memory("m8", memory_type="SkillMemory")),
        "pref_note": "Follow the preferences.",
    }
    entries = to_entries(data)
    assert [(entry.native_id, entry.group) for entry in entries] == [
        ("m1", "text_mem LongTermMemory"),
        ("m2", "text_mem UserMemory"),
        ("m3", "text_mem LongTermMemory"),
        ("m5", "pref_mem PreferenceMemory"),
        ("m6", "tool_mem ToolSchemaMemory"),
        ("m7", "tool_mem ToolTrajectoryMemory"),
        ("m8", "skill_mem SkillMemory"),
        ("m4", "act_mem"),
        (None, "pref_note"),
    ]
    section = render_section("memos", "run1:alice", entries)
    headings = [line for line in section.split("\n") if line.startswith("[")]
    assert headings == [
        "[text_mem LongTermMemory]",
        "[text_mem UserMemory]",
        "[pref_mem PreferenceMemory]",
        "[tool_mem ToolSchemaMemory]",
        "[tool_mem ToolTrajectoryMemory]",
        "[skill_mem SkillMemory]",
        "[act_mem]",
        "[pref_note]",
    ]


def test_a_memory_shows_when_it_was_said_and_not_when_it_was_stored():
    stored = {"created_at": "2026-01-01T00:00:00+00:00"}
    info = {"timestamp": "2024-03-01T10:30:00+01:00", "event_id": "e1"}
    source = {"chat_time": "2024-03-02T09:00:00+00:00", "message_id": "e2#0"}

    def said(**metadata):
        (entry,) = to_entries({"text_mem": bucket(memory(**stored, **metadata))})
        return entry.timestamp

    assert said(info=info, sources=[source]) == datetime(2024, 3, 1, 9, 30, tzinfo=UTC)
    assert said(sources=[source]) == datetime(2024, 3, 2, 9, tzinfo=UTC)
    assert said(sources=['{"chat_time": "2024-03-02T09:00:00+00:00"}']) == datetime(2024, 3, 2, 9, tzinfo=UTC)
    assert said(sources=[{"chat_time": "12:23 AM on 22 November, 2026"}]) is None
    assert said(sources=["[" * 200_000]) is None
    assert said(info={"timestamp": "2024-03-01T10:30:00"}) is None, "a time without a zone is unknown"
    assert said() is None


def test_events_are_told_by_info_and_by_sources_in_every_shape():
    sources = [
        {"message_id": "e1#0"},
        '{"message_id": "e#2#1"}',
        "no json",
        {"message_id": "alien"},
        {},
        None,
    ]
    assert event_ids({"metadata": {"info": {"event_id": "e0"}, "sources": sources}}) == ("e0", "e1", "e#2")
    assert event_ids({"metadata": {"event_id": "flat", "sources": None}}) == ("flat",)
    assert event_ids({}) == event_ids({"metadata": {"sources": 5}}) == ()


def test_a_score_is_the_servers_relativity_or_none():
    for given, shown in ((0.5, 0.5), (1, 1.0), (None, None), ("0.5", None), (True, None)):
        (entry,) = to_entries({"text_mem": bucket(memory(relativity=given))})
        assert entry.score == shown


def test_a_row_is_of_the_user_who_wrote_it_and_not_of_the_cube_asked_for():
    labelled, bare = to_entries({"text_mem": bucket(memory("m1", user_id="run1.bob"), memory("m2"))})
    assert labelled.scope_ids == {"cube_id": "run1.bob"}
    assert bare.scope_ids == {"cube_id": "run1.alice"}


def test_a_text_made_for_the_answer_has_no_id():
    """As ``fine`` gives it: an id that is stored nowhere, without time or source."""
    stored = memory("m1", created_at=None, sources=[{"content": "x"}])
    made, kept, nameless = to_entries(
        {"text_mem": bucket(memory("m0", created_at=None), stored, {**memory(), "id": 7})}
    )
    assert (made.native_id, kept.native_id, nameless.native_id) == (None, "m1", None)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "x",
        {},
        {"memories": []},
        {"text_mem": {}},
        {"text_mem": ["x"]},
        {"text_mem": [{"memories": {"a": 1}}]},
        {"text_mem": [{"memories": ["x"]}]},
        {"text_mem": bucket({"id": "m1"})},
        {"text_mem": [], "pref_mem": bucket({"memory": 1})},
    ],
)
def test_an_answer_of_another_shape_is_an_error_and_not_empty(data):
    with pytest.raises(BackendProtocolError, match="search"):
        to_entries(data)


@pytest.mark.parametrize(
    "answer", [None, [], "x", {"code": 200}, envelope([], code=500), envelope([], code="0")]
)
def test_no_envelope_or_one_that_says_failure_is_an_error(answer):
    with pytest.raises(BackendProtocolError) as raised:
        data_of(answer, "add")
    assert "done" not in str(raised.value)


def test_what_an_add_made():
    rows = [{"memory": "a", "memory_id": "m1", "memory_type": "UserMemory", "cube_id": "c"}]
    assert [(made.native_id, made.text) for made in added(envelope(rows))] == [("m1", "a")]
    assert added(envelope([])) == ()
    for broken in ({}, None, [{}], [{"memory_id": 1, "memory": "a"}], ["x"]):
        with pytest.raises(BackendProtocolError):
            added(envelope(broken))


def test_what_a_feedback_changed():
    record = {"add": [{"id": "m1", "text": "a"}], "update": [{"id": "m2", "archived_id": "m0"}, {"id": "m1"}]}
    assert feedback_ids(envelope([{"answer": "", "record": record}])) == ("m1", "m2")
    for nothing in (
        [[]],
        [],
        [{"answer": "", "record": {"add": [], "update": []}}],
        [{"record": None}],
        [{}],
    ):
        assert feedback_ids(envelope(nothing)) == ()
    for broken in ("x", [{"record": ["x"]}], [{"record": {"add": 5}}], [{"record": {"update": ["x"]}}]):
        with pytest.raises(BackendProtocolError, match="feedback"):
            feedback_ids(envelope(broken))


def test_tasks_are_counted_by_the_one_truthful_number():
    summary = {"waiting": 2, "in_progress": 1, "pending": 9, "completed": 7}
    lying = dict.fromkeys(summary, 0)
    assert count_busy(envelope({"scheduler_summary": summary, "all_tasks_summary": lying})) == 3
    nothing = {"waiting": 0, "in_progress": 0}
    known_first = {"scheduler_summary": nothing, "all_tasks_summary": {**nothing, "in_progress": 1}}
    assert count_busy(envelope(known_first)) == 1, "as seen with Redis, just after a synchronous add"
    for broken in (None, {}, {"scheduler_summary": None}, {"scheduler_summary": {"waiting": "2"}}):
        with pytest.raises(BackendProtocolError):
            count_busy(envelope(broken))


def test_raw_text_kept_for_want_of_a_model_is_recognised():
    text = "user: I like tea and biscuits."
    assert unextracted(memory("m", text, tags=[], key=text[:10]))
    assert not unextracted(memory("m", text, tags=["tea"], key=text[:10]))
    assert not unextracted(memory("m", text, tags=["mode:fast"], key=text[:10]))
    assert not unextracted(memory("m", text, tags=[], key=None)), "a preference has neither"
    assert not unextracted({"id": "m", "memory": text})
