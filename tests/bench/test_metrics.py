"""The figures, on records small enough to count by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.bench.scores.run_metrics import (
    ProbeRecord,
    cost_scores,
    evidence_scores,
    percentile,
    preference_scores,
)
from memory.bench.scores.scoring import EvidenceHit, PreferenceHit


def asked(category, gold, by_id=0, by_text=0, *, unresolved=0, persona="p", names=True, items=3):
    return ProbeRecord(
        f"{persona}:{category}",
        persona,
        category,
        after=1,
        items=items,
        names_events=names,
        evidence=EvidenceHit(gold, unresolved, by_id, by_text),
    )


def test_recall_by_question_and_by_turn_differ_and_both_are_given():
    scores = evidence_scores([asked("multi-hop", 4, 1), asked("single-hop", 1, 1)])
    assert scores.overall.recall.value == pytest.approx((0.25 + 1) / 2)
    assert scores.overall.pooled == pytest.approx(2 / 5)
    assert (scores.overall.any_found, scores.overall.all_found) == (1.0, 0.5)
    assert (scores.overall.questions, scores.overall.turns) == (2, 5)
    assert [row.label for row in scores.categories] == ["multi-hop", "single-hop"]
    assert scores.categories[0].recall.value == 0.25


def test_questions_without_resolvable_evidence_are_counted_apart_and_never_scored():
    scores = evidence_scores(
        [asked("open-domain", 0), asked("temporal", 0, unresolved=2), asked("temporal", 1, 1, unresolved=1)]
    )
    assert (scores.without_evidence, scores.unresolvable, scores.unresolved_ids) == (1, 1, 3)
    assert (scores.overall.questions, scores.overall.recall.value) == (1, 1.0)
    assert [row.label for row in scores.categories] == ["temporal"]


def test_the_text_decides_only_where_no_entry_ever_names_an_event():
    mixed = evidence_scores([asked("temporal", 1, 0, 1, names=False), asked("temporal", 1, 1, 1)])
    assert (mixed.by, mixed.overall.recall.value, mixed.overall.verbatim) == ("event_id", 0.5, 1.0)
    nameless = evidence_scores([asked("temporal", 1, 0, 1, names=False)])
    assert (nameless.by, nameless.overall.recall.value) == ("text", 1.0)
    empty = evidence_scores([asked("temporal", 1, names=False, items=0)])
    assert (empty.by, empty.overall.recall.value) == (None, 0.0)


def test_adversarial_questions_can_be_left_out_and_conversations_told_apart():
    scores = evidence_scores([asked("adversarial", 1, 1, persona="a"), asked("temporal", 1, 0, persona="b")])
    assert scores.answerable.recall.value == 0.0
    assert {row.label: row.recall.value for row in scores.personas} == {"a": 1.0, "b": 0.0}


def played(
    after, *, current, stale=False, unlabelled=False, decoy=False, leak=False, change="c", since=3, **fields
):
    hit = PreferenceHit(current, stale, unlabelled, unlabelled, decoy, leak, change is not None, True)
    return ProbeRecord(
        f"p:{after}:{change}",
        "p",
        fields.pop("category", "asked"),
        after=after,
        context="work",
        attribute="tone",
        change=change,
        since=since if change else None,
        items=1,
        preference=hit,
        **fields,
    )


def test_a_fit_is_clean_only_without_old_values_and_unlabelled_ones():
    scores = preference_scores(
        [
            played(3, current=True),
            played(4, current=True, stale=True),
            played(5, current=True, unlabelled=True),
            played(6, current=False, stale=True),
        ]
    )
    row = scores.overall
    assert (row.fit.value, row.clean_fit.value) == (0.75, 0.25)
    assert (row.stale.value, row.stale_shown.value) == (0.25, 0.5)
    assert row.contamination.value == 0.25


def test_stale_counts_changed_cells_alone():
    scores = preference_scores([played(3, current=True, change=None), played(3, current=False, stale=True)])
    assert (scores.overall.stale.value, scores.overall.stale.n) == (1.0, 1)
    groups = {row.label: row for row in scores.groups}
    assert groups["steady"].stale.value is None
    assert groups["changed"].fit.value == 0.0


def test_detection_latency_reversion_and_the_curve():
    records = [
        played(3, current=False, stale=True),
        played(4, current=True),
        played(5, current=False),
        played(6, current=True),
        played(3, current=True, change="d"),
        played(3, current=False, change="never"),
    ]
    detection = preference_scores(records).detection
    assert (detection.changes, detection.detected) == (3, 2)
    assert detection.latency.mean == 0.5  # one session late, and at once; the undetected one is not in it
    assert (detection.reversion.value, detection.reversion.n) == (0.5, 2)
    assert [(at.sessions, at.probes, at.fit) for at in detection.curve] == [
        (0, 3, pytest.approx(1 / 3)),
        (1, 1, 1.0),
        (2, 1, 0.0),
        (3, 1, 1.0),
    ]


def test_a_change_of_which_a_probe_is_not_scored_is_neither_detected_nor_missed():
    """Else a memory that was not ready, or failed, would be spared what it cannot do."""
    unscored = replace(played(4, current=False), preference=None, status="not_ready")
    detection = preference_scores([unscored, played(5, current=True), played(6, current=False)]).detection
    assert (detection.changes, detection.detected, detection.latency.mean) == (0, 0, None)
    assert (detection.reversion.value, detection.reversion.n) == (1.0, 1)


def test_leaks_are_counted():
    assert preference_scores([played(3, current=True, leak=True), played(4, current=True)]).leaks == 1


def test_a_failed_probe_is_in_no_score():
    failed = ProbeRecord("p:1", "p", "asked", after=1, error="BackendTimeout")
    assert preference_scores([failed, played(3, current=True)]).overall.fit.n == 1
    assert preference_scores([failed]) is None
    assert evidence_scores([failed]) is None
    cost = cost_scores([failed], [], 0.0, 0.0)
    assert (cost.tokens.mean, cost.retrieve_ms.p95) == (None, None)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_lies_within_the_values(values, share):
    assert min(values) - 1e-6 <= percentile(values, share) <= max(values) + 1e-6


def test_percentiles_interpolate():
    assert percentile([3, 1, 2, 4], 0.5) == 2.5
    assert percentile([], 0.5) is None
