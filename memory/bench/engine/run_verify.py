"""Whether what a run left still agrees with itself: files, results, traces, figures and report, each computed anew.

What is compared with what: the hashes of the files with those in the manifest; each result with the trace of its
retrieval, and with its score where texts were kept; the manifest's counts with results and traces; the figures with
the results; the pages with the figures. Times of the writes and waits are taken as told: only the harness saw them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from memory.bench.data.timeline import EvidenceTruth, PreferenceTruth, TimelineSet
from memory.bench.engine.run_manifest import RunManifest, read_manifest
from memory.bench.engine.run_settings import RunSettings, load_timelines
from memory.bench.engine.rundir import file_hashes, read_metrics, read_results
from memory.bench.report.comparison import differences, read_comparison, render_comparison
from memory.bench.report.run_report import render_report
from memory.bench.scores.figures import RunMetrics
from memory.bench.scores.llm_use import Phased
from memory.bench.scores.run_metrics import ProbeRecord, cost_scores, evidence_scores, preference_scores
from memory.bench.scores.scoring import WholeTurns, marks
from memory.contract.errors import ConfigError
from memory.contract.receipts import Trace

_TOLD = frozenset({"write_ms", "ingest_ms", "wait_ms", "events"})
_MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class Deviation:
    """Something that is not what it was computed from. ``where`` names file and field."""

    where: str
    recorded: str
    computed: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What was looked at, what of it deviates, and what could not be looked at and why."""

    checked: tuple[str, ...]
    deviations: tuple[Deviation, ...]
    unchecked: tuple[str, ...]


def verify(directory: Path, data: Path | None = None) -> Verified:
    """Compute anew what can be, of a run, a comparison or an experiment.

    Args:
        directory: as ``memslot run``, ``compare`` or ``bench`` left it.
        data: the data file that the run read, where it read one; the manifest holds its name and hash alone.

    Raises:
        ConfigError: there is nothing to verify, it is damaged, or the run is incomplete.
    """
    if (directory / "experiment.json").exists():
        from memory.bench.engine.verify import verify_experiment

        return verify_experiment(directory, data)
    if (directory / "comparison.json").exists():
        return _verify_comparison(directory, data)
    return _Run(directory, data).verified()


def _verify_comparison(directory: Path, data: Path | None) -> Verified:
    record = read_comparison(directory)
    parts = [_Run(directory.parent / run_id, data).verified() for run_id in record.runs]
    differences([directory.parent / run_id for run_id in record.runs])
    page = (directory / "report.html").read_text(encoding="utf-8")
    last = Verified(
        ("comparison: report",),
        tuple(page_differs("comparison: report.html", page, render_comparison(directory))),
        (),
    )
    return Verified(
        tuple(dict.fromkeys(one for part in (*parts, last) for one in part.checked)),
        tuple(one for part in (*parts, last) for one in part.deviations),
        tuple(dict.fromkeys(one for part in parts for one in part.unchecked)),
    )


class _Run:
    def __init__(self, directory: Path, data: Path | None) -> None:
        self.directory, self.data = directory, data
        self.manifest: RunManifest = read_manifest(directory)
        if self.manifest.status == "incomplete":
            raise ConfigError(f"{directory} holds an incomplete run; there are no figures to verify")
        self.results = read_results(directory)
        self.metrics = read_metrics(directory)
        self.traces = read_traces(directory / "traces.jsonl")
        self.unchecked: list[str] = []
        self.name = self.manifest.run_id

    def verified(self) -> Verified:
        checks: Mapping[str, Iterable[Deviation]] = {
            "files: hashes": self._files(),
            "results: against traces": self._retrievals(),
            "manifest: counts": self._counts(),
            "metrics: from results and traces": self._figures(),
            "report: from metrics": self._report(),
            "data and scores": self._scores(),
        }
        deviations = []
        for told in checks.values():
            deviations += [
                Deviation(f"{self.name}: {one.where}", one.recorded, one.computed) for one in few(told)
            ]
        return Verified(tuple(checks), tuple(deviations), tuple(self.unchecked))

    def _files(self) -> Iterator[Deviation]:
        now = file_hashes(self.directory)
        if not self.manifest.files:
            self.unchecked.append("files: the manifest holds no hashes")
            return
        for name, recorded in self.manifest.files.items():
            if now.get(name) != recorded:
                yield Deviation(name, recorded[:12], now.get(name, "missing")[:12])

    def _retrievals(self) -> Iterator[Deviation]:
        asked: dict[tuple[str, str], tuple[Trace, str]] = {}
        for trace, probe in self.traces:
            if trace.operation == "retrieve" and probe is not None and trace.scope is not None:
                asked[trace.scope.persona_id, probe] = (trace, probe)
        for record in self.results:
            where = f"results.jsonl, {record.persona_id}/{record.probe_id}"
            found = asked.pop((record.persona_id, record.probe_id), None)
            if found is None:
                yield Deviation(where, record.status, "no retrieval in traces.jsonl")
                continue
            trace = found[0]
            pairs: list[tuple[str, object, object]] = [("error", record.error, trace.error)]
            if record.error is None:
                pairs += [
                    ("tokens", record.tokens, trace.token_count),
                    ("items", record.items, trace.included_count),
                    ("retrieved", record.retrieved, trace.retrieved_count),
                    ("shortfall", record.shortfall, trace.shortfall_tokens),
                ]
            for name, told, seen in pairs:
                if told != seen:
                    yield Deviation(f"{where}: {name}", str(told), str(seen))
        for persona, probe in asked:
            yield Deviation(f"traces.jsonl, {persona}/{probe}", "a retrieval", "no result")

    def _counts(self) -> Iterator[Deviation]:
        for cell in self.manifest.cells:
            own = [one for one in self.results if one.persona_id == cell.persona_id]
            computed = {
                "probes": sum(one.status != "failed" for one in own),
                "probe_errors": sum(one.status == "failed" for one in own),
                "probes_not_ready": sum(one.status == "not_ready" for one in own),
            }
            for name, value in computed.items():
                if getattr(cell, name) != value:
                    where = f"manifest.json, {cell.persona_id}: {name}"
                    yield Deviation(where, str(getattr(cell, name)), str(value))
        llm = _llm(self.traces)
        for name, told, seen in (
            ("ingest_calls", self.manifest.tokens.ingest_calls, llm.ingest.calls),
            ("ingest_model", self.manifest.tokens.ingest_model, llm.ingest.tokens),
            ("context", self.manifest.tokens.context, sum(one.tokens or 0 for one in self.results)),
        ):
            if told != seen:
                yield Deviation(f"manifest.json: tokens.{name}", str(told), str(seen))

    def _figures(self) -> Iterator[Deviation]:
        told, records, llm = self.metrics, self.results, _llm(self.traces)
        cost = cost_scores(records, (), 0.0, 0.0).model_copy(
            update={
                "llm_calls": llm.ingest.calls,
                "llm_tokens": llm.ingest.tokens,
                **{name: getattr(told.cost, name) for name in _TOLD},
            }
        )
        computed = RunMetrics(
            run_id=self.manifest.run_id,
            provider=self.manifest.provider.name,
            label=self.manifest.provider.label,
            timeline=self.manifest.data.timeline,
            problems=tuple(self.manifest.problems),
            planned=self.manifest.data.probes,
            probes=len(records),
            probe_errors=sum(one.status == "failed" for one in records),
            not_ready=sum(one.status == "not_ready" for one in records),
            unconfirmed=sum(one.status == "unconfirmed" for one in records),
            evidence=evidence_scores(records),
            preferences=preference_scores(records),
            cost=cost,
        )
        yield from compared("metrics.json", told, computed)

    def _report(self) -> Iterator[Deviation]:
        page = self.directory / "report.html"
        if not page.exists():
            yield Deviation("report.html", "missing", "a report")
            return
        yield from page_differs(
            "report.html",
            page.read_text(encoding="utf-8"),
            render_report(self.directory, self.manifest, self.metrics),
        )

    def _scores(self) -> Iterator[Deviation]:
        timelines = self._timelines()
        if timelines is None:
            return
        if timelines.data_hash != self.manifest.data.sha256:
            yield Deviation("the data's hash", self.manifest.data.sha256[:12], timelines.data_hash[:12])
            return
        texts = self.directory / "texts.jsonl"
        if not texts.exists():
            self.unchecked.append("scores: the texts were not kept (run.keep_texts)")
            return
        rows = map(json.loads, texts.read_text(encoding="utf-8").splitlines())
        shown = {(row["persona_id"], row["probe_id"]): row["context"] for row in rows}
        yield from _rescored(timelines, shown, self.results)

    def _timelines(self) -> TimelineSet | None:
        """The data again: generated, or read from the file that the caller gives."""
        given: Any = self.manifest.config.get("run") or {}
        names = ("timeline", "seed", "users", "sessions", "limit_questions")
        kept: dict[str, Any] = {name: given[name] for name in names if name in given}
        if self.manifest.data.seed is None:
            if self.data is None:
                self.unchecked.append(f"data and scores: give the file {self.manifest.data.name} with --data")
                return None
            kept["data"] = self.data
        return load_timelines(RunSettings(**kept))


def _rescored(
    timelines: TimelineSet, shown: Mapping[tuple[str, str], str], results: Iterable[ProbeRecord]
) -> Iterator[Deviation]:
    """Each score against what the kept context shows: of what can be told without the native entries."""
    probes = {
        (one.persona_id, probe.probe_id): (one, probe) for one in timelines.timelines for probe in one.probes
    }
    turns: dict[str, WholeTurns] = {}
    for record in results:
        key = (record.persona_id, record.probe_id)
        where = f"results.jsonl, {record.persona_id}/{record.probe_id}"
        if key not in probes:
            yield Deviation(where, "a result", "no such probe in the data")
            continue
        timeline, probe = probes[key]
        told: dict[str, Any]
        if record.evidence is not None and isinstance(probe.truth, EvidenceTruth):
            if record.persona_id not in turns:
                turns[record.persona_id] = WholeTurns({one.event_id: one.text for one in timeline.turns})
            found = turns[record.persona_id].shown(shown[key])
            told = {
                "gold": len(probe.truth.turns),
                "by_text": sum(turn in found for turn in probe.truth.turns),
            }
            recorded = asdict(record.evidence)
        elif record.preference is not None and isinstance(probe.truth, PreferenceTruth):
            foreign = [
                phrase
                for other in timelines.timelines
                if other.persona_id != record.persona_id
                for phrase in other.canaries
            ]
            told, recorded = marks(probe.truth, shown[key], foreign), asdict(record.preference)
        else:
            continue
        for name, value in told.items():
            if recorded[name] != value:
                yield Deviation(f"{where}: {name}", str(recorded[name]), str(value))


def read_traces(file: Path) -> list[tuple[Trace, str | None]]:
    """Traces, each with the probe it belongs to.

    Raises:
        ConfigError: they cannot be read.
    """
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        found = []
        for row in rows:
            row.pop("provider", None)
            probe = row.pop("probe_id", None)
            found.append((Trace.model_validate(row), probe))
        return found
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror})") from None
    except Exception:
        raise ConfigError(f"{file} is damaged, or of another version of memslot") from None


def _llm(traces: Iterable[tuple[Trace, str | None]]) -> Phased:
    sums = Phased()
    for trace, _ in traces:
        sums.add(trace)
    return sums


def compared(where: str, recorded: Any, computed: Any) -> Iterator[Deviation]:
    """What differs, leaf by leaf, in two records, or two values of JSON."""
    before, now = (
        dict(_leaves(one.model_dump(mode="json") if isinstance(one, BaseModel) else one))
        for one in (recorded, computed)
    )
    for name in {**before, **now}:
        if before.get(name, "absent") != now.get(name, "absent"):
            yield Deviation(f"{where}: {name}", str(before.get(name, "absent")), str(now.get(name, "absent")))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield f"{path}.length", len(value)
        for place, item in enumerate(value):
            yield from _leaves(item, f"{path}[{place}]")
    else:
        yield path, value


def page_differs(where: str, recorded: str, computed: str) -> Iterator[Deviation]:
    """The first line in which a page is not what it was computed from."""
    if recorded == computed:
        return
    pairs = zip(recorded.splitlines(), computed.splitlines(), strict=False)
    place, (one, other) = next(
        ((at, pair) for at, pair in enumerate(pairs, start=1) if pair[0] != pair[1]),
        (0, ("shorter", "longer")),
    )
    yield Deviation(f"{where}, line {place}", one.strip()[:80], other.strip()[:80])


def few(told: Iterable[Deviation]) -> Iterator[Deviation]:
    """The first ones, and how many more there are."""
    more: Counter[str] = Counter()
    for number, one in enumerate(told):
        if number < _MOST_LINES:
            yield one
        else:
            more[one.where.split(",")[0].split(":")[0]] += 1
    for file, count in more.items():
        yield Deviation(file, f"{count} further deviations", "")
