"""mem0 2.2's additive extraction: ``{"memory": [{"id", "text", "attributed_to"}]}`` from the new messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta

from memory.testing._scripted_rules import ChatRequest, Reply, Rule, section
from memory.testing._scripted_text import is_statement, sentences

_SPEAKER = re.compile(r"^(user|assistant|system): ", re.M)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_RELATIVE = {"yesterday": -1, "today": 0, "tonight": 0, "tomorrow": 1}
_RELATIVE_WORD = re.compile(r"\b(yesterday|today|tonight|tomorrow)\b", re.I)


def _extract(request: ChatRequest) -> Reply | None:
    prompt = request.last_user
    if "You are a Memory Extractor" not in request.system or "## New Messages\n" not in prompt:
        return None
    known = section(prompt, "Existing Memories", until="New Messages")
    observed = _observation_date(prompt)
    found: list[dict[str, str]] = []
    for role, text in _turns(section(prompt, "New Messages", until="Observation Date")):
        for sentence in sentences(text):
            fact = _ground_dates(sentence, observed)
            if is_statement(sentence, role) and f'"{fact}"' not in known:
                found.append({"id": str(len(found)), "text": fact, "attributed_to": role})
    return {"memory": found}


def _turns(messages: str) -> Iterator[tuple[str, str]]:
    """(role, text) of each message; further lines belong to the message above them."""
    pieces = _SPEAKER.split(messages)[1:]
    yield from zip(pieces[::2], pieces[1::2], strict=True)


def _observation_date(prompt: str) -> date | None:
    """The date custom instructions give, else the one mem0 gives (its wall clock)."""
    for heading in ("Custom Instructions", "Observation Date"):
        match = _DATE.search(section(prompt, heading))
        if match:
            return date.fromisoformat(match.group())
    return None


def _ground_dates(sentence: str, observed: date | None) -> str:
    """``yesterday`` becomes ``yesterday (2024-01-30)``, as the prompt asks for."""
    if observed is None:
        return sentence

    def ground(match: re.Match[str]) -> str:
        return f"{match.group()} ({observed + timedelta(days=_RELATIVE[match.group().lower()])})"

    return _RELATIVE_WORD.sub(ground, sentence)


rules: tuple[Rule, ...] = (_extract,)
