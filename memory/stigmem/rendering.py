"""Facts as the markdown an agent's system prompt takes (Spec-19 12.5).

Harmless facts come out exactly as the specification's reference implementation renders them. Stored text is
data: whatever it holds, a fact stays one line of one list, and opens no heading, fence or ``<memory-context>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from memory.adapter import clean_text
from memory.stigmem.facts import Fact

_FENCE = re.compile(r"[`~]{3,}")
_NOTE = re.compile(r"_(?=\(\s*confidence\b)", re.I)
_RISKY = re.compile(r"[`~]{3}|_\(")


def render_context(facts: Iterable[Fact], user_entity: str, *, max_value_chars: int | None = None) -> str:
    """The facts under ``## Stigmem context — {user_entity}``, or the empty string where there are none.

    Facts stand under their relation's prefix before the first ``:``. The most confident come first, among equals
    the newest by the node's hybrid clock, and a namespace stands where its first fact does.

    Args:
        facts: as the node returned them.
        user_entity: the primary entity of the boot handshake.
        max_value_chars: values longer than this are cut and end in ``…``; None keeps them whole, as the
            specification does.
    """
    ordered = sorted(facts, key=lambda fact: (fact.confidence, fact.hlc_order), reverse=True)
    if not ordered:
        return ""
    groups: dict[str, list[str]] = {}
    names = cache(_name)  # thousands of facts share a few
    for fact in ordered:
        # Relation and entity stand inside markup of ours, which they must not close.
        relation, entity = names(fact.relation).replace("*", "%2A"), names(fact.entity)
        note = f" _(confidence: {fact.confidence:.2f})_" if fact.confidence < 1.0 else ""
        line = f"- **{relation}** on `{entity}`: {render_value(fact, max_value_chars)}{note}"
        groups.setdefault(fact.relation.partition(":")[0], []).append(line)
    blocks = [f"## Stigmem context — {names(user_entity)}\n"]
    blocks += ["\n".join((f"### {names(namespace)}", *lines, "")) for namespace, lines in groups.items()]
    return "\n".join(blocks).rstrip()


def render_value(fact: Fact, max_chars: int | None = None) -> str:
    """A fact's value on one line: ``(null)`` for null, ``(redacted)`` for what the node withholds."""
    value = fact.value.v
    if value is None:
        return "(redacted)" if fact.sanitizer_redacted and fact.value.type != "null" else "(null)"
    text = value if isinstance(value, str) else str(value)
    if max_chars is not None and len(text) > max_chars:
        text = text[:max_chars] + "…"
    return _one_line(text)


def _name(name: str) -> str:
    return _one_line(name.replace("`", "%60"))


def _one_line(text: str) -> str:
    """Text that ends no line, opens no code fence and passes for no confidence note of ours."""
    text = clean_text(text)
    if "\n" in text or "\t" in text:
        text = " ".join(text.split())
    if _RISKY.search(text):
        text = _FENCE.sub(lambda run: "".join("\\" + char for char in run.group()), text)
        text = _NOTE.sub(r"\_", text)
    return text
