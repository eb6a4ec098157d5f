"""Changes of the core's code, one at a time, and whether a test notices each: a figure, and a list of who lived.

    python tests/mutation/mutants.py                      # 200 of all, spread evenly; some twenty minutes
    python tests/mutation/mutants.py --each --only slot   # every one of memory/slot
    python tests/mutation/mutants.py --list               # what could be changed, without running anything

Each mutant is one changed expression or statement of a module. The tests that concern the module run on a copy of
the tree, the first that fails ends it. A mutant that lives is a line that no test needs, or a test that is missing;
those that change nothing anybody could see stand in ``survivors.json`` with the reason. Not collected by pytest.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_SLOT = (
    "slot slot_guards slot_text slot_capabilities slot_helpers delivery one_way house survivors many_people"
)
_JOURNAL = "journal durable reset_intent survivors replay_doubts queued_writes_read"
TESTS = {
    "memory/slot/journal*.py": _JOURNAL,
    "memory/slot/durable.py": _JOURNAL,
    "memory/slot/sqlite_file.py": "journal host_store survivors",
    "memory/slot/host_store.py": "host_store",
    "memory/slot/files.py": "files",
    "memory/slot/bounded_queue.py": "bounded_queue",
    "memory/slot/filters.py": "filters slot",
    "memory/slot/*.py": f"{_SLOT} closing tracing filters durable",
    "memory/contract/native_errors.py": "errors survivors",
    "memory/contract/formatting.py": "formatting linear_text survivors slot_text",
    "memory/contract/scope.py": "scope many_people",
    "memory/contract/admission.py": "admission worker shielded",
    "memory/contract/*.py": "events errors scope formatting admission operations slot bad_input house",
    "memory/adapter/_http.py": "json_http http survivors",
    "memory/adapter/_bounded.py": "json_http",
    "memory/adapter/_directories.py": "../backends/mem0/test_mem0_partitions.py",
    "memory/contract/adapter.py": "registry slot slot_capabilities survivors",
    "memory/adapter/_worker.py": "worker admission survivors",
    "memory/adapter/_shielded.py": "shielded admission survivors",
    "memory/adapter/_lockfile.py": "lockfile",
    "memory/adapter/_lexical.py": "lexical",
    "memory/adapter/*.py": "waiting closing json_http survivors slot",
    "memory/runtime/_policy.py": "../runtime/test_policy.py",
}
"""Module -> the tests that concern it, the first pattern that fits; names in ``tests/unit``, or paths from it."""
EQUIVALENT: dict[str, str] = json.loads(
    (Path(__file__).parent / "survivors.json").read_text(encoding="utf-8")
)
"""A mutant, as it is named below -> why nothing can notice it, or why no test is worth it."""

_OPPOSITES = [
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
]
_COMPARISONS = {**dict(_OPPOSITES), **{second: first for first, second in _OPPOSITES}}
_WORDS = ("log", "_log", "warn")


@dataclass(frozen=True)
class Mutant:
    """One change of a module: of which node, in the order of ``ast.walk``, and which of its changes."""

    module: str
    line: int
    what: str
    node: int
    change: int

    @property
    def name(self) -> str:
        """Without its line, so that the name outlives changes above it."""
        return f"{self.module}: {self.what}"

    def source(self) -> str:
        """The module with the change."""
        tree = ast.parse((ROOT / self.module).read_text(encoding="utf-8"))
        node = list(ast.walk(tree))[self.node]
        list(_changes(node))[self.change](node)
        return ast.unparse(ast.fix_missing_locations(tree))


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every change of a module."""
    for number, node in enumerate(ast.walk(ast.parse(path.read_text(encoding="utf-8")))):
        for change, apply in enumerate(_changes(node)):
            changed = copy.deepcopy(node)
            apply(changed)
            what = f"{ast.unparse(node)[:90]} -> {ast.unparse(changed)[:90]}".replace("\n", " ")
            yield Mutant(path.relative_to(ROOT).as_posix(), node.lineno, what, number, change)


def _changes(node: ast.AST) -> Iterator[Callable[[Any], object]]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        yield lambda twin: twin.ops.__setitem__(0, _COMPARISONS[type(twin.ops[0])]())
    elif isinstance(node, ast.BoolOp):
        yield lambda twin: setattr(twin, "op", ast.Or() if isinstance(twin.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield lambda twin: _become(twin, twin.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield lambda twin: setattr(twin, "value", not twin.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield lambda twin: setattr(twin, "value", twin.value + 1)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        if not ast.unparse(node).startswith(_WORDS):
            yield lambda twin: _become(twin, ast.Pass())
    elif isinstance(node, ast.Raise):
        yield lambda twin: _become(twin, ast.Pass())
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield lambda twin: setattr(twin, "value", ast.Constant(None))


def _become(twin: ast.AST, other: ast.AST) -> None:
    twin.__class__ = other.__class__
    twin.__dict__ = {**other.__dict__, "lineno": getattr(twin, "lineno", 1), "col_offset": 0}


def tests_of(module: str) -> list[str]:
    """The test files that concern a module."""
    names = next(names for pattern, names in TESTS.items() if Path(module).match(pattern))
    unit = ROOT / "tests" / "unit"
    files = [(unit / name if "/" in name else unit / f"test_{name}.py").resolve() for name in names.split()]
    return list(dict.fromkeys(file.relative_to(ROOT).as_posix() for file in files))


def lives(mutant: Mutant, place: Path, timeout_s: float) -> bool:
    """Whether all tests of its module pass in a copy of the tree."""
    target = place / mutant.module
    before = target.read_text(encoding="utf-8")
    target.write_text(mutant.source(), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        *tests_of(mutant.module),
        "-x",
        "-q",
        "--fast",
        "-p",
        "no:cacheprovider",
    ]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(place)}
    try:
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    finally:
        target.write_text(before, encoding="utf-8")
    return done.returncode == 0


def main() -> None:
    """Run, print the figure, and exit with 1 below the bound."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="modules whose path has this in it")
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--each", action="store_true", help="all of them")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout-s", type=float, default=300.0)
    parser.add_argument("--least", type=float, default=0.92, help="the share that has to be noticed")
    given = parser.parse_args()
    paths = {path for pattern in TESTS for path in ROOT.glob(pattern) if not path.name.startswith("__")}
    every = [mutant for path in sorted(paths) if given.only in path.as_posix() for mutant in mutants_of(path)]
    chosen = (
        every
        if given.each or len(every) <= given.number
        else random.Random(given.seed).sample(every, given.number)
    )
    if given.list:
        print("\n".join(f"{mutant.module}:{mutant.line}: {mutant.what}" for mutant in every))
        return
    counted, alive = 0, []
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory, "tree")
        shutil.copytree(
            ROOT, place, ignore=shutil.ignore_patterns(".venv", ".git", "__pycache__", "node_modules")
        )
        for mutant in chosen:
            if mutant.name in EQUIVALENT:
                continue
            counted += 1
            if lives(mutant, place, given.timeout_s):
                alive.append(mutant)
                print(f"lives  {mutant.module}:{mutant.line}: {mutant.what}", flush=True)
    score = 1 - len(alive) / max(1, counted)
    print(f"{counted - len(alive)} of {counted} noticed, {score:.1%}; {len(every)} could be made")
    raise SystemExit(score < given.least)


if __name__ == "__main__":
    main()
