"""Several providers over the same timelines, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memory.bench.engine.run_cell import error_record
from memory.bench.engine.run_manifest import ErrorRecord
from memory.bench.engine.run_settings import RunSettings, load_timelines, run_settings
from memory.bench.engine.rundir import new_run_id
from memory.bench.engine.runner import ProgressCallback, RunOutcome, run_benchmark
from memory.bench.report.comparison import (
    ComparisonRecord,
    NotRun,
    differences,
    summary_table,
    write_comparison,
)
from memory.bench.scores.figures import Difference
from memory.contract.errors import ConfigError, MemslotError, PluginLoadError
from memory.doctor.report import Waiting
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.registry import MemoryAdapterRegistry
from memory.plugins.variables import Problems
from memory.plugins.yaml import Lines, load_yaml


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
    def differences(self) -> tuple[Difference, ...]:
        """Each provider against each other, on the probes both are scored on."""
        return differences([outcome.directory for outcome in self.outcomes])

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
        providers: names; by default those of ``run.compare``.
        env: as for :func:`memory.plugins.config.load_config`.

    Raises:
        ConfigError: there are none to compare, or a block cannot be used.
    """
    content, lines = (source, Lines()) if isinstance(source, Mapping) else load_yaml(Path(source))
    run = content.get("run")
    named = run.get("compare") if isinstance(run, Mapping) and providers is None else providers
    names = [named] if isinstance(named, str) else named
    if not names or not isinstance(names, Sequence):
        problem = Problems("config" if isinstance(source, Mapping) else str(source), lines)
        what = "names no provider; list those to compare, e.g. [no_memory, full_history]"
        raise problem(("run", "compare"), what)
    return [load_config(source, env=env, provider=str(name)) for name in dict.fromkeys(names)]


def _published(error: Exception, config: MemslotConfig, registry: MemoryAdapterRegistry) -> ErrorRecord:
    try:
        scrub = config.scrubber(config.parse_options(registry.selected(config).options))
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
    on_directory: Callable[[Path], None] | None = None,
) -> Comparison:
    """Run providers one after another over the same timelines, and write a combined report.

    A provider that cannot begin, say for a missing SDK, or that a defect ends, is listed with the reason and stops
    no other.

    Args:
        configs: one for each provider; see :func:`comparison_configs`.
        settings: in place of the first configuration's ``run:`` block; the same for all.
        registry, progress, on_wait, on_error, on_directory: as for :func:`memory.bench.run_benchmark`.
        finished: called with each provider's outcome.

    Raises:
        ConfigError: there is nothing to run, or the settings or the data cannot be used.
        PluginNotFound: no plugin has a provider's name.
    """
    if not configs:
        raise ConfigError("run.compare: names no provider")
    settings = settings or run_settings(configs[0])
    registry = registry or MemoryAdapterRegistry()
    for config in configs:
        with suppress(
            PluginLoadError
        ):  # a name that nobody offers is a slip, and is said before the first hour
            registry.selected(config)
    with configs[0].problem.placing():
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
                on_directory=on_directory,
            )
            outcomes.append(result)
        except Exception as error:  # one plugin's defect must not cost the others their night
            if on_error is not None:
                on_error(error)
            result = NotRun(provider=config.provider, error=_published(error, config, registry))
            not_run.append(result)
        if finished is not None:
            finished(result)
    directory = settings.directory / comparison_id
    record = ComparisonRecord(
        comparison_id=comparison_id,
        created_at=created,
        runs=tuple(outcome.manifest.run_id for outcome in outcomes),
        not_run=tuple(not_run),
    )
    with configs[0].problem.placing():
        write_comparison(directory, record)
    return Comparison(directory, tuple(outcomes), tuple(not_run))
