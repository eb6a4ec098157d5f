"""Verifies that the files of an experiment agree, by computing each part anew from the one before it.

Not covered: a provider's own files below ``store``, and locks. The wall times of cells cannot be recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from memory.bench.data.timeline import TimelineSet
from memory.bench.engine.experiment import measure, read_metrics
from memory.bench.engine.files import file_hashes
from memory.bench.engine.manifest import MANIFEST_FILE, CellRecord, Manifest, read_manifest, shown_labels
from memory.bench.engine.matrix import CellSpec
from memory.bench.engine.provenance import KNOWS_TRUTH, data_record, wire_truth
from memory.bench.engine.replay import (
    Deviation,
    SilentAnswerJudge,
    SilentJudge,
    Verified,
    compared,
    few,
    page_differs,
    same,
)
from memory.bench.engine.role_set import RoleSet
from memory.bench.engine.roles import Roles
from memory.bench.engine.settings import ExperimentSettings, load_timelines
from memory.bench.engine.verify_cell import CellCheck
from memory.bench.scores.model import Metrics
from memory.contract._model import first_problem
from memory.contract.errors import ConfigError
from memory.plugins.config import load_config
from memory.plugins.registry import MemoryAdapterRegistry


def learning(manifest: Manifest) -> Iterator[str]:
    """Memories that answered a request differently the second time: they learn, or answer by chance."""
    played = [manifest.cells_of(variant.label) for variant in manifest.variants]
    for cells, shown in zip(played, shown_labels(manifest.variants, played), strict=True):
        asked, otherwise = (
            sum(cell.counts.get(name, 0) for cell in cells) for name in ("asked_again", "answered_otherwise")
        )
        if otherwise:
            yield (
                f"{shown} learns from what it is asked, or answers by chance: {otherwise} of {asked} "
                "requests were answered otherwise a second time"
            )


Render = Callable[[Path, Manifest, Metrics], str]  # renders an experiment's page; the room ``report`` has it


def verify(directory: Path, data: Path | None = None, *, render: Render | None = None) -> Verified:
    """Compute anew everything that can be; the page only with ``render``. Not for use in an event loop.

    Args:
        data: the file of data or wordings of the run. The manifest holds only its name and hash.

    Raises:
        ConfigError: the experiment is incomplete, or its manifest is damaged.
    """
    return _Check(directory, data, render).verified()


class _Check:
    def __init__(self, directory: Path, data: Path | None, render: Render | None) -> None:
        self.directory, self.data, self.render = directory, data, render
        self.manifest: Manifest = read_manifest(directory)
        if self.manifest.status == "incomplete":
            raise ConfigError(f"{directory} holds an incomplete experiment; resume it to its end")
        self.metrics = read_metrics(directory)
        self.unchecked: list[str] = ["stores: a provider's own files are not covered"]

    def verified(self) -> Verified:
        found = list(few(self._manifest()))
        data: dict[int, TimelineSet] = {}
        roles: Roles | None = None
        if not found:  # the manifest is intact, so it says what was played
            data, wrong = self._timelines()
            found += [*wrong, *self._variants(data)]
            roles = self._roles(data)
        for record in self.manifest.cells:
            own = data.get(record.seed)
            check = CellCheck(self.directory, self.manifest, record, own, roles, self.unchecked)
            found += few(check.deviations())
        found += few(self._figures())
        checked = ["manifest: hashes", "cells: against their journals"]
        if not any("verdicts:" in why for why in self.unchecked):
            checked.append("verdicts: from the sections shown")
        checked += ["metrics: from the results", *(["report: from metrics"] if self.render else [])]
        unchecked = tuple(dict.fromkeys(self.unchecked))
        return Verified(tuple(checked), tuple(found), unchecked, tuple(learning(self.manifest)))

    def _manifest(self) -> Iterator[Deviation]:
        kept = self.manifest
        if kept.record_sha256 is None:
            self.unchecked.append(f"{MANIFEST_FILE}: it holds no hash of itself")
        else:
            yield from same(f"{MANIFEST_FILE}, all of it", kept.record_sha256[:12], kept.own_hash()[:12])
        yield from same(f"{MANIFEST_FILE}: files", kept.files, file_hashes(self.directory))
        computed = kept.parts()
        for part in {**kept.hashes, **computed}:
            yield from same(f"{MANIFEST_FILE}: hashes.{part}", kept.hashes.get(part), computed.get(part))
        troubled = any(provider.failed for provider in self.metrics.providers)
        yield from same(f"{MANIFEST_FILE}: status", kept.status, kept.outcome(troubled=troubled))
        yield from self._cells()

    def _cells(self) -> Iterator[Deviation]:
        """Deviations unless the manifest has each cell of the matrix once, and no other."""
        kept = self.manifest
        planned = [
            CellSpec(number, int(seed), replicate, place, "", variant.label, seed_place)
            for replicate in range(1, cast(int, kept.settings.get("replicates", 1)) + 1)
            for seed_place, (seed, data) in enumerate(kept.data.items())
            for place in range(data.personas)
            for number, variant in enumerate(kept.variants)
        ]

        def names(cells: Iterable[CellSpec | CellRecord]) -> list[str]:
            return [
                f"{cell.cell_id} ({cell.label}, seed {cell.seed}, replicate {cell.replicate})"
                for cell in cells
            ]

        expected, seen = names(planned), names(kept.cells)
        for cell in sorted({*expected, *seen}):
            yield from same(f"{MANIFEST_FILE}: {cell}", seen.count(cell), expected.count(cell))
        known = {each.cell_id for each in kept.cells}
        for place in sorted((self.directory / "cells").glob("*")):
            if place.name not in known:
                yield Deviation(f"cells/{place.name}", "present", f"no cell of {MANIFEST_FILE}")

    def _timelines(self) -> tuple[dict[int, TimelineSet], list[Deviation]]:
        """The data by seed (generated, or read from the given path), and its deviations."""
        given = self.manifest.settings
        game = given.get("timeline") == "game"
        own_words = game and any(item.wordings_sha256 for item in self.manifest.data.values())
        if (own_words or not game) and self.data is None:
            (name,) = {item.name for item in self.manifest.data.values()}
            self.unchecked.append(f"data, verdicts: give {name or 'the file of wordings'} with --data")
            return {}, []
        read = {"wordings": self.data if own_words else None, "data": None if game else self.data}
        try:
            self.settings = ExperimentSettings.model_validate({**given, **read})
        except ValidationError as error:
            return {}, [Deviation(f"{MANIFEST_FILE}: settings", "cannot be used", first_problem(error))]
        found: dict[int, TimelineSet] = {}
        wrong: list[Deviation] = []
        for seed, kept in self.manifest.data.items():
            data = load_timelines(self.settings, int(seed))
            wrong += compared(f"{MANIFEST_FILE}: data.{seed}", kept, data_record(data))
            found[int(seed)] = data
        return ({} if wrong else found), wrong

    def _roles(self, data: Mapping[int, TimelineSet]) -> Roles | None:
        """The roles of a replay; None without data."""
        models = [role.role for role in self.manifest.roles if role.kind == "model"]
        if models:
            self.unchecked.append(f"verdicts: what a model says is not asked again ({', '.join(models)})")
        if not data:
            return None
        roles = RoleSet(self.settings, next(iter(data.values())), self.directory).roles
        if not models:
            return roles
        judge = SilentAnswerJudge() if self.manifest.by_model("answer_judge") else None
        reads = self.manifest.by_model("reader")
        return replace(roles, judge=SilentJudge(), answer_judge=judge, reads=reads)

    def _variants(self, data: Mapping[int, TimelineSet]) -> Iterator[Deviation]:
        """Deviations unless budgets are as configured and the oracles got the truth of the timeline."""
        for variant in self.manifest.variants:
            where = f"{MANIFEST_FILE}: {variant.label}"
            memory = cast(dict[str, Any], variant.config["memory"])
            yield from compared(f"{where}: budget", variant.budget, memory.get("budget"))
            if data:
                wired = _truth_options(variant.provider.condition, memory, next(iter(data.values())))
                yield from same(f"{where}: wired", variant.wired, wired)

    def _figures(self) -> Iterator[Deviation]:
        try:
            metrics = measure(self.directory, self.manifest)
            computed = self.render(self.directory, self.manifest, metrics) if self.render else None
        except Exception as error:  # damaged results can raise anything
            why = f"{type(error).__name__}: {error}".splitlines()[0][:120]
            yield Deviation("metrics.json", "cannot be computed anew", why)
            return
        yield from compared("metrics.json", self.metrics, metrics)
        if computed is not None:
            yield from page_differs(self.directory / "report.html", computed)


def _truth_options(condition: str | None, memory: Mapping[str, Any], data: TimelineSet) -> tuple[str, ...]:
    """Options of a published configuration that hold the truth of the data."""
    if condition is None or condition not in KNOWS_TRUTH:
        return ()
    config = load_config({"memory": {"condition": condition}})
    info = MemoryAdapterRegistry().selected(config)
    config, wired = wire_truth(config, info, data)
    shown = config.redacted(config.parse_options(info.options))["memory"]["conditions"][condition]
    kept = (memory.get("conditions") or {}).get(condition) or {}
    return tuple(name for name in wired if kept.get(name) == shown[name])
