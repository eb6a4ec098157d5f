"""Nanobot v0.1.4's consolidation: the tool ``save_memory(history_entry, memory_update)``."""

from __future__ import annotations

import re

from memory.testing._scripted_rules import ChatRequest, Reply, Rule, ToolCall, section
from memory.testing._scripted_text import is_statement, sentences

_LINE = re.compile(r"^\[(?P<when>[^\]]*)\] (?P<role>[A-Z]+)(?: \[[^\]]*\])?: ", re.M)


def _consolidate(request: ChatRequest) -> Reply | None:
    if "save_memory" not in request.tools or request.forced_tool not in (None, "save_memory"):
        return None
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
    return ToolCall(
        "save_memory",
        {
            "history_entry": f"[{when}] " + (" ".join(facts) or "Nothing of note was said."),
            "memory_update": "\n".join([*old, *new]),
        },
    )


rules: tuple[Rule, ...] = (_consolidate,)
