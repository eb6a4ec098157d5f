"""``memslot tools perf``: a backend and its bare library in turns, and what is said of them."""

import json
from importlib.util import find_spec

import pytest
from cli_support import LACKING, error_line, fake_plugin, invoke, lacking_plugin

SMALL = ("--scopes", 2, "--memories", 20, "--large", 30, "--rounds", 1)

BARE = """
@hookimpl
def memslot_bare(directory):
    return Bare()

class Bare:
    cold_start = "raise SystemExit('no such store')"
    told, open_now = {}, 0
    def __init__(self):
        Bare.open_now += 1
    def add(self, text, user):
        self.told.setdefault(user, []).append(text)
    def search(self, query, user, top_k):
        return self.told[user][-top_k:][:FOUND]
    async def add_async(self, text, user):
        self.add(text, user)
    async def search_async(self, query, user, top_k):
        return self.search(query, user, top_k)
    def close(self):
        Bare.open_now -= 1
        print("open:", Bare.open_now)
"""


def plugin(name: str, found: int = 20) -> str:
    return fake_plugin(name) + BARE.replace("FOUND", str(found))


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("mem0") is None, reason="mem0ai is not installed")
def test_both_are_measured_in_one_run_and_nothing_is_left(tmp_path):
    result = invoke("tools", "perf", "mem0", *SMALL, "--json", "--in", tmp_path)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["backend"] == "mem0"
    assert report["sizes"] == {"scopes": 2, "memories": 20, "large": 30, "rounds": 1}
    figures = {figure["name"]: figure for figure in report["figures"]}
    assert list(figures) == [
        "search, 1 scope of 20",
        "search, 1 scope of 30",
        "search, 2 scopes of 20",
        "add, 1 scope",
        "add, spread over 2 scopes",
        "open a store of 2 scopes of 20, first result",
        "cold start of a process, first result",
    ]
    for name, figure in figures.items():
        asked = {"bare", "memslot"} | (
            {"async"} if name.endswith("1 scope of 20") or "add, 1" in name else set()
        )
        assert set(figure["ms"]) == asked
        assert all(0 < times["min"] <= times["median"] for times in figure["ms"].values())
        ours, bare = figure["ms"]["memslot"]["median"], figure["ms"]["bare"]["median"]
        assert figure["memslot_over_bare"] == {"median": ours / bare, "min": ours / bare}
    assert set(report["many_scopes_over_one"]) == {"bare", "memslot"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_a_cold_start_that_fails_is_one_line_and_all_is_closed(add_plugin, tmp_path):
    add_plugin("measured", plugin("measured"))
    result = invoke("tools", "perf", "measured", *SMALL, "--in", tmp_path)
    assert result.exit_code == 1
    assert "error: the cold start of " in result.stderr.splitlines()[-1]
    assert result.stdout.splitlines()[-1] == "open: 0"
    assert not list(tmp_path.glob("memslot-perf-*"))


def test_a_library_that_finds_nothing_is_not_a_quick_one(add_plugin, tmp_path):
    add_plugin("empty", plugin("empty", found=0))
    result = invoke("tools", "perf", "empty", *SMALL, "--in", tmp_path)
    assert result.exit_code == 1
    assert "error: the bare library answers with 0 of 20 texts" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mem00",), "no plugin is named 'mem00'; did you mean mem0"),
        (("no_memory",), "no_memory: its plugin does not offer the bare library to compare with"),
        (("absent",), LACKING),
        (("--scopes", 1), "--scopes"),
        (("--in", "no/such/place"), "--in"),
    ],
    ids=str,
)
def test_bad_input_is_one_line(add_plugin, arguments, said):
    add_plugin("absent", lacking_plugin("absent") + BARE)
    assert said in error_line(invoke("tools", "perf", *arguments), 2)
