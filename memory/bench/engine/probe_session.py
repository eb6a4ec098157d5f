"""Probes along a timeline, asked by the protocol of test sessions and scored by the words of the section.

The reader answers a question from the section. Its answer is scored by its words and, with an answer judge,
by the prompt for that kind of question. Probes are no turns of a session.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

from memory.bench.data.timeline import (
    AbstainTruth,
    ChoiceTruth,
    EvidenceTruth,
    PreferenceTruth,
    Probe,
    Script,
    TestSession,
    Timeline,
)
from memory.bench.engine.context import CellContext, Request, role_calls
from memory.bench.engine.manifest import ErrorRecord
from memory.bench.engine.roles import Exchange, lettered, rule_reader
from memory.bench.engine.test_session import (
    TestSessionRun,
    measured,
    of_truth,
    of_verdicts,
    planned_requests,
)
from memory.bench.scores.answers import exact_match, token_f1
from memory.bench.scores.model import ProbeRecord, ProbeStatus
from memory.bench.scores.sections import abstains, entries_of
from memory.contract.receipts import RetrieveResult
from memory.runtime._policy import Recall

_LETTER = re.compile(r"\(([a-z])\)")
_WHEN = datetime(2026, 1, 1, tzinfo=UTC)  # the time of a question without a time


@dataclass(frozen=True, slots=True)
class Answering:
    """Whether a reader answers questions in its own words, and whether a judge scores these answers."""

    reads: bool = False
    judged: bool = False


def planned_probe(persona_id: str, probe: Probe, answering: Answering) -> ProbeRecord:
    """The record of a probe before it is asked."""
    record = ProbeRecord(
        probe_id=probe.probe_id,
        persona_id=persona_id,
        session_id=probe.session_id,
        kind="question",
        after=probe.after,
        category=probe.category,
        context=probe.context,
        attribute=probe.attribute,
        judged=isinstance(probe.truth, ChoiceTruth),
        choices=len(probe.truth.options) if isinstance(probe.truth, ChoiceTruth) else None,
        cross_context=probe.cross_context,
    )
    truth = probe.truth
    if isinstance(truth, AbstainTruth):
        return replace(record, read=answering.reads, judged=answering.judged)
    if isinstance(truth, EvidenceTruth):
        known = truth.answer is not None
        return replace(
            record,
            read=answering.reads and known,
            judged=answering.judged and known,
            has_answer=known,
            gold=len(truth.turns),
            unresolved=truth.unresolved,
        )
    if isinstance(truth, PreferenceTruth):
        return replace(record, kind=probe.category, **of_truth(truth))
    return record


class ProbeSession(TestSessionRun):
    """One run of the probes at one point of the timeline. No probe sees another."""

    def __init__(
        self, context: CellContext, probes: Sequence[Probe], held: Mapping[str, Recall] | None = None
    ) -> None:
        script = Script("", None, None, _WHEN, ())
        super().__init__(context, TestSession(probes[0].after, probes[0].session_id, script), held)
        self._probes = probes

    async def _ask_all(self) -> None:
        for probe, request in zip(self._probes, self._requests(), strict=True):
            await self._ask(probe, request)

    def _requests(self) -> list[Request]:
        return [Request(each.probe_id, each.session_id, each.query, each) for each in self._probes]

    def _another(self, held: Mapping[str, Recall]) -> Self:
        return type(self)(self.context, self._probes, held)

    async def _ask(self, probe: Probe, request: Request) -> None:
        roles, truth = self.context.roles, probe.truth
        answering = Answering(roles.reader is not None, roles.answer_judge is not None)
        planned = planned_probe(self._persona_id, probe, answering)
        recall = self._held.get(probe.probe_id)
        if recall is None:
            with self.context.traces.of_probe(probe.probe_id):
                recall = await self.context.recall(request)
        error = self.context.outcome(recall)
        self.recalled[probe.probe_id] = recall
        fields: dict[str, Any] = {}
        if (result := recall.result) is not None and error is None:
            options = truth.options if isinstance(truth, ChoiceTruth) else ()
            reply = ""
            if planned.judged or planned.read:
                now = (probe.asked_at or _WHEN).isoformat(" ", "minutes")[:16]
                reply = await self._read(probe.query, recall.section, now, options)
                fields = await self._answered(planned, probe, reply)
            asked = f"{probe.query}\n{lettered(options)}" if options else probe.query
            self._keep(probe.probe_id, Exchange(asked, reply), recall)
            fields |= measured(result.trace)
            if isinstance(truth, EvidenceTruth):
                fields |= self._evidence(truth, result)
            elif isinstance(truth, PreferenceTruth):
                fields |= self._settings_shown(
                    truth, result.formatted_context, probe.context, probe.attribute
                )
        self._add_record(planned, error, fields)

    async def _read(self, question: str, section: str, now: str, options: Sequence[str]) -> str:
        with self.context.times.of("answer"), role_calls("reader"):
            reader = self.context.roles.reader or rule_reader
            return await reader(question, section, now, options)

    async def _answered(self, planned: ProbeRecord, probe: Probe, reply: str) -> dict[str, Any]:
        """The record fields that a reply decides, by its words and by the answer judge, if any."""
        truth = probe.truth
        if isinstance(truth, ChoiceTruth):
            return _chosen(truth, reply)
        if isinstance(truth, AbstainTruth):
            right = abstains(reply, truth.trap)
            fields: dict[str, Any] = {"turns": 1, "answer_f1": float(right), "exact": right}
            answer = "this is not known; it was not mentioned"
            answer += f" (wrong: {truth.trap})" if truth.trap else ""
        else:
            assert isinstance(truth, EvidenceTruth)
            answer = truth.answer or ""
            fields = {"turns": 1, "answer_f1": token_f1(reply, answer), "exact": exact_match(reply, answer)}
        judge = self.context.roles.answer_judge
        if not planned.judged or judge is None:
            return fields
        category = "abstention" if isinstance(truth, AbstainTruth) else probe.category
        with self.context.times.of("judge"), role_calls("answer judge"):
            verdict = await judge(category, probe.query, answer, reply)
        return {**fields, **of_verdicts(verdict, verdict)}

    def _evidence(self, truth: EvidenceTruth, result: RetrieveResult) -> dict[str, Any]:
        """How much of the answer the section shows, and the ranks of the gold turns that it holds."""
        section, vocabulary = result.formatted_context, self.context.vocabulary
        fields: dict[str, Any] = {}
        if truth.answer is not None:
            text = "\n".join(entry.text for entry in entries_of(section))
            fields["answer_shown"] = vocabulary.shown(truth.answer, text)
            fields["nonsense_shown"] = vocabulary.by_nonsense(truth.answer, text)
        if not truth.turns:
            return fields
        shown = self.context.turns.shown(section)
        found = [turn for turn in truth.turns if turn in shown]
        return {**fields, "found": len(found), "ranks": self._ranks(section, found)}

    def _ranks(self, section: str, found: Sequence[str]) -> list[int]:
        """The rank of the first entry with each found turn, from 1."""
        ranks: dict[str, int] = {}
        for place, entry in enumerate(entries_of(section), start=1):
            if len(ranks) == len(found):
                break
            for turn in self.context.turns.shown(entry.text).intersection(found):
                ranks.setdefault(turn, place)
        return sorted(ranks.values())


def _chosen(truth: ChoiceTruth, reply: str) -> dict[str, Any]:
    """Score the letter in a reply. A reply without exactly one valid letter cannot be read."""
    places = {ord(letter) - ord("a") for letter in _LETTER.findall(reply)}
    if len(places) != 1 or max(places) >= len(truth.options):
        return {"turns": 1}
    right = places == {truth.right}
    shown = "current" if right else "unknown"
    return {"turns": 1, "fit_first": right, "fit_last": right, "first": shown, "last": shown}


def completed(
    records: Iterable[ProbeRecord],
    timeline: Timeline,
    *,
    answering: Answering,
    fault: str | None,
    error: ErrorRecord | None,
) -> list[ProbeRecord]:
    """The records of a cell, and records of the requests that its error prevented, in their order."""
    found = list(records)
    seen = {record.probe_id for record in found}
    status: ProbeStatus = "failed" if fault == "provider" else "missing"
    persona_id, why = timeline.persona_id, error.type if error else None
    for after in range(len(timeline.sessions) + 1):
        tests = (test for test in timeline.tests if test.after == after)
        planned = [record for test in tests for _, record in planned_requests(persona_id, test)]
        probes = timeline.probes_after(after)
        planned += (planned_probe(persona_id, probe, answering) for probe in probes)
        found += (
            replace(record, status=status, error=why) for record in planned if record.probe_id not in seen
        )
    return found
