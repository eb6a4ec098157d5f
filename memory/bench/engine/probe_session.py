"""Questions along a timeline (LoCoMo, PersonaMem, LongMemEval), by the same protocol as test sessions.

What is retrieved is measured by the turns that hold the answer. A question with given answers is put to the
assistant with them; one without is answered where the assistant is a model, and judged by the reference answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from memory.bench.data.timeline import (
    Beat,
    ChoiceTruth,
    EvidenceTruth,
    PreferenceTruth,
    Probe,
    Script,
    TestSession,
)
from memory.bench.engine.context import Dealings
from memory.bench.engine.conversation import Conversation
from memory.bench.engine.roles import Exchange, Verdict
from memory.bench.engine.test_session import Tested
from memory.bench.scores.records import BeatRecord
from memory.contract.receipts import RetrieveResult

_LETTER = re.compile(r"\(([a-z])\)")
_WHEN = datetime(2026, 1, 1, tzinfo=UTC)


async def ask_probes(
    dealings: Dealings, persona_id: str, after: int, probes: Sequence[Probe]
) -> dict[str, Any]:
    """Ask the probes of one point of the timeline while nothing is written.

    Args:
        dealings: with whom and how.
        persona_id: who.
        after: sessions ingested.
        probes: each by itself: no question sees another.

    Returns:
        The journal's line.

    Raises:
        MemslotError: as for :func:`memory.bench.engine.test_session.play_test`.
    """
    return await Asked(dealings, persona_id, after, probes).play()


def _lettered(truth: ChoiceTruth) -> str:
    """Given answers, lettered from a."""
    lines = [
        f"({chr(ord('a') + number)}) {' '.join(text.split())}" for number, text in enumerate(truth.options)
    ]
    return "\n".join([*lines, "Answer with the letter of the reply that suits me best."])


class Asked(Tested):
    """The probes of one point while they are asked."""

    def __init__(self, dealings: Dealings, persona_id: str, after: int, probes: Sequence[Probe]) -> None:
        beats = tuple(Beat(probe.probe_id, "other", probe.query) for probe in probes)
        script = Script("", None, None, _WHEN, beats)
        session_id = probes[0].session_id
        super().__init__(dealings, persona_id, TestSession(after, session_id, script), ())
        self._probes = {probe.probe_id: probe for probe in probes}

    async def _beat(self, beat: Beat, readiness: str, known: bool) -> None:
        probe = self._probes[beat.beat_id]
        script = Script("", probe.scenario, probe.context, _WHEN, ())
        conversation = Conversation(
            self._dealings, self._persona_id, probe.session_id, script, turns=self._skipped
        )
        truth, fields = probe.truth, dict[str, Any]()
        answer = truth.answer if isinstance(truth, EvidenceTruth) else None
        if isinstance(truth, ChoiceTruth):
            result, error = await self._turn(conversation, probe.probe_id, probe.query, _lettered(truth))
            fields = {} if error else _chosen(truth, self._earlier[-1].reply)
        elif answer is not None and self._table.roles.answers:
            result, error = await self._turn(conversation, probe.probe_id, probe.query)
            fields = {} if error else await self._judged(script, probe, answer)
        else:
            result, error = await self._retrieved(conversation, probe)
        if result is not None:
            fields = {**self._found(probe, result), **fields}
        status = "failed" if error else "scored" if known else "not_ready"
        if status == "scored" and fields.pop("unreadable", False):
            status = "unreadable"
        fields.pop("unreadable", None)
        self._records.append(
            BeatRecord.load(
                {
                    "probe_id": probe.probe_id,
                    "persona_id": self._persona_id,
                    "session_id": probe.session_id,
                    "beat_id": probe.probe_id,
                    "kind": "other",
                    "after": probe.after,
                    "status": status,
                    "context": probe.context,
                    "attribute": probe.attribute or probe.category,
                    "readiness": readiness,
                    "error": error,
                    **fields,
                }
            )
        )

    def _found(self, probe: Probe, result: RetrieveResult) -> dict[str, Any]:
        measured: dict[str, Any] = {
            "tokens": result.trace.token_count,
            "shortfall": result.trace.shortfall_tokens,
        }
        if isinstance(probe.truth, EvidenceTruth) and probe.truth.turns:
            gold = set(probe.truth.turns)
            named = [set(entry.event_ids) for entry in result.context_entries]
            measured["gold"] = len(gold)
            measured["found"] = None if named and not any(named) else len(gold & set().union(*named))
            measured["relevant"] = tuple(bool(gold & ids) for ids in named)
        return measured

    async def _retrieved(
        self, conversation: Conversation, probe: Probe
    ) -> tuple[RetrieveResult | None, str | None]:
        self._table.asking(probe.probe_id)
        try:
            recall = await conversation.recall(probe.query)
        finally:
            self._table.asking(None)
        if recall.result is not None:
            self._note_retrieval(recall.result)
            self._keep(probe.probe_id, Exchange(probe.query, ""), recall.section)
        return recall.result, self._dealings.outcome(recall)

    async def _judged(self, script: Script, probe: Probe, answer: str) -> dict[str, Any]:
        """What the judge says of the last reply, by the reference answer."""
        beat = Beat(
            probe.probe_id,
            "other",
            probe.query,
            constraint=answer,
            truth=PreferenceTruth(current=f"the reply says: {answer}"),
        )
        verdict: Verdict = await self._dealings.judge(script, beat, self._earlier[-1:])
        return {
            "turns": 1,
            "fit_first": verdict.fit,
            "fit_last": verdict.fit,
            "votes": verdict.votes,
            "agreement": verdict.agreement,
            "unreadable": verdict.fit is None,
        }


def _chosen(truth: ChoiceTruth, reply: str) -> dict[str, Any]:
    letters = set(_LETTER.findall(reply))
    if len(letters) != 1 or ord(letter := letters.pop()) - ord("a") >= len(truth.options):
        return {"turns": 1, "unreadable": True}
    right = ord(letter) - ord("a") == truth.right
    shown = "current" if right else "unknown"
    return {"turns": 1, "fit_first": right, "fit_last": right, "first": shown, "last": shown}
