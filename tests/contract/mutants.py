"""Broken adapters, each with the spec that must catch it: proof that the conformance kit can fail.

Every mutant is a :class:`FakeBackend` with one fault that real adapters have had. ``MUTANTS`` maps its name to
how it is made and to the names of contract tests that fail for it.
"""

import math
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

import anyio
import mutants_reading as reading
import mutants_writing as writing
from mutant_kinds import answers, each_entry, entries, given, swallows, told, wrong
from mutant_runs import FakeProfile

from memory import (
    BackendHealth,
    BackendReadiness,
    FeedbackReceipt,
    NativeQueryResult,
    ProvenanceResult,
    ResetReceipt,
    RetrieveResult,
    WriteReceipt,
)
from memory.testing import ConformanceProfile, FakeBackend


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken adapter.

    Attributes:
        adapter: made like ``FakeBackend(store)``.
        caught_by: names of specs that must fail.
        derivation_s: how its store derives, in seconds.
        healthy: the adapter that passes the same tests, without the fault.
        healthy_derivation_s: how its store derives; None: like the mutant's.
        profile: what its author shows and declares, where that is the mistake.
    """

    adapter: type[FakeBackend]
    caught_by: tuple[str, ...]
    derivation_s: float = 0.0
    healthy: type[FakeBackend] = FakeBackend
    healthy_derivation_s: float | None = None
    profile: type[ConformanceProfile] | None = None

    @property
    def control(self):
        """The healthy adapter, and how its store derives."""
        own = self.healthy_derivation_s
        return self.healthy, self.derivation_s if own is None else own


def committed(feedback):
    return FeedbackReceipt(feedback_id=feedback.feedback_id, status="committed")


def ready(scope):
    return BackendReadiness(state="ready")


def nothing_found(adapter, request):
    return RetrieveResult(request=request, raw={"rows": []}, trace=adapter.trace(request.scope, "search"))


async def blocks(adapter, sound, *arguments):
    """Calls a synchronous SDK where the event loop runs."""
    time.sleep(1.0)  # noqa: ASYNC251 (the mistake itself; most of the call, on a busy machine, too)
    return await sound(*arguments)


class _Notes(FakeBackend):
    """Not a mutant: keeps feedback beside the store, and shows it with every answer."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self._notes: dict[str, list[str]] = {}

    def _key(self, scope):
        return self._space(scope)

    async def apply_feedback(self, feedback):
        self._notes.setdefault(self._key(feedback.scope), []).append(feedback.content)
        return committed(feedback)

    async def retrieve(self, request):
        result = await super().retrieve(request)
        notes = self._notes.get(self._key(request.scope), [])
        return result.model_copy(update={"raw": {**result.raw, "notes": list(notes)}})


class KeepsFeedbackAfterAReset(_Notes):
    """Forgets the rows of a scope, and not what was said of them."""


class SharesFeedback(_Notes):
    """Has one list of feedback for everybody."""

    def _key(self, scope):
        return "all"


class AlwaysHealthy(FakeBackend):
    """Reports ``ok`` without asking the backend."""

    async def health(self):
        return BackendHealth(
            status="ok", backend_name=self.backend_name, consistency_model="immediate", cs_filtering="hard"
        )


async def echoes_user_text(adapter, sound, request):
    """Puts the question into its trace."""
    result = await sound(request)
    trace = result.trace.model_copy(update={"native_operation": f"search({request.query})"})
    return result.model_copy(update={"trace": trace})


async def no_history(adapter, sound, request):
    raise NotImplementedError


class LacksACapability(FakeBackend):
    """Is described with a capability that it does not have."""

    provenance = property()


class LeaksThread(FakeBackend):
    """Starts a thread that nothing ends."""

    _forever: ClassVar[threading.Event] = threading.Event()

    async def setup_scope(self, scope):
        threading.Thread(target=self._forever.wait, daemon=True).start()
        await super().setup_scope(scope)


class StuckAfterCancel(FakeBackend):
    """Takes a lock by hand and does not give it back when it is cancelled."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self._lock = anyio.Lock()

    async def record_event(self, event):
        await self._lock.acquire()
        receipt = await super().record_event(event)
        self._lock.release()
        return receipt


class SameFingerprint(FakeProfile):
    """Says the same whatever is stored."""

    def fingerprint(self, adapter):
        return "all is well"


class RestlessFingerprint(FakeProfile):
    """Counts the times that it was asked."""

    def fingerprint(self, adapter):
        adapter.asked = getattr(adapter, "asked", 0) + 1
        return adapter.asked


_CROSSED = "data_of_one_scope_never_appears_under_another"
_LOOKALIKE = "lookalike_scopes_never_meet"
_IDS = "entries_name_their_native_record_and_their_event"
_ROWS = "every_native_row_becomes_an_entry"
_READY = "readiness_of_a_failing_backend_is_not_ready"
_PRINT = "the_fingerprint_sees_a_write"
_COMMITTED = "a_committed_write_is_retrievable_at_once"
SWALLOWS = {
    "swallows_errors": (swallows("retrieve", nothing_found), "a_failing_backend_never_looks_empty"),
    "swallows_write_errors": (
        swallows(
            "record_event", lambda _, event: WriteReceipt(event_id=event.event_id, status="committed")
        ),
        "a_failing_write_is_an_error_or_unknown",
    ),
    "swallows_provenance_errors": (
        swallows(
            "provenance",
            lambda adapter, asked: ProvenanceResult(
                raw={"history": []}, trace=adapter.trace(asked.scope, "history")
            ),
        ),
        "provenance_of_a_failing_backend_raises",
    ),
    "swallows_query_errors": (
        swallows(
            "native_query",
            lambda adapter, asked: NativeQueryResult(
                raw={"rows": []}, trace=adapter.trace(asked.scope, "list_rows")
            ),
        ),
        "a_native_query_of_a_failing_backend_raises",
    ),
    "swallows_feedback_errors": (
        swallows("apply_feedback", lambda _, feedback: committed(feedback)),
        "feedback_to_a_failing_backend_is_not_taken",
    ),
    "swallows_lookup_errors": (
        swallows("find_event", lambda adapter, event: None), "a_lookup_in_a_failing_backend_raises"
    ),
    "resets_what_is_down": (
        swallows("reset_scope", lambda _, scope: ResetReceipt(scope=scope, verified=True)),
        "a_reset_of_a_failing_backend_is_not_verified",
    ),
}  # fmt: skip
MUTANTS = {
    **{
        name: Mutant(adapter, (spec,))
        for name, (adapter, spec) in {**reading.READING, **writing.WRITING, **SWALLOWS}.items()
    },
    "leaky_filter": Mutant(reading.LeakyFilter, (_CROSSED, "concurrent_scopes_never_cross")),
    "prefix_scope": Mutant(reading.PrefixScope, (_LOOKALIKE,)),
    "careless_separator": Mutant(reading.CarelessSeparator, (_LOOKALIKE,)),
    "folds_case": Mutant(reading.FoldsCase, (_LOOKALIKE,)),
    "writes_while_reading": Mutant(
        wrong("retrieve", reading.writes_while_reading),
        ("reading_leaves_the_native_state_unchanged", "a_test_session_writes_nothing_into_memory"),
    ),
    "marks_as_deleted": Mutant(
        writing.MarksAsDeleted, ("a_reset_outlives_the_adapter",), profile=writing.ReadableFingerprint
    ),
    "resets_nothing": Mutant(
        answers("reset_scope", lambda scope: ResetReceipt(scope=scope, verified=True)),
        ("reset_clears_this_scope_and_no_other",),
    ),
    "resets_what_it_finds": Mutant(
        wrong("reset_scope", writing.resets_what_it_finds),
        ("a_reset_reaches_what_is_still_being_derived",),
        derivation_s=1.0,
    ),
    "leaks_while_pending": Mutant(
        wrong("retrieve", reading.leaks_while_pending), ("underived_writes_leak_nowhere",), derivation_s=1.0
    ),
    "false_ready": Mutant(answers("readiness", ready), ("ready_means_retrievable",), derivation_s=1.0),
    "ready_though_down": Mutant(answers("readiness", ready), (_READY,)),
    "swallows_readiness_errors": Mutant(
        swallows("readiness", lambda adapter, scope: ready(scope)), (_READY,), derivation_s=0.05
    ),
    "false_committed": Mutant(
        told("record_event", lambda receipt: {"status": "committed"}),
        (_COMMITTED,),
        derivation_s=1.0,
        healthy_derivation_s=0.0,  # a backend that derives later says so, and has nothing to show here
    ),
    "ignores_soft_fields": Mutant(
        reading.IgnoresSoftFields, ("soft_cs_fields_have_an_effect",), healthy=reading.Soft
    ),
    "always_healthy": Mutant(AlwaysHealthy, ("health_tells_of_a_failing_backend",)),
    "echoes_user_text": Mutant(wrong("retrieve", echoes_user_text), ("traces_hold_no_user_text",)),
    "loses_provenance": Mutant(
        told("retrieve", lambda result: {"raw": [entry.text for entry in result.entries]}),
        ("raw_keeps_the_native_provenance",),
    ),
    "stub_capability": Mutant(wrong("provenance", no_history), ("provenance_of_a_record",)),
    "tells_every_history": Mutant(
        given("provenance", lambda request: {"native_id": None}), ("provenance_of_a_record",)
    ),
    "ignores_the_range": Mutant(
        given("provenance", lambda request: {"since": None, "until": None}),
        ("provenance_keeps_to_its_range",),
    ),
    "lacks_a_capability": Mutant(LacksACapability, ("the_plugins_description_is_true",)),
    "leaks_thread": Mutant(LeaksThread, ("closing_leaves_nothing_behind",)),
    "stuck_after_cancel": Mutant(StuckAfterCancel, ("cancellation_leaves_the_slot_usable",)),
    "no_native_ids": Mutant(each_entry(lambda entry: {"native_id": None}), (_IDS,)),
    "no_event_ids": Mutant(each_entry(lambda entry: {"event_ids": ()}), (_IDS,)),
    "scores_nothing": Mutant(each_entry(lambda entry: {"score": math.nan}), (_IDS,)),
    "scores_by_itself": Mutant(
        each_entry(lambda entry: {"score": 0.987654}), ("raw_keeps_the_native_provenance",)
    ),
    "cuts_entries": Mutant(
        each_entry(lambda entry: {"text": entry.text[:300]}),
        ("entries_are_given_whole_and_in_the_backends_order",),
    ),
    "drops_rows": Mutant(entries(lambda found: found[: max(1, len(found) - 1)]), (_ROWS,)),
    "reorders_rows": Mutant(entries(lambda found: found[::-1]), (_ROWS,)),
    "drops_feedback": Mutant(answers("apply_feedback", committed), ("feedback_is_stored",)),
    "dates_feedback_by_the_clock": Mutant(
        given("apply_feedback", lambda feedback: {"timestamp": datetime.now(UTC)}), ("feedback_is_stored",)
    ),
    "keeps_feedback_after_a_reset": Mutant(KeepsFeedbackAfterAReset, ("feedback_goes_with_its_scope",)),
    "shares_feedback": Mutant(SharesFeedback, ("feedback_stays_in_its_scope",)),
    # Both adapters are sound; what their authors take for a fingerprint is not.
    "same_fingerprint": Mutant(FakeBackend, (_PRINT,), profile=SameFingerprint),
    "restless_fingerprint": Mutant(FakeBackend, (_PRINT,), profile=RestlessFingerprint),
    **{
        f"blocks_the_loop_by_{call}": Mutant(wrong(call, blocks), ("the_event_loop_is_never_blocked",))
        for call in ("retrieve", "setup_scope", "reset_scope")
    },
}
"""Mutant name -> the broken adapter and the tests that must fail for it."""
