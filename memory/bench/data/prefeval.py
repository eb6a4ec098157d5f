"""Reads PrefEval: stated preferences, and questions whose answers must follow them.

The package does not contain the data (Zhao et al. 2025); give the path of one of its JSON files. Of the
``classification_task_options``, the first follows the preference. A ``conversation`` tells the preference in
place of its sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import Field

from memory.bench.data.dice import Dice
from memory.bench.data.reading import Answer, Filled, Part, data_set, parsed_rows, read_rows
from memory.bench.data.timeline import (
    ChoiceTruth,
    EvidenceTruth,
    Probe,
    Session,
    Timeline,
    TimelineSet,
    Turn,
)
from memory.contract.events import Message

_START = datetime(2025, 1, 1, tzinfo=UTC)


class _Exchange(Part):
    user: str = ""
    assistant: str = ""


class _Entry(Part):
    preference: Filled
    question: Filled
    conversation: dict[str, _Exchange] | None = None
    options: list[Answer] = Field([], min_length=2, validation_alias="classification_task_options")

    def messages(self) -> Iterator[Message]:
        turns = (
            (_Exchange(user=self.preference),) if self.conversation is None else self.conversation.values()
        )
        for turn in turns:
            spoken = (("user", turn.user), ("assistant", turn.assistant))
            yield from (Message(role=role, content=text) for role, text in spoken if text)


def load_prefeval(path: str | Path, *, limit_questions: int | None = None) -> TimelineSet:
    """One persona for the whole file: each preference in its own session, then all questions.

    Each preference must therefore be found among all others. The order of the answers is drawn.
    """
    source = Path(path).expanduser()
    rows = read_rows(source, "a PrefEval JSON file")
    persona, sessions, probes = source.stem, [], []
    for number, entry in enumerate(parsed_rows(_Entry, rows, source), start=1):
        start = _START + timedelta(hours=number)
        turns = tuple(
            Turn(
                f"s{number}.{place}",
                f"{persona}:s{number}.{place}",
                start + timedelta(minutes=place),
                (said,),
            )
            for place, said in enumerate(entry.messages(), start=1)
        )
        sessions.append(Session(f"s{number}", turns))
        probes.append(
            Probe(
                probe_id=f"{persona}:q{number}",
                after=len(rows),
                query=entry.question,
                category="choice" if entry.options else "preference",
                truth=_truth(entry, tuple(turn.event_id for turn in turns), number),
                session_id="question",
                asked_at=_START + timedelta(hours=len(rows) + 1),
            )
        )
    timeline = Timeline(persona, tuple(sessions), tuple(probes[:limit_questions]))
    note = "PrefEval by Zhao et al.; times are made up, an hour apart"
    return data_set("prefeval", [timeline], rows, source.name, note)


def _truth(entry: _Entry, told: tuple[str, ...], number: int) -> ChoiceTruth | EvidenceTruth:
    if not entry.options:
        return EvidenceTruth(turns=told, answer=entry.preference)
    order = Dice(f"prefeval/{number}").shuffled(range(len(entry.options)))
    return ChoiceTruth(tuple(entry.options[place] for place in order), order.index(0))
