"""The figures, each defined once: the requests it covers, and the value of one request.

The eight behaviour figures are those of MemPABench, each a complaint of a user, in three groups: CS (context
sensitivity), PET (preference evolution tracking) and IQI (interaction quality). Over-personalisation stands
apart. MemPABench's formulas are not public in detail, so its figures and these do not compare.

Nothing leaves a denominator. A request that the provider failed has the worst value of every figure that
applies. A request that the harness failed has no value, and bounds stand beside the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import fmean
from typing import NamedTuple

from memory.bench.scores.answers import FIRST, ndcg
from memory.bench.scores.model import Better, Group, ProbeRecord, ProbeStatus, Sample


class Unit(NamedTuple):
    """One unit of a share: a request, a change or a session. ``value`` is None if it is missing."""

    cluster: str
    key: str
    value: float | None
    status: ProbeStatus = "scored"


@dataclass(frozen=True, slots=True)
class Change:
    """A preference change, with the requests for it afterwards in their order."""

    cluster: str
    name: str
    requests: tuple[ProbeRecord, ...]
    noticed: int | None  # index of the first of two in a row that show it; None if no two do

    @property
    def status(self) -> ProbeStatus:
        """The least certain status up to the two requests that show it, or of all requests."""
        upto = self.requests[: None if self.noticed is None else self.noticed + 2]
        return worst_status(item.status for item in upto)


@dataclass(frozen=True, eq=False)
class Requests:
    """The requests of one provider, over all its cells."""

    samples: Sequence[Sample]

    @cached_property
    def changes(self) -> list[Change]:
        """The changes with at least one later request."""
        found: dict[tuple[str, int, str, int], list[ProbeRecord]] = {}
        for cluster, record, replicate in self.samples:
            if record.of_memory and record.change is not None and record.since is not None:
                found.setdefault((cluster, replicate, record.change, record.since), []).append(record)
        changes = []
        for (cluster, _, name, _), records in found.items():
            records.sort(key=lambda record: (record.after, record.probe_id))
            shown = [bool(suits(record)) for record in records]
            place = next((at for at in range(len(shown) - 1) if shown[at] and shown[at + 1]), None)
            changes.append(Change(cluster, name, tuple(records), place))
        return changes

    @cached_property
    def units(self) -> dict[str, list[Unit]]:
        """The units of each figure, averaged over replicates."""
        return {figure.name: averaged(figure.units(self)) for figure in FIGURES}


def suits(record: ProbeRecord) -> bool | None:
    """Whether the first reply suits. If only the memory is asked: see :func:`read_right`."""
    return record.fit_first if record.judged else read_right(record)


def read_right(record: ProbeRecord) -> bool | None:
    """Whether the fixed reader takes the setting in force, and the section shows no unknown setting."""
    return None if record.taken is None else record.taken == "current" and not record.shows_unknown


def is_missing(record: ProbeRecord, *, of_replies: bool) -> bool:
    """Whether the outcome of a request is unknown: the harness failed, or the judgement cannot be read."""
    unread = of_replies and record.judged and record.answered and record.fit_first is None
    return record.status == "missing" or unread


def worst_status(statuses: Iterable[ProbeStatus]) -> ProbeStatus:
    """The least certain of several statuses."""
    order: tuple[ProbeStatus, ...] = ("scored", "unready", "failed", "missing")
    return max(statuses, key=order.index, default="scored")


def averaged(units: Iterable[Unit]) -> list[Unit]:
    """The mean of each unit over its replicates; missing if all of them are."""
    found: dict[tuple[str, str], list[Unit]] = {}
    for unit in units:
        found.setdefault((unit.cluster, unit.key), []).append(unit)
    means: list[Unit] = []
    for (cluster, key), same in found.items():
        if len(same) == 1:
            means += same
            continue
        known = [unit for unit in same if unit.value is not None]
        value = fmean(unit.value for unit in known if unit.value is not None) if known else None
        status = worst_status(unit.status for unit in (known or same))
        means.append(Unit(cluster, key, value, status))
    return means


@dataclass(frozen=True, slots=True)
class Figure:
    """A share over the units that ``units`` yields."""

    name: str
    group: Group
    better: Better
    meaning: str
    units: Callable[[Requests], Iterable[Unit]]
    # Whether it ranks no provider, because a memory can improve it by showing less or everything.
    fault: bool = False

    @property
    def worst(self) -> float:
        return 0.0 if self.better == "higher" else 1.0


def of_requests(
    name: str,
    group: Group,
    better: Better,
    meaning: str,
    *,
    applies: Callable[[ProbeRecord], bool],
    value: Callable[[ProbeRecord], float | None],
    fault: bool = False,
) -> Figure:
    """A figure over single requests.

    Args:
        applies: whether a planned request belongs to the figure.
        value: the value of an answered request, from 0 to 1; None if its answer does not bear on the figure.
    """

    def units(requests: Requests) -> Iterator[Unit]:
        for cluster, record, _ in requests.samples:
            if not applies(record):
                continue
            if is_missing(record, of_replies=group != "retrieval"):
                yield Unit(cluster, record.probe_id, None, "missing")
            elif record.status == "failed":
                yield Unit(cluster, record.probe_id, figure.worst, "failed")
            elif (found := value(record)) is not None:
                yield Unit(cluster, record.probe_id, float(found), record.status)

    figure = Figure(name, group, better, meaning, units, fault)
    return figure


def _judged(record: ProbeRecord) -> bool:
    return record.judged and record.kind != "question"


def _wanted(record: ProbeRecord) -> bool:
    return record.of_memory and record.wanted


def _evidence(record: ProbeRecord) -> bool:
    return record.gold > 0


def _detection(requests: Requests) -> Iterator[Unit]:
    for change in requests.changes:
        missing = change.status == "missing"
        value = None if missing else float(change.noticed is not None)
        yield Unit(change.cluster, change.name, value, change.status)


def _after_change(requests: Requests, lost: Callable[[ProbeRecord], bool | None]) -> Iterator[Unit]:
    for change in requests.changes:
        for record in change.requests:
            found: bool | None = None
            if not is_missing(record, of_replies=record.judged):
                found = record.status == "failed" or lost(record)
            value = None if found is None else float(found)
            yield Unit(change.cluster, record.probe_id, value, "missing" if found is None else record.status)


def _is_stale(record: ProbeRecord) -> bool | None:
    """None for an answer in words: a model that judges it does not name the setting it shows."""
    if record.judged and record.answered and record.first is None:
        return None
    return (record.first if record.judged else record.taken) == "stale"


def _overall(requests: Requests) -> Iterator[Unit]:
    sessions: dict[tuple[str, int, str], list[ProbeRecord]] = {}
    for cluster, record, replicate in requests.samples:
        if _judged(record):
            sessions.setdefault((cluster, replicate, record.session_id), []).append(record)
    for (cluster, _, session), records in sessions.items():
        status = worst_status(record.status for record in records)
        missing = any(is_missing(record, of_replies=True) for record in records)
        value = None if missing else float(all(record.fit_first for record in records))
        yield Unit(cluster, session, value, "missing" if missing else status)


def _recall(first: int) -> Figure:
    entries = "the first entry" if first == 1 else f"the first {first} entries"
    return of_requests(
        f"recall@{first}", "retrieval", "higher", f"The same share within {entries} of the section.",
        applies=_evidence, value=lambda item: sum(rank <= first for rank in item.ranks or ()) / item.gold,
    )  # fmt: skip


FIGURES: tuple[Figure, ...] = (
    of_requests(
        "style fit", "CS", "higher",
        "First replies that suit. Attributes met again in a session are left out.",
        applies=lambda item: _judged(item) and item.of_memory, value=lambda item: item.fit_first,
    ),
    of_requests(
        "discrimination", "CS", "higher",
        "First replies that suit, of the requests where the settings of the two contexts differ.",
        applies=lambda item: _judged(item) and item.of_memory and item.has_other, value=lambda item: item.fit_first,
    ),
    Figure(
        "detection", "PET", "higher",
        "Changes of a preference that two requests in a row show after them.",
        _detection,
    ),
    Figure(
        "forgetting", "PET", "lower",
        "Requests after a change whose first reply does not suit; where nobody replies, whose section does "
        "not tell the new setting. A change that was never noticed counts too.",
        partial(_after_change, lost=lambda record: not suits(record)),
    ),
    Figure(
        "stale reversion", "PET", "lower",
        "Requests after a change whose first reply shows an older setting; where nobody replies, whose section "
        "tells an older one.",
        partial(_after_change, lost=_is_stale), fault=True,
    ),
    of_requests(
        "felt effort", "IQI", "lower",
        "Requests that took more than one reply, or were given up.",
        applies=_judged, value=lambda item: item.turns > 1 or item.fit_last is False,
    ),
    of_requests(
        "coherence", "IQI", "higher",
        "Attributes met again in a session where both first replies show the setting in force. A setting that the "
        "user had to name in between does not count.",
        applies=lambda item: _judged(item) and item.repeated,
        value=lambda item: None if item.coherent is None else item.coherent and item.fit_first,
    ),
    Figure("overall", "IQI", "higher", "Test sessions in which every first reply suited.", _overall),
    of_requests(
        "over-personalisation", "over-personalisation", "lower",
        "Requests in which no preference belongs and one is shown.",
        applies=lambda item: item.judged and item.kind == "neutral", value=lambda item: not item.fit_first,
        fault=True,
    ),
    of_requests(
        "right answers", "questions", "higher",
        "Questions whose answer is right: by the judge of their kind, or the right one of given answers.",
        applies=lambda item: item.judged and item.kind == "question", value=lambda item: item.fit_first,
    ),
    of_requests(
        "answer F1", "questions", "higher",
        "Token F1 of the reply and the right answer, as SQuAD counts it. A question that has no answer counts 1 if "
        "the reply says so.",
        applies=lambda item: item.read, value=lambda item: item.answer_f1,
    ),
    of_requests(
        "exact match", "questions", "higher",
        "Replies that are the right answer word by word, apart from case, punctuation and articles.",
        applies=lambda item: item.read, value=lambda item: item.exact,
    ),
    of_requests(
        "read right", "retrieval", "higher",
        "Sections from which a fixed reader takes the setting in force, and which hold no setting that this user "
        "never had. The reader goes by dates, order and named contexts. Settings are exact phrases, so for "
        "memories that paraphrase this is a lower bound.",
        applies=_wanted, value=read_right,
    ),
    of_requests(
        "shown alone", "retrieval", "higher",
        "Sections that hold the setting in force and no other setting of the attribute, apart from entries that "
        "name the other context.",
        applies=_wanted,
        value=lambda item: item.shows_current and not (
            item.shows_stale or item.shows_unlabelled or item.shows_unknown
        ),
        fault=True,
    ),
    of_requests(
        "shown", "retrieval", "higher",
        "Sections that hold the setting in force, whatever stands beside it. A list of all settings reaches 100 %.",
        applies=_wanted, value=lambda item: item.shows_current, fault=True,
    ),
    of_requests(
        "evidence recall", "retrieval", "higher",
        "Share of the turns that hold the answer whose words stand in the section. Finding a turn is not answering "
        "the question.",
        applies=_evidence, value=lambda item: (item.found or 0) / item.gold,
    ),
    *(_recall(first) for first in (1, 5, 10)),
    of_requests(
        "MRR", "retrieval", "higher",
        "Mean of one over the place of the first entry that holds such a turn.",
        applies=_evidence, value=lambda item: 1 / min(item.ranks) if item.ranks else 0.0,
    ),
    of_requests(
        f"nDCG@{FIRST}", "retrieval", "higher",
        f"Normalised discounted cumulative gain of the first {FIRST} entries; each such turn is worth 1.",
        applies=_evidence, value=lambda item: ndcg(item.ranks or (), item.gold),
    ),
    of_requests(
        "gold answer shown", "retrieval", "higher",
        "Share of the right answer's words that stand in the section, each weighing the more the fewer turns hold "
        "it. Read it beside the next figure.",
        applies=lambda item: item.has_answer, value=lambda item: item.answer_shown,
    ),
    of_requests(
        "nonsense shows", "retrieval", "lower",
        "The same share for nonsense: as many words as the section has, the conversation's most frequent ones.",
        applies=lambda item: item.has_answer, value=lambda item: item.nonsense_shown, fault=True,
    ),
    of_requests(
        "nothing shown", "retrieval", "lower",
        "Requests whose section is empty.",
        applies=lambda item: item.of_memory, value=lambda item: None if item.items is None else not item.items,
    ),
)  # fmt: skip
BY_NAME = {figure.name: figure for figure in FIGURES}
HEADLINES = ("style fit", "right answers", "answer F1", "read right", "evidence recall")
"""The first of these with any requests decides: behaviour, else answers, else what the section shows. None of
them improves when a memory shows less, or more, than it should."""
