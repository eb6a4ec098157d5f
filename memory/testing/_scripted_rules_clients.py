"""How the scripted LLM answers the prompts of mem0 2.2 (extraction) and of Nanobot v0.1.4 (consolidation)."""

from __future__ import annotations

import re
from datetime import date, timedelta

from memory.adapter._scripted_rules import ChatRequest, Reply, Rule, section
from memory.adapter._scripted_text import is_statement, sentences

_ROLE = re.compile(r"^(user|assistant|system): ", re.M)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_RELATIVE = {"yesterday": -1, "today": 0, "tonight": 0, "tomorrow": 1}
_RELATIVE_WORD = re.compile(rf"\b({'|'.join(_RELATIVE)})\b", re.I)


def _extract(request: ChatRequest) -> Reply | None:
    """mem0 2.2's additive extraction from the new messages."""
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
    pieces = _ROLE.split(section(prompt, "New Messages", until="Observation Date"))[1:]
    for role, text in zip(pieces[::2], pieces[1::2], strict=True):
        for sentence in sentences(text):
            fact = _RELATIVE_WORD.sub(grounded, sentence) if observed else sentence
            if is_statement(sentence, role) and f'"{fact}"' not in known:
                found.append({"id": str(len(found)), "text": fact, "attributed_to": role})
    return {"memory": found}


_LINE = re.compile(r"^\[(?P<when>[^\]]*)\] (?P<role>[A-Z]+)(?: \[[^\]]*\])?: ", re.M)


def _consolidate(request: ChatRequest) -> Reply | None:
    """Nanobot v0.1.4's consolidation."""
    if "## Conversation to Process\n" not in request.last_user:
        return None
    known = section(request.last_user, "Current Long-term Memory", until="Conversation to Process")
    parts = _LINE.split(section(request.last_user, "Conversation to Process"))[1:]
    facts = dict.fromkeys(
        sentence
        for role, text in zip(parts[1::3], parts[2::3], strict=True)
        for sentence in sentences(text)
        if is_statement(sentence, role)
    )
    when = next(iter(parts[::3]), "?")
    old = [] if known in ("", "(empty)") else [known]
    new = [f"- {fact}" for fact in facts if fact not in known]
    entry = f"[{when}] " + (" ".join(facts) or "Nothing of note was said.")
    return {"history_entry": entry, "memory_update": "\n".join([*old, *new])}


rules: tuple[Rule, ...] = (_extract, _consolidate)
