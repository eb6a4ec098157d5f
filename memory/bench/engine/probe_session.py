"""Probes along a timeline, by the same protocol as test sessions. What is retrieved is judged by its words. A
question with given answers is put to the assistant with them; one without is answered by models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self

from memory.bench.data.timeline import (
    AbstainTruth,
    Beat,
    ChoiceTruth,
    EvidenceTruth,
    PreferenceTruth,
    Probe,
    Script,
    TestSession,
    Timeline,
)
from memory.bench.engine.context import Conversation, SessionDriver
from memory.bench.engine.manifest import ErrorRecord
from memory.bench.engine.roles import Exchange, RuleJudge
from memory.bench.engine.test_session import (
    Request,
    TestSessionRun,
    measured,
    of_truth,
    of_verdicts,
    planned_requests,
)
from memory.bench.scores.model import ProbeRecord, ProbeStatus
from memory.bench.scores.sections import abstains, plain
from memory.contract.receipts import RetrieveResult
from memory.runtime._policy import Recall

_LETTER = re.compile(r"\(([a-z])\)")
_WHEN = datetime(2026, 1, 1, tzinfo=UTC)  # when a question is asked of which the data does not say


def planned_probe(persona_id: str, probe: Probe, *, answers: bool) -> ProbeRecord:
    """What the record of a probe says before it is asked, where the assistant answers in its own words, or not."""
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
        cross_context=probe.cross_context,
    )
    truth = probe.truth
    if isinstance(truth, AbstainTruth):
        return replace(record, judged=answers)
    if isinstance(truth, EvidenceTruth):
        judged = answers and truth.answer is not None
        return replace(record, judged=judged, gold=len(truth.turns), unresolved=truth.unresolved)
    if isinstance(truth, PreferenceTruth):
        return replace(record, kind=probe.category, **of_truth(truth))
    return record


class ProbeSession(TestSessionRun):
    """The probes of one point of the timeline while they are asked, each by itself: none sees another."""

    def __init__(
        self, driver: SessionDriver, probes: Sequence[Probe], held: Mapping[str, Recall] | None = None
    ) -> None:
        beats = tuple(Beat(probe.probe_id, "other", probe.query) for probe in probes)
        script = Script("", None, None, probes[0].asked_at or _WHEN, beats)
        super().__init__(driver, TestSession(probes[0].after, probes[0].session_id, script), held)
        self._probes = probes

    async def _ask_all(self) -> None:
        for probe in self._probes:
            await self._ask(probe)

    def _requests(self) -> list[Request]:
        return [
            Request(probe.probe_id, probe.query, partial(self._conversation, probe)) for probe in self._probes
        ]

    def _another(self, held: Mapping[str, Recall]) -> Self:
        return type(self)(self._driver, self._probes, held)

    def _conversation(self, probe: Probe) -> Conversation:
        script = Script("", probe.scenario, probe.context, probe.asked_at or _WHEN, ())
        turns = self._counts["skipped"]
        return Conversation(self._driver, probe.session_id, script, turns=turns, probe=probe)

    async def _ask(self, probe: Probe) -> None:
        planned = planned_probe(self._persona_id, probe, answers=self.context.roles.answers)
        conversation, held = self._conversation(probe), self._held.get(probe.probe_id)
        truth, fields = probe.truth, dict[str, Any]()
        if planned.judged:
            answers = _lettered(truth) if isinstance(truth, ChoiceTruth) else ""
            recall, error = await self._turn(conversation, probe.probe_id, probe.query, answers, held)
            fields = {} if error else await self._reply_judged(conversation.script, probe)
        else:
            with self.context.probe(probe.probe_id):
                recall = await conversation.recall(probe.query, held)
            error = self._driver.outcome(recall)
            self.recalled[probe.probe_id] = recall
            if error is None:
                self._keep(probe.probe_id, Exchange(probe.query, ""), recall)
        if (result := recall.result) is not None:
            fields |= measured(result.trace)
            if isinstance(truth, EvidenceTruth):
                fields |= self._evidence(truth, result)
            elif isinstance(truth, PreferenceTruth):
                fields |= self._settings_shown(truth, result.formatted_context, probe.context)
        self._add_record(planned, error, fields)

    def _evidence(self, truth: EvidenceTruth, result: RetrieveResult) -> dict[str, Any]:
        """Gold turns by their words in the section, and by the ids that entries name."""
        if not truth.turns:
            return {}
        section = result.formatted_context
        shown = self.context.turns.shown(section)
        found = [turn for turn in truth.turns if turn in shown]
        named = self._driver.event_ids(result)
        fields: dict[str, Any] = {
            "found": len(found),
            "overlapping": len({*found, *self.context.turns.overlapped(section, truth.turns)}),
            "claimed": None if named is None else len(set(named) & set(truth.turns)),
            "relevant_tokens": 0,
        }
        if found:
            counter, text = self._slot.delivery.token_counter, plain(section)
            words = [self.context.turns.plain[turn] for turn in found]
            fields["relevant_tokens"] = sum(counter.count(word) for word in words)
            end = min((at + len(word) for word in words if (at := text.find(word)) >= 0), default=len(text))
            fields["first_relevant_tokens"] = counter.count(text[:end])
        return fields

    async def _reply_judged(self, script: Script, probe: Probe) -> dict[str, Any]:
        """What the last reply is worth: by the judge if it reads, told what a right one says, else by rules."""
        truth, reply = probe.truth, self._earlier[-1].reply
        if isinstance(truth, ChoiceTruth):
            return _chosen(truth, reply)
        if isinstance(truth, AbstainTruth):
            if isinstance(self.context.roles.judge, RuleJudge):
                fit = abstains(reply, truth.trap)
                return {"turns": 1, "fit_first": fit, "fit_last": fit}
            wish = "the reply says that this was not mentioned or is not known"
            wish += f", and does not claim: {truth.trap}" if truth.trap else ""
        else:
            assert isinstance(truth, EvidenceTruth)
            wish = f"the reply says: {truth.answer}"
        wanted = PreferenceTruth(current=wish)
        beat = Beat(probe.probe_id, "other", probe.query, constraint=wish, truth=wanted)
        verdict = await self._driver.judge(script, beat, self._earlier[-1:])
        return {"turns": 1, **of_verdicts(verdict, verdict)}


def _lettered(truth: ChoiceTruth) -> str:
    options = enumerate(truth.options)
    lines = [f"({chr(ord('a') + number)}) {' '.join(text.split())}" for number, text in options]
    return "\n".join([*lines, "Answer with the letter of the reply that suits me best."])


def _chosen(truth: ChoiceTruth, reply: str) -> dict[str, Any]:
    """What the letter in a reply is worth; without exactly one, the reply cannot be read."""
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
    answers: bool,
    fault: str | None,
    error: ErrorRecord | None,
) -> list[ProbeRecord]:
    """Records of a cell, with those of the requests it did not get to because of its error, in their order."""
    found = list(records)
    seen = {record.probe_id for record in found}
    status: ProbeStatus = "failed" if fault == "provider" else "missing"
    persona_id, why = timeline.persona_id, error.type if error else None
    for after in range(len(timeline.sessions) + 1):
        tests = (test for test in timeline.tests if test.after == after)
        planned = [record for test in tests for _, record in planned_requests(persona_id, test)]
        probes = timeline.probes_after(after)
        planned += (planned_probe(persona_id, probe, answers=answers) for probe in probes)
        found += (
            replace(record, status=status, error=why) for record in planned if record.probe_id not in seen
        )
    return found
