"""The game's figures, on beats made by hand: what each counts, and what it leaves out."""

import math

import pytest

from memory.bench.scores.figures import Requests
from memory.bench.scores.metrics import Rival, experiment_metrics, provider_metrics
from memory.bench.scores.model import ProbeRecord, Sample

_COUNT = iter(range(10**6))


def beat(cluster="ada", replicate=1, **fields):
    number = next(_COUNT)
    base = {
        "probe_id": f"{cluster}:s:{number}",
        "persona_id": cluster,
        "session_id": f"s{number}",
        "kind": "task",
        "after": 1,
        "status": "scored",
        "turns": 1,
        "fit_first": fields.get("first", "current") == "current",
        "first": "current",
    }
    return Sample(cluster, ProbeRecord(**{**base, **fields}), replicate)


def estimate(variant, name):
    (found,) = [measure.estimate for measure in variant.measures if measure.name == name]
    return found


def figure(variant, name):
    """A figure, and how many requests it is made of."""
    found = estimate(variant, name)
    return found.value, found.n


def of(beats):
    return provider_metrics("mem0", Requests(beats), ("style fit",), Rival("mem0"))


BROKEN = {"first": None, "fit_first": None}


def test_nothing_leaves_the_denominator():
    """What the provider failed is a miss; what it was not ready for counts as it behaved; both stay to be seen."""
    variant = of([beat(), beat(status="unready", first="nothing"), beat(status="failed", **BROKEN), beat()])
    found = estimate(variant, "style fit")
    assert (found.value, found.n, found.failed, found.unready, found.missing) == (0.5, 4, 1, 1, 0)
    assert (found.worst, found.best) == (None, 1.0), "at best they had all suited"
    assert (variant.requests, variant.failed, variant.unready, variant.missing) == (4, 1, 1, 0)
    effort = estimate(variant, "felt effort")
    assert effort.value == 0.25, "a failed request is the worst case of a figure that is better when low, too"


def test_what_the_harness_broke_has_bounds_and_too_much_of_it_leaves_no_figure():
    few = of(
        [
            *(beat() for _ in range(97)),
            beat(first="other"),
            beat(first="other"),
            beat(status="missing", **BROKEN),
        ]
    )
    found = estimate(few, "style fit")
    assert (found.value, found.n, found.missing) == (97 / 99, 99, 1)
    assert (found.worst, found.best) == (pytest.approx(0.97), pytest.approx(0.98))
    many = estimate(of([beat(), beat(status="missing", **BROKEN)]), "style fit")
    assert (many.value, many.low, many.worst, many.best) == (None, None, 0.5, 1.0)
    unread = of([beat(), beat(**BROKEN)])
    assert (unread.unreadable, estimate(unread, "style fit").missing) == (1, 1)


def test_a_request_that_failed_is_no_better_where_it_would_not_have_counted():
    """Of what was never planned to count, a failure says nothing either."""
    variant = of(
        [
            beat(),
            beat(kind="neutral", status="failed", **BROKEN),
            beat(repeated=True, status="failed", **BROKEN),
        ]
    )
    assert figure(variant, "style fit") == (1.0, 1)
    assert figure(variant, "over-personalisation") == (1.0, 1)
    assert figure(variant, "coherence") == (0.0, 1)


def test_style_fit_leaves_out_what_belongs_to_no_preference_or_was_met_before():
    variant = of(
        [beat(), beat(kind="neutral", first="unknown"), beat(repeated=True, coherent=False, first="unknown")]
    )
    assert figure(variant, "style fit") == (1.0, 1)


def test_contexts_are_told_apart_or_mixed_up():
    variant = of(
        [
            beat(has_other=True),
            beat(has_other=True, first="other"),
            beat(has_other=True, first="nothing"),
            beat(first="other"),
        ]
    )
    assert figure(variant, "discrimination") == (pytest.approx(1 / 3), 3), (
        "showing nothing tells nothing apart"
    )


def test_a_change_is_forgotten_by_whoever_does_not_show_it_noticed_or_not():
    def at(after, first, change="c1"):
        return beat(first=first, after=after, change=change, since=10)

    variant = of(
        [
            *(at(11 + number, first) for number, first in enumerate(("stale", "current", "stale"))),
            *(at(14 + number, "current") for number in range(2)),
            *(
                at(16 + number, first)
                for number, first in enumerate(("stale", "nothing", "current", "other"))
            ),
            *(at(11 + number, first, "c2") for number, first in enumerate(("current", "stale", "current"))),
        ]
    )
    assert figure(variant, "detection") == (0.5, 2), "one lucky reply is no notice"
    assert figure(variant, "stale reversion") == (pytest.approx(4 / 12), 12)
    assert figure(variant, "forgetting") == (pytest.approx(6 / 12), 12)


def test_an_answer_in_words_shows_no_setting_so_whether_it_is_an_old_one_is_unknown():
    change = {"change": "c1", "since": 10, "first": None, "fit_first": True}
    variant = of([beat(after=11 + number, **change) for number in range(4)])
    assert figure(variant, "forgetting") == (0.0, 4)
    assert estimate(variant, "stale reversion").value is None


def test_a_change_of_another_persona_is_another_change():
    fields = {"change": "c1", "since": 10, "after": 11}
    variant = of([beat("ada", **fields), beat("ada", **fields), beat("bob", **fields, first="stale")])
    assert figure(variant, "detection") == (0.5, 2)


def test_effort_coherence_whole_sessions_and_preferences_where_none_belongs():
    variant = of(
        [
            beat(session_id="one"),
            beat(session_id="one", turns=3, first="unknown"),
            beat(session_id="two", repeated=True, coherent=True),
            beat(session_id="two", repeated=True, coherent=True, first="unknown"),
            beat(session_id="two", repeated=True, coherent=True, kind="neutral"),
            beat(session_id="two", repeated=True, coherent=False, kind="neutral", fit_first=False),
        ]
    )
    assert figure(variant, "felt effort") == (pytest.approx(1 / 6), 6)
    assert figure(variant, "coherence") == (0.5, 4), "the same wrong setting twice is no merit"
    assert figure(variant, "overall") == (0.0, 2)
    assert figure(variant, "over-personalisation") == (0.5, 2)


def test_the_section_is_judged_by_what_it_holds():
    changed = {"wanted": True, "has_stale": True, "has_other": True, "shows_stale": True}
    variant = of(
        [
            beat(shows_current=True, **changed, shows_unlabelled=False, items=2, taken="current"),
            beat(shows_current=False, **changed, shows_unlabelled=True, items=1, taken="stale"),
            beat(
                wanted=True, shows_current=True, shows_stale=False, items=3, taken="current",
                shows_unknown=True,
            ),
            beat(wanted=True, shows_current=False, items=0, taken="nothing"),
        ]
    )  # fmt: skip
    assert figure(variant, "read right") == (0.25, 4), "settings that the user never had are noise"
    assert figure(variant, "shown") == (0.5, 4)
    assert figure(variant, "shown alone") == (0.0, 4), "an older one beside it can be mistaken for it"
    assert figure(variant, "nothing shown") == (0.25, 4)


def test_evidence_is_words_and_ranks_are_those_of_the_field():
    asked = {"kind": "question", "judged": False, "first": None, "fit_first": None, "gold": 2}
    variant = of(
        [
            beat(**asked, found=0, ranks=[], tokens=100),
            beat(**asked, found=2, ranks=[2, 6], tokens=100),
            beat(**{**asked, "gold": 0}),
        ]
    )
    assert figure(variant, "evidence recall") == (0.5, 2)
    assert [figure(variant, f"recall@{first}") for first in (1, 5, 10)] == [(0.0, 2), (0.25, 2), (0.5, 2)]
    assert figure(variant, "MRR") == (0.25, 2)
    gain = 1 / math.log2(3) + 1 / math.log2(7)
    assert figure(variant, "nDCG@10") == (pytest.approx(gain / (1 + 1 / math.log2(3)) / 2), 2)


def test_nothing_scored_gives_no_figure():
    variant = of([])
    assert all(measure.estimate.value is None for measure in variant.measures)


def test_paired_differences_are_those_of_the_figure_in_the_table():
    """Of beats that belong to no preference, or were met before, style fit says nothing; nor may its difference."""
    left = [beat(probe_id=str(number), first="current") for number in range(4)]
    right = [beat(probe_id=str(number), first="unknown") for number in range(4)]
    for fields in ({"kind": "neutral"}, {"repeated": True, "coherent": True}):
        for beats in (left, right):
            beats.append(beat(probe_id=str(fields), **fields))
    metrics = experiment_metrics("game", [("one", left), ("two", right)])
    (first, second) = (figure(provider, "style fit")[0] for provider in metrics.providers)
    (difference,) = [difference for difference in metrics.differences if difference.figure == "style fit"]
    assert first is not None
    assert second is not None
    assert (difference.first, difference.second, difference.value) == ("one", "two", first - second)
    assert difference.n == 4


def test_replicates_do_not_notice_for_each_other():
    """A change that one of two replicates notices is half noticed; of their sessions one is right, not none."""
    change = {"change": "c1", "since": 10, "session_id": "t1"}
    variant = of(
        [
            *(beat(replicate=1, probe_id=f"p{n}", after=12, first="stale", **change) for n in range(2)),
            *(beat(replicate=2, probe_id=f"p{n}", after=12, first="current", **change) for n in range(2)),
        ]
    )
    assert figure(variant, "detection") == (0.5, 1)
    assert figure(variant, "overall") == (0.5, 1)


def test_replicates_are_one_request_however_often_they_are_played():
    """Copies of a deterministic game must not make an interval narrower."""
    once = [
        beat(who, probe_id=f"{who}{n}", first=first)
        for who in "abc"
        for n, first in enumerate(["current", "other"])
    ]
    copies = [sample._replace(replicate=number) for number in range(1, 9) for sample in once]
    assert estimate(of(copies), "style fit") == estimate(of(once), "style fit")


def test_a_session_of_which_a_request_failed_is_a_bad_one():
    variant = of([beat(session_id="one"), beat(session_id="one", status="failed", **BROKEN)])
    assert figure(variant, "overall") == (0.0, 1)
    missing = of([beat(session_id="one"), beat(session_id="one", status="missing", **BROKEN)])
    assert (estimate(missing, "overall").value, estimate(missing, "overall").missing) == (None, 1)


def test_a_change_is_noticed_by_what_was_seen_and_unknown_where_the_first_look_is_missing():
    def at(after, change, **more):
        return beat(after=after, change=change, since=10, **more)

    variant = of(
        [
            at(11, "c1", status="missing", **BROKEN),
            at(14, "c1"),
            at(11, "c2"),
            at(12, "c2"),
            at(14, "c2", status="failed", **BROKEN),
            at(11, "c3", status="failed", **BROKEN),
        ]
    )
    found = estimate(variant, "detection")
    assert (found.n, found.missing, found.worst, found.best) == (2, 1, pytest.approx(1 / 3), 1.0)
    assert estimate(variant, "forgetting").failed == 2, "a request that failed shows nothing new"


def test_questions_have_a_figure_of_their_own():
    variant = of([beat(kind="question"), beat(kind="question", first="unknown", session_id="question")])
    assert figure(variant, "right answers") == (0.5, 2)
    assert figure(variant, "style fit") == figure(variant, "overall") == (None, 0)


def test_answers_are_scored_by_their_words_where_no_judge_reads_them():
    asked = {"kind": "question", "judged": False, "read": True, "first": None, "fit_first": None}
    variant = of(
        [
            beat(**asked, answer_f1=0.5, exact=False),
            beat(**asked, answer_f1=1.0, exact=True),
            beat(**{**asked, "status": "failed"}),
        ]
    )
    assert figure(variant, "answer F1") == (0.5, 3)
    assert figure(variant, "exact match") == (pytest.approx(1 / 3), 3)
    assert figure(variant, "right answers") == (None, 0)


def test_floors_and_ceilings_are_compared_with_nobody_and_have_no_interval():
    def samples(share):
        return [
            beat(who, probe_id=f"{who}{at}", first="current" if at < 8 * share else "nothing")
            for who in "abcdefg"
            for at in range(8)
        ]

    rivals = {
        "mem0": Rival("mem0", "architecture"),
        "graphiti": Rival("graphiti", "architecture"),
        "rag": Rival("rag"),
        "history": Rival("history"),
        "floor": Rival("floor", "reference"),
    }
    providers = [(label, samples(0.5)) for label in rivals]
    metrics = experiment_metrics("game", providers, rivals)
    pairs = [(found.first, found.second) for found in metrics.differences]
    assert pairs == [(one, other) for one in ("mem0", "graphiti") for other in ("rag", "history")]
    assert {found.family for found in metrics.differences} == {4}
    assert {found.figure for found in metrics.differences} == {"style fit"}
    floor = next(provider for provider in metrics.providers if provider.label == "floor")
    assert (estimate(floor, "style fit").value, estimate(floor, "style fit").low) == (0.5, None)
    named = experiment_metrics("game", providers, {**rivals, "rag": Rival("rag", named=True)})
    assert [(found.first, found.second) for found in named.differences] == [
        ("mem0", "rag"),
        ("graphiti", "rag"),
    ]


def test_who_failed_a_request_is_in_no_comparison():
    lost = [beat("a", probe_id="1"), beat("a", probe_id="2", status="failed", **BROKEN)]
    whole = [beat("a", probe_id="1"), beat("a", probe_id="2")]
    metrics = experiment_metrics("game", [("one", lost), ("two", whole), ("three", whole)])
    assert [(found.first, found.second) for found in metrics.differences] == [("two", "three")]


def test_a_request_that_was_given_up_was_no_easy_one():
    """A user who says nothing more after the first reply has not been served by it."""
    variant = of(
        [
            beat(fit_last=True),
            beat(first="stale", fit_last=False),
            beat(first="stale", turns=2, fit_last=True),
        ]
    )
    assert figure(variant, "felt effort") == (pytest.approx(2 / 3), 3)
