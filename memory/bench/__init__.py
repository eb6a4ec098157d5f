"""The benchmark harness: timelines, runs, figures, reports.

What a command line needs::

    config = load_config("configs/quickstart.yaml")
    settings = run_settings(config, data=None, seed=11)
    outcome = await run_benchmark(config, settings=settings, progress=show)         # one provider
    comparison = await run_many(comparison_configs("configs/quickstart.yaml"), progress=show)
    columns, rows = comparison.table
"""

from memory.bench.data.locomo import load_locomo
from memory.bench.data.quickstart import make_quickstart
from memory.bench.data.timeline import (
    EvidenceTruth,
    Preference,
    PreferenceTruth,
    Probe,
    Session,
    Timeline,
    TimelineSet,
    Turn,
)
from memory.bench.data.truth import oracle_matrix, static_profile
from memory.bench.engine.compare import Comparison, comparison_configs, run_many
from memory.bench.engine.run_settings import RunSettings, load_timelines, run_settings
from memory.bench.engine.rundir import read_metrics
from memory.bench.engine.runner import Progress, ProgressCallback, RunOutcome, run_benchmark
from memory.bench.report.comparison import NotRun, read_comparison, summary_table, write_comparison_report
from memory.bench.report.run_report import write_report
from memory.bench.scores.figures import RunMetrics

__all__ = [
    "Comparison",
    "EvidenceTruth",
    "NotRun",
    "Preference",
    "PreferenceTruth",
    "Probe",
    "Progress",
    "ProgressCallback",
    "RunMetrics",
    "RunOutcome",
    "RunSettings",
    "Session",
    "Timeline",
    "TimelineSet",
    "Turn",
    "comparison_configs",
    "load_locomo",
    "load_timelines",
    "make_quickstart",
    "oracle_matrix",
    "read_comparison",
    "read_metrics",
    "run_benchmark",
    "run_many",
    "run_settings",
    "static_profile",
    "summary_table",
    "write_comparison_report",
    "write_report",
]
