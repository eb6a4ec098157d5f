"""Runs what README and docs tell to run: every block that follows a line ``<!-- ci -->``. Each must end with 0.

``bash`` is run, ``python`` too (it may await outside of a function), and ``yaml`` is resolved by ``memslot tools
config show``. A mark may hold what the reader brings along, unseen on the page: ``<!-- ci``, lines of the block's
language, and ``-->``. The blocks of a page run in order in a directory of its own, a copy of the files git would
commit, so that they find what a reader finds and leave nothing behind. As many pages run at a time as there are
cores. The commands of the environment that runs this come first. A block of commands that cannot be run here says
why: ``<!-- not run: it installs a release -->``. A block ``text`` that follows ``<!-- prints -->`` holds what the
block before it prints, whatever the time. No library may write to stderr.

    python tests/documented_commands.py [README.md docs/index.md ...]
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(
    r"^<!-- ci\s(.*?)-->\n+```(\w+)\n(.*?)^```$(?:(?:(?!```|<!--).)*<!-- prints -->\n+```text\n(.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
UNMARKED = re.compile(r"(?<!-->\n)^```bash$", re.MULTILINE)
NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$", re.MULTILINE)
AWAITING = """
import ast, asyncio, inspect, sys
code = compile(sys.argv[1], "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
names = {"__name__": "__main__"}
done = eval(code, names)
if inspect.iscoroutine(done):
    asyncio.run(done)
"""
# What libraries write to stderr: warnings, logs and their own bars of progress. No command of memslot does.
NOISE = re.compile(r"Warning\b|Traceback|\b(DEBUG|INFO|WARNING|ERROR)\b|\.py:\d+|it/s\]")
RUNNERS = {
    "bash": ["bash", "-euo", "pipefail", "-c"],
    "python": [sys.executable, "-W", "error", "-c", AWAITING],
    "yaml": [
        "bash",
        "-euo",
        "pipefail",
        "-c",
        'cat > block.yaml <<< "$0"; memslot tools config show block.yaml',
    ],
}


@dataclass(frozen=True)
class Block:
    """A marked block: where it is, its language, its text, what the reader brings along, and what it prints."""

    place: str
    language: str
    text: str
    before: str
    prints: str | None


def pages():
    """The README and every page of the docs."""
    return ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]


def blocks(name):
    """The marked blocks of a page, in order."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for found in MARKED.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(f"{name}:{line}", found[2], found[3], found[1].lstrip("\n"), found[4])


def unmarked(name):
    """Commands on a page of which it is not said whether they are run."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for found in UNMARKED.finditer(text):
        yield f"{name}:{text.count(chr(10), 0, found.start()) + 1}: mark it <!-- ci -->, or <!-- not run: why -->"


def copy_repository(target):
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


def run(block, directory):
    """Run one block and return what was wrong, or ``""``."""
    if block.language not in RUNNERS:
        return f"{block.place}: cannot run {block.language}"
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    done = subprocess.run(
        [*RUNNERS[block.language], block.before + block.text],
        cwd=directory,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    sys.stdout.write(f"-- {block.place} ({block.language})\n{block.text}{done.stdout}{done.stderr}")
    sys.stdout.flush()
    if done.returncode:
        return f"{block.place}: ended with {done.returncode}"
    if foreign := [line for line in done.stderr.splitlines() if NOISE.search(line)]:
        return f"{block.place}: a library wrote to stderr: {foreign[0]}"
    if block.prints is not None and TIME.sub("", done.stdout) != TIME.sub("", block.prints):
        return f"{block.place}: printed something else:\n{done.stdout}"
    return ""


def run_page(marked):
    """Run the blocks of a page. Return what was wrong with the first that failed, or ``""``."""
    with tempfile.TemporaryDirectory() as directory:
        copy_repository(Path(directory))
        return next(filter(None, (run(block, directory) for block in marked)), "")


def main(names):
    names = names or pages()
    if wrong := [problem for name in names for problem in unmarked(name)]:
        sys.stderr.write("".join(f"error: {problem}\n" for problem in wrong))
        return 1
    found = {name: marked for name in names if (marked := list(blocks(name)))}
    if not found:
        sys.stderr.write("error: no block is marked <!-- ci -->; mark those that are to be run\n")
        return 1
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = [problem for problem in pool.map(run_page, found.values()) if problem]
    if problems:
        sys.stderr.write("".join(f"error: {problem}\n" for problem in problems))
        return 1
    for name in names:
        for reason in NOT_RUN.findall((ROOT / name).read_text(encoding="utf-8")):
            sys.stdout.write(f"not run: {name}: {reason}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
