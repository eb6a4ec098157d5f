"""What must be known before figures of an experiment are compared: what went wrong, and what was not alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from memory.bench.engine.manifest import CellRecord, ExperimentManifest, VariantRecord
from memory.bench.report.page import Block
from memory.bench.scores.metrics import GameMetrics


def problems_of(manifest: ExperimentManifest, metrics: GameMetrics) -> list[str]:
    """What did not end well, and what could not be scored, a line each."""
    found = [f"{one.label}: {one.error.message}" for one in manifest.variants if one.error]
    for variant in metrics.variants:
        for number, why in (
            (variant.not_ready, "were made while memory was not known to be ready"),
            (variant.failed, "got no memory, because retrieving failed"),
            (variant.unended, "are of cells that were not played to their end"),
            (variant.unreadable, "were judged in a way that cannot be read"),
        ):
            if number:
                found.append(
                    f"{variant.shown}: {number} of {variant.beats} requests {why}, and are not scored"
                )
    found += _unconfirmed(manifest)
    for cell in manifest.cells:
        if cell.status != "completed":
            why = f": {cell.error.message}" if cell.error else ""
            found.append(f"{cell.cell_id} ({cell.label}, {cell.persona_id}): {cell.status}{why}")
        for number, what in (
            (cell.writes.get("unknown", 0), "writes got no answer, so its memory may have gaps"),
            (cell.counts.get("retrieve_errors", 0), "turns were played without memory, because it failed"),
            (cell.store.get("changed", 0), "test sessions left the store's files changed"),
        ):
            if number:
                found.append(f"{cell.cell_id} ({cell.label}, {cell.persona_id}): {number} {what}")
    return found


def unequal(manifest: ExperimentManifest) -> list[str]:
    """What the providers were not given alike, a line each: a table of them is no fair comparison in that."""
    told: dict[str, dict[str, str]] = {
        "token budgets": {
            one.label: f"{one.budget.max_tokens or 'none'}, {one.budget.max_items or 'any'} items"
            for one in manifest.variants
        },
        "token counters": {one.label: one.counter for one in manifest.variants},
        "experiment groups": {one.label: one.group or "default" for one in manifest.variants},
        "test sessions": {
            one.label: "read-only" if one.read_only else "written" for one in manifest.variants
        },
        "readiness": {
            label: ", ".join(sorted(states)) for label, states in _readiness(manifest.cells).items()
        },
    }
    return [
        f"{what} differ: {'; '.join(f'{label}: {value}' for label, value in values.items())}"
        for what, values in told.items()
        if len(set(values.values())) > 1
    ]


def _readiness(cells: Sequence[CellRecord]) -> dict[str, set[str]]:
    """Whether test sessions of a provider began on a memory known to be ready; saying nothing is ready at once."""
    found: dict[str, set[str]] = {}
    for cell in cells:
        states = {"ready" if state == "not_offered" else state for state in cell.readiness}
        found.setdefault(cell.label, set()).update(states or {"not tested"})
    return found


def played_lines(manifest: ExperimentManifest) -> list[str]:
    """Who played what, and what a reader must know before any figure."""
    first, data = manifest.variants[0], next(iter(manifest.data.values()))
    players = ", ".join(f"{role.role}: {role.model or role.kind}" for role in manifest.roles)
    seeds = f" of seed {', '.join(manifest.data)}" if data.seed is not None else ""
    return [
        f"{manifest.experiment_id}: {data.timeline}{seeds}, {data.personas} personas, "
        f"{len(manifest.cells)} cells; {players}.",
        *data.notes,
        *unequal(manifest),
        *(
            []
            if any(one.budget != first.budget for one in manifest.variants)
            else [f"Sections: {_budget(first)}."]
        ),
        *(f"Left out: {what}." for what in manifest.left_out),
    ]


def _budget(variant: VariantRecord) -> str:
    of = variant.budget
    least = f"at least {of.min_tokens} and " if of.min_tokens else ""
    tokens = f"{least}at most {of.max_tokens} tokens" if of.max_tokens else f"{least}any number of tokens"
    return f"{tokens}, {of.max_items or 'any number of'} items, as {variant.counter} counts"


def _unconfirmed(manifest: ExperimentManifest) -> Iterable[str]:
    """Whose test sessions count although nobody knows whether what was written was there yet."""
    for variant in manifest.variants:
        states = _tests_by(manifest, variant, "readiness")
        number = states["unknown"] + (
            states["not_offered"] if variant.traits.consistency != "immediate" else 0
        )
        if number and manifest.bench.get("score_unknown"):
            yield (
                f"{variant.shown}: {number} test sessions are scored although it could not say whether memory was "
                "ready (score_unknown)."
            )


def _tests_by(manifest: ExperimentManifest, variant: VariantRecord, what: str) -> Counter[str]:
    """Test sessions of a provider by readiness, or by what became of the store."""
    found: Counter[str] = Counter()
    for cell in manifest.cells:
        found.update(getattr(cell, what) if cell.label == variant.label else {})
    return found


def providers_block(manifest: ExperimentManifest) -> Block:
    """What each provider is, and how its test sessions stood."""
    rows = []
    for one in manifest.variants:
        seen = {cell.pet_observability for cell in manifest.cells if cell.label == one.label}
        rows.append(
            [
                one.shown,
                one.provider.kind,
                one.traits.cs_filtering,
                ", ".join(sorted(filter(None, seen))) or "–",
                *(
                    ", ".join(f"{state} {number}" for state, number in sorted(states.items())) or "–"
                    for states in (_tests_by(manifest, one, "readiness"), _tests_by(manifest, one, "store"))
                ),
            ]
        )
    return Block(
        "Providers",
        columns=["provider", "kind", "CS filtering", "changes seen as", "readiness of test sessions",
                 "store after them"],
        rows=rows,
        note="A provider that offers no readiness and remembers at once need not be waited for.",
    )  # fmt: skip
