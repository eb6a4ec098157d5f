"""One name for one thing, and none that has to be explained: these words name nothing in the code."""

import ast
import re
from pathlib import Path

import pytest

import memory

ROOT = Path(memory.__file__).parents[1]
INSTEAD = {
    "told": "details, payload or reported",
    "home": "workspace or cube",
    "homes?": "workspaces or cubes",
    "one": "the element's own name",
    "stand_ins": "fallback_components",
    "same_as": "equivalent_control",
    "outlasts": "track_completion",
    "keeping": "attach_receipts",
    "StoresAtOnce": "SynchronousWrites",
    "place_trials": "allocate_probe_scopes",
    "give_memory_back": "trim_heap",
    "unless_missing": "none_if_404",
    "worked_off": "wait_until_idle",
    "MOST_.+|most|most_.+": "max_...",
    "patience|.+_patience_s|patience_s": "queue_timeout_s",
    "Occupancy": "ScopeLeases",
    "withhold": "suspend",
    "give_back": "restore",
    "rebased": "resolve_paths",
    "Table": "CellContext",
    "Seats?": "RoleSet",
    "Dealings": "SessionDriver",
    "Played": "CellState",
    "Tested": "TestSessionRun",
    "Asked": "ProbeSession",
    "doubtful|doubts?": "uncertain",
    "settled": "derived or acknowledged",
    "go": "run",
    "tell|tell_.+|told_.+": "report_...",
}
SMALL = "|".join(word for word in INSTEAD if word.islower())  # refused as a class and as a constant too
OTHER = "|".join(word for word in INSTEAD if not word.islower())  # "Table" leaves "table" alone
REFUSED = re.compile(f"_*((?i:{SMALL})|{OTHER})")
AS_CALLS = {"note": "emit_trace", "queued": "awaiting_turn", "pause": "checkpoint or yield_turn"}
"""Plain words of what something is; as what is called, they say nothing."""


def defined(tree: ast.AST) -> list[tuple[int, str]]:
    """Names that a module makes: functions, classes, arguments, variables, attributes, and what it imports as."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append((node.lineno, node.name))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append((node.lineno, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.append((node.lineno, node.attr))
        elif isinstance(node, ast.arg):
            found.append((node.lineno, node.arg))
        elif isinstance(node, ast.alias) and node.asname:
            found.append((node.lineno, node.asname))
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.append((node.lineno, node.name))
    return found


def refused(source: str) -> list[tuple[int, str]]:
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [
        *((line, name) for line, name in defined(tree) if REFUSED.fullmatch(name)),
        *((node.lineno, node.name) for node in calls if node.name in AS_CALLS),
    ]


@pytest.mark.parametrize("room", ["memory", "conditions", "examples", "docs", "tests", "."])
def test_no_refused_word_names_anything(room):
    files = sorted((ROOT / room).glob("*.py" if room == "." else "**/*.py"))
    found = []
    for file in files:
        found += [f"{file}:{line}: {name}" for line, name in refused(file.read_text(encoding="utf-8"))]
        if REFUSED.fullmatch(file.stem):
            found.append(f"{file}: its own name")
    assert files
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "told = 1",
        "def go(): ...",
        "class Seats: ...",
        "def f(most=1): ...",
        "self._home = 1",
        "_MOST_ROWS = 5",
        "import memory as home",
        "try: ...\nexcept OSError as doubt: ...",
        "match x:\n    case told: ...",
        "async def pause(): ...",
        "class Told: ...",
        "PATIENCE_S = 5.0",
    ],
)
def test_the_list_is_looked_for_in_every_kind_of_name(source):
    assert refused(source)
    assert not refused("almost = gone = someone = telling = queued = 1")
