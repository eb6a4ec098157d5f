"""Prints what aggregating, comparing and reporting 100,000 probes take. Not a timed test.

The probes are the generated game's own, repeated under the names of more personas; two providers are compared.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import anyio
from figures import finish, show

from memory.bench import run_benchmark
from memory.bench.engine.run_manifest import write_manifest
from memory.bench.engine.rundir import read_metrics, read_results
from memory.bench.report.comparison import ComparisonRecord
from memory.bench.report.run_report import write_report
from memory.bench.scores.run_metrics import cost_scores, evidence_scores, preference_scores

PROBES = 100_000
SECONDS, MEGABYTES = 30, 500


def blown_up(run: Path, probes: int) -> None:
    """Repeat the results of a run until there are so many, under other personas' names."""
    records, lines = read_results(run), []
    for number in range(probes):
        record = records[number % len(records)]
        of = f"{record.persona_id}-{number // len(records)}"
        lines.append(json.dumps({**asdict(replace(record, persona_id=of)), "provider": run.name}))
    (run / "results.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def report(parent: Path, names: list[str]) -> None:
    """Aggregate each run from its results, write its report, and then the comparison's."""
    from memory.bench import write_comparison_report
    from memory.bench.engine.run_manifest import write_atomic

    for name in names:
        run = parent / name
        records, told = read_results(run), read_metrics(run)
        metrics = told.model_copy(
            update={
                "probes": len(records),
                "planned": len(records),
                "evidence": evidence_scores(records),
                "preferences": preference_scores(records),
                "cost": cost_scores(records, (), 0.0, 0.0),
            }
        )
        write_atomic(run / "metrics.json", metrics.model_dump_json(indent=2) + "\n")
        write_report(run)
    write_comparison_report(parent / "compared")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        parent, names = Path(folder), []
        for condition in ("full_history", "static_profile"):
            block = {"users": 3, "sessions": 16, "output": folder, "doctor": False}
            budget = {"max_tokens": 600, "max_items": None}
            config = {
                "memory": {"condition": condition, "conditions": {condition: {}}, "budget": budget},
                "run": block,
            }
            outcome = anyio.run(run_benchmark, config)
            write_manifest(outcome.manifest, outcome.directory / "manifest.json")
            blown_up(outcome.directory, PROBES // 2)
            names.append(outcome.directory.name)
        (parent / "compared").mkdir()
        record = ComparisonRecord(
            comparison_id="compared", created_at=outcome.manifest.created_at, runs=tuple(names)
        )
        (parent / "compared" / "comparison.json").write_text(record.model_dump_json(), encoding="utf-8")
        code = "import sys, report_figures; report_figures.measured(sys.argv[1], sys.argv[2:])"
        started = time.perf_counter()
        told = subprocess.run(
            [sys.executable, "-c", code, folder, *names],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        spent = time.perf_counter() - started
        peak = float(told)
    name = f"{PROBES:,} probes of 2 providers aggregated, compared, reported"
    show(name, f"{spent:.1f} s", f"< {SECONDS} s", spent < SECONDS, failed=spent > 4 * SECONDS)
    show(
        "  its memory at most",
        f"{peak:.0f} MB",
        f"< {MEGABYTES} MB",
        peak < MEGABYTES,
        failed=peak > MEGABYTES,
    )
    finish()


def measured(folder: str, names: list[str]) -> None:
    """In a process of its own: the report, and then the most memory it took, in MB."""
    report(Path(folder), names)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
