"""What a recipient weighs before it acts on an envelope: its constraints (4.2) and whom it must ask first (4.4).

Nothing here does I/O. What cannot be judged is taken for the worse: a limit without an estimate is broken, and a
condition that nobody can evaluate applies.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory.adapter import parse_time
from memory.stigmem.intents import Constraint, IntentRecord

_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt,
    "==": operator.eq, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip
_PREDICATE = re.compile(r"(not\s+)?([A-Za-z_][\w.:-]*)\s*(?:(<=|>=|==|!=|<|>|=)\s*(\S.*))?")


@dataclass(frozen=True)
class Estimate:
    """What a recipient expects on an axis: a number, a datetime with an offset, a bool or a str; and its unit."""

    value: Any
    unit: str | None = None


def broken_constraints(envelope: IntentRecord, plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Why the plan cannot satisfy the envelope, a line for each constraint; empty where it keeps all of them.

    A recipient with any line must escalate, and not satisfy the rest (4.2).

    Args:
        plan: kind of a constraint -> what it will take: an :class:`Estimate`, or its value where there is no unit.
            Numbers and times must not exceed the limit; any other value must equal it.
    """
    lines = (_broken(constraint, plan.get(constraint.kind)) for constraint in envelope.constraint)
    return tuple(line for line in lines if line)


def _broken(constraint: Constraint, planned: Any) -> str:
    estimate = planned if isinstance(planned, Estimate) else Estimate(planned)
    limit = constraint.limit.v
    if constraint.limit.type == "datetime" and isinstance(limit, str):
        limit = parse_time(limit)
    if estimate.value is None or limit is None:
        return f"{constraint.kind}: nothing is known of it"
    if estimate.unit != constraint.unit:
        return (
            f"{constraint.kind}: is limited in {constraint.unit or 'no unit'}, and planned in {estimate.unit}"
        )
    ordered = _is_ordered(limit)
    try:
        kept = estimate.value <= limit if ordered else estimate.value == limit
    except TypeError:
        return f"{constraint.kind}: {estimate.value!r} cannot be compared with its limit"
    return "" if kept else f"{constraint.kind}: {estimate.value} is not within {constraint.limit.v}"


def _is_ordered(value: Any) -> bool:
    return isinstance(value, int | float | datetime) and not isinstance(value, bool)


def due_deferences(envelope: IntentRecord, situation: Mapping[str, Any]) -> tuple[int, ...]:
    """The positions of the deference rules that apply, or cannot be ruled out.

    Args:
        situation: what is known, by the names that conditions use: ``cost > 100`` reads ``cost``, and
            ``requires_legal_review`` applies where that is true. Of another form, a condition applies.
    """
    return tuple(
        at for at, rule in enumerate(envelope.deference) if _holds(rule.condition, situation) is not False
    )


def _holds(condition: str, situation: Mapping[str, Any]) -> bool | None:
    """None where nobody can tell."""
    match = _PREDICATE.fullmatch(condition.strip())
    if match is None or situation.get(match[2]) is None:
        return None
    negated, name, comparison, text = match.groups()
    known = situation[name]
    if comparison is None:
        holds = bool(known)
    else:
        wanted = _literal(text, known)
        try:
            holds = wanted is not None and bool(_COMPARISONS[comparison](known, wanted))
        except TypeError:
            return None
        if wanted is None:
            return None
    return holds != bool(negated)


def _literal(text: str, like: Any) -> Any:
    """The right side of a comparison, of the type of the left; None where it is no such thing."""
    text = text.strip("'\"")
    if isinstance(like, bool):
        return {"true": True, "false": False}.get(text.lower())
    if isinstance(like, datetime):
        return parse_time(text)
    if isinstance(like, int | float):
        try:
            return float(text)
        except ValueError:
            return None
    return text
