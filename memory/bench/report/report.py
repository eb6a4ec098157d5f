"""The page of an experiment: the winner, its lead, costs, and the lost requests."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from zlib import crc32

from markupsafe import Markup

from memory.bench.engine.files import write_whole
from memory.bench.engine.manifest import Manifest
from memory.bench.report import tables
from memory.bench.report.page import Bar, Block, Curve, Line, Page, request_blocks, stacked
from memory.bench.report.results import Entry, Results, read_results, results_of
from memory.bench.report.verdict import banner, problems, remarks, unequal, verdict
from memory.bench.scores.figures import BY_NAME
from memory.bench.scores.intervals import MIN_CLUSTERS, TOO_FEW
from memory.bench.scores.model import Metrics, Standing

REPORT_FILE = "report.html"
_KNOWN = {
    "mem0": "#2f6f8f", "graphiti": "#d98b2b", "honcho": "#b0517c", "memos": "#7b68b0", "stigmem": "#3f9f95",
    "full_history": "#8a7350", "rolling_summary": "#6a9a4f", "simple_rag": "#4a5fa8", "static_profile": "#a8503f",
    "no_memory": "#9a9a9a", "oracle_ipas": "#55606b",
}  # fmt: skip
_DASHES = ("", "7 4", "2 3", "10 3 2 3", "14 5", "5 2 1 2", "1 5", "9 3 2 3 2 3")
_ORDER: tuple[Standing, ...] = ("architecture", "control", "reference")


def write_page(directory: Path, manifest: Manifest, metrics: Metrics) -> None:
    """Write ``report.html`` into an experiment's directory."""
    write_whole(directory / REPORT_FILE, rendered(directory, manifest, metrics))


def rendered(directory: Path, manifest: Manifest, metrics: Metrics) -> str:
    """The page of one experiment, as HTML."""
    return render(results_of(directory, manifest, metrics))


def write_report(directory: Path) -> tuple[Path, Results]:
    """Compute an experiment's figures again, and write its page. Returns both."""
    results = read_results(directory)
    path = directory / REPORT_FILE
    write_whole(path, render(results))
    return path, results


def render(results: Results) -> str:
    manifest = results.manifest
    return Page(
        title=f"memslot: {manifest.experiment_id}",
        verdict=verdict(results),
        manifest=manifest,
        banner=banner(results),
        lines=[
            *manifest.notes,
            *dict.fromkeys(note for item in manifest.data.values() for note in item.notes),
            *unequal(results),
        ],
        problems=problems(results),
        blocks=[*_blocks(results), *request_blocks(results.entries)],
        quotes=any((place / "texts.jsonl").exists() for entry in results.entries for place, _ in entry.cells),
    ).render()


def _blocks(results: Results) -> Iterator[Block]:
    if (headline := results.headline) is not None:
        yield from _ranking(results, headline)
    yield from _comparisons(results)
    if names := tables.further_figures(results):
        columns, rows = tables.side_by_side(results, names)
        yield Block("More figures", columns=columns, rows=rows, folded=True)
    for figure in results.metrics.headlines:
        columns, rows = tables.by_category(results, figure)
        if len(rows) > 1:
            yield Block(f"{figure.capitalize()} by category", columns=columns, rows=rows, folded=True)
    yield from _contamination(results)
    for what, (columns, rows) in (("Cost", tables.costs(results)), ("Time", tables.times(results))):
        yield Block(what, columns=columns, rows=rows, folded=True)
    yield Block("How far the figures can be trusted", folded=True)
    if found := remarks(results):
        yield Block("Warnings", points=found, folded=True)
    yield _record(results)


def _ranking(results: Results, headline: str) -> Iterator[Block]:
    """The ranked bars of each budget (the first one open), the curve over budgets, and the summary table."""
    budgets = dict.fromkeys(entry.variant.budget.max_tokens for entry in results.entries)
    for number, budget in enumerate(budgets):
        own = [entry for entry in results.entries if entry.variant.budget.max_tokens == budget]
        block = ranked(own, headline)
        if number or len(own) < 2:
            at = "without a token budget" if budget is None else f"at {budget:,} tokens"
            block = replace(block, heading=f"{block.heading} {at}", folded=True)
        yield block
    yield from over_budgets(results, headline)
    columns, rows = tables.summary(results, stacked)
    for number, row in enumerate(rows, start=1):
        row[0] = Markup('<a href="#requests-{}">{}</a>').format(number, row[0])
    note = "A name leads to the provider's requests, those that lost first."
    if any(0 < entry.estimate(headline).clusters < MIN_CLUSTERS for entry in results.entries):
        note = f"{TOO_FEW} {note}"
    kinds = [entry.variant.standing for entry in results.entries]
    yield Block("Side by side", columns=columns, rows=rows, note=note, groups=kinds)


def colour_of(name: str) -> str:
    """A provider's colour, the same on every page. An unlisted name gets its hue from its hash."""
    if name in _KNOWN:
        return _KNOWN[name]
    hue = crc32(name.encode())
    return f"hsl({hue % 360} {45 + hue // 360 % 3 * 12}% {38 + hue // 1080 % 3 * 8}%)"


def ranked(entries: Sequence[Entry], name: str) -> Block:
    """A figure as one bar for each provider: architectures, controls, references, each highest first."""
    bars = []
    for entry in entries:
        variant = entry.variant
        bars.append(Bar(entry.shown, entry.estimate(name), colour_of(variant.series), variant.standing))
    bars.sort(key=lambda bar: (_ORDER.index(bar.group), -(bar.estimate.value or 0.0)))
    note = f"{BY_NAME[name].meaning} Lines are 95 % intervals by persona."
    return Block(name.capitalize(), bars=bars, note=note)


def over_budgets(results: Results, name: str) -> Iterator[Block]:
    """The figure of each provider over the budgets; nothing with fewer than two budgets."""
    found = dict[str, dict[int, float | None]]()
    for entry in results.entries:
        if (budget := entry.variant.budget.max_tokens) is not None:
            found.setdefault(entry.variant.series, {})[budget] = entry.estimate(name).value
    budgets = sorted({budget for each in found.values() for budget in each})
    if len(budgets) < 2:
        return
    whole = math.log(budgets[-1] / budgets[0])
    places = {budget: math.log(budget / budgets[0]) / whole for budget in budgets}
    lines = []
    for number, (label, values) in enumerate(found.items()):
        known = sorted((places[budget], value) for budget, value in values.items() if value is not None)
        lines.append(Line(label, colour_of(label), _DASHES[number % len(_DASHES)], tuple(known)))
    ticks = tuple((places[budget], f"{budget:,}") for budget in budgets)
    curve = Curve(tuple(lines), ticks)
    yield Block(f"{name.capitalize()} over the token budget", curve=curve)


def _comparisons(results: Results) -> Iterator[Block]:
    columns, rows = tables.differences(results)
    if rows:
        note = (
            f"In {results.headline}, on the requests that both have. Intervals and p values hold for all "
            f"{len(rows)} of them together. Floors and ceilings are compared with nobody."
        )
        yield Block("Comparisons", columns=columns, rows=rows, note=note, folded=True)


def _contamination(results: Results) -> Iterator[Block]:
    """What a second round of asking changed: requests that were answered differently, and the shifted figures."""
    rows = []
    for entry in results.entries:
        counts = [cell.counts for _, cell in entry.cells]
        asked, otherwise, failed = (
            sum(count.get(name, 0) for count in counts)
            for name in ("asked_again", "answered_otherwise", "failed_again")
        )
        if asked:
            moved = {item.name: 100 * item.again for item in entry.metrics.measures if item.again}
            largest = sorted(moved.items(), key=lambda item: -abs(item[1]))
            shifts = ", ".join(f"{name} {points:+.1f}" for name, points in largest) or "all the same"
            rows.append([entry.shown, f"{asked:,}", f"{otherwise:,}", f"{failed:,}", shifts])
    columns = ["provider", "asked again", "answered otherwise", "failed then", "figures then, in points"]
    if rows:
        yield Block("Control of contamination", columns=columns, rows=rows, folded=True)


def _record(results: Results) -> Block:
    """Everything that decides what was played, and on what."""
    kept = {"versions", "settings", "hashes", "data", "roles"}
    parts = results.manifest.model_dump(mode="json", include=kept, exclude_none=True)
    parts |= {entry.shown: entry.variant.config for entry in results.entries}
    facts = [(name, json.dumps(part, ensure_ascii=False)) for name, part in parts.items()]
    note = "Configurations as they ran; secrets hidden, files by name only."
    return Block("Record", rows=facts, note=note, folded=True)
