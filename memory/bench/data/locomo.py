"""Reads LoCoMo: very long conversations of two people, with questions and their evidence turns.

The package does not contain the data (Maharana et al. 2024, CC BY-NC 4.0); give its path.

Category 5 asks for what was never said. Its ``adversarial_answer`` is the trap, and the right reply says that
it was not mentioned. If such a question also has an ``answer``, that answer is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import ConfigDict, Field

from memory.bench.data.reading import Answer, Filled, Part, data_set, moment, parsed_rows, read_rows
from memory.bench.data.timeline import (
    AbstainTruth,
    EvidenceTruth,
    Probe,
    Session,
    Timeline,
    TimelineSet,
    Turn,
)
from memory.contract.errors import ConfigError
from memory.contract.events import Message

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
"""Names from the data's own evaluation code. The numbers do not follow the paper's order."""

_SESSION = re.compile(r"session_(\d+)\Z")
_GAP = re.compile(r"[;,\s\[\](){}'\"]+")
_TURN_ID = re.compile(r"D(\d+):(\d+)\Z", re.IGNORECASE)
_FORM = "%I:%M %p on %d %B, %Y"


class _Said(Part):
    speaker: Filled
    dia_id: Filled
    text: str = ""
    blip_caption: str | None = None


class _Conversation(Part):
    """``session_N`` and ``session_N_date_time`` are further fields."""

    model_config = ConfigDict(extra="allow")

    speaker_a: Filled
    speaker_b: Filled
    __pydantic_extra__: dict[str, str | list[_Said]]


class _Question(Part):
    question: Filled
    category: int = Field(ge=1, le=5)
    evidence: list[str] | None = None
    answer: Answer | None = None
    adversarial_answer: Answer | None = None


class _Sample(Part):
    sample_id: Filled
    conversation: _Conversation
    qa: list[_Question]


def load_locomo(path: str | Path, *, limit_questions: int | None = None) -> TimelineSet:
    """One timeline for each conversation of a file: all sessions, then all questions.

    Each dialogue turn becomes one event with the id ``<sample_id>:<dia_id>``. ``speaker_a`` speaks as
    ``user`` and ``speaker_b`` as ``assistant``. A text begins with the speaker's name; the caption of a
    shared photo follows in brackets. Turns are a second apart, in UTC.
    """
    source = Path(path).expanduser()
    rows = read_rows(source, "a LoCoMo JSON file")
    timelines = [_timeline(sample, limit_questions) for sample in parsed_rows(_Sample, rows, source)]
    return data_set("locomo", timelines, rows, source.name, "LoCoMo by Maharana et al., CC BY-NC 4.0")


def split_evidence(evidence: list[str], known: set[str]) -> tuple[tuple[str, ...], int]:
    """Gold turn ids in LoCoMo's evidence strings, and how many ids name no turn.

    One string may hold several ids (``"D8:6; D9:17"``). Leading zeros are ignored (``D30:05``). Other errors,
    such as ``D:11:26`` or a number past the session's end, are counted but not corrected.
    """
    found: dict[str, None] = {}
    unresolved: set[str] = set()
    for token in (token for text in evidence for token in _GAP.split(text) if token):
        match = _TURN_ID.match(token)
        plain = f"D{int(match[1])}:{int(match[2])}" if match else token
        turn = token if token in known else plain
        if turn in known:
            found[turn] = None
        else:
            unresolved.add(turn)
    return tuple(found), len(unresolved)


def _timeline(sample: _Sample, limit: int | None) -> Timeline:
    persona = sample.sample_id
    sessions = tuple(_sessions(sample))
    turns = [turn for session in sessions for turn in session.turns]
    known = {turn.turn_id for turn in turns}
    probes = tuple(
        Probe(
            probe_id=f"{persona}:q{number}",
            after=len(sessions),
            query=question.question,
            category=CATEGORIES[question.category],
            truth=_truth(question, persona, known),
            session_id="test",
            asked_at=max((turn.timestamp for turn in turns), default=None),
        )
        for number, question in enumerate(sample.qa[:limit], start=1)
    )
    return Timeline(persona_id=persona, sessions=sessions, probes=probes)


def _sessions(sample: _Sample) -> Iterator[Session]:
    held = sample.conversation.__pydantic_extra__
    dated_sessions = []
    for name, said in held.items():
        if (match := _SESSION.match(name)) and isinstance(said, list) and said:
            try:
                start = moment(held.get(f"{name}_date_time"), _FORM)
            except ValueError as error:
                raise ConfigError(f"{sample.sample_id}: {name}_date_time {error}") from None
            dated_sessions.append((start, int(match[1]), said))
    if not dated_sessions:
        raise ConfigError(f"{sample.sample_id}: conversation has no session_1; is this a LoCoMo file?")
    for start, number, said in sorted(dated_sessions, key=lambda item: item[:2]):
        turns = (_turn(each, sample, start + timedelta(seconds=second)) for second, each in enumerate(said))
        yield Session(session_id=f"session_{number}", turns=tuple(turns))


def _turn(said: _Said, sample: _Sample, at: datetime) -> Turn:
    words = [f"{said.speaker}:", said.text.strip()]
    if said.blip_caption:
        words.append(f"[shares a photo: {said.blip_caption.strip()}]")
    role = "user" if said.speaker == sample.conversation.speaker_a else "assistant"
    message = Message(role=role, content=" ".join(filter(None, words)), name=said.speaker)
    return Turn(said.dia_id, f"{sample.sample_id}:{said.dia_id}", at, (message,))


def _truth(question: _Question, persona: str, known: set[str]) -> EvidenceTruth | AbstainTruth:
    if question.category == 5 and question.answer is None:
        return AbstainTruth(trap=question.adversarial_answer)
    turns, unresolved = split_evidence(question.evidence or [], known)
    return EvidenceTruth(
        turns=tuple(f"{persona}:{turn}" for turn in turns), unresolved=unresolved, answer=question.answer
    )
