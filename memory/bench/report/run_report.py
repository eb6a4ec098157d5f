"""The report of one run: a single HTML file without script, without network, without user text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from memory.bench.engine.run_manifest import RunManifest, TokenRecord, read_manifest, write_atomic
from memory.bench.engine.rundir import read_metrics
from memory.bench.report.meaning import meaning_blocks
from memory.bench.report.page import Block, Card, Page, count, milliseconds, share, spanned, with_interval
from memory.bench.report.plots import FULL, PALETTE, Bar, Line, bars, histogram, lines
from memory.bench.report.probe_pages import probe_blocks
from memory.bench.scores.figures import (
    EvidenceScores,
    PreferenceRow,
    PreferenceScores,
    RunMetrics,
)
from memory.bench.scores.run_metrics import percentile

_CHANGED = {True: " with local changes", False: "", None: ", local changes unknown"}


def write_report(
    directory: Path, manifest: RunManifest | None = None, metrics: RunMetrics | None = None
) -> Path:
    """Write ``report.html`` into a run's directory, from what the run left there.

    Args:
        directory: the run's directory.
        manifest, metrics: where the caller has them already.

    Returns:
        The report's path.

    Raises:
        ConfigError: the directory holds no finished run.
    """
    manifest = manifest or read_manifest(directory)
    path = directory / "report.html"
    write_atomic(path, render_report(directory, manifest, metrics or read_metrics(directory)))
    return path


def render_report(directory: Path, manifest: RunManifest, metrics: RunMetrics) -> str:
    """The page of a run."""
    return _page(manifest, metrics, _samples(directory), probe_blocks(directory)).render()


def _samples(directory: Path) -> dict[str, list[float]]:
    """Per-probe tokens and latencies out of ``results.jsonl``; empty where there is none."""
    samples: dict[str, list[float]] = {"tokens": [], "retrieve_ms": []}
    file = directory / "results.jsonl"
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            for name, values in samples.items():
                if row.get(name) is not None:
                    values.append(row[name])
    return samples


def _page(
    manifest: RunManifest, metrics: RunMetrics, samples: dict[str, list[float]], probes: Sequence[Block]
) -> Page:
    data = manifest.data
    blocks: list[Block] = []
    cards: list[Card] = []
    if metrics.evidence:
        cards += _evidence_cards(metrics.evidence)
        blocks += _evidence_blocks(metrics.evidence)
    if metrics.preferences:
        cards += _preference_cards(metrics.preferences)
        blocks += _preference_blocks(metrics.preferences)
    cards += _cost_cards(manifest, metrics)
    blocks += _cost_blocks(manifest, metrics, samples)
    blocks += [*probes, *meaning_blocks([metrics])]
    blocks += _record_blocks(manifest)
    name = data.name or "generated data"
    return Page(
        title=f"{manifest.provider.label} on {data.timeline}",
        heading=manifest.provider.label,
        badges=(
            (manifest.provider.kind, ""),
            (manifest.status, "good" if manifest.status == "completed" else "bad"),
        ),
        lines=(
            *filter(None, (manifest.provider.summary,)),
            f"{data.timeline} ({name}): {data.personas} personas, {data.sessions} sessions, {data.turns:,} turns, "
            f"{data.probes:,} probes",
            f"Budget of each retrieval: {budget_text(manifest)}",
            f"Run {manifest.run_id}, {manifest.created_at:%Y-%m-%d %H:%M} UTC",
        ),
        cards=cards,
        blocks=blocks,
        problems=manifest.problems,
        quotes=bool(probes),
    )


def budget_text(manifest: RunManifest) -> str:
    """The budget in words."""
    budget = manifest.budget
    limits = [
        f"at most {budget.max_tokens:,} tokens" if budget.max_tokens else "any number of tokens",
        f"at most {budget.max_items} items" if budget.max_items else "any number of items",
    ]
    if budget.min_tokens:
        limits.append(f"{budget.min_tokens:,} tokens wanted")
    return ", ".join(limits)


# -- evidence -------------------------------------------------------------------------------------------


def _evidence_cards(scores: EvidenceScores) -> list[Card]:
    overall = scores.overall
    return [
        Card("Evidence recall", share(overall.recall.value), with_interval(overall.recall)),
        Card("All turns pooled", share(overall.pooled), f"of {overall.turns:,} gold turns"),
        Card("All evidence found", share(overall.all_found), f"of {overall.questions:,} questions"),
    ]


def _evidence_blocks(scores: EvidenceScores) -> list[Block]:
    rows = [scores.overall, scores.answerable, *scores.categories, *scores.personas]
    by = {
        "event_id": "A gold turn counts as found where an entry in the context names its event id.",
        "text": "No entry names an event id; a gold turn counts as found where its whole text is in the context.",
        None: "Nothing was ever retrieved.",
    }[scores.by]
    apart = (
        f"Not scored: {scores.without_evidence} questions without evidence, {scores.unresolvable} whose evidence "
        f"names no turn. Evidence ids that name no turn: {scores.unresolved_ids}."
    )
    return [
        Block(
            "Evidence recall by category",
            plot=bars(
                "Evidence recall by category",
                [
                    Bar(
                        row.label,
                        row.recall.value,
                        row.recall.low,
                        row.recall.high,
                        PALETTE[0 if at == 0 else 6],
                    )
                    for at, row in enumerate((scores.overall, *scores.categories))
                ],
                width=FULL,
            ),
            note=f"{by} The interval is by conversation ({scores.overall.recall.clusters}), not by question.",
        ),
        Block(
            "Evidence in the context",
            columns=("", "questions", "gold turns", "recall", "pooled", "any found", "all found", "verbatim"),
            rows=[
                (
                    row.label,
                    count(row.questions),
                    count(row.turns),
                    spanned(row.recall),
                    share(row.pooled),
                    share(row.any_found),
                    share(row.all_found),
                    share(row.verbatim),
                )
                for row in rows
            ],
            note=apart,
        ),
    ]


# -- preferences ----------------------------------------------------------------------------------------


def _preference_cards(scores: PreferenceScores) -> list[Card]:
    overall, detection = scores.overall, scores.detection
    latency = detection.latency.mean
    return [
        Card("Fit", share(overall.fit.value), with_interval(overall.fit)),
        Card("Clean fit", share(overall.clean_fit.value), with_interval(overall.clean_fit)),
        Card("Stale", share(overall.stale.value), with_interval(overall.stale)),
        Card("Contamination", share(overall.contamination.value), with_interval(overall.contamination)),
        Card("Nothing shown", share(overall.nothing_shown.value), f"of {overall.nothing_shown.n} probes"),
        Card(
            "Detection latency",
            "–" if latency is None else f"{latency:.1f}",
            f"sessions; {detection.detected} of {detection.changes} changes noticed",
        ),
        Card("Reversion", share(detection.reversion.value), with_interval(detection.reversion)),
    ]


def preference_bars(row: PreferenceRow) -> list[Bar]:
    """The headline figures of a preference game as bars."""
    named = (
        ("fit", row.fit, 2),
        ("clean fit", row.clean_fit, 6),
        ("stale", row.stale, 1),
        ("contamination", row.contamination, 3),
    )
    return [Bar(name, one.value, one.low, one.high, PALETTE[hue]) for name, one, hue in named]


def _preference_blocks(scores: PreferenceScores) -> list[Block]:
    curve = scores.detection.curve
    leaks = (
        "No probe showed another persona's phrase."
        if not scores.leaks
        else (f"{scores.leaks} probes showed another persona's phrase: the isolation is broken.")
    )
    return [
        Block(
            "Preferences in the context",
            plot=bars("Preference scores", preference_bars(scores.overall)),
            half=True,
        ),
        Block(
            "After a change of mind",
            plot=lines(
                "Fit and stale by sessions since a change",
                [
                    Line("new value shown", tuple((at.sessions, at.fit) for at in curve), PALETTE[2]),
                    Line("old value only", tuple((at.sessions, at.stale) for at in curve), PALETTE[1]),
                ],
                "sessions since the change",
            ),
            half=True,
        ),
        Block(
            "By kind of probe",
            columns=_PREFERENCE_COLUMNS,
            rows=[_preference_cells(row) for row in (scores.overall, *scores.groups)],
            note=leaks,
        ),
        Block(
            "By attribute",
            columns=_PREFERENCE_COLUMNS,
            rows=[_preference_cells(row) for row in scores.attributes],
        ),
    ]


_PREFERENCE_COLUMNS = (
    "", "probes", "personas", "nothing shown", "fit", "clean fit", "stale", "stale shown", "contamination", "decoy",
)  # fmt: skip


def _preference_cells(row: PreferenceRow) -> tuple[str, ...]:
    first = (row.label, count(row.fit.n), count(row.fit.clusters), share(row.nothing_shown.value))
    figures = (row.fit, row.clean_fit, row.stale, row.stale_shown, row.contamination, row.decoy)
    return (*first, *(spanned(figure) for figure in figures))


# -- cost and record ------------------------------------------------------------------------------------


def _cost_cards(manifest: RunManifest, metrics: RunMetrics) -> list[Card]:
    cost = metrics.cost
    return [
        Card("Tokens per query", count(cost.tokens.mean), f"p95 {count(cost.tokens.p95)}"),
        Card(
            "Retrieval p50", milliseconds(cost.retrieve_ms.p50), f"p95 {milliseconds(cost.retrieve_ms.p95)}"
        ),
        Card(
            "Ingest",
            milliseconds(cost.ingest_ms),
            f"{cost.events:,} events, p50 {milliseconds(cost.write_ms.p50)}",
        ),
    ]


def _cost_blocks(manifest: RunManifest, metrics: RunMetrics, samples: dict[str, list[float]]) -> list[Block]:
    cost = metrics.cost
    blocks = []
    for name, heading, unit in (
        ("retrieve_ms", "Retrieval latency", "milliseconds"),
        ("tokens", "Tokens per query", "tokens of the context section"),
    ):
        values = samples[name]
        marks = [
            (label, value) for label, at in (("p50", 0.5), ("p95", 0.95)) if (value := percentile(values, at))
        ]
        blocks.append(Block(heading, plot=histogram(heading, values, unit, marks=marks), half=True))
    wanted = manifest.budget.min_tokens
    named = (
        ("context tokens", cost.tokens, count),
        *((("tokens missing, where short", cost.shortfall, count),) if wanted else ()),
        ("context items", cost.items, count),
        ("retrieve", cost.retrieve_ms, milliseconds),
        ("format", cost.format_ms, milliseconds),
        ("write one event", cost.write_ms, milliseconds),
    )
    rows = [
        (name, *(show(value) for value in (one.mean, one.p50, one.p95, one.least, one.most)))
        for name, one, show in named
    ]
    asked = metrics.probes - metrics.probe_errors
    cut = f"The budget cut {cost.cut} of {asked} contexts. " if cost.cut else ""
    short = f"{cost.short} of {asked} contexts stayed below the {wanted:,} tokens wanted. " if wanted else ""
    return [
        *blocks,
        Block(
            "Cost",
            columns=("", "mean", "p50", "p95", "least", "most"),
            rows=rows,
            note=f"{cut}{short}All writes: {milliseconds(cost.ingest_ms)}. All waits: "
            f"{milliseconds(cost.wait_ms)}. Wall time on this machine; compare within one machine only.",
        ),
    ]


def _record_blocks(manifest: RunManifest) -> list[Block]:
    versions = manifest.versions
    git = versions.git
    facts = [
        (
            "provider",
            f"{manifest.provider.label} ({manifest.provider.kind}), from {manifest.provider.distribution}",
        ),
        ("capabilities", ", ".join(manifest.capabilities) or "none"),
        (
            "CS filtering",
            f"{manifest.traits.cs_filtering}; probes passed: {', '.join(manifest.cs_fields) or 'nothing'}",
        ),
        ("PET observability", manifest.traits.pet_observability or "not declared"),
        ("data", f"sha256 {manifest.data.sha256}"),
        ("configuration", f"hash {manifest.config_hash}"),
        ("seeds", ", ".join(f"{name} {seed}" for name, seed in manifest.seeds.items())),
        ("replicate", str(manifest.replicate)),
        ("token counter", manifest.tokens.counter),
        ("the provider's language models", _llm_use(manifest.tokens)),
        (
            "software",
            f"memslot {versions.memslot}, {versions.implementation} {versions.python}, {versions.platform}",
        ),
        ("distributions", ", ".join(f"{name} {found}" for name, found in versions.distributions.items())),
        (
            "source revision",
            f"{git.revision}{_CHANGED[git.dirty]}" if git else "not a checkout",
        ),
    ]
    if manifest.wired:
        facts.insert(
            1, ("told the truth", f"{', '.join(manifest.wired)} came from the timeline's ground truth")
        )
    blocks = [
        Block(
            "Personas",
            columns=("", "status", "sessions", "events", "native records", "probes", "readiness"),
            rows=[
                (
                    cell.persona_id,
                    cell.status,
                    count(cell.sessions),
                    count(cell.events),
                    count(cell.native_records),
                    count(cell.probes),
                    ", ".join(f"{state} {times}x" for state, times in cell.readiness.items()) or "–",
                )
                for cell in manifest.cells
            ],
        )
    ]
    remarks = [*manifest.not_run, *manifest.data.notes, *manifest.warnings]
    if manifest.health:
        remarks += manifest.health.warnings
    if remarks:
        blocks.append(Block("To bear in mind", points=remarks))
    blocks.append(Block("Record", rows=facts))
    shown = json.dumps(manifest.config, indent=2, ensure_ascii=False)
    blocks.append(Block("Configuration", code=shown, note="As it ran; secrets hidden, files by name only."))
    return blocks


def _llm_use(tokens: TokenRecord) -> str:
    def told(calls: int | None, used: int | None) -> str:
        if calls is None:
            return "unknown: the provider does not say"
        return f"{calls:,} calls, {'an unknown number of' if used is None else f'{used:,}'} tokens"

    return (
        f"while writing {told(tokens.ingest_calls, tokens.ingest_model)}; "
        f"while retrieving {told(tokens.retrieve_calls, tokens.retrieve_model)}"
    )
