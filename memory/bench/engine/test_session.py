"""A test session: the probe protocol of spec section 4.2, from readiness to the restored mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from memory.bench.data.timeline import CONTEXTS, Beat, PreferenceTruth, TestSession
from memory.bench.engine.context import (
    ACCUMULATION,
    TEST_COUNTS,
    CellContext,
    Conversation,
    Readiness,
    Request,
    turn_event,
)
from memory.bench.engine.files import Stopped
from memory.bench.engine.roles import Exchange, Verdict
from memory.bench.scores.model import ProbeRecord, ProbeStatus, Shown
from memory.bench.scores.sections import settings_shown
from memory.contract.receipts import ConsistencyModel, Trace
from memory.contract.requests import AdapterMode
from memory.runtime._policy import Recall


def planned_requests(persona_id: str, test: TestSession) -> Iterator[tuple[Beat, ProbeRecord]]:
    """The judged requests of a test session, each with its record before it is played."""
    met: set[str] = set()
    for beat in test.script.beats:
        if (truth := beat.truth) is None:
            continue
        attribute = beat.attribute if beat.kind != "neutral" else None
        record = ProbeRecord(
            probe_id=f"{persona_id}:{test.session_id}:{beat.beat_id}",
            persona_id=persona_id,
            session_id=test.session_id,
            kind=beat.kind,
            after=test.after,
            context=test.script.context,
            attribute=beat.attribute,
            repeated=attribute in met,
            **of_truth(truth),
        )
        yield beat, record
        if attribute is not None:
            met.add(attribute)


def of_truth(truth: PreferenceTruth) -> dict[str, Any]:
    """The record fields that are known before anything is asked."""
    return {
        "wanted": truth.current is not None,
        "change": truth.change,
        "since": truth.since,
        "has_stale": bool(truth.stale),
        "has_other": bool(truth.other),
    }


class TestSessionRun:
    """One run of a test session.

    Args:
        held: probe id -> an earlier recall; the memory is then not asked.
    """

    __test__: ClassVar[bool] = False

    def __init__(
        self, context: CellContext, test: TestSession, held: Mapping[str, Recall] | None = None
    ) -> None:
        self.context, self._test, self._held = context, test, held or {}
        self._persona_id = context.scope.persona_id
        self._read_only = context.read_only and held is None
        self._earlier: list[Exchange] = []
        self.records: list[ProbeRecord] = []
        self.texts: list[dict[str, Any]] = []
        self.again: list[ProbeRecord] = []
        self.texts_again: list[dict[str, Any]] = []
        self.recalled: dict[str, Recall] = {}
        self._warnings: list[str] = []
        self._counts = dict.fromkeys(TEST_COUNTS, 0)
        self._seen: dict[str, tuple[bool | None, str | None]] = {}
        self._readiness, self._ready = "not_offered", False

    async def play(self, readiness: Readiness) -> None:
        """Close the slot for writes, ask, ask again, and reopen the slot.

        Raises:
            Stopped: a turn of the test session was written.
        """
        self._warnings += readiness.warnings
        try:
            if self._read_only:  # a failed switch still leaves the slot read-only
                await self._switch(AdapterMode(read_only=True, reason="test_session"))
            await self.ask_all(readiness.state, self.context.slot.traits.consistency)
            await self._ask_again()
        finally:
            if self._read_only:
                await self._switch(ACCUMULATION)

    def row(self) -> dict[str, Any]:
        """The journal's line. ``again`` holds the records that differ the second time."""
        texts = {"texts": self.texts, "texts_again": self.texts_again}
        return {
            "session": self._test.session_id,
            "readiness": self._readiness,
            **self._counts,
            "records": self.records,
            "again": self.again,
            "warnings": self.context.clean(self._warnings),
            **(texts if self.context.settings.texts_kept else {}),
        }

    async def ask_all(self, readiness: str, consistency: ConsistencyModel) -> None:
        """Ask all requests of a memory in this state of readiness."""
        # A memory that remembers at once and offers no readiness counts as ready.
        self._ready = readiness == "ready" or (readiness == "not_offered" and consistency == "immediate")
        self._readiness = readiness
        await self._ask_all()

    async def _ask_all(self) -> None:
        conversation = Conversation(self.context, self._test.session_id, self._test.script)
        planned = {beat.beat_id: record for beat, record in planned_requests(self._persona_id, self._test)}
        for beat in self._test.script.beats:
            await self._play_beat(conversation, beat, planned.get(beat.beat_id))

    def _requests(self) -> list[Request]:
        session_id, script = self._test.session_id, self._test.script
        return [Request(self._id_of(beat), session_id, beat.goal, script) for beat in script.beats]

    def _id_of(self, beat: Beat) -> str:
        return f"{self._persona_id}:{self._test.session_id}:{beat.beat_id}"

    def _another(self, held: Mapping[str, Recall]) -> Self:
        """The same session with held answers of the memory."""
        return type(self)(self.context, self._test, held)

    async def _ask_again(self) -> None:
        """Ask the same memory each request again, in reverse order, as a control of contamination.

        An answer that differs means that the memory learns from requests, or answers by chance. The session
        is then played again with the new answers.
        """
        held, counts = dict(self.recalled), self._counts
        with self.context.traces.paused():
            for asked in reversed(self._requests()):
                first = self.recalled.get(asked.probe_id)
                if first is None or first.failure is not None:
                    continue
                recall = await self.context.recall(asked, phase="asked again")
                counts["asked_again"] += 1
                if recall.failure is not None:
                    counts["failed_again"] += 1
                elif recall.section != first.section:
                    counts["answered_otherwise"] += 1
                    held[asked.probe_id] = recall
        if counts["answered_otherwise"]:
            await self.repeat(held)

    async def repeat(self, held: Mapping[str, Recall]) -> None:
        """Play the session again with these answers of the memory, and keep the records that differ."""
        second = self._another(held)
        await second.ask_all(self._readiness, self.context.slot.traits.consistency)
        first = {record.probe_id: record for record in self.records}
        self.again = [record for record in second.records if record != first[record.probe_id]]
        self.texts_again = second.texts

    async def _switch(self, mode: AdapterMode) -> None:
        with self.context.times.of("mode"):
            await self.context.slot.set_mode(mode)

    async def _play_beat(self, conversation: Conversation, beat: Beat, planned: ProbeRecord | None) -> None:
        script, probe_id = self._test.script, self._id_of(beat)
        exchanges: list[Exchange] = []
        verdicts: list[Verdict] = []
        held, error = self._held.get(probe_id), None
        while (user := await self.context.say(script, beat, exchanges)) is not None:
            # The memory is asked only the request itself, because a complaint tells what is wanted.
            held, error = await self._turn(conversation, probe_id, user, held=held)
            if error:
                break
            exchanges.append(self._earlier[-1])
            if beat.truth is None:
                break
            verdicts.append(await self.context.judge(script, beat, exchanges))
            if verdicts[-1].fit is not False:
                break
        if beat.truth is None or planned is None:
            return
        fields: dict[str, Any] = {"turns": len(exchanges)}
        if held is not None and held.result is not None and not error:
            fields |= measured(held.result.trace)
            section = held.result.formatted_context
            fields |= self._settings_shown(beat.truth, section, script.context, beat.attribute)
        if verdicts:
            fields |= self._judged(planned, beat.truth, verdicts[0], verdicts[-1])
        self._add_record(planned, error, fields)

    def _add_record(self, planned: ProbeRecord, error: str | None, fields: Mapping[str, Any]) -> None:
        status: ProbeStatus = "failed" if error else "scored" if self._ready else "unready"
        self.records.append(replace(planned, status=status, readiness=self._readiness, error=error, **fields))

    async def _turn(
        self, conversation: Conversation, probe_id: str, user: str, held: Recall | None = None
    ) -> tuple[Recall, str | None]:
        """Play one turn and offer it for writing. Returns the recall, and the name of its failure if any."""
        with self.context.traces.of_probe(probe_id):
            reply, recall = await conversation.turn(user, held=held)
        if self._read_only:
            await self._offer(conversation.turns, Exchange(user, reply))
        error = self.context.outcome(recall)
        self.recalled.setdefault(probe_id, recall)
        if not error:
            self._earlier.append(Exchange(user, reply).shown())
            self._keep(probe_id, self._earlier[-1], recall)
        return recall, error

    def _keep(self, probe_id: str, said: Exchange, recall: Recall) -> None:
        """Keep the texts of an answered request. ``event_ids`` are those that the section's entries name."""
        names = None
        if (result := recall.result) is not None:
            names = sorted({name for entry in result.context_entries for name in entry.event_ids}) or None
            if probe_id not in {text["probe_id"] for text in self.texts}:
                trace, counts = result.trace, self._counts
                self._warnings += trace.warnings
                counts["recalled"] += 1
                counts["asked_tokens"] += self.context.slot.delivery.token_counter.count(said.user)
                counts["context_tokens"] += trace.token_count or 0
                counts["dated"] += trace.newest_retrieved_at is not None
                counts["versioned"] += bool(trace.representation_version or trace.last_derived_at)
        shown = {"context": recall.section, "event_ids": names}
        self.texts.append({"probe_id": probe_id, "user": said.user, "reply": said.reply, **shown})

    def _settings_shown(
        self, truth: PreferenceTruth, section: str, context: str | None, attribute: str | None
    ) -> dict[str, Any]:
        other = next((name for name in CONTEXTS if name != context), None) if context else None
        roles = self.context.roles
        fields: dict[str, Any] = dict(
            settings_shown(
                truth,
                section,
                other_context=other,
                foreign=self.context.foreign,
                wordings=roles.language.wordings,
                settings=roles.settings(attribute) if attribute else (),
            )
        )
        if attribute is not None:
            fields["choices"] = len(roles.settings(attribute)) or None
            taken = roles.taken(section, attribute, context)
            fields["taken"] = _relation(truth, taken or "")
        return fields

    async def _offer(self, number: int, said: Exchange) -> None:
        """Offer a turn for writing, as a host would. Raises Stopped unless the slot refuses it."""
        test, context = self._test, self.context
        event = turn_event(context.scope, test.session_id, test.script, number, None, said)
        with context.times.of("refused"):
            receipt = await context.slot.record_event(event)
        if receipt.status != "skipped_read_only":
            raise Stopped(
                f"a turn of a test session was written ({receipt.status}); its results do not count"
            )
        self._counts["skipped"] += 1

    def _judged(
        self, planned: ProbeRecord, truth: PreferenceTruth, first: Verdict, last: Verdict
    ) -> dict[str, Any]:
        """The record fields that the judge's verdicts decide."""
        fields: dict[str, Any] = {
            "first": _relation(truth, first.shown),
            "last": _relation(truth, last.shown),
            **of_verdicts(first, last),
        }
        if planned.attribute is not None and planned.kind != "neutral":
            if planned.attribute in self._seen:
                # The setting counts too, because two older settings contradict each other. Only first replies
                # count, because a hint changes later ones.
                fields["coherent"] = (first.fit, first.shown) == self._seen[planned.attribute]
            self._seen[planned.attribute] = (first.fit, first.shown)
        return fields


def measured(trace: Trace) -> dict[str, Any]:
    """The record fields that the trace of the first retrieval decides."""
    retrieved, included = trace.retrieved_count or 0, trace.included_count or 0
    return {
        "items": included,
        "retrieved": retrieved,
        "left_out": retrieved - included + (trace.left_out_count or 0),
        "tokens": trace.token_count,
        "shortfall": trace.shortfall_tokens,
    }


def of_verdicts(first: Verdict, last: Verdict) -> dict[str, Any]:
    """The record fields that every judge decides."""
    return {
        "fit_first": first.fit,
        "fit_last": last.fit,
        "votes": first.votes,
        "agreement": first.agreement,
    }


def _relation(truth: PreferenceTruth, shown: str | None) -> Shown | None:
    """How the setting with this marker stands to the truth; None if nobody knows which setting it is."""
    if shown is None:
        return None
    if not shown:
        return "nothing"
    if shown == truth.current:
        return "current"
    relations: dict[Shown, tuple[str, ...]] = {
        "stale": truth.stale,
        "other": truth.other,
        "decoy": truth.decoys,
    }
    return next((name for name, markers in relations.items() if shown in markers), "unknown")
