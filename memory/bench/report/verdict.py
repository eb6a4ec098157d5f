"""The verdict in sentences: the best architecture, its lead over the best control, and how sure it is.

Also the reservations: what went wrong, and conditions in which providers differ.
"""

from __future__ import annotations

import re
from pathlib import Path

from memory.bench.engine.provenance import SCRIPTED
from memory.bench.report.page import interval, share, spanned
from memory.bench.report.results import Entry, Results
from memory.bench.scores.model import Difference
from memory.contract._quantity import quantity


def verdict(results: Results) -> list[str]:
    """A sentence for each token budget, then unranked providers with reasons, then providers left out."""
    if results.headline is None:
        return ["Nothing could be scored."]
    budgets: dict[int | None, list[Entry]] = {}
    for entry in results.entries:
        budgets.setdefault(entry.variant.budget.max_tokens, []).append(entry)
    sentences = [_sentence(results, results.headline, budget, entries) for budget, entries in budgets.items()]
    sentences += [
        f"{entry.shown} is not ranked: {why}." for entry in results.entries if (why := unranked(entry))
    ]
    if left_out := results.manifest.left_out:
        without = "; ".join(f"{item.label}, which {item.why}" for item in left_out)
        sentences.append(f"Left out: {without}.")
    return sentences


def banner(results: Results) -> str:
    """The warning that a script replaces the language model of a provider; empty if none does."""
    scripted = [
        entry.shown
        for entry in results.entries
        if any(name.startswith(SCRIPTED) for name in entry.variant.provider.fallback_components)
    ]
    if not scripted:
        return ""
    return (
        f"A script stands in for the language model of {', '.join(scripted)}. It extracts by simple rules: these "
        "figures show how memslot works, and not how good these memories are."
    )


def unranked(entry: Entry) -> str:
    """Why a provider is not ranked; empty if it is."""
    metrics = entry.metrics
    lost = [f"{metrics.failed} failed"] if metrics.failed else []
    lost += [f"{metrics.missing} could not be asked"] if metrics.missing else []
    return f"of {quantity(metrics.requests, 'requests')} {' and '.join(lost)}" if lost else ""


def _sentence(results: Results, figure: str, budget: int | None, entries: list[Entry]) -> str:
    where = "Without a token budget" if budget is None else f"At {quantity(budget, 'tokens')}"
    rivals = [
        entry
        for entry in entries
        if entry.estimate(figure).value is not None and not entry.is_reference and not unranked(entry)
    ]
    if not rivals:
        return f"{where}, there is nobody to rank by {figure}."
    architectures = [entry for entry in rivals if entry.is_architecture]
    best = max(  # equal shares: a provider that was ready comes first
        architectures or rivals,
        key=lambda entry: (entry.estimate(figure).value or 0.0, -entry.metrics.unready),
    )
    found, chance = best.estimate(figure), results.metrics.chance
    kind = "architecture" if architectures else "control"
    if not found.value:
        return f"{where}, no {kind} gets above 0 % in {figure}."
    reached = f"{best.shown} reaches {spanned(found)} in {figure}, of {quantity(found.n, 'requests')}"
    if chance is not None and (found.low if found.low is not None else found.value) <= chance:
        return f"{where}, no {kind} is shown to be better than guessing ({share(chance)}): {reached}."
    played = "" if architectures else " No memory architecture was played."
    if not architectures:
        reached += ", the most of the controls"
    elif len(architectures) > 1:
        reached += f", the most of {len(architectures)} architectures"
    others = [
        (entry, difference)
        for entry in rivals
        if entry is not best and (difference := _difference(results, best, entry)) is not None
    ]
    if not others:
        return f"{where}, {reached}. Nothing comparable was played beside it.{played}"
    control, difference = max(others, key=lambda other: other[0].estimate(figure).value or 0.0)
    return f"{where}, {reached}. That is {_against(results, best, control, difference)}.{played}"


def _against(results: Results, best: Entry, control: Entry, found: Difference) -> str:
    """The lead of the best provider over its best rival."""
    named = results.manifest.settings.get("control")
    which = "the named control" if named else "the best control" if best.is_architecture else "the next"
    name = f"{control.shown}, {which}"
    points = f"{abs(found.value or 0.0) * 100:.1f} points"
    if found.low is None or found.high is None:
        if not found.value:
            return f"exactly as much as {name}"
        return (
            f"{points} {'more' if found.value > 0 else 'less'} than {name}, with too few personas to say how sure "
            "that is"
        )
    span = f"95 % interval {interval(found)}"
    span += f", corrected for {found.family} comparisons" if found.family > 1 else ""
    if found.low <= 0 <= found.high:
        return f"not distinguishable from {name} ({found.value:+.1%}; {span})"
    return f"{points} {'more' if (found.value or 0) > 0 else 'less'} than {name} ({span})"


def _difference(results: Results, first: Entry, second: Entry) -> Difference | None:
    """The comparison of two providers, with its sign changed if the family has them in reverse order."""
    labels = first.metrics.label, second.metrics.label
    for found in results.metrics.differences:
        if (found.first, found.second) == labels:
            return found
        if (found.second, found.first) == labels:
            value, low, high = (
                None if each is None else -each for each in (found.value, found.high, found.low)
            )
            return found.model_copy(update={"value": value, "low": low, "high": high})
    return None


_TIMES = re.compile(r" \(\d+x\)\Z")
_REQUESTS = {  # field of ProviderMetrics -> what happened to the requests
    "failed": "failed, and count as misses",
    "unready": "were asked while nobody knew that the memory was ready; they count as it behaved",
    "missing": "are missing, because the harness broke; bounds stand in their place",
    "unreadable": "were judged in a way that cannot be read",
    "leaks": "show another persona's words: the isolation is broken",
}


def problems(results: Results) -> list[str]:
    """Failures, one line each."""
    left_out = results.manifest.left_out
    found = [f"{item.label}: not run. {item.why}" for item in left_out if item.broken]
    for entry in results.entries:
        if entry.variant.error:
            found.append(f"{entry.shown}: {entry.variant.error.message}")
        for name, why in _REQUESTS.items():
            if number := getattr(entry.metrics, name):
                found.append(
                    f"{entry.shown}: {number:,} of {quantity(entry.metrics.requests, 'requests')} {why}"
                )
        for _, cell in entry.cells:
            where = f"{entry.shown}, {cell.persona_id} ({cell.cell_id})"
            if cell.status != "completed" and not entry.variant.error:
                why = f": {cell.error.message}" if cell.error else ""
                found.append(f"{where}: {cell.status.replace('_', ' ')}{why}")
            for counts, name, what in (
                (cell.writes, "unknown", "writes got no answer, so its memory may have gaps"),
                (cell.counts, "retrieve_errors", "turns were played without memory, because it failed"),
            ):
                if number := counts.get(name, 0):
                    found.append(f"{where}: {number} {what}")
    return found


def resumption(results: Results, directory: Path) -> list[str]:
    """How to resume each cell that did not complete, one line each."""
    lines = []
    for entry in results.entries:
        for _, cell in entry.cells:
            if cell.status in ("completed", "not_run"):
                continue
            why = f": {cell.error.message}" if cell.error else ""
            lines.append(
                f"{entry.shown}, {cell.persona_id} ended after {quantity(cell.sessions, 'sessions')}{why}. "
                f"--resume {directory} goes on with cell {cell.cell_id}"
            )
    left = sum(cell.status == "not_run" for entry in results.entries for _, cell in entry.cells)
    if left:
        lines.append(f"not begun: {quantity(left, 'cells')}; --resume {directory} goes on with them")
    return lines


_EQUAL = 1.1  # mean tokens shown count as equal up to this ratio


def unequal(results: Results) -> list[str]:
    """Conditions in which providers differ, one line each. In these, the comparison is not fair."""
    found: dict[str, dict[str, str]] = {}
    for entry in results.entries:
        for what, value in _conditions(entry).items():
            if what != "token budgets" or not results.manifest.settings.get("budgets"):
                found.setdefault(what, {})[entry.shown] = value
    return _shown_unequally(results) + [
        f"{what} differ: {'; '.join(f'{name}: {value}' for name, value in values.items())}"
        for what, values in found.items()
        if len(set(values.values())) > 1
    ]


def _shown_unequally(results: Results) -> list[str]:
    """Budgets at which providers showed different numbers of tokens, one line each."""
    found: dict[int | None, dict[str, float]] = {}
    for entry in results.entries:
        if not entry.is_reference and (mean := entry.metrics.tokens) is not None:
            found.setdefault(entry.variant.budget.max_tokens, {})[entry.shown] = mean
    return [
        f"tokens shown differ at {f'a budget of {budget:,}' if budget else 'no budget'}: "
        + "; ".join(f"{name}: {mean:,.0f}" for name, mean in means.items())
        for budget, means in found.items()
        if max(means.values()) > _EQUAL * min(means.values())
    ]


def _conditions(entry: Entry) -> dict[str, str]:
    """What compared providers must share."""
    variant, budget = entry.variant, entry.variant.budget
    # A memory that offers no readiness counts as ready.
    states = {state for _, cell in entry.cells for state in cell.readiness}
    ready = {"ready" if state == "not_offered" else state for state in states} or {"not tested"}
    return {
        "token counters": variant.counter,
        "experiment groups": variant.group or "default",
        "test sessions": "read-only" if variant.read_only else "written",
        "readiness": ", ".join(sorted(ready)),
        "token budgets": f"{budget.max_tokens or 'none'}, {budget.max_items or 'any'} items",
    }


TOLD_LABELS = (
    "Memories were told the labels of the script (labels: true): which attribute each turn is about. "
    "A memory that reads only those may lead."
)


def remarks(results: Results) -> list[str]:
    """Warnings of cells and health checks, each once for its provider, and doctor checks not passed."""
    labelled = results.manifest.settings.get("labels")
    every = [TOLD_LABELS] if labelled else []
    for entry in results.entries:
        found = [warning for _, cell in entry.cells for warning in cell.warnings]
        found += [warning for _, cell in entry.cells if cell.health for warning in cell.health.warnings]
        found += [
            f"doctor: {check.name} is {check.status}: {check.evidence}"
            for check in entry.variant.doctor or ()
            if check.status in ("failed", "pending")
        ]
        every += [f"{entry.shown}: {text}" for text in dict.fromkeys(_TIMES.sub("", item) for item in found)]
    return every
