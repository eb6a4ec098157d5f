"""The truth of a timeline as the conditions take it that are told it."""

from __future__ import annotations

from typing import Any

from memory.bench.data.languages import load_language
from memory.bench.data.timeline import TimelineSet


def oracle_matrix(data: TimelineSet) -> dict[str, dict[str, dict[str, list[dict[str, Any]]]]]:
    """The truth over time, as the ``matrix`` option of the condition ``oracle_ipas``."""
    matrix: dict[str, dict[str, dict[str, list[dict[str, Any]]]]] = {}
    for timeline in data.timelines:
        contexts = matrix.setdefault(timeline.persona_id, {})
        for known in timeline.preferences:
            phases = contexts.setdefault(known.context, {}).setdefault(known.attribute, [])
            began = {"from": known.stated_at.isoformat()} if phases else {}
            phases.append({"value": known.value, **began})
    return matrix


def static_profile(data: TimelineSet) -> dict[str, str]:
    """What each persona would have written down at the start, as ``profiles`` of ``static_profile``."""
    topics = {name: attribute.topic for name, attribute in load_language("en").by_name.items()}
    profiles = {}
    for timeline in data.timelines:
        first: dict[tuple[str, str], str] = {}
        for known in timeline.preferences:
            first.setdefault((known.context, known.attribute), known.value)
        lines = [
            f"{context}, {topics.get(name, name)}: {first[context, name]}" for context, name in sorted(first)
        ]
        profiles[timeline.persona_id] = "\n".join(lines)
    return profiles
