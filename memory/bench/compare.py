"""Several providers over the same timelines, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memory.bench.cell import error_record
from memory.bench.comparison_report import ComparisonRecord, NotRun, summary_table, write_comparison_report
from memory.bench.manifest import ErrorRecord, write_atomic
from memory.bench.rundir import make_directory, new_run_id
from memory.bench.runner import ProgressCallback, RunOutcome, run_benchmark
from memory.bench.settings import RunSettings, load_timelines, run_settings
from memory.contract.errors import ConfigError, MemslotError
from memory.doctor import Waiting
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.plugins.yaml import load_yaml

__all__ = ["Comparison", "comparison_configs", "run_many"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A finished comparison."""

    directory: Path
    outcomes: tuple[RunOutcome, ...]
    not_run: tuple[NotRun, ...]

    @property
    def report(self) -> Path:
        """The combined report's file."""
        return self.directory / "report.html"

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows for a terminal."""
        return summary_table([outcome.metrics for outcome in self.outcomes])


def comparison_configs(
    source: str | Path | Mapping[str, Any],
    providers: Sequence[str] | None = None,
    *,
    env: Mapping[str, str] | None = None,
) -> list[MemslotConfig]:
    """One configuration for each provider, equal in everything else.

    Args:
        source: a YAML file, or its content.
        providers: names, each with a block under ``memory.backends`` or ``memory.conditions``; by default those
            of ``run.compare``.
        env: as for :func:`memory.plugins.config.load_config`.

    Raises:
        ConfigError: a provider has no block, or there are none to compare.
    """
    content = dict(source) if isinstance(source, Mapping) else load_yaml(Path(source))[0]
    memory = content.get("memory")
    run = content.get("run")
    if not isinstance(memory, dict) or not (run is None or isinstance(run, dict)):
        raise ConfigError("memory: is missing; a configuration starts with 'memory:' and names a backend")
    names = list(dict.fromkeys(providers if providers is not None else (run or {}).get("compare") or ()))
    if not names:
        raise ConfigError(
            "run.compare: names no provider; list those to compare, e.g. [no_memory, full_history]"
        )
    configs = []
    for name in names:
        fields = [
            field
            for field, group in (("backend", "backends"), ("condition", "conditions"))
            if name in (memory.get(group) or {})
        ]
        if len(fields) != 1:
            where = (
                "in both memory.backends and memory.conditions"
                if fields
                else "nowhere in memory.backends or memory.conditions"
            )
            raise ConfigError(f"run.compare: {name} has its block {where}; give it exactly one")
        chosen = {key: value for key, value in memory.items() if key not in ("backend", "condition")}
        configs.append(load_config({**content, "memory": {**chosen, fields[0]: name}}, env=env))
    return configs


def _published(
    error: Exception, config: MemslotConfig, registry: MemoryAdapterRegistry | None
) -> ErrorRecord:
    try:
        info = (registry or MemoryAdapterRegistry()).info(config.provider, config.kind)
        scrub = config.scrubber(config.parse_options(info.options))
    except MemslotError:
        scrub = config.scrubber()
    record = error_record(error)
    return record.model_copy(
        update={"message": scrub(record.message), "diagnostics": scrub(record.diagnostics)}
    )


async def run_many(
    configs: Sequence[MemslotConfig],
    *,
    settings: RunSettings | None = None,
    registry: MemoryAdapterRegistry | None = None,
    progress: ProgressCallback | None = None,
    finished: Callable[[RunOutcome | NotRun], None] | None = None,
    on_wait: Callable[[Waiting], None] | None = None,
    on_error: Callable[[Exception], None] | None = None,
) -> Comparison:
    """Run providers one after another over the same timelines, and write a combined report.

    A provider that cannot begin, say for a missing SDK, or that a defect ends, is listed with the reason and stops
    no other.

    Args:
        configs: one for each provider; see :func:`comparison_configs`.
        settings: in place of the first configuration's ``run:`` block; the same for all.
        registry, progress, on_wait, on_error: as for :func:`memory.bench.run_benchmark`.
        finished: called with each provider's outcome.

    Raises:
        ConfigError: there is nothing to run, or the settings or the data cannot be used.
    """
    if not configs:
        raise ConfigError("run.compare: names no provider")
    settings = settings or run_settings(configs[0])
    data = load_timelines(settings)
    created = datetime.now(UTC)
    comparison_id = new_run_id(f"compare-{data.name}", created)
    outcomes: list[RunOutcome] = []
    not_run: list[NotRun] = []
    for config in configs:
        result: RunOutcome | NotRun
        try:
            result = await run_benchmark(
                config,
                settings=settings,
                data=data,
                registry=registry,
                progress=progress,
                on_wait=on_wait,
                on_error=on_error,
            )
            outcomes.append(result)
        except Exception as error:  # one plugin's defect must not cost the others their night
            if on_error is not None:
                on_error(error)
            result = NotRun(provider=config.provider, error=_published(error, config, registry))
            not_run.append(result)
        if finished is not None:
            finished(result)
    directory = settings.output.expanduser() / comparison_id
    make_directory(directory)
    record = ComparisonRecord(
        comparison_id=comparison_id,
        created_at=created,
        runs=tuple(outcome.manifest.run_id for outcome in outcomes),
        not_run=tuple(not_run),
    )
    write_atomic(directory / "comparison.json", record.model_dump_json(indent=2) + "\n")
    write_comparison_report(directory)
    return Comparison(directory, tuple(outcomes), tuple(not_run))
