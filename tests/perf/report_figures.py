"""Prints what aggregating and reporting 100,000 requests take. Not a timed test.

The requests are the generated game's own, repeated under the names of more personas; two providers are compared.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import finish, show

from memory.bench.engine.experiment import begin
from memory.bench.engine.matrix import load_experiment
from memory.bench.report.report import write_report

REQUESTS = 100_000
SECONDS, MEGABYTES, PAGE_MEGABYTES = 30, 500, 2


def blown_up(directory: Path, requests: int) -> None:
    """Repeat the results of each cell until there are so many of its provider, under other personas' names."""
    for file in directory.glob("cells/*/results.jsonl"):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        with open(file, "w", encoding="utf-8") as out:
            for number in range(requests):
                row, copy = rows[number % len(rows)], number // len(rows)
                persona = f"{row['persona_id']}-{copy}"
                out.write(
                    json.dumps({**row, "persona_id": persona, "probe_id": f"{copy}:{row['probe_id']}"}) + "\n"
                )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        content = {
            "memory": {"condition": "full_history", "budget": {"max_tokens": 600, "max_items": None}},
            "run": {"game": {"users": 1}, "output": folder, "doctor": False},
        }
        names = ["full_history", "static_profile"]
        directory = begin(load_experiment(content, block="run", providers=names)).directory
        blown_up(directory, REQUESTS // 2)
        code = "import sys, report_figures; report_figures.measured(sys.argv[1])"
        started = time.perf_counter()
        said = subprocess.run(
            [sys.executable, "-c", code, str(directory)],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        spent, peak = time.perf_counter() - started, float(said)
        page = (directory / "report.html").stat().st_size / 1e6
    name = f"{REQUESTS:,} requests of 2 providers aggregated, compared, reported"
    show(name, f"{spent:.1f} s", f"< {SECONDS} s", spent < SECONDS, failed=spent > 4 * SECONDS)
    for what, size, limit in (("its memory at most", peak, MEGABYTES), ("its page", page, PAGE_MEGABYTES)):
        show(f"  {what}", f"{size:.1f} MB", f"< {limit} MB", size < limit, failed=size > limit)
    finish()


def measured(directory: str) -> None:
    """In a process of its own: the report, and then the most memory it took, in MB."""
    write_report(Path(directory))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
