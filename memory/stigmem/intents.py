"""Intent envelopes (stigmem spec section 4): what an agent wants done, by whom and within which limits.

The models enforce every rule of the section, because a node checks few of them. The functions evaluate the
rules that a recipient considers before it acts. A rule that cannot be evaluated counts against acting.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from memory.adapter.fields import AwareDatetime, Frozen, NotBlank, check_aware, parse_time
from memory.stigmem.facts import (
    MAX_URI_BYTES,
    MAX_VALUE_BYTES,
    FactValue,
    Goal,
    Ref,
    Summary,
    Uri,
    limited,
)

Channel = Literal["stigmem", "email", "slack"]
Priority = Literal["low", "medium", "high", "critical"]
PRIORITIES: tuple[Priority, ...] = get_args(Priority)

MAX_PARTS = 100  # entries per list of an envelope; memslot's limit, because the specification has none


def _uuid(value: str) -> str:
    try:
        return str(uuid.UUID(value.removeprefix("intent:")))
    except ValueError:
        raise ValueError("must be a UUID; leave it out to get a new one") from None


Word = Annotated[NotBlank, AfterValidator(limited(MAX_URI_BYTES))]
_now = partial(datetime.now, UTC)


class Constraint(Frozen):
    """A hard limit. A recipient that cannot keep every limit must escalate (4.2)."""

    kind: Word  # any axis, such as budget, deadline or latency_ms
    limit: FactValue
    unit: Word | None = None  # needed if the kind implies none


class Preference(Frozen):
    """A soft hint (4.3). ``weight`` is relative to the other preferences of the envelope."""

    kind: Word
    value: FactValue
    weight: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]


class DeferenceRule(Frozen):
    """The agent to ask before a decision on an axis (4.4)."""

    condition: Word  # a short predicate such as ``cost > 100``
    defer_to: Ref
    timeout_s: Annotated[int, Field(ge=0, le=10**9, strict=True)] | None = None  # None: the recipient decides


class EscalationPolicy(Frozen):
    """The destination of a recipient's report that it cannot satisfy an envelope (4.5)."""

    escalate_to: Ref
    channel: Channel = "stigmem"  # a node accepts the other channels but sends nothing
    priority: Priority = "medium"
    # True sends the whole envelope, False its id and a query hint.
    include_context: Annotated[bool, Field(strict=True)] = True


class Artifact(Frozen):
    """An object that a handoff refers to without including it (4.6)."""

    name: Word
    ref: Ref


class HandoffPayload(Frozen):
    """The context that the next agent needs (4.6)."""

    summary: Summary
    fact_refs: Annotated[tuple[Ref, ...], Field(min_length=1, max_length=MAX_PARTS)]
    # A cursor for resumable work.
    continuation: Annotated[NotBlank, AfterValidator(limited(MAX_VALUE_BYTES))] | None = None
    artifacts: Annotated[tuple[Artifact, ...], Field(max_length=MAX_PARTS)] = ()


class IntentEnvelope(Frozen):
    """An envelope, to send or as a node returns it. By Spec-19 12.4.5, agents query the scope ``company``.

    Raises:
        InputError: a rule of section 4 is broken. The message names the field and the fix.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    id: Annotated[str, AfterValidator(_uuid)] = Field(default_factory=lambda: str(uuid.uuid4()))
    from_: Annotated[Uri, Field(alias="from")]
    to: Annotated[tuple[Uri, ...], Field(min_length=1, max_length=MAX_PARTS)]
    goal: Goal
    constraint: Annotated[tuple[Constraint, ...], Field(max_length=MAX_PARTS)] = ()
    preference: Annotated[tuple[Preference, ...], Field(max_length=MAX_PARTS)] = ()
    deference: Annotated[tuple[DeferenceRule, ...], Field(max_length=MAX_PARTS)] = ()
    escalation: EscalationPolicy
    handoff: HandoffPayload | None = None
    scope: Literal["company"] = "company"
    created_at: AwareDatetime = Field(default_factory=_now)
    expires_at: AwareDatetime | None = None  # None: never

    @model_validator(mode="after")
    def _keeps_every_rule(self) -> Self:
        if self.expires_at is not None and self.expires_at <= self.created_at:
            raise ValueError("expires_at: must be after created_at")
        if len(set(self.to)) != len(self.to):
            raise ValueError("to: names a recipient twice")
        return self

    def is_expired(self, now: datetime | None = None) -> bool:
        return self.expires_at is not None and self.expires_at <= check_aware(now or _now())

    def body(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


@dataclass(frozen=True)
class Estimate:
    """A recipient's estimate on an axis: a number, an aware datetime, a bool or a str, and its unit."""

    value: Any
    unit: str | None = None


def broken_constraints(envelope: IntentEnvelope, plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the constraints that a plan breaks. If there are any, the recipient must escalate (4.2).

    Args:
        envelope: the envelope.
        plan: kind of constraint -> an :class:`Estimate`, or only its value if it has no unit. Numbers and
            times must not exceed the limit; any other value must equal it. A deadline may be ISO 8601 text.

    Returns:
        A line for each constraint that is broken or cannot be evaluated.
    """
    lines = (_broken(constraint, plan.get(constraint.kind)) for constraint in envelope.constraint)
    return tuple(filter(None, lines))


def _broken(constraint: Constraint, planned: Any) -> str:
    estimate = planned if isinstance(planned, Estimate) else Estimate(planned)
    limit, value = constraint.limit.v, estimate.value
    if constraint.limit.type == "datetime" or constraint.kind == "deadline" or isinstance(value, datetime):
        limit, value = _as_time(limit), _as_time(value)
    if value is None or limit is None:
        return f"{constraint.kind}: nothing is known of it"
    if estimate.unit != constraint.unit:
        unit = constraint.unit or "no unit"
        return f"{constraint.kind}: is limited in {unit}, and planned in {estimate.unit}"
    ordered = isinstance(limit, int | float | datetime) and not isinstance(limit, bool)
    try:
        kept = value <= limit if ordered else value == limit
    except TypeError:
        return f"{constraint.kind}: {value!r} cannot be compared with its limit"
    return "" if kept else f"{constraint.kind}: {value} is not within {constraint.limit.v}"


def _as_time(value: Any) -> Any:
    """Parse text as a time; None if it is not a time. Other values are returned unchanged."""
    return parse_time(value) if isinstance(value, str) else value


def ranked_options(
    envelope: IntentEnvelope, options: Mapping[str, Mapping[str, Any]]
) -> tuple[tuple[str, float], ...]:
    """Rank options by the envelope's preferences (4.3), best first. Equal options keep their order.

    The score is a weighted mean, sum(weight x met) / sum(weight). For a preference with the value
    ``minimize`` or ``maximize``, met is (worst - own) / (worst - best), over the options with a number on its
    axis. For any other preference, met is 1 if the values are equal. Otherwise, and without a value, it is 0.

    Args:
        envelope: the envelope.
        options: name -> kind of preference -> value, such as ``{"express": {"cost": 9.5, "days": 1}}``.

    Returns:
        The name and the score of each option. Scores are from 0 to 1, and 0 if no preference has a weight.
    """
    total = sum(preference.weight for preference in envelope.preference)
    scores = dict.fromkeys(options, 0.0)
    for preference in envelope.preference if total else ():
        for name, met in _met(preference, options).items():
            scores[name] += preference.weight * met / total
    return tuple(sorted(scores.items(), key=lambda item: -item[1]))


def _met(preference: Preference, options: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    wanted = preference.value.v
    known = {name: option[preference.kind] for name, option in options.items() if preference.kind in option}
    if wanted not in ("minimize", "maximize"):
        return {name: float(value == wanted) for name, value in known.items()}
    numbers = {
        name: float(value)
        for name, value in known.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
    if not numbers:
        return {}
    low, high = min(numbers.values()), max(numbers.values())
    if low == high:
        return dict.fromkeys(numbers, 1.0)
    shares = {name: (value - low) / (high - low) for name, value in numbers.items()}
    return shares if wanted == "maximize" else {name: 1.0 - share for name, share in shares.items()}
