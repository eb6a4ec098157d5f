"""Reads PrefEval: stated preferences, and questions whose answers must follow them.

The package does not contain the data (Zhao et al. 2025); give the path of one of its JSON files. A file is a
list of objects with ``preference``, ``question`` and ``explanation``. ``classification_task_options`` holds
four answers, of which the first follows the preference. A ``conversation`` tells the preference in place of
its sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memory.bench.data.dice import Dice
from memory.bench.data.nodes import Node, data_set, read_json
from memory.bench.data.timeline import (
    ChoiceTruth,
    EvidenceTruth,
    Probe,
    Session,
    Timeline,
    TimelineSet,
    Turn,
)
from memory.contract.errors import ConfigError
from memory.contract.events import Message

_WHAT = "a PrefEval JSON file"
_START = datetime(2025, 1, 1, tzinfo=UTC)
_OPTIONS = "classification_task_options"
_KNOWN = {"preference", "question", "explanation", "conversation", _OPTIONS}


def load_prefeval(path: str | Path, *, limit_questions: int | None = None) -> TimelineSet:
    """One persona for the whole file: each preference in its own session, then all questions.

    Each preference must therefore be found among all others. The order of the answers is drawn.
    """
    source = Path(path).expanduser()
    data = read_json(source, _WHAT)
    entries = Node(data, source.name, kind=_WHAT).items()
    if not entries:
        raise ConfigError(f"{source.name}: holds no preference; is this {_WHAT}?")
    persona, sessions, probes, ignored = source.stem, [], [], set[str]()
    for number, entry in enumerate(entries, start=1):
        ignored |= entry.typed(dict).keys() - _KNOWN
        start = _START + timedelta(hours=number)
        turns = tuple(_turns(entry, f"{persona}:s{number}", f"s{number}", start))
        sessions.append(Session(f"s{number}", turns))
        told = tuple(turn.event_id for turn in turns)
        probes.append(
            Probe(
                probe_id=f"{persona}:q{number}",
                after=len(entries),
                query=entry.text("question"),
                category="choice" if _OPTIONS in entry.value else "preference",
                truth=_truth(entry, told, number),
                session_id="question",
                asked_at=_START + timedelta(hours=len(entries) + 1),
            )
        )
    timeline = Timeline(persona, tuple(sessions), tuple(probes[:limit_questions]))
    note = "PrefEval by Zhao et al.; times are made up, an hour apart"
    return data_set("prefeval", [timeline], data, source.name, note, ignored)


def _turns(entry: Node, prefix: str, session: str, start: datetime) -> Iterator[Turn]:
    for place, message in enumerate(_said(entry), start=1):
        at = start + timedelta(minutes=place)
        yield Turn(f"{session}.{place}", f"{prefix}.{place}", at, (message,))


def _said(entry: Node) -> Iterator[Message]:
    given: dict[str, Any] = entry.typed(dict)
    talk = given.get("conversation")
    if isinstance(talk, list):
        for said in entry.get("conversation").items():
            role = said.chosen("role", "user", "assistant")
            yield Message(role=role, content=said.text("content"))
    elif isinstance(talk, dict):
        for name in talk:
            turn = entry.get("conversation").get(name)
            if isinstance(turn.value, str):
                yield Message(role="user", content=entry.get("conversation").text(name))
                continue
            for role in ("user", "assistant"):
                if turn.typed(dict).get(role):
                    yield Message(role=role, content=turn.text(role))
    else:
        yield Message(role="user", content=entry.text("preference"))


def _truth(entry: Node, told: tuple[str, ...], number: int) -> ChoiceTruth | EvidenceTruth:
    if _OPTIONS not in entry.value:
        return EvidenceTruth(turns=told, answer=entry.text("preference"))
    options = [option.answer() for option in entry.get(_OPTIONS).items()]
    if len(options) < 2:
        raise entry.wrong(_OPTIONS, "must hold two answers or more")
    order = Dice(f"prefeval/{number}").shuffled(range(len(options)))
    return ChoiceTruth(tuple(options[place] for place in order), order.index(0))
