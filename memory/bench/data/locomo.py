"""Reads LoCoMo: very long conversations of two people, with questions and their evidence turns.

The package does not contain the data (Maharana et al. 2024, CC BY-NC 4.0); give its path. A file is a list of
samples. A sample has ``sample_id``, ``conversation`` with ``speaker_a``, ``speaker_b``, ``session_N`` and
``session_N_date_time``, and ``qa`` with ``question``, ``category``, ``evidence`` and ``answer``.

Category 5 asks for what was never said. Its ``adversarial_answer`` is the trap, and the right reply says that
it was not mentioned. If such a question also has an ``answer``, that answer is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memory.bench.data.nodes import Node, data_set, moment_of, read_listed
from memory.bench.data.timeline import (
    AbstainTruth,
    EvidenceTruth,
    Probe,
    Session,
    Timeline,
    TimelineSet,
    Turn,
    repeated,
)
from memory.contract.errors import ConfigError
from memory.contract.events import Message

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
"""Names from the data's own evaluation code. The numbers do not follow the paper's order."""

_USED = {
    "sample": {"sample_id", "conversation", "qa"},
    "conversation": {"speaker_a", "speaker_b"},
    "turn": {"speaker", "dia_id", "text", "clean_text", "blip_caption"},
    "question": {"question", "category", "evidence", "answer", "adversarial_answer"},
}
_SESSION = re.compile(r"session_(\d+)\Z")
_GAP = re.compile(r"[;,\s\[\](){}'\"]+")
_TURN_ID = re.compile(r"D(\d+):(\d+)\Z", re.IGNORECASE)
_DATE = re.compile(
    r"\A\s*(\d{1,2}):(\d{2})\s*([ap]m)\s+on\s+(\d{1,2})\s+([a-z]+),?\s+(\d{4})\s*\Z", re.IGNORECASE
)
_NO_FORM = re.compile(r"(?!)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def load_locomo(path: str | Path, *, limit_questions: int | None = None) -> TimelineSet:
    """One timeline for each conversation of a file: all sessions, then all questions.

    Each dialogue turn becomes one event with the id ``<sample_id>:<dia_id>``. ``speaker_a`` speaks as
    ``user`` and ``speaker_b`` as ``assistant``. A text begins with the speaker's name; the caption of a
    shared photo follows in brackets. Turns are a second apart, in UTC.
    """
    source = Path(path).expanduser()
    data = read_listed(source, "a LoCoMo JSON file")
    samples = Node(data, source.name, kind="a LoCoMo file").items()
    if not samples:
        raise ConfigError(f"{source.name}: holds no conversation; give a LoCoMo file such as locomo10.json")
    timelines: dict[str, Timeline] = {}
    for sample in samples:
        persona = sample.text("sample_id")
        if persona in timelines:
            raise sample.wrong("sample_id", "occurs twice; give each sample its own")
        timelines[persona] = _sample(sample, persona, limit_questions)
    note = "LoCoMo by Maharana et al., CC BY-NC 4.0"
    return data_set("locomo", timelines.values(), data, source.name, note, _unused(samples))


def _unused(samples: list[Node]) -> set[str]:
    """Fields of the file that memslot does not read."""
    found: set[str] = set()

    def look(kind: str, fields: dict[str, Any], used: Iterable[str] = ()) -> None:
        unused = fields.keys() - _USED[kind] - {*used}
        found.update(f"{re.sub(r'[0-9]+', 'N', name)} of {kind}" for name in unused)

    for sample in samples:
        look("sample", sample.value)
        conversation = sample.value["conversation"]
        held = {name for name in conversation if _SESSION.match(name) and conversation[name]}
        look("conversation", conversation, held | {f"{entry}_date_time" for entry in held})
        for turn in (turn for name in held for turn in conversation[name]):
            look("turn", turn)
        for question in sample.value["qa"]:
            look("question", question)
        if any(
            _number(entry) == 5 and entry.value.get("answer") is None for entry in sample.get("qa").items()
        ):
            found.add("evidence of category 5, which holds the trap")
        if any(_number(entry) == 5 and "answer" in entry.value for entry in sample.get("qa").items()):
            found.add("adversarial_answer of category 5 beside an answer")
    return found


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


def _sample(sample: Node, persona: str, limit: int | None) -> Timeline:
    if "*" in persona:
        raise sample.wrong("sample_id", "holds the wildcard '*'; it names the persona")
    conversation = sample.get("conversation")
    sessions = tuple(_sessions(conversation, persona))
    turns = [turn for session in sessions for turn in session.turns]
    if (twice := repeated(turn.turn_id for turn in turns)) is not None:
        raise conversation.wrong("", f"has the dia_id {twice} twice; evidence would be ambiguous")
    questions, known = sample.get("qa").items()[:limit], {turn.turn_id for turn in turns}
    now = max((turn.timestamp for turn in turns), default=None)
    probes = tuple(
        Probe(
            probe_id=f"{persona}:q{number}",
            after=len(sessions),
            query=item.text("question"),
            category=_category(item),
            truth=_truth(item, persona, known),
            session_id="test",
            asked_at=now,
        )
        for number, item in enumerate(questions, start=1)
    )
    return Timeline(persona_id=persona, sessions=sessions, probes=probes)


def _sessions(conversation: Node, persona: str) -> Iterator[Session]:
    first = conversation.text("speaker_a")
    conversation.text("speaker_b")
    numbers = sorted(int(match[1]) for key in conversation.typed(dict) if (match := _SESSION.match(key)))
    if not numbers:
        raise conversation.wrong("session_1", "is missing; is this a LoCoMo file?")
    dated = []
    for number in numbers:
        if turns := conversation.get(f"session_{number}").items():
            dated.append((_moment(conversation, f"session_{number}_date_time"), number, turns))
    for start, number, turns in sorted(dated, key=lambda item: item[:2]):
        moments = (start + timedelta(seconds=second) for second in range(len(turns)))
        said = (_turn(turn, persona, first, at) for turn, at in zip(turns, moments, strict=True))
        yield Session(session_id=f"session_{number}", turns=tuple(said))


def _turn(turn: Node, persona: str, first: str, at: datetime) -> Turn:
    dia_id, speaker = turn.text("dia_id"), turn.text("speaker")
    said = turn.typed(dict)
    text = next((name for name in ("text", "clean_text") if said.get(name)), None)
    if text is None and not said.get("blip_caption") and "text" not in said:
        raise turn.wrong("text", "is missing; a turn has text or a photo's blip_caption")
    words = [f"{speaker}:", turn.get(text).typed(str).strip() if text else ""]
    if turn.typed(dict).get("blip_caption"):
        words.append(f"[shares a photo: {turn.text('blip_caption')}]")
    role = "user" if speaker == first else "assistant"
    message = Message(role=role, content=" ".join(filter(None, words)), name=speaker)
    return Turn(dia_id, f"{persona}:{dia_id}", at, (message,))


def _moment(conversation: Node, name: str) -> datetime:
    match = _DATE.match(conversation.text(name))
    month = match[5][:3].lower() if match else ""
    if match is None or month not in _MONTHS:
        return moment_of(conversation.get(name), _NO_FORM, "1:56 pm on 8 May, 2023")
    hour = int(match[1]) % 12 + (12 if match[3].lower() == "pm" else 0)
    day, year, minute = int(match[4]), int(match[6]), int(match[2])
    try:
        return datetime(year, _MONTHS.index(month) + 1, day, hour, minute, tzinfo=UTC)
    except ValueError:
        raise conversation.wrong(name, "is not a time like '1:56 pm on 8 May, 2023'") from None


def _category(item: Node) -> str:
    return CATEGORIES[_number(item)]


def _number(item: Node) -> int:
    """The category's number. Some copies write it as text or by name."""
    given = item.get("category").answer().strip().lower()
    numbers = {name: number for number, name in CATEGORIES.items()}
    numbers |= {str(number): number for number in CATEGORIES}
    if given not in numbers:
        raise item.wrong("category", f"is {given[:40]}; LoCoMo has 1 to 5")
    return numbers[given]


def _truth(item: Node, persona: str, known: set[str]) -> EvidenceTruth | AbstainTruth:
    fields = item.typed(dict)
    listed = fields.get("evidence")
    evidence = [text.typed(str) for text in item.get("evidence").items()] if listed is not None else []
    if _number(item) == 5:
        trap = item.get("adversarial_answer").answer() if "adversarial_answer" in fields else None
        if "answer" not in fields:
            return AbstainTruth(trap=trap)
    turns, unresolved = split_evidence(evidence, known)
    return EvidenceTruth(
        turns=tuple(f"{persona}:{turn}" for turn in turns),
        unresolved=unresolved,
        answer=item.get("answer").answer(),
    )
