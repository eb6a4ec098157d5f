"""The experiment's page, from its manifest and its figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from memory.bench.figures import Difference, Estimate
from memory.bench.game.beat_pages import INSTEAD, beat_blocks
from memory.bench.game.manifest import CellRecord, ExperimentManifest
from memory.bench.game.metrics import GameMetrics, Measure, VariantMetrics
from memory.bench.game.table import write_whole
from memory.bench.page import Block, Page, count, share
from memory.bench.plots import NARROW, Line, lines, own_colours, scatter

__all__ = ["problems_of", "render_game_report", "summary", "unequal", "write_game_report"]

_SHOWN = ("style fit", "discrimination", "contamination", "detection", "reversion", "felt effort", "coherence",
          "overall", "over-personalisation")  # fmt: skip
_PAIRED = ("style fit", "discrimination", "detection", "felt effort", "overall")
_POINTS = 12
"""Of the learning curve: more are noise, of a dozen requests each."""


def _measure(variant: VariantMetrics, name: str) -> Measure:
    return next(one for one in variant.measures if one.name == name)


def _figure(of: Estimate | Difference, sign: str = "") -> str:
    """A share, its interval in a second line."""
    told = "–" if of.value is None else f"{of.value:{sign}.1%}"
    return told if of.low is None or of.high is None else f"{told}\n{of.low:{sign}.0%} to {of.high:{sign}.0%}"


def _named(metrics: GameMetrics) -> list[str]:
    """The figures that tell most: those on behaviour; where nothing was answered, those on retrieval."""
    first = metrics.variants[0].measures
    if any(_measure(one, "style fit").estimate.n for one in metrics.variants):
        return list(_SHOWN)
    known = {
        of.name
        for one in metrics.variants
        for of in one.measures
        if of.group == "retrieval" and of.estimate.n
    }
    return [one.name for one in first if one.name in known]


def summary(metrics: GameMetrics) -> tuple[list[str], list[list[str]]]:
    """Columns and rows for a terminal: the figures that tell most, side by side."""
    names = _named(metrics)
    rows = [
        [
            one.shown,
            *(share(_measure(one, name).estimate.value) for name in names),
            count(one.turns.mean) if names == [*_SHOWN] else count(one.tokens.mean),
            f"{one.beats - one.scored} of {one.beats}",
        ]
        for one in metrics.variants
    ]
    return ["provider", *names, "replies" if names == [*_SHOWN] else "tokens", "not scored"], rows


def problems_of(manifest: ExperimentManifest, metrics: GameMetrics) -> list[str]:
    """What did not end well, and what could not be scored, a line each."""
    found = [f"{one.label}: {one.error.message}" for one in manifest.variants if one.error]
    for variant in metrics.variants:
        for number, why in (
            (variant.not_ready, "were made while memory was not known to be ready"),
            (variant.failed, "got no memory, because retrieving failed"),
            (variant.unreadable, "were judged in a way that cannot be read"),
        ):
            if number:
                found.append(
                    f"{variant.shown}: {number} of {variant.beats} requests {why}, and are not scored"
                )
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


def write_game_report(directory: Path, manifest: ExperimentManifest, metrics: GameMetrics) -> Path:
    """Write ``report.html`` into an experiment's directory; returns its path."""
    path = directory / "report.html"
    write_whole(path, render_game_report(directory, manifest, metrics))
    return path


def render_game_report(directory: Path, manifest: ExperimentManifest, metrics: GameMetrics) -> str:
    """The page of an experiment."""
    return _page(manifest, metrics, beat_blocks(directory, manifest)).render()


def _page(manifest: ExperimentManifest, metrics: GameMetrics, beats: Sequence[Block]) -> Page:
    good = manifest.status == "completed"
    data = next(iter(manifest.data.values()))
    players = ", ".join(f"{role.role}: {role.model or role.kind}" for role in manifest.roles)
    return Page(
        title=f"memslot: {manifest.experiment_id}",
        heading="The preference game" if data.timeline in ("game", "mempabench") else "Questions to memories",
        badges=[(manifest.status, "good" if good else "bad")],
        lines=[
            f"{manifest.experiment_id}, {data.timeline}, {len(manifest.cells)} cells of "
            f"{data.personas} personas and {len(manifest.data)} seeds; {players}.",
            *unequal(manifest),
        ],
        cards=[],
        problems=problems_of(manifest, metrics),
        blocks=[*_blocks(manifest, metrics), *beats],
        quotes=bool(beats),
    )


def _blocks(manifest: ExperimentManifest, metrics: GameMetrics) -> Iterable[Block]:
    names, answered = _named(metrics), _named(metrics) == [*_SHOWN]
    if answered:
        yield Block(
            "Behaviour",
            columns=["provider", *(_headed(_measure(metrics.variants[0], name)) for name in names)],
            rows=[
                [one.shown, *(_figure(_measure(one, name).estimate) for name in names)]
                for one in metrics.variants
            ],
            note="Shares of judged requests, with 95 % intervals by persona. CS is context sensitivity, PET "
            "preference evolution tracking, IQI interaction quality. Lower is better for contamination, reversion, "
            "felt effort and over-personalisation.",
        )
        yield _learning(metrics)
    yield from (_price(metrics, name) for name in (names[:1] if answered else names[-1:]))
    if answered:
        yield Block("Where each lost", points=[_lost(one) for one in metrics.variants])
    retrieval = [one.name for one in metrics.variants[0].measures if one.group == "retrieval"]
    yield Block(
        "Retrieval",
        columns=["provider", *retrieval, "tokens"],
        rows=[
            [
                one.shown,
                *(_figure(_measure(one, name).estimate) for name in retrieval),
                count(one.tokens.mean),
            ]
            for one in metrics.variants
        ],
        note="Of the section of each first reply. Lower is better for the stale rate.",
    )
    yield from _paired(metrics, _PAIRED if answered else names)
    if answered:
        for by in ("attribute", "kind"):
            labels = sorted({row.label for one in metrics.variants for row in one.rows if row.by == by})
            yield Block(
                f"Style fit by {by}",
                columns=[by, *(one.shown for one in metrics.variants)],
                rows=[[label, *(_of(one, by, label) for one in metrics.variants)] for label in labels],
            )
    yield from _costs(manifest)
    if any(role.kind == "model" for role in manifest.roles):
        yield _models(manifest, metrics)


def _models(manifest: ExperimentManifest, metrics: GameMetrics) -> Block:
    """What the roles' models were asked, and how far their answers can be trusted."""
    rows = []
    for one in metrics.variants:
        spent: Counter[str] = Counter()
        for cell in manifest.cells:
            for counts in cell.models.values() if cell.label == one.label else ():
                spent.update(counts)
        agreed = share(one.agreement)
        rows.append([one.shown, *(f"{spent[name]:,}" for name in ("calls", "tokens", "unread")), agreed])
    asked = [
        f"{role.role}: {role.model or role.provider}, temperature {_given(role.temperature)}, "
        f"seed {_given(role.seed)}" + (f", {role.votes} votes" if role.votes > 1 else "")
        for role in manifest.roles
        if role.kind == "model"
    ]
    columns = ["provider", "calls", "tokens", "answers not read", "votes that agree"]
    return Block("Models in the roles", columns=columns, rows=rows, note=". ".join(asked) + ".")


def _given(value: float | None) -> str:
    return "not given" if value is None else f"{value:g}"


def _headed(measure: Measure) -> str:
    return f"{measure.name}\n{measure.group}" if measure.group in ("CS", "PET", "IQI") else measure.name


def _paired(metrics: GameMetrics, names: Sequence[str]) -> Iterable[Block]:
    shown = {one.label: one.shown for one in metrics.variants}
    pairs: dict[tuple[str, str], dict[str, Difference]] = {}
    for one in metrics.differences:
        pairs.setdefault((one.first, one.second), {})[one.figure] = one
    rows = [
        [
            f"{shown[first]} less {shown[second]}",
            *(_figure(found[name], "+") if name in found else "–" for name in names),
            str(found[names[0]].n) if names[0] in found else "–",
        ]
        for (first, second), found in pairs.items()
        if names
    ]
    if rows:
        yield Block(
            "Paired differences",
            columns=["first less second", *names, "requests"],
            rows=rows,
            note=f"On what both are scored on, with 95 % intervals by persona; requests are those of {names[0]}. "
            "The other figures' are in metrics.json, and in what memslot report --as csv prints.",
        )


def _learning(metrics: GameMetrics) -> Block:
    shifts = sorted({shift for one in metrics.variants for shift in one.shifts})
    pools = _pools(sorted({at.after for one in metrics.variants for at in one.curve}), shifts)
    colours = own_colours([one.label for one in metrics.variants])
    series, sizes = [], set()
    for index, variant in enumerate(metrics.variants):
        points = []
        for pool in pools:
            fits = [at.fit for at in variant.curve if at.after in pool and at.fit.value is not None]
            if n := sum(fit.n for fit in fits):
                points.append((pool[-1], math.fsum((fit.value or 0) * fit.n for fit in fits) / n))
                sizes.add(n)
        series.append(Line(variant.shown, tuple(points), colours[index], index))
    note = "Share of first replies that suit."
    if sizes:
        over = str(max(sizes)) if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"
        note += f" A point is over {over} requests of up to {max(map(len, pools))} test sessions up to there."
    if shifts:
        note += f" Vertical rules: preferences change after session {', '.join(map(str, shifts))}."
    plot = lines(
        "Style fit while sessions are ingested", series, "sessions ingested", marks=shifts, width=NARROW
    )
    return Block("Learning curve: style fit", plot=plot, note=note, half=True)


def _price(metrics: GameMetrics, name: str = "style fit") -> Block:
    """What a provider takes of the model's context, against what it gives."""
    colours = own_colours([one.label for one in metrics.variants])
    series = [
        Line(
            one.shown,
            () if one.tokens.mean is None else ((one.tokens.mean, _measure(one, name).estimate.value),),
            colours[index],
            index,
        )
        for index, one in enumerate(metrics.variants)
    ]
    return Block(
        "Cost against quality",
        plot=scatter(
            f"{name.capitalize() if name.islower() else name} over tokens of context",
            series,
            "tokens of context per first reply",
            width=NARROW,
        ),
        note="Up is better, left is cheaper. Times of retrieving are in the table of costs.",
        half=True,
    )


def _lost(variant: VariantMetrics) -> str:
    """A sentence: the attribute and the kind of request with the lowest style fit, and what was shown instead."""
    known = [row for row in variant.rows if row.by in ("attribute", "kind") and row.fit.value is not None]
    if len({row.fit.value for row in known}) < 2:
        every = share(known[0].fit.value) + " throughout" if known else "nothing was scored"
        return f"{variant.shown}: {every}."
    told = []
    for by in ("attribute", "kind"):
        rows = [row for row in known if row.by == by]
        worst = min(rows, key=lambda row: (row.fit.value or 0, -row.fit.n, row.label), default=None)
        if worst is not None:
            told.append(
                f"{by} {worst.label}, {share(worst.fit.value)} of {worst.fit.n}{_instead(worst.shown)}"
            )
    return f"{variant.shown}: lowest style fit in {'; and in '.join(told)}."


def _instead(shown: Mapping[str, int]) -> str:
    wrong = {what: number for what, number in shown.items() if what in INSTEAD}
    if not wrong:
        return ""
    most = max(wrong, key=lambda what: (wrong[what], what))
    return f" ({wrong[most]} showed {INSTEAD[most]})"


def _pools(afters: Sequence[int], shifts: Sequence[int]) -> list[list[int]]:
    """Neighbouring insertion points, about ``_POINTS`` pools of them, none with a change of preferences within."""
    most = math.ceil(len(afters) / _POINTS)
    pools: list[list[int]] = []
    for after in afters:
        if not pools or len(pools[-1]) >= most or any(pools[-1][-1] < shift <= after for shift in shifts):
            pools.append([])
        pools[-1].append(after)
    return pools


def _of(variant: VariantMetrics, by: str, label: str) -> str:
    return next((share(row.fit.value) for row in variant.rows if row.by == by and row.label == label), "–")


def _costs(manifest: ExperimentManifest) -> Iterable[Block]:
    """What was written, asked and shown, what the providers' own models took, and how long each thing took."""
    tokens, times = [], []
    for variant in manifest.variants:
        own = [cell for cell in manifest.cells if cell.label == variant.label]
        counts: Counter[str] = Counter()
        for cell in own:
            counts.update(cell.counts)
        tokens.append(
            [
                variant.shown,
                f"{sum(cell.status == 'completed' for cell in own)} of {len(own)}",
                *(
                    f"{counts[name]:,}"
                    for name in ("events", "written_tokens", "asked_tokens", "context_tokens")
                ),
                *(
                    "unknown" if counts[f"{name}_unknown"] else f"{counts[name]:,}"
                    for name in ("llm_calls", "llm_tokens")
                ),
                str(sum(cell.resumed for cell in own)),
            ]
        )
        times.append([variant.shown, *(_time(own, phase) for phase in _PHASES)])
    yield Block(
        "Cost",
        columns=["provider", "cells", "events", *_TOKENS, "model calls to write", "their tokens", "resumed"],
        rows=tokens,
        note="Of accumulation. Models are the provider's own; what it derives later it seldom tells.",
    )
    yield Block(
        "Time",
        columns=["provider", *_PHASES.values()],
        rows=times,
        note="Milliseconds, p50 / p95 / p99; of its cells the middle one.",
    )


_TOKENS = ("tokens written", "tokens asked", "tokens shown")
_PHASES = {
    "write": "write",
    "wait": "until ready",
    "retrieve": "retrieve",
    "answer": "answer",
    "judge": "judge",
}


def _time(cells: Sequence[CellRecord], phase: str) -> str:
    """Of the cells, the middle one's."""
    seen = [cell.timings[phase] for cell in cells if phase in cell.timings]
    middle = [
        sorted(value for one in seen if (value := getattr(one, name)) is not None)
        for name in ("p50", "p95", "p99")
    ]
    return " / ".join(f"{values[len(values) // 2]:,.1f}" if values else "–" for values in middle)
