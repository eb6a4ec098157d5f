"""A timeline refuses what would make its scores meaningless."""

from datetime import UTC, datetime, timedelta

import pytest

from memory import InputError, MemoryScope, Message
from memory.bench.data.timeline import EvidenceTruth, Probe, Session, Timeline, TimelineSet, Turn

START = datetime(2026, 1, 1, tzinfo=UTC)


def turn(name, minutes=0):
    return Turn(
        name, f"p:{name}", START + timedelta(minutes=minutes), (Message(role="user", content="hello"),)
    )


def probe(after=1, gold=("p:a",), name="q"):
    return Probe(name, after, "what?", "kind", EvidenceTruth(gold), "test")


def test_a_turn_becomes_an_event_with_all_its_fields():
    said = Turn(
        "t1", "e1", START, (Message(role="user", content="hi"),), "review", "work", "tone", {"origin": "form"}
    )
    scope = MemoryScope(run_id="r", persona_id="p")
    assert said.event(scope, "s1").attribute is None, (
        "the script's word for it would hand a memory the answer"
    )
    event = said.event(scope, "s1", labels=True)
    assert (event.event_id, event.turn_id, event.session_id, event.timestamp) == ("e1", "t1", "s1", START)
    assert event.cs_fields == {"scenario": "review", "context": "work", "attribute": "tone"}
    assert event.metadata == {"origin": "form"}
    assert event.messages[0].content == "hi"


@pytest.mark.parametrize(
    ("sessions", "probes", "complaint"),
    [
        (
            [Session("s1", (turn("a", 5),)), Session("s2", (turn("b", 1),))],
            [],
            "sessions are not in time order",
        ),
        ([Session("s1", (turn("a", 5), turn("b", 1)))], [], "turns are not in time order"),
        ([Session("s1", (turn("a"), turn("a")))], [], "the event id p:a occurs twice"),
        ([Session("s1", (turn("a"),))], [probe(after=2)], "past the last session"),
        ([Session("s1", (turn("a"),))], [probe(after=1), probe(after=0)], "out of order"),
        ([Session("s1", (turn("a"),))], [probe(gold=("p:b",))], "unknown turn"),
    ],
)
def test_it_refuses_disorder(sessions, probes, complaint):
    with pytest.raises(InputError, match=complaint):
        Timeline("p", tuple(sessions), tuple(probes))


def test_probes_are_found_by_their_position():
    timeline = Timeline("p", (Session("s1", (turn("a"),)),), (probe(0, (), "early"), probe(1, name="late")))
    assert [probe.probe_id for probe in timeline.probes_after(1)] == ["late"]
    assert [probe.probe_id for probe in timeline.probes_after(0)] == ["early"]


def test_two_timelines_cannot_share_a_persona():
    timeline = Timeline("p", (), ())
    with pytest.raises(InputError, match="have the persona id p"):
        TimelineSet("x", (timeline, timeline), data_hash="")
