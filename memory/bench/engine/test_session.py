"""A test session: the probe protocol of spec section 4.2, from readiness to the mode that is restored."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from memory.bench.data.timeline import Beat, PreferenceTruth, TestSession
from memory.bench.engine.context import Dealings, Stopped
from memory.bench.engine.conversation import Conversation
from memory.bench.engine.roles import Exchange, Verdict
from memory.bench.scores.records import BeatRecord, BeatStatus, Shown
from memory.contract.events import MemoryEvent, Message
from memory.contract.receipts import ConsistencyModel, RetrieveResult
from memory.contract.requests import AdapterMode

Told = tuple[int, str, str]
"""A turn that was written: number of its session, event id, what the user said in lower case."""


async def play_test(
    dealings: Dealings, persona_id: str, test: TestSession, told: Sequence[Told]
) -> dict[str, Any]:
    """Play a test session while nothing is written.

    Args:
        dealings: with whom and how.
        persona_id: who.
        test: what.
        told: the turns written so far.

    Returns:
        The journal's line.

    Raises:
        Stopped: the memory failed to process what was written, or a test session's artefact was written.
        MemslotError: the mode could not be switched, or the backend failed time and again.
    """
    return await Tested(dealings, persona_id, test, told).play()


def counts_as_known(state: str, consistency: ConsistencyModel, score_unknown: bool) -> bool:
    """Whether answers of a memory in this state count: it is ready, need not be waited for, or never says."""
    if state == "not_offered":
        return consistency == "immediate" or score_unknown
    return state == "ready" or (state == "unknown" and score_unknown)


class Tested:
    """A test session while it is played."""

    def __init__(self, dealings: Dealings, persona_id: str, test: TestSession, told: Sequence[Told]) -> None:
        self._dealings, self._table, self._slot = dealings, dealings.table, dealings.table.slot
        self._settings = dealings.settings
        self._persona_id, self._test, self._told = persona_id, test, told
        self._earlier: list[Exchange] = []
        self._records: list[BeatRecord] = []
        self._texts: list[dict[str, str]] = []
        self._warnings: list[str] = []
        self._skipped = self._recalled = self._dated = self._versioned = 0
        self._shown: dict[str, tuple[Shown | None, str | None]] = {}
        self._conversation = Conversation(dealings, persona_id, test.session_id, test.script)

    async def play(self) -> dict[str, Any]:
        """Ready, closed, played, judged, offered, opened again."""
        readiness, known = await self._wait()
        try:
            if self._settings.read_only:  # a switch that fails leaves the slot read-only all the same
                await self._switch(AdapterMode(read_only=True, reason="test_session"))
            before = self._fingerprint()
            await self.judged(readiness, known)
            if self._settings.read_only:
                await self._offer_artefacts()
            after = self._fingerprint()
        finally:
            if self._settings.read_only:
                await self._switch(AdapterMode(read_only=False, reason="accumulation"))
        store = "not_counted" if before is None else "same" if before == after else "changed"
        if store == "changed":
            self._warnings.append("the store's files differed after a test session")
        return {
            "session": self._test.session_id,
            "readiness": readiness,
            "store": store,
            "skipped": self._skipped,
            "recalled": self._recalled,
            "dated": self._dated,
            "versioned": self._versioned,
            "beats": self._records,
            "warnings": self._table.clean(self._warnings),
            **({"texts": self._texts} if self._table.keep_texts else {}),
        }

    async def judged(self, readiness: str, known: bool) -> tuple[list[BeatRecord], list[dict[str, str]]]:
        """The requests alone: what they are worth, and what was said and shown.

        Args:
            readiness: the memory's state as they begin.
            known: whether they count.
        """
        for beat in self._test.script.beats:
            await self._beat(beat, readiness, known)
        return self._records, self._texts

    async def _switch(self, mode: AdapterMode) -> None:
        with self._table.timed("mode"):
            await self._slot.set_mode(mode)

    def _fingerprint(self) -> object:
        with self._table.timed("fingerprint"):
            return self._table.fingerprint()

    async def _wait(self) -> tuple[str, bool]:
        """State of the memory, and whether its answers count."""
        if (waiting := self._dealings.readiness) is None:
            if self._slot.traits.consistency != "immediate":
                self._warnings.append("writes become retrievable later, and the provider cannot say when")
            return "not_offered", self._counts("not_offered")
        with self._table.timed("wait"):
            answer = await waiting.wait_until_ready(self._dealings.scope, self._settings.wait_timeout_s)
        why = f": {answer.detail}" if answer.detail else ""
        if answer.state == "failed":
            raise Stopped(f"the backend failed to process what was written, so no test session counts{why}")
        if answer.state != "ready":
            self._warnings.append(f"a test session began while readiness was {answer.state}{why}")
        return answer.state, self._counts(answer.state)

    def _counts(self, state: str) -> bool:
        return counts_as_known(state, self._slot.traits.consistency, self._settings.score_unknown)

    async def _beat(self, beat: Beat, readiness: str, known: bool) -> None:
        script, session_id = self._test.script, self._test.session_id
        probe_id = f"{self._persona_id}:{session_id}:{beat.beat_id}"
        exchanges: list[Exchange] = []
        verdicts: list[Verdict] = []
        first: RetrieveResult | None = None
        error: str | None = None
        while (user := await self._dealings.say(script, beat, exchanges)) is not None:
            result, error = await self._turn(self._conversation, probe_id, user)
            if error:
                break
            first = first or result
            exchanges.append(self._earlier[-1])
            if beat.truth is None:
                break
            verdicts.append(await self._dealings.judge(script, beat, exchanges))
            if verdicts[-1].fit or verdicts[-1].fit is None:
                break
        if beat.truth is None:
            return
        answered: BeatStatus = "unreadable" if verdicts and verdicts[0].fit is None else "scored"
        self._records.append(
            BeatRecord(
                probe_id=probe_id,
                persona_id=self._persona_id,
                session_id=session_id,
                beat_id=beat.beat_id,
                kind=beat.kind,
                after=self._test.after,
                status="failed" if error else answered if known else "not_ready",
                context=script.context,
                attribute=beat.attribute,
                change=beat.truth.change,
                since=beat.truth.since,
                has_stale=bool(beat.truth.stale),
                has_other=bool(beat.truth.other),
                turns=len(exchanges),
                readiness=readiness,
                error=error,
                **({} if error or first is None else self._measured(beat.truth, first)),
                **(self._verdict(beat, beat.truth, verdicts[0], verdicts[-1]) if verdicts else {}),
            )
        )

    async def _turn(
        self, conversation: Conversation, probe_id: str, user: str, answers: str = ""
    ) -> tuple[RetrieveResult | None, str | None]:
        """One turn, which is offered to the memory: what was retrieved, or why nothing was."""
        self._table.asking(probe_id)
        try:
            said = await conversation.turn(user, answers=answers)
        finally:
            self._table.asking(None)
        if self._settings.read_only:
            await self._offer("turn", said.event)
        error = self._dealings.outcome(said.recall)
        if error:
            return None, error
        self._earlier.append(Exchange(f"{user}\n{answers}" if answers else user, said.reply).shown())
        if said.recall.result is not None:
            self._note_retrieval(said.recall.result)
        self._keep(probe_id, self._earlier[-1], said.recall.section)
        return said.recall.result, None

    def _keep(self, probe_id: str, said: Exchange, section: str) -> None:
        self._texts.append({"probe_id": probe_id, "user": said.user, "reply": said.reply, "context": section})

    def _note_retrieval(self, result: RetrieveResult) -> None:
        trace = result.trace
        self._warnings += trace.warnings
        self._recalled += 1
        self._dated += trace.newest_retrieved_at is not None
        self._versioned += bool(trace.representation_version or trace.last_derived_at)

    def _measured(self, truth: PreferenceTruth, result: RetrieveResult) -> dict[str, Any]:
        shown, entries = result.formatted_context.casefold(), result.context_entries
        wanted = truth.current.casefold() if truth.current else None
        since = self._told[bisect_left(self._told, (truth.since,)) :]
        gold = {event_id for _, event_id, text in since if wanted is not None and wanted in text}
        named = {event_id for entry in entries for event_id in entry.event_ids}
        return {
            "shows_current": None if wanted is None else wanted in shown,
            "shows_stale": any(marker.casefold() in shown for marker in truth.stale),
            "shows_other": any(marker.casefold() in shown for marker in truth.other),
            "relevant": tuple(wanted is not None and wanted in entry.text.casefold() for entry in entries),
            "gold": len(gold),
            "found": None if entries and not named else len(gold & named),
            "tokens": result.trace.token_count,
            "shortfall": result.trace.shortfall_tokens,
        }

    async def _offer_artefacts(self) -> None:
        """Hand over what else a test session leaves behind, beside its turns."""
        test = self._test
        verdicts = " ".join(f"{one.beat_id}:{one.fit_first}" for one in self._records)
        artefacts = {"simulator": test.script.life_context, "judge": verdicts}
        for number, (kind, text) in enumerate(artefacts.items(), start=self._skipped + 1):
            turn_id = f"{test.session_id}.{number}"
            event = MemoryEvent(
                event_id=f"{self._persona_id}:{turn_id}",
                scope=self._dealings.scope,
                session_id=test.session_id,
                turn_id=turn_id,
                timestamp=test.script.start + timedelta(minutes=number - 1),
                messages=(Message(role="system", content=text or "-"),),
                metadata={"artefact": kind},
            )
            await self._offer(kind, event)

    async def _offer(self, kind: str, event: MemoryEvent) -> None:
        """Hand an event over as any host would; the slot must refuse it."""
        with self._table.timed("refused"):
            receipt = await self._slot.record_event(event)
        if receipt.status != "skipped_read_only":
            raise Stopped(
                f"a {kind} of a test session was written ({receipt.status}); its results do not count"
            )
        self._skipped += 1

    def _verdict(self, beat: Beat, truth: PreferenceTruth, first: Verdict, last: Verdict) -> dict[str, Any]:
        """The fields of a record that the judge's verdicts tell."""
        fields: dict[str, Any] = {
            "first": _relation(truth, first),
            "last": _relation(truth, last),
            "fit_first": first.fit,
            "fit_last": last.fit,
            "votes": first.votes,
            "agreement": first.agreement,
        }
        if beat.attribute is not None and beat.kind != "neutral":
            if beat.attribute in self._shown:
                # Two older settings contradict each other, too.
                fields["coherent"] = (fields["first"], first.shown) == self._shown[beat.attribute]
            self._shown[beat.attribute] = (fields["last"], last.shown)
        return fields


def _relation(truth: PreferenceTruth, verdict: Verdict) -> Shown:
    if verdict.shown is None:
        # A judge that reads says whether it suits, not always what it saw.
        return "current" if verdict.fit and truth.current is not None else "nothing"
    if verdict.shown == truth.current:
        return "current"
    for name, markers in (("stale", truth.stale), ("other", truth.other), ("decoy", truth.decoys)):
        if verdict.shown in markers:
            return name  # type: ignore[return-value]
    return "unknown"
