"""The figures, each defined once: which requests it is over, and what one of them is worth.

The eight figures on behaviour are those of MemPABench, each one complaint of a user, in its three groups: CS
(context sensitivity), PET (preference evolution tracking), IQI (interaction quality); over-personalisation stands
beside them. How MemPABench computes its own was not public in detail when this was written: the definitions are
below, and figures of the two do not compare.

Nothing leaves a denominator: what the provider failed has the worst value wherever the figure applies, and what the
harness broke has none, which becomes bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import fmean
from typing import NamedTuple

from memory.bench.scores.model import Better, Group, ProbeRecord, ProbeStatus, Sample
from memory.bench.scores.sections import OVERLAP_RULE


class Unit(NamedTuple):
    """What a share is over: a request, a change, a session or a turn. ``value`` is None where it is missing."""

    cluster: str
    key: str
    value: float | None
    status: ProbeStatus = "scored"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a preference: the requests that ask for it afterwards, in their order."""

    cluster: str
    replicate: int
    name: str
    since: int
    requests: tuple[ProbeRecord, ...]
    noticed: int | None  # place of the first of two in a row that show it; None if no two do

    @property
    def status(self) -> ProbeStatus:
        """That of the requests that decide: up to the two that show it."""
        upto = self.requests[: None if self.noticed is None else self.noticed + 2]
        return worst_status(item.status for item in upto)

    @property
    def latency(self) -> int | None:
        """Sessions from the change to the first request that shows it; None if none does."""
        return None if self.noticed is None else self.requests[self.noticed].after - self.since

    @property
    def waited(self) -> int:
        """Sessions until it was noticed, or looked for in vain for the last time."""
        return self.requests[-1 if self.noticed is None else self.noticed].after - self.since

    @property
    def by_chance(self) -> float:
        """How probably replies at random, one of four settings at a time, would notice it."""
        alone, last = 1.0, 0.0  # not noticed yet, and the last reply did not show it, or did
        for _ in self.requests:
            alone, last = (alone + last) * 3 / 4, alone / 4
        return 1 - alone - last


@dataclass(frozen=True, eq=False)
class Requests:
    """The requests of one provider, over all its cells."""

    samples: Sequence[Sample]

    @cached_property
    def changes(self) -> list[Change]:
        """Changes that were asked for after they were said."""
        found: dict[tuple[str, int, str, int], list[ProbeRecord]] = {}
        for cluster, record, replicate in self.samples:
            if record.of_memory and record.change is not None and record.since is not None:
                found.setdefault((cluster, replicate, record.change, record.since), []).append(record)
        changes = []
        for (cluster, replicate, name, since), records in found.items():
            records.sort(key=lambda record: (record.after, record.probe_id))
            shown = [bool(suits(record)) for record in records]
            place = next((at for at in range(len(shown) - 1) if shown[at] and shown[at + 1]), None)
            changes.append(Change(cluster, replicate, name, since, tuple(records), place))
        return changes

    @cached_property
    def units(self) -> dict[str, list[Unit]]:
        """Of each figure what it is over, replicates averaged."""
        return {figure.name: averaged(figure.units(self)) for figure in FIGURES}


def suits(record: ProbeRecord) -> bool | None:
    """Whether the first reply suits; where nobody replies, whether the section shows the setting in force."""
    return record.fit_first if record.judged else record.shows_current


def is_missing(record: ProbeRecord, *, of_replies: bool) -> bool:
    """Whether nobody knows how a request went: the harness broke, or the judgement cannot be read."""
    unread = of_replies and record.judged and record.answered and record.fit_first is None
    return record.status == "missing" or unread


def worst_status(statuses: Iterable[ProbeStatus]) -> ProbeStatus:
    """The one that says least of several."""
    order: tuple[ProbeStatus, ...] = ("scored", "unready", "failed", "missing")
    return max(statuses, key=order.index, default="scored")


def averaged(units: Iterable[Unit]) -> list[Unit]:
    """Of each unit the mean over replicates; missing where all of them are."""
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
    name: str
    group: Group
    better: Better
    meaning: str
    units: Callable[[Requests], Iterable[Unit]]  # what it is over

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
) -> Figure:
    """A figure over the single requests to which it ``applies``, by what was planned; ``value`` is what an answered
    one is worth, between 0 and 1, or None where its answer says nothing of this figure."""

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

    figure = Figure(name, group, better, meaning, units)
    return figure


def _judged(record: ProbeRecord) -> bool:
    return record.judged and record.kind != "question"


def _differing(record: ProbeRecord) -> bool:
    return _judged(record) and record.of_memory and record.has_other


def _wanted(record: ProbeRecord) -> bool:
    return record.of_memory and record.wanted


def _evidence(record: ProbeRecord) -> bool:
    return record.gold > 0


def _detection(requests: Requests) -> Iterator[Unit]:
    for change in requests.changes:
        missing = change.status == "missing"
        value = None if missing else float(change.noticed is not None)
        yield Unit(change.cluster, change.name, value, change.status)


def _after_noticing(requests: Requests, lost: Callable[[ProbeRecord], bool]) -> Iterator[Unit]:
    for change in requests.changes:
        for record in () if change.noticed is None else change.requests[change.noticed + 2 :]:
            value: float | None = None
            if not is_missing(record, of_replies=record.judged):
                value = float(record.status == "failed" or lost(record))
            yield Unit(change.cluster, record.probe_id, value, record.status)


def _is_stale(record: ProbeRecord) -> bool:
    if record.judged:
        return record.first == "stale"
    return bool(record.shows_stale) and not record.shows_current


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


def _pooled(requests: Requests) -> Iterator[Unit]:
    for cluster, record, _ in requests.samples:
        found = record.found or 0
        for number in range(record.gold):
            value = None if record.status == "missing" else float(number < found)
            yield Unit(cluster, f"{record.probe_id}:{number}", value, record.status)


FIGURES: tuple[Figure, ...] = (
    of_requests(
        "style fit", "CS", "higher",
        "First replies that suit. Attributes met again in a session are left out.",
        applies=lambda item: _judged(item) and item.of_memory, value=lambda item: item.fit_first,
    ),
    of_requests(
        "discrimination", "CS", "higher",
        "Of all first replies where the settings of the contexts differ: 1 for this one's, 0 for the other's, one "
        "half for neither. Who cannot tell the contexts apart, or shows nothing, has 50 %.",
        applies=_differing,
        value=lambda item: {"current": 1.0, "other": 0.0}.get(item.first or "", 0.5),
    ),
    of_requests(
        "contamination", "CS", "lower",
        "Of all first replies where the settings of the contexts differ: they show the other's.",
        applies=_differing, value=lambda item: item.first == "other",
    ),
    Figure(
        "detection", "PET", "higher",
        "Changes that two requests in a row show after them.",
        _detection,
    ),
    Figure(
        "stale reversion", "PET", "lower",
        "Of the requests after a change was noticed: first replies that show an older setting again; where nobody "
        "replies, sections that hold an older one and not the new one.",
        partial(_after_noticing, lost=_is_stale),
    ),
    Figure(
        "forgetting", "PET", "lower",
        "Of the same requests: first replies that do not suit for any other reason; where nobody replies, sections "
        "that hold neither.",
        partial(_after_noticing, lost=lambda record: not suits(record) and not _is_stale(record)),
    ),
    of_requests(
        "felt effort", "IQI", "lower",
        "Requests that took more than one reply, or were given up.",
        applies=_judged, value=lambda item: item.turns > 1 or item.fit_last is False,
    ),
    of_requests(
        "coherence", "IQI", "higher",
        "Of the attributes met again in a session: both first replies show the same setting. One that a hint of "
        "the user's brought about is not the same, and nothing shown is none.",
        applies=lambda item: _judged(item) and item.repeated,
        value=lambda item: None if item.coherent is None else item.coherent and item.first != "nothing",
    ),
    Figure("overall", "IQI", "higher", "Test sessions in which every first reply suited.", _overall),
    of_requests(
        "over-personalisation", "over-personalisation", "lower",
        "Of the requests in which no preference of the user's belongs: one is shown.",
        applies=lambda item: item.judged and item.kind == "neutral", value=lambda item: not item.fit_first,
    ),
    of_requests(
        "right answers", "questions", "higher",
        "Questions whose answer is right.",
        applies=lambda item: item.judged and item.kind == "question", value=lambda item: item.fit_first,
    ),
    of_requests(
        "shown", "retrieval", "higher",
        "Sections that hold the setting in force. Older ones beside it do not undo that. Settings are exact "
        "phrases, so for backends that paraphrase this is a lower bound.",
        applies=_wanted, value=lambda item: item.shows_current,
    ),
    of_requests(
        "shown alone", "retrieval", "higher",
        "Sections that hold the setting in force and nothing to be mistaken for it: no older one, none of the "
        "other context in an entry that does not name that context.",
        applies=_wanted,
        value=lambda item: item.shows_current and not item.shows_stale and not item.shows_unlabelled,
    ),
    of_requests(
        "stale rate", "retrieval", "lower",
        "Of the sections for a setting that has changed: they hold an older one and not the one in force.",
        applies=lambda item: _wanted(item) and item.has_stale,
        value=lambda item: item.shows_stale and not item.shows_current,
    ),
    of_requests(
        "stale shown", "retrieval", "lower",
        "Of the same sections: they hold an older setting at all.",
        applies=lambda item: _wanted(item) and item.has_stale, value=lambda item: item.shows_stale,
    ),
    of_requests(
        "mixed contexts", "retrieval", "lower",
        "Of the sections where the settings of the contexts differ: they hold the other's in an entry that does "
        "not name that context, so that it reads as if it held here.",
        applies=lambda item: _wanted(item) and item.has_other, value=lambda item: item.shows_unlabelled,
    ),
    of_requests(
        "decoys", "retrieval", "lower",
        "Sections that hold hearsay or a single exception for the attribute.",
        applies=_wanted, value=lambda item: item.shows_decoy,
    ),
    of_requests(
        "evidence recall", "retrieval", "higher",
        "Share of the turns that hold the answer whose words stand in the section. Finding a turn is not answering "
        "the question.",
        applies=_evidence, value=lambda item: (item.found or 0) / item.gold,
    ),
    Figure(
        "evidence recall, pooled", "retrieval", "higher",
        "The same of all such turns together, whichever question they belong to.",
        _pooled,
    ),
    of_requests(
        "any evidence", "retrieval", "higher",
        "Questions with at least one of these turns in the section.",
        applies=_evidence, value=lambda item: bool(item.found),
    ),
    of_requests(
        "all evidence", "retrieval", "higher",
        "Questions with every one of these turns in the section.",
        applies=_evidence, value=lambda item: item.found == item.gold,
    ),
    of_requests(
        "evidence overlap", "retrieval", "higher",
        "Share of these turns with which the section shares words: for memories that keep facts they word anew. "
        f"{OVERLAP_RULE} Other turns in such words count too: an upper bound.",
        applies=_evidence, value=lambda item: (item.overlapping or 0) / item.gold,
    ),
    of_requests(
        "claimed recall", "retrieval", "higher",
        "Of the sections whose entries name turns by id: share of these turns that they name, whatever they say. "
        "A claim, no evidence.",
        applies=_evidence, value=lambda item: None if item.claimed is None else item.claimed / item.gold,
    ),
    of_requests(
        "relevant tokens", "retrieval", "higher",
        "Of the tokens of a section: those of the turns that hold the answer, or of the sentences that tell the "
        "setting in force; an entry that holds everything counts by what is in it. An empty section has 0 %.",
        applies=lambda item: item.gold > 0 or _wanted(item),
        value=lambda item: min(1.0, (item.relevant_tokens or 0) / item.tokens) if item.tokens else 0.0,
    ),
    of_requests(
        "nothing shown", "retrieval", "lower",
        "Requests whose section holds nothing at all. Who shows nothing is neither stale nor mixed: that is the "
        "floor, and no merit.",
        applies=lambda item: item.of_memory, value=lambda item: None if item.items is None else not item.items,
    ),
)  # fmt: skip
BY_NAME = {figure.name: figure for figure in FIGURES}
HEADLINES = ("style fit", "right answers", "shown", "evidence recall")
"""What decides, where anything is known of it: behaviour, else answers, else what was put before the assistant."""
