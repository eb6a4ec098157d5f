"""mem0 2.2's additive extraction: ``{"memory": [{"id", "text", "attributed_to"}]}`` from the new messages."""

from __future__ import annotations

import re
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
    # The date custom instructions give, else the one mem0 gives (its wall clock).
    dates = (_DATE.search(section(prompt, name)) for name in ("Custom Instructions", "Observation Date"))
    observed = next((date.fromisoformat(match.group()) for match in dates if match), None)

    def grounded(match: re.Match[str]) -> str:
        """``yesterday`` becomes ``yesterday (2024-01-30)``, as the prompt asks for."""
        assert observed is not None
        return f"{match.group()} ({observed + timedelta(days=_RELATIVE[match.group().lower()])})"

    found: list[dict[str, str]] = []
    # Further lines belong to the message above them.
    pieces = _SPEAKER.split(section(prompt, "New Messages", until="Observation Date"))[1:]
    for role, text in zip(pieces[::2], pieces[1::2], strict=True):
        for sentence in sentences(text):
            fact = _RELATIVE_WORD.sub(grounded, sentence) if observed else sentence
            if is_statement(sentence, role) and f'"{fact}"' not in known:
                found.append({"id": str(len(found)), "text": fact, "attributed_to": role})
    return {"memory": found}


rules: tuple[Rule, ...] = (_extract,)
