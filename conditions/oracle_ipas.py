"""The ceiling: tells the agent the truth about a persona's interaction preferences (spec section 2.2).

The truth is a matrix persona x context x attribute -> value. A value may change over time. The newest event's
timestamp is the clock, so the agent learns the current values and no future ones.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Annotated, Any

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    model_validator,
)

from conditions._control import FixedCondition
from memory import (
    MemoryEvent,
    MemoryScope,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    ContextEntry,
    PluginInfo,
    PluginOptions,
    hookimpl,
)


def _midnight(value: Any) -> Any:
    """Make a date without a time midnight in UTC, the start of that day."""
    if isinstance(value, str) and len(value) == len("2026-01-31"):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            return value
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value


_Moment = Annotated[AwareDatetime, BeforeValidator(_midnight)]


class Phase(BaseModel):
    """A value and when it holds: from ``from`` (included) until ``until`` (excluded) or the next phase."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    value: JsonValue
    since: _Moment | None = Field(default=None, alias="from")
    until: _Moment | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Phase:
        if self.since and self.until and self.since >= self.until:
            raise ValueError("until is not after from; swap them")
        return self

    def holds_at(self, now: datetime | None) -> bool:
        if now is None:
            return True
        return (self.since is None or self.since <= now) and (self.until is None or now < self.until)


def _phases(value: Any) -> Any:
    """Accept a bare value, which always holds, and a single phase without a list."""
    if isinstance(value, (list, tuple)):
        return value
    return [value if isinstance(value, dict) and "value" in value else {"value": value}]


Cell = Annotated[tuple[Phase, ...], BeforeValidator(_phases), Field(min_length=1)]
Matrix = dict[str, dict[str, dict[str, Cell]]]


class OracleIpasOptions(PluginOptions):
    """The block ``memory.conditions.oracle_ipas``."""

    matrix: Matrix = Field(examples=[{"user": {"work": {"verbosity": "brief"}}}])
    """persona_id -> context -> attribute -> a value, or a list of ``{value, from, until}``."""


class OracleIpas(FixedCondition):
    def __init__(self, name: str, options: OracleIpasOptions) -> None:
        super().__init__(name, AdapterTraits(kind="control", cs_filtering="hard", recalls_writes=False))
        self._matrix = options.matrix
        self._clocks: dict[MemoryScope, datetime] = {}

    volatile = "volatile: of what is written, only the time is kept, in this process"

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        clock = self._clocks.get(event.scope)
        self._clocks[event.scope] = max(clock, event.timestamp) if clock else event.timestamp
        return await super().record_event(event)

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        now = self._clocks.get(request.scope)
        contexts = self._matrix.get(request.scope.persona_id)
        wanted = request.cs_filters
        holding = [
            (context, attribute, phase)
            for context, attributes in (contexts or {}).items()
            if wanted.get("context", context) == context
            for attribute, cell in attributes.items()
            if wanted.get("attribute", attribute) == attribute and (phase := _current(cell, now)) is not None
        ]
        cells = holding[: request.budget.max_items]
        warnings = [] if contexts is not None else ["the matrix does not know this persona; add it"]
        left_out = len(holding) - len(cells)
        if left_out:
            warnings.append(f"max_items leaves out {left_out} cells")
        return self.found(
            request,
            "matrix.read",
            tuple(_entry(context, attribute, phase) for context, attribute, phase in cells),
            {
                "as_of": now.isoformat() if now else None,
                "cells": [_raw(*cell) for cell in cells],
                "cells_left_out": left_out,
            },
            consistency="committed",
            warnings=tuple(warnings),
        )

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        self._clocks.pop(scope, None)
        return await super().reset_scope(scope)


def _current(cell: tuple[Phase, ...], now: datetime | None) -> Phase | None:
    """The phase that began last. Before the first event (``now`` is None), the first phase."""
    holding = [phase for phase in cell if phase.holds_at(now)]
    choose, never = min if now is None else max, datetime.min.replace(tzinfo=UTC)
    return choose(holding, key=lambda phase: phase.since or never, default=None)


def _entry(context: str, attribute: str, phase: Phase) -> ContextEntry:
    value = phase.value if isinstance(phase.value, str) else json.dumps(phase.value, ensure_ascii=False)
    return ContextEntry(f"{attribute}: {value}", timestamp=phase.since, group=context)


def _raw(context: str, attribute: str, phase: Phase) -> dict[str, Any]:
    return {"context": context, "attribute": attribute, **phase.model_dump(mode="json", by_alias=True)}


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="oracle_ipas",
        kind="control",
        summary="the true interaction preferences of the moment: the ceiling",
        options=OracleIpasOptions,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[OracleIpasOptions]) -> OracleIpas:
    return OracleIpas(settings.name, settings.options)


@hookimpl
def memslot_conformance() -> type[Any]:
    from conditions._conformance import NothingCanFail

    return NothingCanFail
