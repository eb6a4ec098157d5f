"""Prints how long a ChatGPT export of 3,000 conversations takes into mem0 without a model, and after a kill.

python tests/perf/import_figures.py
"""

import json
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from figures import finish, show

CONVERSATIONS, TURNS = 3000, 2
WORDS = [
    "tea",
    "oolong",
    "train",
    "Lyon",
    "sister",
    "garden",
    "python",
    "recipe",
    "winter",
    "budget",
    "flight",
    "piano",
    "river",
    "novel",
    "camera",
]
CONFIG = "memory: {backend: mem0, data_dir: data, scope: {run_id: home, persona_id: me}}\n"


def conversation(number: int, rng: random.Random) -> dict[str, Any]:
    mapping: dict[str, Any] = {"root": {"message": None, "parent": None}}
    last = "root"
    for position in range(2 * TURNS):
        role, length = (("user", 15), ("assistant", 80))[position % 2]
        text = f"{' '.join(rng.choices(WORDS, k=length))} {number}-{position}"
        said = {
            "author": {"role": role},
            "create_time": 1.7e9 + 3600 * number + 20 * position,
            "content": {"content_type": "text", "parts": [text]},
        }
        mapping[f"m{position}"] = {"message": said, "parent": last}
        last = f"m{position}"
    return {"id": f"talk-{number}", "current_node": last, "mapping": mapping}


def started(directory: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "memslot", "import", "conversations.json", "--into", "my.yaml", "--json"]
    return subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def imported(directory: Path) -> dict[str, Any]:
    """Import to the end. Returns the report, with the wall and CPU seconds of the whole process."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    shown, _ = started(directory).communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**json.loads(shown), "wall": time.monotonic() - began, "cpu": cpu}


def kill_early(directory: Path) -> None:
    """Start an import and kill it once it has stored a tenth."""
    process = started(directory)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(b"events:") and int(line.split()[1]) >= CONVERSATIONS * TURNS // 10:
            break
    process.kill()
    process.communicate()


def stored_messages(directory: Path) -> int:
    """Count the rows of the embedded store, which holds one for each message."""
    (file,) = directory.rglob("storage.sqlite")
    with closing(sqlite3.connect(file)) as database:
        return int(database.execute("SELECT count(*) FROM points").fetchone()[0])


def main() -> None:
    rng = random.Random(0)
    talks = json.dumps([conversation(number, rng) for number in range(CONVERSATIONS)])
    for name in ("uninterrupted", "killed, then resumed"):
        with tempfile.TemporaryDirectory() as place:
            directory = Path(place)
            (directory / "conversations.json").write_text(talks, encoding="utf-8")
            (directory / "my.yaml").write_text(CONFIG, encoding="utf-8")
            if name != "uninterrupted":
                kill_early(directory)
            report = imported(directory)
            times = f"{report['wall']:.0f} s, {report['cpu']:.0f} s of CPU"
            show(f"import of 3,000 conversations, {name}", times, "< 120 s", report["wall"] < 120)
            once = stored_messages(directory) == 2 * CONVERSATIONS * TURNS
            counts = f"{report['earlier']} earlier, {report['written']} now"
            show("  every message is stored once", counts, "", once, failed=not once)
    finish()


if __name__ == "__main__":
    main()
