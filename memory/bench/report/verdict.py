"""Who won, in words: the best architecture, what it has over the best control, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator

from memory.bench.report.page import interval, share
from memory.bench.report.results import Entry, Results
from memory.bench.scores.model import Difference


def verdict(results: Results) -> list[str]:
    """A sentence for each token budget, and what was left out."""
    if results.headline is None:
        return ["Nothing could be scored."]
    budgets: dict[int | None, list[Entry]] = {}
    for entry in results.entries:
        budgets.setdefault(entry.variant.budget.max_tokens, []).append(entry)
    sentences = [_sentence(results, results.headline, budget, entries) for budget, entries in budgets.items()]
    return [*filter(None, sentences), *_left_out(results)]


def _sentence(results: Results, figure: str, budget: int | None, entries: list[Entry]) -> str:
    where = "Without a token budget" if budget is None else f"At {budget:,} token{'s' * (budget != 1)}"
    known = [entry for entry in entries if entry.estimate(figure).value is not None]
    rivals = [entry for entry in known if not entry.is_reference]
    architectures = [entry for entry in rivals if entry.is_architecture]
    controls = [entry for entry in rivals if not entry.is_architecture]
    if not known:
        return f"{where}, no provider's {figure} is known."
    if not rivals:
        found = " and ".join(f"{entry.shown} {share(entry.estimate(figure).value)}" for entry in known)
        return f"{where}, nothing but floor or ceiling was played: {found} in {figure}."
    best = _best(architectures or controls, figure)
    reached = f"{best.shown} reaches {share(best.estimate(figure).value)} in {figure}"
    if not architectures:
        others = [entry for entry in controls if entry is not best]
        than = f"; {_against(results, figure, best, _best(others, figure), 'the next')}" if others else ""
        return f"{where}, no memory architecture was played; of the controls {reached}, the most{than}."
    lead = ", the most of the architectures" if len(architectures) > 1 else ""
    if not controls:
        return f"{where}, {reached}{lead}; no control was played beside it."
    control = _best(controls, figure)
    return f"{where}, {reached}{lead}; {_against(results, figure, best, control, 'the best control')}."


def _best(entries: list[Entry], figure: str) -> Entry:
    sign = 1 if entries[0].measure(figure).better == "higher" else -1
    return max(entries, key=lambda entry: sign * (entry.estimate(figure).value or 0.0))


def _against(results: Results, figure: str, best: Entry, control: Entry, what: str) -> str:
    found = _difference(results, figure, best.metrics.label, control.metrics.label)
    name = f"{control.shown}, {what}"
    if found is None or found.value is None:
        return f"it was not asked the same as {name}"
    points = f"{abs(found.value) * 100:.1f} points"
    if found.value == 0 and found.low is None:
        return f"exactly as much as {name}"
    if found.low is None or found.high is None:
        direction = "more" if found.value >= 0 else "less"
        return f"{points} {direction} than {name}, with too few personas to say how sure that is"
    span = f"95 % interval {interval(found)}"
    if found.low <= 0 <= found.high:
        return f"not distinguishable from {name} ({found.value:+.1%}; {span})"
    return f"{points} {'more' if found.value > 0 else 'less'} than {name} ({span})"


def _difference(results: Results, figure: str, first: str, second: str) -> Difference | None:
    for difference in results.metrics.differences:
        if difference.figure != figure:
            continue
        if (difference.first, difference.second) == (first, second):
            return difference
        if (difference.second, difference.first) == (first, second) and difference.value is not None:
            low, high = (None if end is None else -end for end in (difference.high, difference.low))
            return difference.model_copy(
                update={
                    "first": first,
                    "second": second,
                    "value": -difference.value,
                    "low": low,
                    "high": high,
                }
            )
    return None


def _left_out(results: Results) -> Iterator[str]:
    for manifest in results.manifests:
        if manifest.left_out:
            yield f"Left out: {'; '.join(f'{item.label}, which {item.why}' for item in manifest.left_out)}."
