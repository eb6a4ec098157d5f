"""Who won, in words: the best architecture, what it has over the best control, how sure that is; and what must
be known before figures are compared: what went wrong, and what was not alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

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
    for manifest in results.manifests:
        if manifest.left_out:
            without = "; ".join(f"{item.label}, which {item.why}" for item in manifest.left_out)
            sentences.append(f"Left out: {without}.")
    return sentences


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
    for found in (item for item in results.metrics.differences if item.figure == figure):
        if (found.first, found.second) == (first, second):
            return found
        if (found.second, found.first) == (first, second) and found.value is not None:
            low, high = (None if end is None else -end for end in (found.high, found.low))
            turned = {"first": first, "second": second, "value": -found.value, "low": low, "high": high}
            return found.model_copy(update=turned)
    return None


_TIMES = re.compile(r" \(\d+x\)\Z")
_REQUESTS = {  # of a provider, by what went wrong with them
    "failed": "failed, and count as misses",
    "unready": "were asked while nobody knew that the memory was ready; they count as it behaved",
    "missing": "are missing, because the harness broke; bounds stand in their place",
    "unreadable": "were judged in a way that cannot be read",
    "leaks": "show another persona's words: the isolation is broken",
}


def problems(results: Results) -> list[str]:
    """What did not end well, a line each."""
    found: list[str] = []
    for manifest in results.manifests:
        found += [f"{item.label}: not run. {item.why}" for item in manifest.left_out if item.broken]
    for entry in results.entries:
        if entry.variant.error:
            found.append(f"{entry.shown}: {entry.variant.error.message}")
        for name, why in _REQUESTS.items():
            if number := getattr(entry.metrics, name):
                found.append(f"{entry.shown}: {number} of {entry.metrics.requests} requests {why}")
        for _, cell in entry.cells:
            where = f"{entry.shown}, {cell.persona_id} ({cell.cell_id})"
            if cell.status != "completed" and not entry.variant.error:
                why = f": {cell.error.message}" if cell.error else ""
                found.append(f"{where}: {cell.status.replace('_', ' ')}{why}")
            for counts, name, what in (
                (cell.writes, "unknown", "writes got no answer, so its memory may have gaps"),
                (cell.counts, "retrieve_errors", "turns were played without memory, because it failed"),
                (cell.store, "changed", "test sessions left the store's files changed"),
            ):
                if number := counts.get(name, 0):
                    found.append(f"{where}: {number} {what}")
    return found


def unequal(results: Results) -> list[str]:
    """What the providers were not given alike, a line each: a table of them is no fair comparison in that."""
    found: dict[str, dict[str, str]] = {}
    for entry in results.entries:
        for what, value in _given(entry).items():
            found.setdefault(what, {})[entry.shown] = value
    if all(manifest.settings.get("budgets") for manifest in results.manifests):
        found = {what: values for what, values in found.items() if what not in _SWEPT}
    found |= _of_experiments(results.entries)
    return _shown_unequally(results) + [
        f"{what} differ: {'; '.join(f'{name}: {value}' for name, value in values.items())}"
        for what, values in found.items()
        if len(set(values.values())) > 1
    ]


# Settings that decide no figure, or stand with each provider.
_BESIDE = {"providers", "budgets", "event_context", "keep_texts", "diagnostics"}
_SWEPT = ("token budgets", "ways to tell the context")
_EQUAL = 1.1  # tokens shown may differ by so much before they are no longer called equal


def _shown_unequally(results: Results) -> list[str]:
    """Where providers had one budget and did not show as much. A line a budget."""
    found: dict[int | None, dict[str, float]] = {}
    for entry in results.entries:
        if not entry.is_reference and (mean := entry.metrics.tokens.mean) is not None:
            found.setdefault(entry.variant.budget.max_tokens, {})[entry.shown] = mean
    return [
        f"tokens shown differ at {f'a budget of {budget:,}' if budget else 'no budget'}: "
        + "; ".join(f"{name}: {mean:,.0f}" for name, mean in means.items())
        for budget, means in found.items()
        if max(means.values()) > _EQUAL * min(means.values())
    ]


def _of_experiments(entries: Sequence[Entry]) -> dict[str, dict[str, str]]:
    """Settings of several experiments that decide a figure, and configurations under one label."""
    found: dict[str, dict[str, str]] = {}
    for label in dict.fromkeys(entry.variant.label for entry in entries):
        found[f"configurations of {label}"] = {
            entry.shown: entry.variant.config_hash[:12] for entry in entries if entry.variant.label == label
        }
    for setting in sorted({name for entry in entries for name in entry.manifest.settings} - _BESIDE):
        values = {entry.shown: str(entry.manifest.settings.get(setting)) for entry in entries}
        found[setting.replace("_", " ")] = values
    return found


def _given(entry: Entry) -> dict[str, str]:
    """What has to be alike of providers that are compared, in words."""
    variant, manifest = entry.variant, entry.manifest
    budget, memory, git = variant.budget, variant.config["memory"], manifest.versions.git
    revision = git.revision[:12] if git else "no checkout"
    if git and git.dirty:
        revision += " with local changes"
    roles = [role.model_dump(exclude_defaults=True) for role in manifest.roles]
    # Whether test sessions began on a memory known to be ready; one without readiness counts as ready at once.
    states = {state for _, cell in entry.cells for state in cell.readiness}
    ready = {"ready" if state == "not_offered" else state for state in states} or {"not tested"}
    return {
        "token counters": variant.counter,
        "experiment groups": variant.group or "default",
        "test sessions": "read-only" if variant.read_only else "written",
        "readiness": ", ".join(sorted(ready)),
        "data": ", ".join(sorted(data.sha256[:12] for data in manifest.data.values())),
        "versions of memslot": manifest.versions.memslot,
        "source revisions": revision,
        "roles": "; ".join(", ".join(f"{key} {value}" for key, value in role.items()) for role in roles),
        "deadlines": str(memory.get("deadlines")) if isinstance(memory, dict) else "",
        "token budgets": f"{budget.max_tokens or 'none'}, {budget.max_items or 'any'} items",
        "ways to tell the context": variant.event_context,
    }


TOLD_LABELS = (
    "Memories were told the labels of the script (labels: true): which attribute each turn is about. "
    "A memory that reads only those may lead."
)


def remarks(results: Results) -> list[str]:
    """Warnings of cells and health, each once with its provider, and checks of the doctor that were not passed."""
    labelled = any(manifest.settings.get("labels") for manifest in results.manifests)
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


def tests_by(entry: Entry, what: str) -> str:
    """Test sessions of a provider by readiness, or by what became of the store."""
    found: Counter[str] = Counter()
    for _, cell in entry.cells:
        found.update(getattr(cell, what))
    return ", ".join(f"{state} {number}" for state, number in sorted(found.items())) or "–"
