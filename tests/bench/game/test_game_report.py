"""The page of an experiment: providers are told apart, points are what the figures say, and who won is said."""

import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from game_support import lines, play

from memory.bench.engine.manifest import CellRecord
from memory.bench.engine.settings import REFERENCES
from memory.bench.report import report, tables
from memory.bench.report.page import Block, Page
from memory.bench.report.results import Entry, Results, results_of
from memory.bench.report.verdict import verdict
from memory.bench.scores.figures import BY_NAME
from memory.bench.scores.metrics import Rival, experiment_metrics
from memory.bench.scores.model import Difference, ProbeRecord, Sample


def _record(number, after, fit, **more):
    given = {"attribute": "tone", "kind": "task", "tokens": 100, "first": "current" if fit else "nothing"}
    return ProbeRecord(
        probe_id=f"p1:t{number}:b1", persona_id="p1", session_id=f"t{number}", after=after, fit_first=fit,
        turns=1, **{**given, **more},
    )  # fmt: skip


def _variant(label, kind, tokens=600, condition=None):
    provider = SimpleNamespace(kind=kind, condition=condition, backend=None)
    standing = "reference" if condition in REFERENCES else kind
    return SimpleNamespace(
        label=label,
        series=label,
        standing=standing,
        provider=provider,
        budget=SimpleNamespace(max_tokens=tokens, max_items=None),
        models=(),
    )


def _results(samples, kinds=None, **shown):
    kinds = kinds or {}
    rivals = {
        label: Rival(
            shown.get(label, label), _variant(label, kinds.get(label, "control"), condition=label).standing
        )
        for label in samples
    }
    metrics = experiment_metrics("e", list(samples.items()), rivals)
    manifest = SimpleNamespace(left_out=(), settings={}, notes=(), roles=())
    entries = tuple(
        Entry(
            _variant(provider.label, kinds.get(provider.label, "control"), condition=provider.label),
            provider,
            (),
        )
        for provider in metrics.providers
    )
    return Results(manifest, entries, metrics)


def _fits(**fits):
    """Of each provider whether its request after 1, 2, ... sessions suited."""
    return _results(
        {
            label: [Sample("c", _record(at, at, fit)) for at, fit in enumerate(values, start=1)]
            for label, values in fits.items()
        }
    )


def _swept(*labels):
    """The curve of providers that all reach the same at two budgets."""
    one = _fits(**{label: [True] * 4 for label in labels})
    entries = tuple(
        replace(entry, variant=_variant(entry.shown, "control", budget))
        for budget in (300, 600)
        for entry in one.entries
    )
    (block,) = report.over_budgets(replace(one, entries=entries), "style fit")
    assert block.curve
    return block.curve


def test_lines_that_coincide_are_told_apart():
    lines = _swept("one", "two", "three").lines
    assert len({line.points for line in lines}) == 1
    assert len({line.colour for line in lines}) == len({line.dashes for line in lines}) == 3


def test_bars_are_ranked_within_architectures_controls_and_references():
    values = {"low": 1, "no_memory": 0, "high": 3, "rag": 2, "history": 4}
    samples = {
        label: [Sample("c", _record(at, at, at < right)) for at in range(4)]
        for label, right in values.items()
    }
    results = _results(samples, {"low": "architecture", "high": "architecture"})
    bars = report.ranked(results.entries, "style fit").bars
    assert [bar.label for bar in bars] == ["high", "low", "history", "rag", "no_memory"]
    page = Page("", ["one"], blocks=[Block("figure", bars=bars)]).render()
    assert re.findall(r"<h3>(.*?)</h3>", page) == ["architectures", "controls", "references"]


def test_a_provider_has_one_colour_on_every_page():
    first, second = (_swept(*labels).lines[1] for labels in (("one", "two"), ("zero", "two")))
    assert first.colour == second.colour == report.colour_of("two")


def _won(low, high, value=0.25):
    fit, miss = [True] * 3 + [False], [True, False] * 2
    samples = {
        label: [Sample("c", _record(at, at, suits)) for at, suits in enumerate(values, start=1)]
        for label, values in (
            ("mem0", fit),
            ("rag", miss),
            ("oracle_ipas", [True] * 4),
            ("no_memory", [False] * 4),
        )
    }
    results = _results(samples, {"mem0": "architecture"})
    found = Difference(
        figure="style fit", first="mem0", second="rag", value=value, n=4, clusters=6, low=low, high=high
    )
    metrics = results.metrics.model_copy(update={"differences": (found,)})
    (sentence,) = verdict(Results(results.manifest, results.entries, metrics))
    return sentence


def test_who_won_is_said_with_how_sure_it_is():
    """The best architecture against the best control: floor and ceiling are nobody's rivals."""
    assert _won(0.1, 0.4) == (
        "At 600 tokens, mem0 reaches 75.0% in style fit, of 4 requests. That is 25.0 points more than rag, the "
        "best control (95 % interval +10.0% to +40.0%)."
    )
    unsure = "not distinguishable from rag, the best control (+25.0%; 95 % interval -10.0% to +60.0%)"
    assert unsure in _won(-0.1, 0.6)
    assert "too few personas to say how sure that is" in _won(None, None)
    assert "25.0 points less than rag" in _won(-0.4, -0.1, -0.25)


def test_without_an_architecture_nobody_is_said_to_have_won():
    (sentence,) = verdict(_fits(one=[True], two=[False]))
    assert sentence == (
        "At 600 tokens, one reaches 100.0% in style fit, of 1 request, the most of the controls. That is "
        "100.0 points more than two, the next, with too few personas to say how sure that is. No memory "
        "architecture was played."
    )
    (equal,) = verdict(_fits(one=[True], two=[True]))
    assert "That is exactly as much as two, the next. No memory" in equal
    (alone,) = verdict(_fits(one=[True]))
    assert "Nothing comparable was played beside it. No memory" in alone
    assert verdict(_results({"one": []})) == ["Nothing could be scored."]


def test_floor_and_ceiling_alone_are_ranked_by_nobody():
    (sentence,) = verdict(_fits(no_memory=[False], oracle_ipas=[True]))
    assert sentence == "At 600 tokens, there is nobody to rank by style fit."


def test_nobody_wins_with_nothing_with_failures_or_by_guessing():
    (nothing,) = verdict(_fits(one=[False], two=[False]))
    assert nothing == "At 600 tokens, no control gets above 0 % in style fit."
    good = [Sample("c", _record(at, at, True)) for at in range(4)]
    lost = [*good[1:], Sample("c", replace(good[0].record, status="failed", fit_first=None))]
    results = _results({"mem0": lost, "rag": good}, {"mem0": "architecture"})
    first, second = verdict(results)
    assert "mem0" not in first
    assert second == "mem0 is not ranked: of 4 requests 1 failed."
    guesses = [Sample("c", _record(at, at, at == 0, choices=4)) for at in range(4)]
    (guessed,) = verdict(_results({"mem0": guesses}, {"mem0": "architecture"}))
    assert guessed == (
        "At 600 tokens, no architecture is shown to be better than guessing (25.0%): mem0 reaches 25.0% in style "
        "fit, of 4 requests."
    )


def _cell(place, label, waits, tokens, **counts):
    place.mkdir()
    (place / "times.jsonl").write_text(json.dumps({"wait": waits}) + "\n", encoding="utf-8")
    total = sum(waits)
    timings = {"wait": total}
    usage = {"ingest": {"calls": 3, "tokens": tokens}, "retrieve": {"calls": 0, "tokens": 0}}
    record = CellRecord.model_construct(
        label=label, status="completed", counts=counts, timings=timings, usage=usage, resumed=0, models={}
    )
    return place, record


def _costed(tmp_path, prices=None):
    results = _fits(one=[True], two=[True])
    cells = (
        (
            _cell(tmp_path / "a", "one", [2000.0], 70, events=1, messages=2, context_tokens=40),
            _cell(tmp_path / "b", "one", [4000.0, 9000.0], 80, events=1, messages=2),
        ),
        (_cell(tmp_path / "c", "two", [1.0], None, events=2, messages=4, written_tokens=1400),),
    )
    manifest = SimpleNamespace(left_out=(), settings={"prices": prices or {}}, notes=(), roles=())
    entries = []
    for entry, found in zip(results.entries, cells, strict=True):
        entry.variant.models = ("m",)
        entries.append(Entry(entry.variant, entry.metrics, found))
    return Results(manifest, tuple(entries), results.metrics)


def test_costs_are_summed_by_provider_and_what_was_not_said_is_unknown(tmp_path):
    columns, rows = tables.costs(_costed(tmp_path))
    assert columns == ["", "one", "two"]
    found = {name: values for name, *values in rows}
    assert found["tokens written"] == ["0", "1,400"]
    assert found["tokens read"] == ["40", "0"]
    assert found["model tokens to write"] == ["150", "unknown"]
    assert found["a thousand messages: model calls"] == ["1,500", "750"]
    assert found["a thousand messages: model tokens"] == ["37,500", "unknown"]
    assert found["a thousand messages: seconds to write"] == ["3,750", "0.2"]
    assert found["money"] == ["no prices given"] * 2


def test_money_is_a_range_where_input_and_output_are_not_told_apart(tmp_path):
    _, rows = tables.costs(_costed(tmp_path, {"m": {"input": 1.0, "output": 4.0}}))
    assert rows[-1] == ["money", "0.00015 to 0.0006", "unknown"]


def test_times_are_those_of_all_calls_and_not_of_a_middle_cell(tmp_path):
    columns, rows = tables.times(_costed(tmp_path))
    until_ready = columns.index("until ready\np50 / p95")
    assert [row[until_ready] for row in rows] == ["4,000.0 / 8,500.0", "1.0 / 1.0"]


@pytest.mark.thorough
def test_questions_are_counted_as_the_slot_counts_them(tmp_path):
    outcome = play(tmp_path, "full_history", keep_texts=True)
    (cell,) = outcome.manifest.cells
    (journal,) = tmp_path.rglob("journal.jsonl")
    turns = [row for row in lines(journal) if row["kind"] == "turn"]
    (texts,) = tmp_path.rglob("texts.jsonl")
    requests = {row["probe_id"]: row["user"] for row in reversed(lines(texts))}  # the first words of each
    asked = [*(row["user"] for row in turns), *requests.values()]
    assert cell.counts["asked_tokens"] == sum(-(-len(said.encode()) // 4) for said in asked) > 0
    assert cell.usage["ingest"] == {"calls": 0, "tokens": 0}


def _page_of(outcome):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", outcome.report.read_text("utf-8"))))


@pytest.mark.thorough
def test_the_page_says_what_its_figures_count_and_how_far_to_trust_them(tmp_path):
    outcome = play(tmp_path, "no_memory", "full_history")
    page = _page_of(outcome)
    results = results_of(outcome.directory, outcome.manifest, outcome.metrics)
    names = tables.further_figures(results)
    for meaning in (*(BY_NAME[name].meaning for name in names), *verdict(results)):
        assert all(part in page for part in meaning.partition("; no")[::2])
    assert BY_NAME["right answers"].meaning not in page
    assert "Wilson's interval at the effective sample size" in page
    assert "game of seed 7, 1 persona" in page


def test_what_was_left_out_stands_on_the_page(tmp_path, monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    page = _page_of(play(tmp_path, "no_memory", {"provider": "full_history", "needs": "NOWHERE"}))
    assert "Left out: full_history, which needs NOWHERE in the environment." in page


def test_a_page_of_questions_shows_right_answers_and_no_behaviour(tmp_path):
    options = str(["(a) tea, green", "(b) coffee"])
    said = [{"role": "user", "content": "I like green tea."}, {"role": "assistant", "content": "Noted."}]
    names = ("question_id,question_type,user_question_or_message,correct_answer,all_options,shared_context_id,"
             "end_index_in_shared_context")  # fmt: skip
    rows = [names, f'q,recall,Which drink?,(a),"{options}",c,2']
    (tmp_path / "questions_x.csv").write_text("\n".join(rows), "utf-8")
    (tmp_path / "shared_contexts_x.jsonl").write_text(json.dumps({"c": said}), "utf-8")
    outcome = play(tmp_path, "full_history", timeline="personamem", data=tmp_path / "questions_x.csv")
    page = _page_of(outcome)
    results = results_of(outcome.directory, outcome.manifest, outcome.metrics)
    assert tables.main_figures(results) == ["right answers"]
    assert "style fit" not in page.lower()


class _Tags(HTMLParser):
    """Checks that every tag is closed, and collects what a page would load."""

    def __init__(self, text):
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str | None] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.loads += [value for name, value in attributes if name in ("src", "xlink:href", "data", "action")]
        self.loads += [
            value for name, value in attributes if name == "href" and not (value or "").startswith("#")
        ]
        if tag not in ("meta", "br", "hr", "img", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.thorough
def test_a_page_loads_nothing_and_escapes_what_it_shows(tmp_path):
    page = play(tmp_path, "full_history", {"name": "<b>&", "provider": "no_memory"}).report.read_text("utf-8")
    assert _Tags(page).loads == []
    assert not re.search(r"https?://|@import|url\(|fetch\(|<iframe|<link", page)
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;" in page


@pytest.mark.thorough
def test_the_page_of_a_large_run_stays_below_2_mb(tmp_path):
    """24 providers with a thousand differences, whose sections are as long as 8,000 tokens allow."""
    outcome = play(tmp_path, "full_history", {"provider": "full_history", "name": "again"})
    for cell in outcome.directory.glob("cells/*"):
        asked, said = lines(cell / "results.jsonl"), lines(cell / "texts.jsonl")
        for row in said:
            row["context"] = f"<first> {'told & noted ' * 2_500} <last>"
        for file, rows in (("results.jsonl", asked), ("texts.jsonl", said)):
            copies = [{**row, "probe_id": f"{row['probe_id']}:{at}"} for at in range(20) for row in rows]
            (cell / file).write_text("".join(json.dumps(row) + "\n" for row in copies), encoding="utf-8")
    once = results_of(outcome.directory, outcome.manifest, outcome.metrics)
    metrics = once.metrics.model_copy(update={"differences": once.metrics.differences * 50})
    page = report.render(replace(once, entries=once.entries * 12, metrics=metrics))
    assert 1_000_000 < len(page.encode()) < 2_000_000
    assert page.count("Requests of ") == 24
    assert "&lt;first&gt;" in page
    assert "&lt;last&gt;" in page
    assert "characters left out; texts.jsonl has all" in page
    assert re.search(r"Those that lost first. [\d,]+ further ones are in", page)


@pytest.mark.thorough
def test_one_table_stands_open_and_has_six_columns_at_most(tmp_path):
    page = play(tmp_path, "no_memory", "full_history", "simple_rag").report.read_text("utf-8")
    folded = r'<details class="block".*?</details>\s*(?=<details class="block"|<script>)'
    unfolded = re.sub(folded, "", page, flags=re.DOTALL)
    heads = re.findall(r"<thead><tr>(.*?)</tr>", unfolded, flags=re.DOTALL)
    assert [head.count("<th>") for head in heads] == [6]
    first = re.search(r"<h1>([^<]+)", page)
    assert re.search("full_history|simple_rag", first[1]), "line one says who won"
