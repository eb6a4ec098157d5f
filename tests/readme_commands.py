"""Runs the README's commands: every ``bash`` or ``python`` block that follows a line ``<!-- ci -->``.

Each block must end with 0. They run in order in one directory, a copy of the files git would commit, so that they
find what a reader finds and leave nothing behind. The commands of the environment that runs this come first.

    python tests/readme_commands.py [README.md ...]
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(r"^<!-- ci -->\n+```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNERS = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-W", "error", "-c"]}


@dataclass(frozen=True)
class Block:
    """A marked block: where it is, its language and its text."""

    place: str
    language: str
    text: str


def blocks(readme: Path) -> Iterator[Block]:
    """The marked blocks of a file, in order."""
    text = readme.read_text(encoding="utf-8")
    for found in MARKED.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(f"{readme.name}:{line}", found[1], found[2])


def copy_repository(target: Path) -> None:
    """What git has or would add, in its present state."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for name in filter(None, listing.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def main(readmes: list[str]) -> int:
    found = [block for name in readmes or ["README.md"] for block in blocks(ROOT / name)]
    if not found:
        sys.stderr.write("error: no block is marked <!-- ci -->; mark those that are to be run\n")
        return 1
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    with tempfile.TemporaryDirectory() as directory:
        copy_repository(Path(directory))
        for block in found:
            sys.stdout.write(f"-- {block.place} ({block.language})\n{block.text}")
            sys.stdout.flush()
            if block.language not in RUNNERS:
                sys.stderr.write(f"error: {block.place}: cannot run {block.language}\n")
                return 1
            done = subprocess.run(
                [*RUNNERS[block.language], block.text],
                cwd=directory,
                env={**os.environ, "PATH": path},
                stdin=subprocess.DEVNULL,
                timeout=900,
            )
            if done.returncode:
                sys.stderr.write(f"error: {block.place}: ended with {done.returncode}\n")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
