"""The pictures of an experiment's page: each provider is told apart, and every point is what the figures say."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from game_support import lines, play

from memory.bench.data.personamem import _NEEDED as _PERSONAMEM
from memory.bench.engine.context import Played
from memory.bench.engine.experiment import Outcome
from memory.bench.engine.manifest import CellRecord, PhaseRecord
from memory.bench.report.costs import cost_blocks
from memory.bench.report.fairness import problems_of
from memory.bench.report.page import Block
from memory.bench.report.report import _learning, _lost, _pools, _price, summary
from memory.bench.scores.figures import Estimate
from memory.bench.scores.intervals import METHOD
from memory.bench.scores.metrics import MEANINGS, Curve, GameMetrics, Scored, variant_metrics
from memory.bench.scores.records import BeatRecord


def _beat(number: int, after: int, fit: bool, **more: object) -> BeatRecord:
    given = {"attribute": "tone", "kind": "task", "tokens": 100, "first": "current" if fit else "nothing"}
    return BeatRecord(
        probe_id=f"p1:t{number}:b1", persona_id="p1", session_id=f"t{number}", beat_id="b1", after=after,
        status="scored", fit_first=fit, turns=1, **{**given, **more},  # type: ignore[arg-type]
    )  # fmt: skip


def _metrics(**fits: list[bool]) -> GameMetrics:
    """Of each provider whether its request after 1, 2, ... sessions suited."""
    variants = tuple(
        variant_metrics(label, [Scored("c", _beat(at, at, fit)) for at, fit in enumerate(values, start=1)])
        for label, values in fits.items()
    )
    return GameMetrics(experiment_id="e", variants=variants, differences=())


def _strokes(block: Block) -> list[tuple[str, str | None]]:
    """Colour and dashes of the lines, without those of the legend."""
    paths = re.findall(r'<path d="M[^"]*" fill="none"[^>]*>', str(block.plot))
    found = []
    for path in paths:
        colour, dashes = re.search(r'stroke="([^"]+)"', path), re.search(r'dasharray="([^"]+)"', path)
        assert colour
        found.append((colour.group(1), dashes.group(1) if dashes else None))
    return found


def test_lines_that_coincide_are_told_apart() -> None:
    same = [True] * 4
    strokes = _strokes(_learning(_metrics(one=same, two=same, three=same)))
    assert len({colour for colour, _ in strokes}) == len({dashes for _, dashes in strokes}) == 3


def test_a_provider_keeps_its_colour_whatever_the_others_score() -> None:
    before = _strokes(_learning(_metrics(one=[True, True], two=[False, False])))
    assert before == _strokes(_learning(_metrics(one=[False, False], two=[True, True])))


def test_a_point_is_the_share_of_all_requests_it_pools() -> None:
    metrics = _metrics(one=[True] * 24)
    halves = tuple(
        Curve(after=at.after, fit=Estimate(value=float(at.after % 2), n=3 if at.after % 2 else 1, clusters=1))
        for at in metrics.variants[0].curve
    )
    variant = metrics.variants[0].model_copy(update={"curve": halves})
    block = _learning(metrics.model_copy(update={"variants": (variant,)}))
    path = re.search(r'<path d="(M[^"]*)" fill="none"', str(block.plot))
    assert path
    heights = {float(y) for _, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path.group(1))}
    assert heights == {190 - (190 - 12) * 0.75}
    assert "A point is over 4 requests of up to 2 test sessions" in block.note


def test_no_point_mixes_what_was_before_a_change_and_after() -> None:
    assert _pools(range(1, 25), [4, 5]) == [
        [1, 2], [3], [4], [5, 6], [7, 8], [9, 10], [11, 12], [13, 14], [15, 16], [17, 18], [19, 20], [21, 22],
        [23, 24],
    ]  # fmt: skip
    assert _pools([], [4]) == []


def test_changes_are_marked_and_named() -> None:
    metrics = _metrics(one=[True] * 6)
    plain = _learning(metrics)
    shifted = metrics.variants[0].model_copy(update={"shifts": (3, 5)})
    block = _learning(metrics.model_copy(update={"variants": (shifted,)}))
    assert str(plain.plot).count('class="mark"') == 0
    assert str(block.plot).count('class="mark"') == 2
    assert "after session 3, 5" in block.note


def test_nothing_scored_draws_nothing_and_says_so() -> None:
    metrics = GameMetrics(experiment_id="e", variants=(variant_metrics("one", []),), differences=())
    block = _learning(metrics)
    assert "nothing" in unescape(str(block.plot))
    assert "A point" not in block.note


def test_a_point_stands_at_its_cost_and_its_quality() -> None:
    one = _metrics(one=[True, False], two=[True, True]).variants
    cheap = one[1].model_copy(update={"tokens": one[1].tokens.model_copy(update={"mean": 50.0})})
    silent = variant_metrics("three", [])
    plot = str(_price(GameMetrics(experiment_id="e", variants=(one[0], cheap, silent), differences=())).plot)
    dot, square = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"|<polygon points="([^"]+)"', plot)[:2]
    assert (float(dot[0]), float(dot[1])) == (400 - 24, (190 + 12) / 2)
    corners = [tuple(map(float, corner.split(","))) for corner in square[2].split()]
    assert sum(x for x, _ in corners) / 4 == (48 + 400 - 24) / 2
    assert round(sum(y for _, y in corners) / 4, 1) == 12
    assert plot.count("three") == 1, "in the legend, without a point"


def test_where_a_provider_lost_is_said_in_a_sentence() -> None:
    beats = [
        Scored("c", _beat(number, number, fit, attribute=attribute, first=first, **more))
        for number, (fit, attribute, first, more) in enumerate(
            [
                (True, "tone", "current", {}),
                (True, "length", "current", {}),
                (False, "length", "stale", {"change": "x", "since": 1}),
                (False, "length", "stale", {"change": "x", "since": 1}),
            ],
            start=1,
        )
    ]
    assert _lost(variant_metrics("one", beats)) == (
        "one: lowest style fit in attribute length, 33.3% of 3 (2 showed an older setting); "
        "and in kind task, changed, 0.0% of 2 (2 showed an older setting)."
    )


def test_where_there_is_nothing_to_tell_apart_the_sentence_says_so() -> None:
    (full,) = _metrics(one=[True, True]).variants
    assert _lost(full) == "one: 100.0% throughout."
    assert _lost(variant_metrics("one", [])) == "one: nothing was scored."


def test_a_long_name_stands_in_the_legend_whole() -> None:
    name = "mem0 (control, the same as simple_rag; lexical embedder)"
    (variant,) = _metrics(one=[True, False]).variants
    long = GameMetrics(
        experiment_id="e", variants=(variant.model_copy(update={"shown": name}), variant), differences=()
    )
    for block in (_learning(long), _price(long)):
        told = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" class="label"[^>]*>([^<]*)<', str(block.plot))
        assert " ".join(unescape(text) for _, _, text in told) == f"{name} one"
        assert all(float(x) + 6.8 * len(text) <= 400 for x, _, text in told)
        places = [float(y) for _, y, _ in told]
        box = re.search(r'viewBox="0 0 400 (\d+)"', str(block.plot))
        assert box
        assert places == sorted(set(places))
        assert places[-1] < int(box.group(1))


# -- what it cost -----------------------------------------------------------------------------------------


def _written(tokens: int, llm: list[int | None]) -> dict[str, Any]:
    return {"kind": "written", "status": "committed", "native": 1, "tokens": tokens, "llm": llm}


def _cell(label: str, rows: list[dict[str, Any]], p50: float) -> CellRecord:
    played = Played()
    for row in rows:
        played.add(row)
    timings = {"wait": PhaseRecord(calls=1, total_ms=p50, p50=p50, p95=2 * p50, p99=None)}
    return CellRecord.model_construct(
        label=label, status="completed", counts=dict(played.counts), timings=timings
    )


def test_costs_are_summed_by_provider_and_what_was_not_told_is_unknown() -> None:
    turn = {"kind": "turn", "tokens": 40, "asked": 5, "error": None}
    cells = [
        _cell("one", [turn, _written(10, [1, 70])], 2.0),
        _cell("one", [turn, turn, _written(20, [2, 80])], 8.0),
        _cell("one", [], 4.0),
        _cell("two", [_written(7, [3, 9]), _written(7, [1, None])], 1.0),
    ]
    variants = [SimpleNamespace(label=label, shown=label.upper()) for label in ("one", "two")]
    cost, time = cost_blocks(SimpleNamespace(cells=cells, variants=variants))  # type: ignore[arg-type]
    assert cost.rows == [
        ["ONE", "3 of 3", "2", "30", "15", "120", "3", "150", "0"],
        ["TWO", "1 of 1", "2", "14", "0", "0", "4", "unknown", "0"],
    ]
    until_ready = time.columns.index("until ready")
    assert [row[until_ready] for row in time.rows] == ["4.0 / 8.0 / –", "1.0 / 2.0 / –"]


def test_questions_are_counted_as_the_slot_counts_them(tmp_path: Path) -> None:
    outcome = play(tmp_path, "full_history", keep_texts=True)
    (cell,) = outcome.manifest.cells
    (journal,) = tmp_path.rglob("journal.jsonl")
    turns = [row for row in lines(journal) if row["kind"] == "turn"]
    assert cell.counts["asked_tokens"] == sum(-(-len(row["user"].encode()) // 4) for row in turns) > 0
    assert (cell.counts["llm_calls"], "llm_calls_unknown" in cell.counts) == (0, False)


# -- what must be known before figures are compared ------------------------------------------------------------


def _page_of(outcome: Outcome) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", outcome.report.read_text("utf-8")))


def test_the_page_says_what_its_figures_count_and_how_far_to_trust_them(tmp_path: Path) -> None:
    page = _page_of(play(tmp_path, "no_memory", "full_history"))
    for one in (METHOD, *MEANINGS.values()):
        assert (one in page) == (one != MEANINGS["right answers"])
    assert "game of seed 7, 1 personas, 2 cells" in page
    assert "Sections: at most 600 tokens, any number of items, as utf8-bytes/4 counts." in page
    assert "full_history control none dated not_offered 5 same 5" in re.sub(r"\s+", " ", page)


def test_what_was_left_out_stands_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    page = _page_of(play(tmp_path, "no_memory", {"provider": "full_history", "needs": "NOWHERE"}))
    assert "Left out: full_history needs NOWHERE." in page


@pytest.mark.parametrize(
    ("state", "consistency", "said"),
    [("unknown", "immediate", True), ("not_offered", "eventual", True), ("not_offered", "immediate", False)],
)
def test_scores_of_a_memory_that_cannot_say_whether_it_is_ready_are_marked(
    tmp_path: Path, state: str, consistency: str, said: bool
) -> None:
    outcome = play(tmp_path, "no_memory", score_unknown=True)
    manifest = outcome.manifest
    (variant,), (cell,) = manifest.variants, manifest.cells
    traits = variant.traits.model_copy(update={"consistency": consistency})
    changed = manifest.model_copy(
        update={
            "variants": (variant.model_copy(update={"traits": traits}),),
            "cells": (cell.model_copy(update={"readiness": {state: 5}}),),
        }
    )
    found = problems_of(changed, outcome.metrics)  # for the page and the terminal
    told = [line for line in found if "5 test sessions are scored although" in line]
    assert len(told) == said


def test_a_page_of_questions_shows_right_answers_and_no_behaviour(tmp_path: Path) -> None:
    options = str(["(a) tea, green", "(b) coffee"])
    said = [{"role": "user", "content": "I like green tea."}, {"role": "assistant", "content": "Noted."}]
    rows = [",".join(_PERSONAMEM), f'q,recall,Which drink?,(a),"{options}",c,2']
    (tmp_path / "questions_x.csv").write_text("\n".join(rows), "utf-8")
    (tmp_path / "shared_contexts_x.jsonl").write_text(json.dumps({"c": said}), "utf-8")
    outcome = play(tmp_path, "full_history", timeline="personamem", data=tmp_path)
    page = _page_of(outcome)
    assert summary(outcome.metrics)[0] == ["provider", "right answers", "tokens", "not scored"]
    assert "Right answers by category" in page
    assert "style fit" not in page.lower()
    assert "overall" not in page
