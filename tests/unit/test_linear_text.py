"""Handling text takes time in proportion to its length, whatever the text is made of (ATTACKS, "Text")."""

import ast
import contextlib
import itertools
import json
import re
import time
from functools import cache
from pathlib import Path

import pytest
from growth_support import PIECES, RUNS, Run, assert_linear
from hypothesis import example, given, settings

import conditions
import memory
from memory.adapter import ContextEntry, clean_text
from memory.adapter.fields import normalise
from memory.adapter.models import LexicalHashEmbedder
from memory.contract.formatting import is_well_formed, render_section, strip_context, strip_json, wrap_section

pytestmark = pytest.mark.thorough

HANDLERS = {
    "strip": strip_context,
    "clean": clean_text,
    "entry": lambda text: render_section(
        "mem0", "r:p", [ContextEntry(text, labels=((text, text),), group=text)]
    ),
    "prose": lambda text: render_section("mem0", "r:p", [ContextEntry(text, prose=True), ContextEntry(text)]),
    "wrap": lambda text: wrap_section("mem0", "r:p", [text, text]),
    "json": strip_json,
    "json text": lambda text: strip_json(json.dumps([text, {text: "<memory-context>"}])),
    "normalise": lambda text: [normalise(form, text) for form in ("NFC", "NFKC")],
    "embed": LexicalHashEmbedder().embed_document,
    "names": lambda text: wrap_section(text, text, ["x"]),
    "check": is_well_formed,
    "check section": lambda text: is_well_formed(f"<memory-context>{text}</memory-context>"),
}


@pytest.mark.parametrize("handler", HANDLERS)
@given(run=RUNS)
@example(run=Run("<", (" ",), ""))
@example(run=Run("<", ("\u200b",), "/"))
@example(run=Run("", ("<memory-<memory-context>context>",), ""))
@example(run=Run("<memory-context>< ", (" ",), "x"))
@example(run=Run("a", ("\u0300\u0316",), ""))
@example(run=Run("a", ("\uff9e\u0316",), ""))
@settings(max_examples=40)
def test_doubling_a_text_at_most_triples_the_time(handler, run):
    assert_linear(HANDLERS[handler], run)


def _patterns():
    """Every pattern in our sources by its place; read, not imported, since some modules import an SDK."""
    found = {}
    for package in (memory, conditions):
        root = Path(package.__file__).parent
        for file in sorted(root.rglob("*.py")):
            source = file.read_text(encoding="utf-8")
            if "import re\n" not in source:
                continue
            texts = {"re": re}
            for node in ast.walk(ast.parse(source)):
                with contextlib.suppress(NameError, TypeError, ValueError, AttributeError):
                    if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Constant, ast.JoinedStr)):
                        value = eval(compile(ast.Expression(node.value), "", "eval"), dict(texts))
                        texts[node.targets[0].id] = value
                    elif isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS:
                        given = [node.args[0], *node.args[1 if node.func.attr == "compile" else 99 :]]
                        compiled = ast.Call(ast.parse("re.compile", mode="eval").body, given, [])
                        compiled = ast.fix_missing_locations(ast.Expression(compiled))
                        pattern = eval(compile(compiled, "", "eval"), dict(texts))
                        found[f"{root.name}/{file.relative_to(root)}:{node.lineno}"] = (
                            node.func.attr,
                            pattern,
                        )
    return found


CALLS = {
    f"re.{name}"
    for name in ("compile", "sub", "match", "search", "fullmatch", "split", "findall", "finditer")
}
PATTERNS = _patterns()


@cache
def _texts():
    around = itertools.product(("", "<", "a", "\n", "- 2024-01-01 a", "D1:"), PIECES, ("", "x"))
    runs = [Run(before, (piece,), after) for before, piece, after in around]
    return [(run, run.of_length(4_000)) for run in runs]


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_backtracks_over_a_run(name):
    method, pattern = PATTERNS[name]

    def search(text):
        given = text.encode("utf-8", "surrogatepass") if isinstance(pattern.pattern, bytes) else text
        if method in ("match", "fullmatch"):
            getattr(pattern, method)(given)
        else:
            pattern.split(given)

    for run, text in _texts():
        started = time.thread_time()
        search(text)
        if time.thread_time() - started > 0.0025:
            assert_linear(search, run)
