"""Prints what an experiment costs: the full game's time, the harness's share, and what workers do to it.

python tests/perf/game_figures.py [full] [share] [workers] [dask] [report]
"""

import json
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from figures import finish, show

from memory.bench.engine.experiment import Outcome, begin
from memory.bench.engine.matrix import Experiment, load_experiment

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "preference_game.yaml"
CHEAP = ["full_history", "rolling_summary", "oracle_ipas"]
CONTROLS = ["no_memory", "static_profile", "simple_rag", *CHEAP]
PROVIDER_PHASES = ("open", "reader", "health", "setup", "write", "retrieve", "asked again", "wait", "mode",
                   "refused", "close")  # fmt: skip
logging.disable(logging.WARNING)


def experiment(out: str, **given: Any) -> Experiment:
    defaults = {"budgets": [600], "seeds": [7], "providers": CONTROLS}
    return load_experiment(CONFIG, output=Path(out), doctor=False, **{**defaults, **given})


def timed(matrix: Experiment) -> tuple[float, Outcome]:
    started = time.perf_counter()
    outcome = begin(matrix)
    assert outcome.manifest.status == "completed", outcome.directory
    return time.perf_counter() - started, outcome


def full() -> None:
    """MemPABench's full size over the six controls at one budget, with two workers."""
    with tempfile.TemporaryDirectory() as out:
        took, outcome = timed(experiment(out))
        cells = outcome.manifest.cells
        turns = sum(cell.counts["turns"] + cell.counts["recalled"] for cell in cells)
        events = sum(cell.counts["events"] for cell in cells)
    name = f"4 users x 94 sessions x 36 tests, six controls ({turns} turns, {events} events), 2 workers"
    show(name, f"{took:.1f} s", "< 60 s", took < 60)


def share() -> None:
    """The share of a cell's CPU time that neither the provider nor a role takes, on embedded mem0."""
    # The clock of phases and of the cell. Wall time would count what else the machine does between two phases.
    clock, time.perf_counter = time.perf_counter, time.process_time
    with tempfile.TemporaryDirectory() as out:
        size = {"users": 1}
        _, outcome = timed(
            experiment(out, game=size, providers=["mem0"], executor={"kind": "local"}, keep_texts=True)
        )
        (cell,) = outcome.manifest.cells
        provider = sum(cell.timings[phase] for phase in PROVIDER_PHASES if phase in cell.timings)
        roles = sum(cell.timings[phase] for phase in ("answer", "judge", "simulate"))
        wall = cell.wall_ms or 0.0
        harness = (wall - provider - roles) / wall
    time.perf_counter = clock
    show("harness outside provider and roles, embedded mem0, CPU", f"{harness:.1%}", "< 5 %", harness < 0.05)


def speedup(kind: str, target: float) -> None:
    """Cells a minute of two workers over one, start-up of the workers included."""
    size = {"users": 4, "sessions": 94, "tests": 36}
    took = {}
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as out:
            executor = {"kind": kind, "workers": workers}
            took[workers], _ = timed(
                experiment(out, game=size, providers=CHEAP, seeds=[1, 2], executor=executor)
            )
    ratio = took[1] / took[2]
    name = f"{kind}: two workers over one, 24 cells ({took[1]:.1f} s, {took[2]:.1f} s)"
    show(name, f"{ratio:.2f} x", f">= {target} x", ratio >= target)


MEASURED = """
import resource, sys
from pathlib import Path
from memory.bench.engine.experiment import measure
from memory.bench.engine.manifest import read_manifest
from memory.bench.report.report import write_page

directory = Path(sys.argv[1])
manifest = read_manifest(directory)
write_page(directory, manifest, measure(directory, manifest))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def report() -> None:
    """What aggregating and reporting 100,000 judged requests takes, texts of a twentieth of them kept."""
    with tempfile.TemporaryDirectory() as out:
        size = {"users": 4, "sessions": 20, "tests": 8}
        _, outcome = timed(experiment(out, game=size, providers=CHEAP, executor={"kind": "local"}))
        files = list(outcome.directory.glob("cells/*/results.jsonl"))
        for file in files:
            rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
            with open(file, "w", encoding="utf-8") as whole:
                for number in range(100_000 // len(files)):
                    row, time_ = rows[number % len(rows)], number // len(rows)
                    whole.write(json.dumps({**row, "probe_id": f"{row['probe_id']}.{time_}"}) + "\n")
        started = time.perf_counter()
        printed = subprocess.run(
            [sys.executable, "-c", MEASURED, str(outcome.directory)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        took, peak = time.perf_counter() - started, float(printed)
        page = (outcome.directory / "report.html").stat().st_size / 1e6
    show("100,000 judged requests of 3 providers reported", f"{took:.1f} s", "< 30 s", took < 30)
    show("  its memory at most", f"{peak:.0f} MB", "< 500 MB", peak < 500, failed=peak > 500)
    show("  its page", f"{page:.1f} MB", "< 2 MB", page < 2, failed=page > 2)


WHAT = {
    "report": report,
    "full": full,
    "share": share,
    "workers": lambda: speedup("processes", 1.7),
    "dask": lambda: speedup("dask", 1.6),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or WHAT:
        WHAT[name]()
    finish()
