"""Figures for other programs, and comparisons made of runs that are there already."""

import csv
import io
import json
import re

import anyio
import pytest
from bench_support import config_of, registry_with
from cli_support import invoke

from memory.bench import run_benchmark
from memory.bench.engine.run_verify import verify
from memory.bench.report.comparison import differences, read_runs
from memory.bench.report.export import figures_csv, latex_tables, markdown_tables


def played(directory, provider, **block):
    config = config_of(provider, run={"users": 2, "sessions": 8, "output": str(directory), **block})
    return anyio.run(lambda: run_benchmark(config, registry=registry_with())).directory


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    parent = tmp_path_factory.mktemp("runs")
    return [played(parent, "no_memory"), played(parent / "elsewhere", "full_history")]


@pytest.fixture(scope="module")
def figures(runs):
    return read_runs(runs)[1], differences(runs)


def test_the_csv_holds_every_figure_in_full(figures):
    metrics, paired = figures
    rows = list(csv.DictReader(io.StringIO(figures_csv(metrics, paired))))
    (fit,) = (
        row
        for row in rows
        if (row["provider"], row["group"], row["figure"]) == ("full_history", "overall", "fit")
    )
    estimate = metrics[1].preferences.overall.fit
    assert (float(fit["value"]), float(fit["low"]), int(fit["n"])) == (
        estimate.value,
        estimate.low,
        estimate.n,
    )
    assert fit["personas"] == "2"
    unknown = [row for row in rows if row["figure"] == "reversion" and row["provider"] == "no_memory"]
    assert [row["value"] for row in unknown] == [""], "unknown is empty, and no zero"
    assert {row["figure"] for row in rows if row["group"] == "less full_history"} == {"fit", "clean fit"}


def test_markdown_and_latex_are_whole_tables(figures):
    lines = [line for line in markdown_tables(*figures).splitlines() if line]
    assert lines[1].startswith("| --- | ---: |")
    wide = len(lines[0].split("|"))
    assert {len(line.split("|")) for line in lines[:4]} == {wide}
    told = latex_tables(*figures)
    assert told.count(r"\begin{tabular}") == told.count(r"\end{tabular}") == 2
    assert r"full\_history" in told
    assert not re.search(r"(?<!\\)[%_#$]", told)
    widths = {
        line.count(" & ") for line in told.split(r"\end{tabular}")[0].splitlines() if line.endswith(r"\\")
    }
    assert widths == {2}


def test_several_runs_are_reported_side_by_side_wherever_they_are(runs):
    told = json.loads(invoke("report", *runs, "--json").stdout)
    assert [run["provider"] for run in told["runs"]] == ["no_memory", "full_history"]
    assert {one["figure"] for one in told["differences"]} == {"fit", "clean fit"}
    made = next(path for path in runs[0].parent.glob("compare-runs-*"))
    page = (made / "report.html").read_text(encoding="utf-8")
    assert f'href="../{runs[0].name}/report.html"' in page
    assert f'href="../elsewhere/{runs[1].name}/report.html"' in page
    assert verify(made).deviations == ()
    assert json.loads(invoke("compare", *runs, "--json").stdout)["differences"] == told["differences"]
    # what a shell makes of `manifests/*`, the comparisons in it as well
    again = json.loads(invoke("report", made, *runs, "--json").stdout)
    assert [run["run_id"] for run in again["runs"]] == [run["run_id"] for run in told["runs"]]


def test_the_command_prints_a_table_and_nothing_else(runs, figures):
    assert invoke("report", runs[0], "--as", "csv").stdout == figures_csv(figures[0][:1])
    assert invoke("report", runs[0], "--as", "markdown").stdout == markdown_tables(figures[0][:1])
    assert invoke("report", *runs, "--as", "latex").stdout == latex_tables(*figures)


def test_runs_over_different_data_are_not_compared_and_the_page_begins_with_it(tmp_path):
    one, other = played(tmp_path, "full_history"), played(tmp_path, "full_history", seed=8)
    told = json.loads(invoke("report", one, other, "--json").stdout)
    assert told["differences"] == []
    assert told["unequal"] == ["The runs went through different data: their figures do not compare."]
    assert told["unequal"][0] in invoke("compare", one, other).output
    made = next(tmp_path.glob("compare-runs-*"))
    page = (made / "report.html").read_text(encoding="utf-8")
    alarm = page[page.index("Read this first") : page.index('<div class="blocks')]
    assert "different data: their figures do not compare" in alarm
    labels = {run["metrics"]["label"] for run in told["runs"]}
    assert labels == {f"full_history, {one.name}", f"full_history, {other.name}"}, "told apart"


def test_experiments_are_not_shown_side_by_side_and_are_not_called_damaged(runs, tmp_path):
    (tmp_path / "experiment.json").write_text("{}", encoding="utf-8")
    for command in ("report", "compare"):
        found = invoke(command, runs[0], tmp_path)
        assert found.exit_code == 2
        assert "is an experiment, which is shown by itself" in found.output
        assert "damaged" not in found.output


def test_what_is_no_run_is_refused_and_nothing_is_made(runs, tmp_path):
    (tmp_path / "empty").mkdir()
    found = invoke("report", tmp_path / "empty", runs[0])
    assert found.exit_code != 0
    assert not list(tmp_path.glob("compare-*"))
