"""Changes of the core's code, one at a time, and whether a test notices each: a figure, and a list of who lived.

    python tests/mutation/mutants.py                       # a sample of 400; ten minutes of one CPU
    python tests/mutation/mutants.py --number 0 --only slot    # every one of memory/slot
    python tests/mutation/mutants.py --list                # what could be changed, without running anything

Each mutant is one changed expression or statement. The tests are collected once, and run once to see which of them
reach which line. Each mutant then has a process of its own, forked from there: its function gets the changed code,
and the tests that reach its line run until the first fails. What lives through that, and what runs while a module
is imported (a constant, a default), is changed in a copy of the tree, and tested by a fresh pytest. A test that
fails without a change, too, kills nothing. One that lives is a line that no test needs, or a test that is missing;
those of which nobody could see anything stand in ``survivors.json`` with the reason. Needs ``coverage``. Not
collected by pytest.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import _lru_cache_wrapper, cache, partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).parents[2]
CORE = (
    "memory/contract/*.py",
    "memory/slot/*.py",
    "memory/adapter/*.py",
    "memory/runtime/_policy.py",
    "memory/runtime/_writing.py",
)
OF_OTHERS = ("__", "_scripted_")
"""How modules begin that are not of the core: the scripted model answers in place of a real one, for trials."""
LEFT_OUT = {
    *("cli", "memslot", "examples", "docs", "design", "conditions"),
    *("everything", "house", "vocabulary", "public", "start"),
}
"""Of ``tests/unit``: what runs commands and documents, and reaches the core by way of everything."""
FURTHER = (
    "runtime/test_policy runtime/test_bounded_answers runtime/test_hosting runtime/test_many_servers "
    "runtime/test_replay backends/test_error_tables backends/mem0/test_mem0_partitions"
)
EQUIVALENT: dict[str, str] = json.loads(
    (Path(__file__).parent / "survivors.json").read_text(encoding="utf-8")
)
"""A mutant, by its name -> why nobody can see anything of it, or why no test is worth it."""

_OPPOSITES = [
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
]
_COMPARISONS = {**dict(_OPPOSITES), **{second: first for first, second in _OPPOSITES}}
_WORDS = ("log", "_log", "warn")
_FIRST_S, _FULL_S, _SPARE_S = 10.0, 60.0, 20.0
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.Raise, ast.Assert, ast.Delete)


@dataclass(frozen=True)
class Mutant:
    """One change of a module: of which node, in the order of ``ast.walk``, and which of its changes."""

    module: str
    within: str
    line: int
    what: str
    near: str
    node: int
    change: int

    @property
    def name(self) -> str:
        """By its function or class and not its line, so that the name outlives changes above it."""
        return f"{self.module}: {self.within}: {self.what}"

    @property
    def known(self) -> bool:
        """Whether it is among those that nobody notices: by its name, or where that fits several, with what it
        stands in."""
        return not EQUIVALENT.keys().isdisjoint((self.name, f"{self.name} in {self.near}"))

    def tree(self) -> ast.Module:
        """The module with the change; lines stay where they are."""
        tree = ast.parse((ROOT / self.module).read_text(encoding="utf-8"))
        node = list(ast.walk(tree))[self.node]
        list(_changes(node))[self.change](node)
        return ast.fix_missing_locations(tree)

    def lines(self) -> list[range]:
        """Where it stands: its own lines, those of its statement, those of its function."""
        tree = ast.parse((ROOT / self.module).read_text(encoding="utf-8"))
        node = list(ast.walk(tree))[self.node]
        around = [node]
        for outer in ast.walk(tree):
            if node in ast.walk(outer) and isinstance(
                outer, (*_SIMPLE, ast.FunctionDef, ast.AsyncFunctionDef)
            ):
                around.append(outer)
        found = {range(each.lineno, each.end_lineno + 1) for each in around}  # type: ignore[attr-defined]
        return sorted(found, key=len)


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every change of a module, but for what runs on Windows alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    within: dict[ast.AST, str | None] = {tree: ""}
    near: dict[ast.AST, ast.AST] = {}
    for number, node in enumerate(ast.walk(tree)):
        place = within[node]
        if place is not None and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            place = f"{place}.{node.name}".lstrip(".")
        within.update(dict.fromkeys(ast.iter_child_nodes(node), place))
        whole = node if isinstance(node, ast.Compare | ast.Call | ast.stmt) else near.get(node, node)
        near.update(dict.fromkeys(ast.iter_child_nodes(node), whole))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "sys.platform == 'win32'":
            within.update(dict.fromkeys(node.body))
        for change, apply in enumerate(_changes(node) if place is not None else ()):
            changed = copy.deepcopy(node)
            apply(changed)
            what = f"{ast.unparse(node)[:90]} -> {ast.unparse(changed)[:90]}".replace("\n", " ")
            line: int = node.lineno  # type: ignore[attr-defined]
            around = ast.unparse(near[node])[:90].replace("\n", " ")
            yield Mutant(path.relative_to(ROOT).as_posix(), str(place), line, what, around, number, change)


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
    kept = {name: getattr(twin, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
    twin.__class__ = other.__class__
    twin.__dict__ = {**other.__dict__, **kept}


def changed_code(module: str, mutant: Mutant) -> list[tuple[tuple[str, int], CodeType]]:
    """The outermost functions whose code a mutant changes, by name and line; none where it runs at import."""
    file = str(ROOT / module)
    before = _functions(compile((ROOT / module).read_text(encoding="utf-8"), file, "exec", dont_inherit=True))
    after = _functions(compile(mutant.tree(), file, "exec", dont_inherit=True))
    return [(key, code) for key, code in after.items() if key in before and before[key] != code]


def _functions(code: CodeType) -> dict[tuple[str, int], CodeType]:
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    found = {(each.co_qualname, each.co_firstlineno): each for each in inner}
    for each in inner:
        found.update(_functions(each))
    return found


class Runner:
    """A plugin of the pytest that has collected the tests."""

    def __init__(self, chosen: list[Mutant], place: Path, reach: Path | None) -> None:
        self.chosen = chosen
        self.place = place
        self._map_file = reach or place / "reach.json"
        self.alive: list[Mutant] = []
        self.ended: Counter[str] = Counter()
        self._failed: str | None = None
        self._items: dict[str, pytest.Item] = {}
        self._reach: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._aimed: dict[str, Counter[str]] = defaultdict(Counter)
        self._took: dict[str, float] = {}
        self._unsound: set[str] = set()
        self._index: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The first failure ends the process of a mutant, once its test is torn down."""
        if report.failed and self._failed is None:
            self._failed = report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of running the tests."""
        gc.unfreeze()  # what is frozen is not listed
        self._items = {item.nodeid: item for item in session.items}
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType) and thing.__code__.co_filename.startswith(str(ROOT)):
                code = thing.__code__
                self._index[code.co_filename, code.co_qualname, code.co_firstlineno].append(thing)
        began = time.monotonic()
        self._map()
        say(f"{len(self._took)} tests pass; seen in {time.monotonic() - began:.0f} s")
        for number, mutant in enumerate(self.chosen, 1):
            how = self._judge(mutant)
            self.ended[how] += 1
            if how.startswith("lives"):
                self.alive.append(mutant)
                say(f"{how}  line {mutant.line} of {mutant.name}")
            if number % 50 == 0:
                say(f"... {number} of {len(self.chosen)}, {time.monotonic() - began:.0f} s")
        return True

    # -- which test reaches which line --------------------------------------------------------------------

    def _map(self) -> None:
        if not self._map_file.exists():
            self._fork(self._see, 1800.0)
        seen = json.loads(self._map_file.read_text(encoding="utf-8"))
        self._took = {test: seconds for test, seconds in seen["took"].items() if test in self._items}
        for module, lines in seen["lines"].items():
            for line, tests in lines.items():
                self._reach[module, int(line)] = {test for test in tests if test in self._took}
                self._aimed[module].update(self._reach[module, int(line)])
        lines_of = sum(self._aimed.values(), Counter())
        for module, tests in self._aimed.items():
            self._aimed[module] = Counter({test: tests[test] / lines_of[test] for test in tests})

    def _see(self) -> None:
        data = self.place / "coverage"
        watch = coverage.Coverage(data_file=str(data), include=[str(ROOT / pattern) for pattern in CORE])
        watch.start()
        took: dict[str, float] = {}
        items = list(self._items.values())
        # What an earlier test has left in one would keep the code behind it from being seen in a later test.
        caches = [thing for thing in gc.get_objects() if isinstance(thing, _lru_cache_wrapper)]
        ours = [
            cache for cache in caches if str(cache.__module__).partition(".")[0] in ("memory", "conditions")
        ]
        for item, following in zip(items, [*items[1:], None], strict=True):
            for kept in ours:
                kept.cache_clear()
            watch.switch_context(item.nodeid)
            began, self._failed = time.monotonic(), None
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed is None:
                took[item.nodeid] = time.monotonic() - began
            watch.switch_context("")
        watch.stop()
        found = watch.get_data()
        lines = {
            Path(path).relative_to(ROOT).as_posix(): found.contexts_by_lineno(path)
            for path in found.measured_files()
        }
        self._map_file.write_text(json.dumps({"lines": lines, "took": took}), encoding="utf-8")

    def _tests(self, mutant: Mutant) -> list[list[str]]:
        """Those that reach it, then those of its function, in two orders: the quickest first; those first that run
        little else than its module, since hundreds may pass through a line of which few look at what it does. Those
        of its module where none reaches it: what a forked child runs is not seen.
        """
        groups = [set().union(*(self._reach[mutant.module, at] for at in lines)) for lines in mutant.lines()]
        groups += [set(self._aimed[mutant.module])] * (not any(groups))
        found = []
        for order in (self._took.__getitem__, lambda test: -self._aimed[mutant.module][test]):
            ordered: dict[str, None] = {}
            for group in groups:
                ordered.update(dict.fromkeys(sorted(group - self._unsound, key=order)))
            found.append(list(ordered))
        return found

    # -- one mutant ---------------------------------------------------------------------------------------

    def _judge(self, mutant: Mutant) -> str:
        changes = changed_code(mutant.module, mutant)
        file = str(ROOT / mutant.module)
        known = [(function, code) for key, code in changes for function in self._index.get((file, *key), ())]
        fits = all(function.__code__.co_freevars == code.co_freevars for function, code in known)
        if not known or not fits:
            return self._afresh(mutant)
        ordered = self._tests(mutant)

        def change() -> None:
            for function, code in known:
                function.__code__ = code

        for tests, limit_s in zip(ordered, (_FIRST_S, _FULL_S), strict=True):
            some = self._within([test for test in tests if test not in self._unsound], limit_s)
            while (
                failed := self._fork(partial(self._run, some, change), self._limit_s(some))
            ) in self._items:
                if self._fork(partial(self._run, [failed]), self._limit_s([failed])) is None:
                    return "killed"
                self._unsound.add(failed)  # it fails without the change as well
                some = [test for test in some if test != failed]
            if failed == "late":
                return "killed by the time it took"
            if len(some) == len(tests):
                break
        return self._afresh(mutant)  # a process that a test starts has the code of the tree, not ours

    def _limit_s(self, tests: list[str]) -> float:
        return 3 * sum(self._took[test] for test in tests) + _SPARE_S

    def _within(self, tests: list[str], limit_s: float) -> list[str]:
        spent, some = 0.0, []
        for test in tests:
            spent += self._took[test]
            if some and spent > limit_s:
                break
            some.append(test)
        return some

    def _run(self, tests: list[str], change: Callable[[], None] = lambda: None) -> None:
        change()
        items = [item for name, item in self._items.items() if name in set(tests)]
        items.sort(key=lambda item: self._took[item.nodeid])
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed is not None:
                return

    def _fork(self, body: Callable[[], None], limit_s: float) -> str | None:
        """``body`` in a process of its own: the test that failed, ``late``, or None."""
        said, saying = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.setpgid(0, 0)
                silence = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silence, 1)
                os.dup2(silence, 2)
                self._failed = None
                body()
                os.write(saying, (self._failed or "").encode())
                os._exit(0)
            except BaseException as error:
                os.write(saying, f"broke: {type(error).__name__}".encode())
            finally:
                os._exit(1)
        os.close(saying)
        ended = os.pidfd_open(pid)
        late = not select.select([ended], [], [], limit_s)[0]
        try:
            os.killpg(pid, signal.SIGKILL)  # also what its tests have started
        except ProcessLookupError:
            pass
        os.waitpid(pid, 0)
        with os.fdopen(said, "rb") as pipe:
            failed = pipe.read().decode()
        os.close(ended)
        if late:
            return "late"
        return failed if failed in self._items else None

    def _afresh(self, mutant: Mutant) -> str:
        """The module is changed in a copy of the tree, and imported anew."""
        copied = self.place / "tree"
        if not copied.exists():
            left_out = shutil.ignore_patterns(".venv", ".git", "__pycache__", "node_modules", "docs")
            shutil.copytree(ROOT, copied, ignore=left_out)
        reached = [
            test for (module, _), tests in self._reach.items() if module == mutant.module for test in tests
        ]
        frequent = [test for test, _ in Counter(reached).most_common(400)]
        # A class is looked at by tests that run none of its module's lines.
        name = mutant.module.removesuffix(".py").replace("/", ".")
        named = [test for test in self._took if name in _text_of(self._items[test].path)]
        tests = [
            test
            for some in (named, frequent)
            for test in self._within(sorted({*some} - self._unsound, key=self._took.__getitem__), _FIRST_S)
        ]
        tests = list(dict.fromkeys(tests))
        if not tests:
            return "lives, reached by no test"
        target = copied / mutant.module
        before = target.read_text(encoding="utf-8")
        target.write_text(ast.unparse(mutant.tree()), encoding="utf-8")
        listed = self.place / "tests"
        listed.write_text("\n".join(tests), encoding="utf-8")
        options = ["-x", "-q", "--fast", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command = [sys.executable, "-m", "pytest", f"@{listed}", *options]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(copied)}
        try:
            limit_s = self._limit_s(tests) + 2 * _FULL_S  # imports and collects first
            done = subprocess.run(
                command, cwd=copied, env=environment, capture_output=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            return "killed by the time it took"
        finally:
            target.write_text(before, encoding="utf-8")
        return "lives" if done.returncode == 0 else "killed in a fresh process"


@cache
def _text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def say(line: str) -> None:
    """Past pytest's capture."""
    print(line, file=sys.__stdout__, flush=True)


def test_files() -> list[str]:
    """Those that may reach the core."""
    unit = ROOT / "tests" / "unit"
    files = [path for path in sorted(unit.glob("test_*.py")) if path.stem.split("_")[1] not in LEFT_OUT]
    return [*map(str, files), *(str(ROOT / "tests" / f"{name}.py") for name in FURTHER.split())]


def main() -> None:
    """Run, print the figure, and exit with 1 below the bound."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="mutants whose 'path: function: change' has this in it")
    parser.add_argument("--number", type=int, default=400, help="how many, evenly drawn; 0 for all")
    parser.add_argument(
        "--reach", type=Path, help="a file of which test reaches which line; made where missing"
    )
    parser.add_argument(
        "--again", type=Path, help="what a run has printed: those that lived in it, and no others"
    )
    parser.add_argument(
        "--tests", type=Path, nargs="*", default=test_files(), help="by default all that matter"
    )
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=float, default=0.92, help="the share that has to be noticed")
    given = parser.parse_args()
    paths = {path for pattern in CORE for path in ROOT.glob(pattern) if not path.name.startswith(OF_OTHERS)}
    every = [mutant for path in sorted(paths) for mutant in mutants_of(path) if given.only in mutant.name]
    if given.again is not None:
        lived = given.again.read_text(encoding="utf-8").splitlines()
        names = {line.partition(" of ")[2] for line in lived if line.startswith("lives")}
        every = [mutant for mutant in every if mutant.name in names]
    if given.list:
        print("\n".join(f"{mutant.line} of {mutant.name}" for mutant in every))
        return
    drawn = random.Random(given.seed).sample(every, min(given.number or len(every), len(every)))
    chosen = [
        mutant for mutant in drawn if not mutant.known
    ]  # as drawn: a run that is cut short is a sample, too
    with tempfile.TemporaryDirectory() as directory:
        runner = Runner(chosen, Path(directory), given.reach)
        options = ["--fast", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={ROOT}"]
        ended = pytest.main([*map(str, given.tests), *options], plugins=[runner])
    if sum(runner.ended.values()) < len(chosen):
        raise SystemExit(f"given up: pytest ended with {ended!r}")
    killed = len(chosen) - len(runner.alive)
    score = killed / max(1, len(chosen))
    print(dict(runner.ended))
    print(
        f"{killed} of {len(chosen)} noticed, {score:.1%}; drawn with seed {given.seed} of {len(every)} that can be "
        f"made, {len(drawn) - len(chosen)} drawn that nobody could notice"
    )
    raise SystemExit(score < given.least)


if __name__ == "__main__":
    main()
