"""The experiment's page, from its manifest and its figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from memory.bench.engine.context import write_whole
from memory.bench.engine.manifest import ExperimentManifest
from memory.bench.report.costs import cost_blocks, models_block
from memory.bench.report.fairness import played_lines, problems_of, providers_block
from memory.bench.report.page import Block, Page, count, share
from memory.bench.report.plots import NARROW, Line, lines, own_colours, scatter
from memory.bench.report.requests import INSTEAD, beat_blocks
from memory.bench.scores.figures import Difference, Estimate
from memory.bench.scores.intervals import METHOD
from memory.bench.scores.metrics import MEANINGS, GameMetrics, Measure, VariantMetrics

_SHOWN = ("style fit", "discrimination", "contamination", "detection", "reversion", "felt effort", "coherence",
          "overall", "over-personalisation")  # fmt: skip
_BEHAVIOUR = (
    "Shares of judged requests, with 95 % intervals by persona. CS is context sensitivity, PET preference "
    "evolution tracking, IQI interaction quality. Lower is better for contamination, reversion, felt effort and "
    "over-personalisation; who shows nothing at all has no contamination, reversion or over-personalisation, which "
    "is the floor and no merit."
)
_ANSWERS = (
    "Shares of questions, with 95 % intervals by persona. Of n given answers a guess is right in one of n."
)
_MANY = (
    "Intervals stand each for itself: of twenty differences between equals, one will leave zero out. Look at those "
    "you meant to look at before."
)
_Part = Literal["attribute", "kind"]
_PAIRED = ("style fit", "discrimination", "detection", "felt effort", "overall")
_ASKED = ("right answers",)
_POINTS = 12
"""Of the learning curve: more are noise, of a dozen requests each."""


def _measure(variant: VariantMetrics, name: str) -> Measure:
    return next(one for one in variant.measures if one.name == name)


def _figure(of: Estimate | Difference, sign: str = "") -> str:
    """A share, its interval in a second line."""
    told = "–" if of.value is None else f"{of.value:{sign}.1%}"
    return told if of.low is None or of.high is None else f"{told}\n{of.low:{sign}.0%} to {of.high:{sign}.0%}"


def _named(metrics: GameMetrics) -> list[str]:
    """The figures that tell most: on behaviour, else on answers, and where nothing was answered, on retrieval."""
    for names in (_SHOWN, _ASKED):
        if any(_measure(one, names[0]).estimate.n for one in metrics.variants):
            return [*names]
    return _retrieval(metrics)


def _retrieval(metrics: GameMetrics) -> list[str]:
    """The figures on retrieval that anything is known of."""
    return [
        of.name
        for of in metrics.variants[0].measures
        if of.group == "retrieval" and any(_measure(one, of.name).estimate.n for one in metrics.variants)
    ]


def summary(
    metrics: GameMetrics, figure: Callable[[Estimate], str] = lambda of: share(of.value)
) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: the figures that tell most, side by side.

    Args:
        metrics: of the experiment.
        figure: how each is written.
    """
    names = _named(metrics)
    rows = [
        [
            one.shown,
            *(figure(_measure(one, name).estimate) for name in names),
            count(one.turns.mean) if names == [*_SHOWN] else count(one.tokens.mean),
            f"{one.beats - one.scored} of {one.beats}",
        ]
        for one in metrics.variants
    ]
    return ["provider", *names, "replies" if names == [*_SHOWN] else "tokens", "not scored"], rows


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
    return Page(
        title=f"memslot: {manifest.experiment_id}",
        heading="The preference game" if data.timeline in ("game", "mempabench") else "Questions to memories",
        badges=[(manifest.status, "good" if good else "bad")],
        lines=played_lines(manifest),
        cards=[],
        problems=problems_of(manifest, metrics),
        blocks=[*_blocks(manifest, metrics), *beats],
        quotes=bool(beats),
    )


def _blocks(manifest: ExperimentManifest, metrics: GameMetrics) -> Iterable[Block]:
    names = _named(metrics)
    main, answered = names[0] if names else "shown", names[:1] in ([_SHOWN[0]], [_ASKED[0]])
    behaved = main == _SHOWN[0]
    if answered:
        yield Block(
            "Behaviour" if behaved else "Answers",
            columns=["provider", *(_headed(_measure(metrics.variants[0], name)) for name in names)],
            rows=[
                [one.shown, *(_figure(_measure(one, name).estimate) for name in names)]
                for one in metrics.variants
            ],
            note=_BEHAVIOUR if behaved else _ANSWERS,
        )
        yield _learning(metrics, main)
    yield from (_price(metrics, name) for name in (names[:1] if answered else names[-1:]))
    parts: tuple[_Part, ...] = ("attribute", "kind") if behaved else ("attribute",)
    if answered:
        yield Block("Where each lost", points=[_lost(one, main, parts) for one in metrics.variants])
    retrieval = _retrieval(metrics)
    if retrieval:
        yield _retrieved(metrics, retrieval)
    yield from _paired(metrics, _PAIRED if behaved else names)
    for by in parts if answered else ():
        labels = sorted({row.label for one in metrics.variants for row in one.rows if row.by == by})
        yield Block(
            f"{main.capitalize()} by {by if behaved else 'category'}",
            columns=[by if behaved else "category", *(one.shown for one in metrics.variants)],
            rows=[[label, *(_of(one, by, label) for one in metrics.variants)] for label in labels],
        )
    yield providers_block(manifest)
    yield from cost_blocks(manifest)
    if any(role.kind == "model" for role in manifest.roles):
        yield models_block(manifest, metrics)
    shown = [*names, *(name for name in retrieval if name not in names)]
    yield Block("What these figures mean", rows=[(name, MEANINGS[name]) for name in shown])
    yield Block("How far they can be trusted", points=[METHOD, _MANY])


def _retrieved(metrics: GameMetrics, names: Sequence[str]) -> Block:
    return Block(
        "Retrieval",
        columns=["provider", *names, "tokens"],
        rows=[
            [one.shown, *(_figure(_measure(one, name).estimate) for name in names), count(one.tokens.mean)]
            for one in metrics.variants
        ],
        note="Of the section of each first reply. Lower is better for the stale rate; none is no stale one.",
    )


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


def _learning(metrics: GameMetrics, name: str = "style fit") -> Block:
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
    note = MEANINGS[name]
    if sizes:
        over = str(max(sizes)) if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"
        pooled = max(map(len, pools))
        upto = f" of up to {pooled} test sessions up to there" if pooled > 1 else ""
        note += f" A point is over {over} requests{upto}."
    if shifts:
        note += f" Vertical rules: preferences change after session {', '.join(map(str, shifts))}."
    plot = lines(
        f"{name.capitalize()} while sessions are ingested",
        series,
        "sessions ingested",
        marks=shifts,
        width=NARROW,
    )
    return Block(f"Learning curve: {name}", plot=plot, note=note, half=True)


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


def _lost(
    variant: VariantMetrics, name: str = "style fit", parts: Sequence[_Part] = ("attribute", "kind")
) -> str:
    """A sentence: the attribute and the kind of request with the lowest share, and what was shown instead."""
    known = [row for row in variant.rows if row.by in parts and row.fit.value is not None]
    if len({row.fit.value for row in known}) < 2:
        every = share(known[0].fit.value) + " throughout" if known else "nothing was scored"
        return f"{variant.shown}: {every}."
    told = []
    for by in parts:
        rows = [row for row in known if row.by == by]
        worst = min(rows, key=lambda row: (row.fit.value or 0, -row.fit.n, row.label), default=None)
        if worst is not None:
            part = f"{by if len(parts) > 1 else 'category'} {worst.label}"
            told.append(f"{part}, {share(worst.fit.value)} of {worst.fit.n}{_instead(worst.shown)}")
    what = "share of right answers" if name in _ASKED else name
    return f"{variant.shown}: lowest {what} in {'; and in '.join(told)}."


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
