"""Broken adapters, each with the spec that must catch it: proof that the conformance kit can fail.

Every mutant is a :class:`FakeBackend` with one fault that real adapters have had. ``MUTANTS`` maps its name to
how it is made and to the names of contract tests that fail for it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

import anyio
import mutants_details as details
import mutants_unseen as unseen
import mutants_vendors as vendors

from memory import (
    AdapterMode,
    BackendHealth,
    BackendReadiness,
    MemoryEvent,
    MemoryScope,
    ModeReceipt,
    NativeMutationReceipt,
    NativeMutationRequest,
    ProvenanceRequest,
    ProvenanceResult,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import ContextEntry, clean_text
from memory.contract.formatting import wrap_section
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
    def control(self) -> tuple[type[FakeBackend], float]:
        """The healthy adapter, and how its store derives."""
        own = self.healthy_derivation_s
        return self.healthy, self.derivation_s if own is None else own


class _Unlabelled(FakeBackend):
    """Not a mutant: its rows do not say whose they are, so that the slot cannot see what is wrong with them."""

    async def _found(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        entries = tuple(replace(entry, scope_ids=None) for entry in result.entries)
        return result.model_copy(update={"entries": entries})

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        return await self._found(request)

    async def _found_in(self, spaces: Sequence[str], request: RetrieveRequest) -> RetrieveResult:
        """What a search of several spaces finds."""
        result = await self._found(request)
        rows: list[dict[str, Any]] = []
        for space in spaces:
            rows.extend(await self.store.search(space, request.query))
        entries = tuple(ContextEntry(text=row["text"], native_id=row["id"]) for row in rows)
        return result.model_copy(update={"raw": {"rows": rows}, "entries": entries})


class LeakyFilter(_Unlabelled):
    """Forgets the scope's filter on its read path."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        return await self._found_in(sorted(self.store.spaces), request)


class PrefixScope(_Unlabelled):
    """Matches scopes by prefix, so that ``acme`` reads ``acme-corp``."""

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        return {"space": f"{scope.run_id}/{scope.persona_id}"}

    def _space(self, scope: MemoryScope) -> str:
        return self.native_scope(scope)["space"]

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        own = self._space(request.scope)
        return await self._found_in(
            [space for space in sorted(self.store.spaces) if space.startswith(own)], request
        )


class CarelessSeparator(_Unlabelled):
    """Joins ids without escaping them, so that ``a_b, c`` and ``a, b_c`` are one."""

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        fields = (scope.run_id, scope.persona_id, scope.agent_id or "", scope.backend_namespace or "")
        return {"space": "_".join(fields)}

    def _space(self, scope: MemoryScope) -> str:
        return self.native_scope(scope)["space"]


class FoldsCase(CarelessSeparator):
    """Puts ids into lower case, so that ``User_A`` and ``user_a`` are one."""

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        return {"space": repr(scope).lower()}


class IgnoresCsFields(FakeBackend):
    """Declares a hard filter and does not send it."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        fields = {"scenario": None, "context": None, "attribute": None}
        return await super().retrieve(request.model_copy(update=fields))


class ClaimsAHarmlessSetup(FakeBackend):
    """Says that setting a scope up writes nothing, and makes a space."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.traits = replace(self.traits, setup_writes=False)


class WritesWhileReading(FakeBackend):
    """Remembers the question, as systems that learn from queries do."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        record = {
            "text": request.query,
            "kind": "message",
            "created_at": "2024-03-01T00:00:00+00:00",
            "labels": {},
        }
        await self.store.insert(self._space(request.scope), [record])
        return result


class WritesLater(FakeBackend):
    """Queues its writes and sends them with the next read, whatever the mode is by then."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._queued: list[MemoryEvent] = []

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        self._queued.append(event)
        return WriteReceipt(event_id=event.event_id, status="queued")

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        return ModeReceipt(read_only=mode.read_only)

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        while self._queued:
            await super().record_event(self._queued.pop(0))
        return result


class SwallowsErrors(FakeBackend):
    """Takes a failed search for an empty one."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        try:
            return await super().retrieve(request)
        except Exception:
            return RetrieveResult(
                request=request, raw={"rows": []}, trace=self.trace(request.scope, "search")
            )


class SwallowsWriteErrors(FakeBackend):
    """Says that a failed write is committed."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        try:
            return await super().record_event(event)
        except Exception:
            return WriteReceipt(event_id=event.event_id, status="committed")


class AlwaysHealthy(FakeBackend):
    """Reports ``ok`` without asking the backend."""

    async def health(self) -> BackendHealth:
        return BackendHealth(
            status="ok", backend_name=self.backend_name, consistency_model="immediate", cs_filtering="hard"
        )


class EchoesUserText(FakeBackend):
    """Puts the native error's text, which repeats the user's, into its own."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        trace = result.trace.model_copy(update={"native_operation": f"search({request.query})"})
        return result.model_copy(update={"trace": trace})


class ResetsEverything(FakeBackend):
    """Clears the whole store where one scope was meant."""

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        receipt = await super().reset_scope(scope)
        self.store.rows.clear()
        return receipt


class ResetsNothing(FakeBackend):
    """Says that it has looked, and has not."""

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        return ResetReceipt(scope=scope, verified=True)


class IgnoresBudget(FakeBackend):
    """Fetches everything and leaves the trimming to the formatter."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        unlimited = request.budget.model_copy(update={"max_items": None})
        result = await super().retrieve(request.model_copy(update={"budget": unlimited}))
        return result.model_copy(update={"request": request})


class FalseReady(FakeBackend):
    """Takes an empty queue for readiness."""

    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        return BackendReadiness(state="ready")


class FalseCommitted(FakeBackend):
    """Says ``committed`` of what cannot be retrieved yet."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        receipt = await super().record_event(event)
        return receipt.model_copy(update={"status": "committed"})


class ForgedFence(FakeBackend):
    """Pastes stored text into the prompt as it is."""

    def format_context(self, result: RetrieveResult) -> str:
        if not result.included:
            return ""
        lines = "\n".join(f"- {entry.text}" for entry in result.context_entries)
        scope = result.request.scope.label
        return f'<memory-context backend="{self.backend_name}" scope="{scope}">\n{lines}\n</memory-context>'


class ImitatedEntry(FakeBackend):
    """Escapes the fence and forgets that a line break can imitate an entry."""

    def format_context(self, result: RetrieveResult) -> str:
        lines = [f"- {clean_text(entry.text)}" for entry in result.context_entries]
        return wrap_section(self.backend_name, result.request.scope.label, lines)


class LosesProvenance(FakeBackend):
    """Keeps the texts and drops ids, scores and times from the native payload."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        result = await super().retrieve(request)
        return result.model_copy(update={"raw": [entry.text for entry in result.entries]})


class DropsEventFields(FakeBackend):
    """Writes the messages without session, turn and agent."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        fields = {"session_id": "-", "turn_id": "-", "agent_id": "-"}
        return await super().record_event(event.model_copy(update=fields))


class WallClock(FakeBackend):
    """Dates events by its own clock."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        return await super().record_event(event.model_copy(update={"timestamp": datetime.now(UTC)}))


class StubCapability(FakeBackend):
    """Declares a capability that it does not have."""

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        raise NotImplementedError


class MutatesAnyScope(FakeBackend):
    """Changes a record by its id alone."""

    async def native_mutation(self, request: NativeMutationRequest) -> NativeMutationReceipt:
        row = self.store.rows[request.native_id or ""]
        await self.store.delete(row.space, row.id)
        return NativeMutationReceipt(status="committed", native_ids=(row.id,))


class ShufflesReceipts(FakeBackend):
    """Answers a bulk write in an order of its own."""

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        return (await super().record_events(events))[::-1]


class LeaksThread(FakeBackend):
    """Starts a thread that nothing ends."""

    _forever: ClassVar[threading.Event] = threading.Event()

    async def setup_scope(self, scope: MemoryScope) -> None:
        threading.Thread(target=self._forever.wait, daemon=True).start()
        await super().setup_scope(scope)


class StuckAfterCancel(FakeBackend):
    """Takes a lock by hand and does not give it back when it is cancelled."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._lock = anyio.Lock()

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        await self._lock.acquire()
        receipt = await super().record_event(event)
        self._lock.release()
        return receipt


_CROSSED = "data_of_one_scope_never_appears_under_another"
_LOOKALIKE = "lookalike_scopes_never_meet"
_IDS = "entries_name_their_native_record_and_their_event"
_ROWS = "every_native_row_becomes_an_entry"
_RESET = "reset_clears_this_scope_and_no_other"

_LIMITED = (
    "setup_scope", "record_event", "record_events", "retrieve", "health", "readiness", "provenance", "native_query",
    "native_mutation", "apply_feedback",
)  # fmt: skip
MUTANTS: Mapping[str, Mutant] = {
    **{
        name: Mutant(adapter, (spec,), **settings)
        for name, (adapter, spec, settings) in {**details.ESCAPED, **vendors.VENDORS}.items()
    },
    "leaky_filter": Mutant(LeakyFilter, (_CROSSED, "concurrent_scopes_never_cross")),
    "prefix_scope": Mutant(PrefixScope, (_LOOKALIKE,)),
    "careless_separator": Mutant(CarelessSeparator, (_LOOKALIKE,)),
    "folds_case": Mutant(FoldsCase, (_LOOKALIKE,)),
    "ignores_cs_fields": Mutant(IgnoresCsFields, ("cs_fields_act_as_declared",)),
    "claims_a_harmless_setup": Mutant(
        ClaimsAHarmlessSetup, ("setting_up_a_scope_writes_nothing_while_read_only",)
    ),
    "writes_while_reading": Mutant(
        WritesWhileReading,
        ("reading_leaves_the_native_state_unchanged", "a_test_session_writes_nothing_into_memory"),
    ),
    "writes_later": Mutant(WritesLater, ("set_mode_drains_writes_before_it_flips",)),
    "swallows_errors": Mutant(SwallowsErrors, ("a_failing_backend_never_looks_empty",)),
    "swallows_write_errors": Mutant(SwallowsWriteErrors, ("a_failing_write_is_an_error_or_unknown",)),
    "always_healthy": Mutant(AlwaysHealthy, ("health_tells_of_a_failing_backend",)),
    "echoes_user_text": Mutant(EchoesUserText, ("traces_hold_no_user_text",)),
    "resets_everything": Mutant(ResetsEverything, (_RESET,)),
    "resets_nothing": Mutant(ResetsNothing, (_RESET,)),
    "ignores_budget": Mutant(IgnoresBudget, ("max_items_reaches_the_native_call",)),
    "false_ready": Mutant(FalseReady, ("ready_means_retrievable",), derivation_s=1.0),
    "false_committed": Mutant(
        FalseCommitted,
        ("a_committed_write_is_retrievable_at_once",),
        derivation_s=1.0,
        healthy_derivation_s=0.0,  # who derives later says so, and has nothing to show here
    ),
    "forged_fence": Mutant(ForgedFence, ("stored_text_cannot_close_or_forge_the_section",)),
    "imitated_entry": Mutant(ImitatedEntry, ("stored_text_cannot_close_or_forge_the_section",)),
    "loses_provenance": Mutant(LosesProvenance, ("raw_keeps_the_native_provenance",)),
    "drops_event_fields": Mutant(DropsEventFields, ("event_fields_stay_traceable",)),
    "wall_clock": Mutant(WallClock, ("time_is_the_events_and_not_the_clocks",)),
    "stub_capability": Mutant(StubCapability, ("provenance_of_a_record",)),
    "mutates_any_scope": Mutant(MutatesAnyScope, ("a_mutation_cannot_reach_another_scope",)),
    "shuffles_receipts": Mutant(ShufflesReceipts, ("bulk_ingest_gives_one_receipt_per_event_in_order",)),
    "leaks_thread": Mutant(LeaksThread, ("closing_leaves_nothing_behind",)),
    "stuck_after_cancel": Mutant(StuckAfterCancel, ("cancellation_leaves_the_slot_usable",)),
    "no_native_ids": Mutant(unseen.NoNativeIds, (_IDS,)),
    "no_event_ids": Mutant(unseen.NoEventIds, (_IDS,)),
    "scores_nothing": Mutant(unseen.ScoresNothing, (_IDS,)),
    "drops_rows": Mutant(unseen.DropsRows, (_ROWS,)),
    "reorders_rows": Mutant(unseen.ReordersRows, (_ROWS,)),
    "cuts_entries": Mutant(unseen.CutsEntries, ("entries_are_given_whole_and_in_the_backends_order",)),
    **{
        f"blocks_the_loop_by_{call}": Mutant(
            unseen.blocks_the_loop(call), ("the_event_loop_is_never_blocked",)
        )
        for call in ("retrieve", "setup_scope", "reset_scope", "aclose")
    },
    "forgets": Mutant(unseen.Forgets, ("stored_events_outlive_the_adapter",)),
    "truncates": Mutant(unseen.Truncates, ("any_script_and_length_survives",)),
    "names_other_records": Mutant(unseen.NamesOtherRecords, ("a_receipt_names_records_that_there_are",)),
    "pending_for_nothing": Mutant(unseen.PendingForNothing, ("a_committed_write_is_retrievable_at_once",)),
    "counts_what_it_did_not_remove": Mutant(unseen.CountsWhatItDidNotRemove, (_RESET,)),
    "logs": Mutant(unseen.Logs, ("user_text_reaches_no_log_and_no_output",)),
    "prints": Mutant(unseen.Prints, ("user_text_reaches_no_log_and_no_output",)),
    "quadratic": Mutant(unseen.Quadratic, ("time_grows_no_faster_than_the_text",)),
    "lacks_a_capability": Mutant(unseen.LacksACapability, ("the_plugins_description_is_true",)),
    "ignores_soft_fields": Mutant(
        unseen.IgnoresSoftFields, ("soft_cs_fields_have_an_effect",), healthy=unseen.Soft
    ),
    "ignores_ranges": Mutant(unseen.IgnoresRanges, ("ranges_compare_numbers",)),
    "wrong_bounds": Mutant(unseen.WrongBounds, ("ranges_compare_numbers",)),
    "unlimited_in_its_session": Mutant(unseen.UnlimitedInItsSession, ("max_items_reaches_the_native_call",)),
    "hides_what_it_reset": Mutant(unseen.HidesWhatItReset, ("a_reset_outlives_the_adapter",)),
    "resets_what_it_finds": Mutant(
        unseen.ResetsWhatItFinds, ("a_reset_reaches_what_is_still_being_derived",), derivation_s=1.0
    ),
    "leaks_while_pending": Mutant(
        unseen.LeaksWhilePending, ("underived_writes_leak_nowhere",), derivation_s=1.0
    ),
    "sends_the_last_first": Mutant(
        unseen.SendsTheLastFirst, ("writes_keep_their_order_across_a_mode_switch",)
    ),
    **{
        f"breaks_its_limit_by_{call}": Mutant(
            unseen.breaks_its_limit(call),
            ("declared_concurrency_holds_for_every_kind_of_call",),
            healthy=unseen.Narrow,
        )
        for call in _LIMITED
    },
}
"""Mutant name -> the broken adapter and the tests that must fail for it."""
