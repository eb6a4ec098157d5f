"""``memslot doctor``: complete, plain where it is piped, and quick because it imports no SDK."""

import json
import re

import pytest
from cli_support import LACKING, fake_plugin, invoke, lacking_plugin
from rich.cells import cell_len
from variants import plain

import memory
from memory import open_memory_sync
from memory.plugins.registry import MemoryAdapterRegistry

CONDITIONS = {"no_memory", "full_history", "rolling_summary", "simple_rag", "static_profile", "oracle_ipas"}


def test_json_is_what_the_registry_knows():
    result = invoke("doctor", "--json")
    assert result.exit_code == 0
    rows = json.loads(result.stdout)
    assert rows == [row.to_json() for row in MemoryAdapterRegistry().rows()]
    built_in = {row["name"] for row in rows if row["distribution"] == "memslot"}
    assert built_in >= {"mem0", *CONDITIONS}
    assert {row["version"] for row in rows if row["distribution"] == "memslot"} == {memory.__version__}


def test_a_missing_sdk_shows_the_exact_pip_line(add_plugin):
    add_plugin("lacking", lacking_plugin("lacking"))
    (line,) = (line for line in invoke("doctor").stdout.splitlines() if line.startswith("lacking"))
    assert LACKING in line
    (row,) = (row for row in json.loads(invoke("doctor", "--json").stdout) if row["name"] == "lacking")
    assert (row["installed"], row["install"], row["missing"]) == (False, LACKING, ["no_such_sdk"])


@pytest.mark.parametrize(
    "source",
    ["raise RuntimeError('out of order')", "raise SystemExit('out of order')", "def out of order"],
    ids=["raises", "exits", "syntax"],
)
def test_a_broken_plugin_is_shown_and_breaks_nothing(add_plugin, source):
    add_plugin("ruined", source)
    result = invoke("doctor")
    assert result.exit_code == 0
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("ruined"))
    assert "memslot-ruined" in line
    assert "broken: ruined (memslot-ruined)" in line
    assert any(
        line.startswith("full_history") and " installed " in line for line in result.stdout.splitlines()
    )


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A configuration whose journal holds a turn, and a directory of results."""
    place = tmp_path_factory.mktemp("tables")
    config = place / "memory.yaml"
    config.write_text(
        "memory: {backend: full_history, scope: {run_id: r, persona_id: ada}, data_dir: kept, journal: true}\n"
        "run: {doctor: false, game: {users: 1, sessions: 10, tests: 3}}\n"
    )
    with open_memory_sync(config) as opened:
        opened.after_turn(user="I like oolong tea.", session_id="s")
    assert invoke("run", config, "no_memory", "full_history", "--out", place / "runs").exit_code == 0
    return {"CONFIG": str(config), "RUNS": str(place / "runs")}


@pytest.mark.parametrize("columns", plain("80", of=["80", "120", "200", None]))
@pytest.mark.parametrize(
    "command",
    [
        "doctor",
        "tools hosts",
        "tools signet parity",
        "journal list CONFIG",
        "report RUNS",
        "report RUNS --failures",
    ],
)
def test_a_table_fits_a_width_and_loses_nothing(command, columns, add_plugin, places):
    add_plugin("wordy", fake_plugin("wordy", info="summary='w' * 300"))
    words = [places.get(word, word) for word in command.split()]
    result, whole = (invoke(*words, env={"COLUMNS": each}) for each in (columns, "100000"))
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    # A sentence is one line at any width. Two blanks stand between the cells of a table.
    table = [line for line in result.stdout.splitlines() if "  " in line or line not in whole.stdout]
    assert max(map(cell_len, table)) <= int(columns or 120)
    assert sorted("".join(result.stdout.split())) == sorted("".join(whole.stdout.split()))
    names = re.findall(r"^(\S+)  ", whole.stdout, re.MULTILINE)
    assert [
        name for name in names if not re.search(rf"^{re.escape(name)}\b", result.stdout, re.MULTILINE)
    ] == []
