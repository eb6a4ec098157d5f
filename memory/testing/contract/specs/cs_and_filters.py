"""Scenario, context, attribute and other filters act as declared (spec 5.2, 9.9)."""

from __future__ import annotations

from typing import Any

from memory import ContextBudget
from memory.testing.contract._kit import Kit, as_json, unique_word
from memory.testing.contract._spec import NotRun, of_recall, promise

_FIELDS = ("scenario", "context", "attribute")
_NARROW = "filter in the native query, by every key and operator that it is given"
_RANGES = {"gt": (2020, 2024), "gte": (2024, 2024), "lt": (2024, 2020), "lte": (2020, 2020)}
"""Operator -> its operand, and the one of the years 2020 and 2024 that passes it."""


@promise(
    "send scenario, context and attribute with the native query",
    "declare what they do: cs_filtering='soft', or 'none'",
)
async def cs_fields_act_as_declared(kit: Kit) -> None:
    """Spec 9.9: ``hard`` filters. ``soft`` and ``none`` leave both facts retrievable. Traces name the kind."""
    declared = kit.slot.traits.cs_filtering
    for field, resembling in zip(_FIELDS, ("work at home", "homework", "Work"), strict=True):
        await kit.remember(f"{field} work", **{field: "work"})
        await kit.remember(f"{field} personal", **{field: resembling})
        result = await kit.ask(f"{field} work", **{field: "work"})
        assert result.trace.cs_filtering == declared, "the trace does not say what is declared"
        if not kit.recalls_writes:
            continue
        assert unique_word(f"{field} work") in result.formatted_context, f"{field} hides its own fact"
        shown = unique_word(f"{field} personal") in as_json(result.raw) + result.formatted_context
        assert not (shown and declared == "hard"), f"{field}: {resembling!r} was taken for 'work'"
        assert await kit.recalls(f"{field} personal"), "a request without CS fields must find everything"


@of_recall("let the fields take part in the ranking", "declare cs_filtering='none'")
async def soft_cs_fields_have_an_effect(kit: Kit) -> None:
    """Spec 9.9: ``soft`` influences the ranking. Fields that change nothing are ``none``.

    A backend may sort its choice by date. Then a budget of one item shows the ranking.
    """
    if kit.slot.traits.cs_filtering != "soft":
        raise NotRun("not applicable", "soft CS filtering")
    for field in _FIELDS:
        for value in ("work", "holiday"):
            fact = f"For {value} I keep my {field} passport in the {unique_word(field + value)} drawer."
            await kit.slot.record_event(kit.event(fact, **{field: value}))
        await kit.until_ready()
        ranked = []
        for value in ("work", "holiday"):
            entries = (await kit.ask(field, **{field: value})).entries
            found = any(unique_word(field + value) in entry.text for entry in entries)
            assert found, f"{field} hides its own fact"
            best = (await kit.ask(field, budget=ContextBudget(max_items=1), **{field: value})).entries
            ranked.append([[(entry.text, entry.score) for entry in some] for some in (entries, best)])
        assert ranked[0] != ranked[1], f"{field} changes neither the order nor a score nor the choice"


@promise("filter by request.where alone, which the slot makes: it leaves context out of such a probe")
async def a_cross_context_probe_is_not_filtered(kit: Kit) -> None:
    """Spec 5.2: a probe may deliberately search across contexts."""
    await kit.remember("work", context="work")
    result = await kit.ask("work", context="personal", filters={"cross_context": True})
    found = unique_word("work") in result.formatted_context
    assert found == kit.recalls_writes, "a declared cross-context probe was filtered by its context"


@promise("compare as numbers", "leave gt, gte, lt and lte out of filter_operators")
async def ranges_compare_numbers(kit: Kit) -> None:
    """DESIGN 5.2: the declared ones of ``gt``, ``gte``, ``lt`` and ``lte`` treat the bound correctly."""
    operators = _RANGES.keys() & kit.slot.traits.filter_operators
    if not operators:
        raise NotRun("not declared", "filters by range")
    for year in (2020, 2024):
        await kit.remember(f"year {year}", metadata={"year": year})
    ranges = [({operator: _RANGES[operator][0]}, _RANGES[operator][1]) for operator in sorted(operators)]
    if {"gt", "lt"} <= operators:
        ranges += [({"gt": 2000, "lt": 2022}, 2020), ({"gt": 2022, "lt": 2100}, 2024)]
    for bounds, wanted in ranges:
        shown = as_json((await kit.ask("year", filters={"year": bounds})).raw)
        seen = [year for year in (2020, 2024) if unique_word(f"year {year}") in shown]
        assert seen == [wanted], f"a year of {bounds} let {seen} through"


@of_recall(_NARROW, "declare what the backend can: cs_filtering='soft', fewer filter_operators")
async def several_filters_narrow_together(kit: Kit) -> None:
    """Every entry satisfies all filters."""
    hard, by_metadata = filters_of(kit)
    await kit.remember("blue", scenario="inbox", context="work", metadata={"region": "north", "floor": "two"})
    cs, metadata = {"scenario": "inbox", "context": "work"}, {"region": "north", "floor": "two"}
    for fields in ([cs] if hard else []) + ([metadata] if by_metadata else []):
        for wrong in (None, *fields):
            asked = {name: "elsewhere" if name == wrong else value for name, value in fields.items()}
            given: dict[str, Any] = dict(asked) if fields is cs else {"filters": asked}
            shown = unique_word("blue") in await kit.shown("blue", **given)
            assert shown == (wrong is None), f"{given}: shown is {shown}, and must be {wrong is None}"


def filters_of(kit: Kit) -> tuple[bool, bool]:
    """Whether CS fields filter, and whether metadata does. The spec is skipped if neither does."""
    hard, by_metadata = kit.slot.traits.cs_filtering == "hard", "eq" in kit.slot.traits.filter_operators
    if not hard and not by_metadata:
        raise NotRun("not declared", "filters")
    return hard, by_metadata


@of_recall(_NARROW)
async def a_filter_narrows_before_the_limit(kit: Kit) -> None:
    """The limit applies to matching rows. The adapter does not filter the best rows afterwards."""
    hard, _ = filters_of(kit)
    await kit.remember("green", context="work", metadata={"region": "north"})
    for _ in range(3):
        await kit.remember("blue", context="travel", metadata={"region": "south"})
    wanted: dict[str, Any] = {"context": "work"} if hard else {"filters": {"region": "north"}}
    found = (await kit.ask("blue", budget=ContextBudget(max_items=1), **wanted)).entries
    assert any(unique_word("green") in entry.text for entry in found), (
        "what matches the filter is hidden by what does not: the limit was applied first"
    )
