"""Played data as data that is only asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memory.bench.data.language import load_language
from memory.bench.data.timeline import (
    Probe,
    Session,
    TestSession,
    Timeline,
    TimelineSet,
    exchange,
    turns_of,
)


def as_probes(data: TimelineSet) -> TimelineSet:
    """Converts played data to data that is only asked: scripts to transcripts, judged requests to probes.

    In a transcript, the user says every line of the script and gets plain replies, as from an assistant
    without any knowledge of the user. The requests of test sessions go to the memory alone.
    """
    return replace(data, timelines=tuple(_asked(timeline) for timeline in data.timelines))


def _asked(timeline: Timeline) -> Timeline:
    persona_id = timeline.persona_id
    probes = [*timeline.probes, *(probe for test in timeline.tests for probe in _probes(persona_id, test))]
    return replace(
        timeline,
        sessions=tuple(_transcript(persona_id, session) for session in timeline.sessions),
        probes=tuple(sorted(probes, key=lambda probe: probe.after)),
        tests=(),
    )


def _transcript(persona_id: str, session: Session) -> Session:
    script = session.script
    if script is None:
        return session
    replies = load_language().forms.replies
    lines = [(beat, words) for beat in script.beats for words in (beat.goal, beat.branch, beat.hint) if words]
    said = []
    for number, (beat, words) in enumerate(lines, start=1):
        said.append((exchange(words, replies[number % len(replies)]), beat.attribute))
    turns = turns_of(persona_id, session.session_id, script.start, said, script.scenario, script.context)
    return replace(session, turns=(*session.turns, *turns), script=None)


def _probes(persona_id: str, test: TestSession) -> Iterator[Probe]:
    """One probe for each attribute with a preference in force. Repetitions are left out."""
    asked: set[str | None] = set()
    for beat in test.script.beats:
        if beat.truth is None or beat.truth.current is None or beat.attribute in asked:
            continue
        asked.add(beat.attribute)
        yield Probe(
            probe_id=f"{persona_id}:{test.session_id}:{beat.beat_id}",
            after=test.after,
            query=beat.goal,
            category=beat.kind,
            truth=beat.truth,
            session_id=test.session_id,
            scenario=test.script.scenario,
            context=test.script.context,
            attribute=beat.attribute,
            asked_at=test.script.start,
        )
