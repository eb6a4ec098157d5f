"""What to do where a promise is broken, for specs whose remedy is more than one line beside them.

Each is an alternative. A declaration stands here only where it is honest for some memory.
"""

from __future__ import annotations

from collections.abc import Mapping

_PENDING = "answer pending or queued, declare consistency='async_derived' and offer readiness"
_CONTROL = (
    "a control whose context does not come from writes: AdapterTraits(kind='control', recalls_writes=False)"
)
_ENCODER = "encode scopes with ScopeEncoder, which keeps any two apart"
_WORKER = "run a synchronous SDK on a NativeWorker"
_PROBE = "make one cheap native call in health, and let its error pass: the slot answers unavailable"
_HEALTH = "answer health with self.health_of(), which takes name, consistency and filtering from the adapter"
_TRACE = "give every answer trace=self.trace(scope, 'name of the native call'); the slot fills in the rest"
_SHIELD = "wrap an asynchronous write that must not be cut in half in ShieldedCalls"

REMEDIES: Mapping[str, tuple[str, ...]] = {
    "what_was_written_is_recalled_once_ready": (
        "search by the words or the meaning of the question, not by its whole text",
        f"where it is derived later: {_PENDING}",
        _CONTROL,
    ),
    "a_committed_write_is_retrievable_at_once": (
        "answer committed only when the write can be found",
        _PENDING,
    ),
    "entries_name_their_native_record_and_their_event": (
        "give ContextEntry native_id and event_ids from the row",
        "where rows cannot carry them: without_ids = {'native_id': 'why'} (or event_ids)",
    ),
    "a_receipt_names_records_that_there_are": (
        "put the ids of the stored records into the receipt",
        "leave native_ids empty where the backend does not tell",
        "where they are ids of something else: without_ids = {'native_ids': 'what they are'}",
    ),
    "event_fields_stay_traceable": (
        "store the fields as metadata of the record",
        "where the backend has no place for one: event_fields without it",
    ),
    "every_native_row_becomes_an_entry": (
        "make one entry of each row, in the order in which they came",
        "where rows lie elsewhere in the payload: override native_rows(raw)",
    ),
    "cs_fields_act_as_declared": (
        "send scenario, context and attribute with the native query",
        "declare what they do: cs_filtering='soft', or 'none'",
    ),
    "soft_cs_fields_have_an_effect": (
        "let the fields take part in the ranking",
        "declare cs_filtering='none'",
    ),
    "filters_narrow_or_are_refused": (
        "translate every operator in filter_operators",
        "declare fewer: the slot refuses the others",
    ),
    "ranges_compare_numbers": ("compare as numbers", "leave gt, gte, lt and lte out of filter_operators"),
    "data_of_one_scope_never_appears_under_another": (
        "send the scope's native id with every native call",
        "give every entry its scope_ids: the slot then refuses a foreign row, and says whose it is",
    ),
    "lookalike_scopes_never_meet": (_ENCODER,),
    "native_ids_are_stable_strings": (_ENCODER,),
    "reset_clears_this_scope_and_no_other": (
        "delete by the scope's native id, then look whether anything is left",
        "answer verified=False where the backend cannot tell",
    ),
    "a_reset_reaches_what_is_still_being_derived": (
        "wait for the queue of the scope, or empty it, before the reset ends",
        "give the scope a new generation of native ids, and never read the old one",
    ),
    "reading_leaves_the_native_state_unchanged": (
        "switch off what the backend learns from queries",
        "leave counters of access out of the fingerprint where they are no memory",
    ),
    "setting_up_a_scope_writes_nothing_while_read_only": (
        "make the space with the first write",
        "declare AdapterTraits(setup_writes=True): the slot then refuses it while read-only",
    ),
    "max_items_reaches_the_native_call": (
        "pass request.budget.max_items as the native limit",
        "where there is no such parameter: limits_natively = False",
    ),
    "the_event_loop_is_never_blocked": (
        _WORKER,
        "where it cannot be helped: blocks_loop_ms, with the reason beside it",
    ),
    "declared_concurrency_holds_for_every_kind_of_call": (
        "let every call of the client pass the same limit",
        "declare the max_concurrency that the client stands",
    ),
    "cancellation_leaves_the_slot_usable": ("release locks in finally, or by with", _SHIELD, _WORKER),
    "an_abandoned_write_does_not_land_after_the_flip": (_WORKER, _SHIELD),
    "what_is_stored_outlives_the_adapter": (
        "write to disk before the receipt says committed",
        "say so in every receipt: warnings=('volatile: kept until this process ends',)",
    ),
    "closing_leaves_nothing_behind": (
        "release in close_native (on the worker) and aclose_native what was opened",
        "end threads that the SDK starts, or keep one client for the process",
    ),
    "ready_means_retrievable": (
        "prove readiness by what can be found, not by an empty queue",
        "answer unknown where the backend cannot tell",
    ),
    "the_plugins_description_is_true": (
        "describe the capabilities that some configuration offers",
        "implement what is described",
    ),
    "what_is_said_reaches_no_log_and_no_output": (
        "log ids and counts, never texts",
        "silence an SDK's logger with quiet_loggers",
    ),
    "time_grows_no_faster_than_the_text": (
        "look at each character once: mind regular expressions with nested repeats",
        "refuse what is too long with one error",
    ),
    "native_query_shows_this_scope": (
        "list the rows of the scope",
        "name another operation: native_query = ('operation', {})",
        "leave native_query out",
    ),
    "a_native_record_can_be_changed": (
        "make the change visible to the next retrieval",
        "name the operations that there are: native_mutations",
        "leave native_mutation out",
    ),
    "bulk_ingest_gives_one_receipt_per_event_in_order": (
        "answer one receipt for each event, in order",
        "leave record_events out: the slot then writes one by one",
    ),
    "provenance_of_a_record": ("answer the record's history with its id", "leave provenance out"),
    "any_script_and_length_survives": (
        "store and answer the whole text, as UTF-8; split what the backend limits, and join it again",
        "find Chinese and Japanese by their signs: a tokenizer that splits at blanks takes a sentence for one word",
    ),
    "time_is_the_events_and_not_the_clocks": (
        "store event.timestamp beside the row, and give it back as ContextEntry(timestamp=...)",
    ),
    "messages_of_every_role_are_accepted": (
        "give roles that the backend does not know another name, and keep the message",
    ),
    "a_failing_backend_never_looks_empty": (
        "let the native error pass: the slot turns it into memslot's, with yours as the cause",
        "where the SDK hides its errors and answers empty, use a call of it that does not",
    ),
    "a_failing_write_is_an_error_or_unknown": (
        "let the native error pass: the slot says unknown where the write may have arrived",
        "where the SDK hides its errors, look the write up before the receipt says that it is stored",
    ),
    "health_tells_of_a_failing_backend": (_PROBE, _HEALTH),
    "traits_and_health_agree": (_HEALTH,),
    "deadlines_hold": (
        f"{_WORKER}: a call that blocks the event loop cannot be given up",
        "let an asynchronous SDK be cancelled: catch Exception, never BaseException",
    ),
    "a_turn_of_two_messages_is_recorded_with_a_receipt": (
        "answer a WriteReceipt with the event's id and the status that the backend gave",
    ),
    "a_new_scope_is_empty_and_that_is_no_error": (
        "answer without entries where the backend does not know the scope yet; make the space in setup_scope",
    ),
    "raw_keeps_the_native_provenance": (
        "hand on in raw, as JSON, all that the backend answered: entries are made of it",
    ),
    "a_cross_context_probe_is_not_filtered": (
        "filter by request.where alone, which the slot makes: it leaves context out of such a probe",
    ),
    "what_is_not_derived_yet_leaks_nowhere": ("send the scope's native id with every native call",),
    "concurrent_scopes_never_cross": (
        "keep nothing of a call on the adapter: others run between its awaits",
    ),
    "a_mutation_cannot_reach_another_scope": (
        "look the record up by scope and id together, and raise BackendRejected where there is none",
        "leave native_mutation out",
    ),
    "set_mode_drains_writes_before_it_flips": (
        "return from record_event when nothing of the write is still under way in a task or thread of its own",
        "switch off what the backend learns from queries: after the switch the kit asks, and compares",
    ),
    "recalled_context_is_not_written_again": (
        "store the messages of the event: the slot has taken out of them what was recalled",
    ),
    "is_an_adapter": ("derive from BaseAdapter, and keep the methods' signatures",),
    "closing_twice_is_no_error": ("let close_native and aclose_native return where nothing is open",),
    "waiting_for_readiness_ends_in_time": (
        "leave wait_until_ready to BaseAdapter, which asks readiness until its time is up",
    ),
    "feedback_is_taken_with_a_receipt": (
        "answer a FeedbackReceipt with the feedback's id",
        "do not declare feedback: leave apply_feedback out",
    ),
    "every_call_is_traced": (_TRACE,),
    "the_trace_of_a_write_names_its_event": (_TRACE,),
    "the_trace_of_a_retrieval_counts": (_TRACE,),
    "traces_hold_no_user_text": ("trace ids, counts and the name of the native call, never texts",),
    "a_test_session_writes_nothing_into_memory": (
        "switch off what the backend learns from queries, such as counts of recalls that change its ranking",
    ),
    "a_reset_outlives_the_adapter": (
        "delete in the backend, not in the adapter's own memory of it",
        "close connections to files that a reset removes: an open one still shows the old rows",
    ),
    "writes_of_a_scope_keep_their_order": (
        "await each native write before the next of its scope",
        "give rows an order of their own where timestamps may be equal",
    ),
    "entries_are_given_whole_and_in_the_backends_order": (
        "make one ContextEntry of each row, uncut: the slot fits them to the budget",
    ),
}
