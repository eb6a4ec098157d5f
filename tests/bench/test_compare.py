"""Several providers over one timeline, and their reports."""

import io
import json
import re
from contextlib import redirect_stdout
from html.parser import HTMLParser
from pathlib import Path

import pytest
from bench_support import SENTINEL, config_of, locomo_sample, registry_with, write_locomo

from memory import ConfigError
from memory.adapter import PluginOptions
from memory.bench import (
    comparison_configs,
    read_comparison,
    run_benchmark,
    run_many,
    run_settings,
    write_comparison_report,
    write_report,
)
from memory.bench.report.plots import Bar, Line, bars, histogram, lines, nice_steps, own_colours
from memory.cli._results import show_run
from memory.contract.errors import PluginNotFound
from memory.testing._fake_backend import FakeBackend

CONTENT = {
    "memory": {
        "condition": "no_memory",
        "budget": {"max_tokens": 400, "max_items": None},
        "conditions": {"no_memory": {}, "full_history": {}, "oracle_ipas": {}},
        "backends": {"fake": {}},
    },
    "run": {
        "doctor": False,
        "users": 2,
        "sessions": 8,
        "compare": ["no_memory", "full_history", "oracle_ipas", "fake"],
    },
}


async def compared(tmp_path, names=None, **options):
    configs = comparison_configs(CONTENT, names)
    settings = run_settings(configs[0], output=tmp_path)
    return await run_many(configs, settings=settings, registry=registry_with(), **options)


async def test_providers_run_over_the_same_data_and_are_shown_side_by_side(tmp_path):
    told = []
    comparison = await compared(tmp_path, finished=told.append)
    columns, rows = comparison.table
    assert [row[0] for row in rows] == ["no_memory", "full_history", "oracle_ipas", "fake"]
    assert columns[:5] == ["provider", "fit", "95 % interval", "changed", "steady"]
    assert {len(row) for row in rows} == {len(columns)}
    assert (rows[0][1], rows[2][1]) == ("0.0%", "100.0%")
    assert len({outcome.manifest.data.sha256 for outcome in comparison.outcomes}) == 1
    assert told == list(comparison.outcomes)
    record = read_comparison(comparison.directory)
    assert [tmp_path / run for run in record.runs] == [outcome.directory for outcome in comparison.outcomes]
    page = comparison.report.read_text(encoding="utf-8")
    for run in record.runs:
        assert f'href="../{run}/report.html"' in page
    comparison.report.unlink()
    assert write_comparison_report(comparison.directory).read_text(encoding="utf-8") == page


async def test_a_comparison_says_what_its_figures_mean_and_do_not(tmp_path):
    comparison = await compared(tmp_path, ["no_memory", "full_history", "fake"])
    columns, rows = comparison.table
    floor, history, _ = (dict(zip(columns, row, strict=True)) for row in rows)
    assert (floor["nothing shown"], floor["stale"], floor["personas"]) == ("100.0%", "0.0%", "2")
    assert floor["95 % interval"] != "0.0% to 0.0%"
    assert {"changed", "steady", "tokens, range", "cut by budget"} <= history.keys()
    cut = history["cut by budget"]
    assert not cut.startswith("0 of")
    page = comparison.report.read_text(encoding="utf-8")
    assert "The floor is nothing shown" in page
    assert "full_history is of kind control: the newest messages that fit the budget" in page
    assert f"the budget cut {cut} contexts" in page
    pages = [page, *(outcome.report.read_text(encoding="utf-8") for outcome in comparison.outcomes)]
    for text in pages:
        assert "share that no longer shows the new value" in text, "what reversion is"
        assert "Student&#39;s t for the number of personas" in text, "what an interval is"
    assert {(one.first, one.second) for one in comparison.differences} == {
        ("no_memory", "full_history"), ("no_memory", "fake"), ("full_history", "fake"),
    }  # fmt: skip
    assert "Differences, probe by probe" in page


def test_a_provider_has_its_colour_whoever_stands_beside_it():
    def coloured(*names):
        return dict(zip(names, own_colours(names), strict=True))

    alone = coloured("mem0")["mem0"]
    assert coloured("mem0", "graphiti", "honcho")["mem0"] == alone
    many = coloured(*(f"provider {number}" for number in range(8)))
    assert len(set(many.values())) == 8, "as many as there are, told apart"
    assert len(coloured(*(f"provider {number}" for number in range(9)))) == 9


def test_long_labels_stand_beside_their_bars_whole():
    label = "mem0 (control, the same as simple_rag; lexical embedder)"
    plot = str(bars("fit", [Bar(label, 0.5), Bar("no_memory", 0.0)]))
    told = re.findall(r'class="label"[^>]*>([^<]*)<', plot)
    assert " ".join(told) == f"{label} no_memory"
    assert max(map(len, told)) <= 21
    legend = str(lines("fit", [Line(label, ((0, 1.0),)), Line("no_memory", ((0, 0.0),))], "x"))
    assert label in legend


async def test_a_provider_that_cannot_begin_stops_no_other(tmp_path):
    configs = comparison_configs(CONTENT, ["no_memory", "fake", "oracle_ipas"])
    settings = run_settings(configs[0], output=tmp_path)
    registry = registry_with(sdk_modules=("no_such_sdk",))
    comparison = await run_many(configs, settings=settings, registry=registry)
    assert [outcome.metrics.provider for outcome in comparison.outcomes] == ["no_memory", "oracle_ipas"]
    assert [(one.provider, one.error.type) for one in comparison.not_run] == [("fake", "PluginLoadError")]
    assert "fake: not run" in comparison.report.read_text(encoding="utf-8")


async def test_a_name_that_nobody_offers_is_said_before_anything_runs(tmp_path):
    configs = comparison_configs(CONTENT, ["no_memory", "full_histroy"])
    with pytest.raises(PluginNotFound, match="did you mean full_history"):
        await run_many(configs, settings=run_settings(configs[0], output=tmp_path), registry=registry_with())
    assert not list(tmp_path.iterdir())


async def test_a_defect_in_one_provider_stops_no_other_and_its_message_is_withheld(tmp_path):
    class Defective(FakeBackend):
        def native_scope(self, scope):
            raise TypeError(SENTINEL)

    configs = comparison_configs(CONTENT, ["fake", "no_memory"])
    settings = run_settings(configs[0], output=tmp_path)
    comparison = await run_many(configs, settings=settings, registry=registry_with(Defective()))
    assert [outcome.metrics.provider for outcome in comparison.outcomes] == ["no_memory"]
    assert [(one.provider, one.error.type) for one in comparison.not_run] == [("fake", "TypeError")]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path.name for path in files if SENTINEL in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    ("content", "names", "complaint"),
    [
        (CONTENT, [], "names no provider"),
        ({**CONTENT, "run": {}}, None, r"run\.compare: names no provider"),
        ({**CONTENT, "run": {"compare": 7}}, None, r"run\.compare: names no provider"),
        (
            {"memory": {"backends": {"x": {}}, "conditions": {"x": {}}}},
            ["x"],
            r"memory\.conditions\.x: stands under memory\.backends as well",
        ),
        ({"memory": []}, ["x"], "memory: is missing"),
    ],
)
def test_what_cannot_be_compared_is_refused(content, names, complaint):
    with pytest.raises(ConfigError, match=complaint):
        comparison_configs(content, names)


def test_configurations_differ_in_the_provider_alone(tmp_path):
    path = tmp_path / "all.yaml"
    path.write_text(json.dumps(CONTENT), encoding="utf-8")
    first, second = (
        config.redacted(PluginOptions()) for config in comparison_configs(path, ["no_memory", "fake"])
    )
    for one in (first["memory"], second["memory"]):
        for name in ("backend", "condition", "backends", "conditions"):
            one.pop(name, None)
    assert first == second


def test_a_damaged_comparison_says_so(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no comparison\.json"):
        read_comparison(tmp_path)
    (tmp_path / "comparison.json").write_text('{"format_version": 1}', encoding="utf-8")
    with pytest.raises(ConfigError, match="is damaged: comparison_id: is required"):
        read_comparison(tmp_path)


# -- the page -------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Checks that every tag is closed, and collects what a page would load."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.links = [], set(), []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href", "data")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


async def test_every_interval_stands_with_its_number_of_personas(tmp_path):
    """In the report and on the terminal, for each group as for all."""
    outcome = (await compared(tmp_path, ["full_history"])).outcomes[0]
    page, terminal = outcome.report.read_text(encoding="utf-8"), io.StringIO()
    with redirect_stdout(terminal):
        show_run(outcome.manifest, outcome.metrics)
    scores = outcome.metrics.preferences
    for row in (scores.overall, *scores.groups):
        assert row.fit.clusters == 2
        low, high = f"{row.fit.low:.1%}", f"{row.fit.high:.1%}"
        assert f"<tr><td>{row.label}</td><td>{row.fit.n}</td><td>2</td>" in page
        assert f"<td>{row.fit.value:.1%} ({low} to {high})</td>" in page
        cells = [row.label, str(row.fit.n), f"{row.fit.value:.1%}", *f"{low} to {high}".split(), "2"]
        assert cells in [line.split()[:7] for line in terminal.getvalue().splitlines()]


async def test_every_interval_of_evidence_stands_with_its_number_of_conversations(tmp_path):
    data = write_locomo(tmp_path / "talks.json", locomo_sample("one"), locomo_sample("two"))
    config = config_of("fake", run={"timeline": "locomo", "data": str(data), "output": str(tmp_path)})
    outcome = await run_benchmark(config, registry=registry_with())
    terminal = io.StringIO()
    with redirect_stdout(terminal):
        show_run(outcome.manifest, outcome.metrics)
    assert "by conversation (2), not by question" in outcome.report.read_text(encoding="utf-8")
    scores = outcome.metrics.evidence
    for row in (scores.overall, *scores.categories):
        spans = f"{row.recall.low:.1%} to {row.recall.high:.1%}".split()
        cells = [row.label, str(row.questions), str(row.turns), f"{row.recall.value:.1%}", *spans, "2"]
        assert cells in [line.split()[:8] for line in terminal.getvalue().splitlines()]


def check_self_contained(text, links=()):
    page = Page(text)
    assert page.links == list(links)
    assert not page.tags & {"script", "link", "iframe", "img", "object"}
    assert "svg" in page.tags
    assert not re.search(r"https?://|@import|url\(", text)


async def test_reports_load_nothing_and_hold_nothing_a_user_said(tmp_path):
    comparison = await compared(tmp_path, ["full_history", "fake"])
    ids = [outcome.manifest.run_id for outcome in comparison.outcomes]
    check_self_contained(
        comparison.report.read_text(encoding="utf-8"), [f"../{name}/report.html" for name in ids]
    )
    check_self_contained(comparison.outcomes[0].report.read_text(encoding="utf-8"))
    data = write_locomo(tmp_path / "talk.json")
    config = config_of(run={"timeline": "locomo", "data": str(data), "output": str(tmp_path)})
    outcome = await run_benchmark(config, registry=registry_with())
    page = outcome.report.read_text(encoding="utf-8")
    check_self_contained(page)
    assert SENTINEL not in page
    assert "single-hop" in page


async def test_a_report_can_be_made_again_and_escapes_what_it_shows(tmp_path):
    data = write_locomo(tmp_path / "<b>talk.json")
    config = config_of(run={"timeline": "locomo", "data": str(data), "output": str(tmp_path)})
    outcome = await run_benchmark(config, registry=registry_with())
    page = outcome.report.read_text(encoding="utf-8")
    assert "&lt;b&gt;talk.json" in page
    assert "<b>" not in page
    assert write_report(outcome.directory).read_text(encoding="utf-8") == page


async def test_a_run_without_answers_still_has_a_report(tmp_path):
    config = config_of(run={"users": 1, "sessions": 8, "output": str(tmp_path)}, provider="no_memory")
    outcome = await run_benchmark(config, registry=registry_with())
    check_self_contained(outcome.report.read_text(encoding="utf-8"))


def test_plots_of_nothing_and_of_extremes_are_still_plots():
    for plot in (
        bars("empty", []),
        bars("none", [Bar("a", None), Bar("<b>", 0.0)]),
        bars("large", [Bar("a", 1e9), Bar("b", 3e-7)], share=False),
        histogram("empty", [], "ms"),
        histogram("one", [0.0], "ms", marks=[("p50", 0.0)]),
        histogram("far", [1.0, 2.0, 1e6], "ms", marks=[("p95", 2.0)]),
        lines("empty", [], "x"),
        lines("one", [Line("a", ((0, None),)), Line("b", ((0, 1.0),))], "x"),
    ):
        assert "nan" not in plot.lower().replace("nan_", "")
        Page(str(plot))
    assert "&lt;b&gt;" in bars("none", [Bar("<b>", 0.5)])


@pytest.mark.parametrize("top", [1e-9, 0.3, 1.0, 7.0, 99.0, 12345.0])
def test_ticks_are_few_and_reach_the_top(top):
    steps = nice_steps(top)
    assert steps[0] == 0
    assert steps[-1] >= top * 0.999
    assert 2 <= len(steps) <= 6


def test_the_ready_configurations_name_what_they_need():
    configs = Path(__file__).parents[2] / "configs"
    names = [config.provider for config in comparison_configs(configs / "quickstart.yaml")]
    assert names == [
        "no_memory",
        "full_history",
        "rolling_summary",
        "simple_rag",
        "static_profile",
        "oracle_ipas",
    ]
