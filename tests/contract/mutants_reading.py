"""Broken adapters: what they find, whose it is, and how they show it."""

from dataclasses import replace
from datetime import datetime

from mutant_kinds import given, wrong

from memory import RetrieveResult
from memory.adapter import BackendRejected, ContextEntry, clean_text
from memory.contract.formatting import wrap_section
from memory.testing import FakeBackend

NO_FIELDS = dict.fromkeys(("scenario", "context", "attribute"))


def unlimited(request):
    return {"budget": request.budget.model_copy(update={"max_items": None})}


class _Unlabelled(FakeBackend):
    """Not a mutant: its rows do not say whose they are, so that the slot cannot see what is wrong with them."""

    async def _found(self, request):
        result = await super().retrieve(request)
        entries = tuple(replace(entry, scope_ids=None) for entry in result.entries)
        return result.model_copy(update={"entries": entries})

    async def retrieve(self, request):
        return await self._found(request)

    async def _found_in(self, spaces, request):
        """What a search of several spaces finds."""
        result = await self._found(request)
        rows = [row for space in spaces for row in await self.store.search(space, request.query)]
        entries = tuple(ContextEntry(text=row["text"], native_id=row["id"]) for row in rows)
        return result.model_copy(update={"raw": {"rows": rows}, "entries": entries})


class LeakyFilter(_Unlabelled):
    """Forgets the scope's filter on its read path."""

    async def retrieve(self, request):
        return await self._found_in(sorted(self.store.spaces), request)


class _OwnSpace(_Unlabelled):
    """Not a mutant: a place to name spaces."""

    def _space(self, scope):
        return self.native_scope(scope)["space"]


class PrefixScope(_OwnSpace):
    """Matches scopes by prefix, so that ``acme`` reads ``acme-corp``."""

    def native_scope(self, scope):
        return {"space": f"{scope.run_id}/{scope.persona_id}"}

    async def retrieve(self, request):
        own = self._space(request.scope)
        return await self._found_in(
            [name for name in sorted(self.store.spaces) if name.startswith(own)], request
        )


class CarelessSeparator(_OwnSpace):
    """Joins ids without escaping them, so that ``a_b, c`` and ``a, b_c`` are one."""

    def native_scope(self, scope):
        fields = (scope.run_id, scope.persona_id, scope.agent_id or "", scope.backend_namespace or "")
        return {"space": "_".join(fields)}


class FoldsCase(_OwnSpace):
    """Puts ids into lower case, so that ``User_A`` and ``user_a`` are one."""

    def native_scope(self, scope):
        return {"space": repr(scope).lower()}


class Soft(FakeBackend):
    """Not a mutant: CS fields join the question, as on backends that cannot filter."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.traits = replace(self.traits, cs_filtering="soft")

    def asked(self, request):
        return " ".join((request.query, *request.cs_filters.values()))

    async def retrieve(self, request):
        plain = {**NO_FIELDS, "query": self.asked(request)}
        result = await super().retrieve(request.model_copy(update=plain))
        return result.model_copy(update={"request": request})


class IgnoresSoftFields(Soft):
    """Declares an influence and sends the question alone."""

    def asked(self, request):
        return request.query


def with_operators(changed):
    """Sends another operator for each that is named, and none for those of ``None``."""

    def change(request):
        filters = {}
        for key, condition in request.filters.items():
            clauses = condition if isinstance(condition, dict) else {"eq": condition}
            sent = {changed.get(name, name): value for name, value in clauses.items()}
            sent.pop(None, None)
            filters |= {key: sent} if sent else {}
        return {"filters": filters}

    return given("retrieve", change)


def with_patterns(request):
    """Compares CS fields as SQL's LIKE does."""
    patterns = {name: {"icontains": value} for name, value in request.cs_filters.items()}
    return {**NO_FIELDS, "filters": {**request.filters, **patterns}}


def with_the_last_operator(request):
    return {"filters": {key: dict(list(each.items())[-1:]) for key, each in request.where.items()}}


class FiltersAfterTheLimit(FakeBackend):
    """Asks for the best rows, and then looks which of them match."""

    async def retrieve(self, request):
        plain = await super().retrieve(request.model_copy(update={**NO_FIELDS, "filters": {}}))
        matching = await super().retrieve(request.model_copy(update=unlimited(request)))
        ids = {entry.native_id for entry in matching.entries}
        rows = [row for row in plain.raw["rows"] if row["id"] in ids]
        entries = tuple(entry for entry in plain.entries if entry.native_id in ids)
        return plain.model_copy(update={"request": request, "raw": {"rows": rows}, "entries": entries})


async def falls_back_to_all(adapter, sound, request):
    """Searches without its filters where they leave nothing."""
    result = await sound(request)
    if result.entries or not (request.cs_filters or request.filters):
        return result
    result = await sound(request.model_copy(update={**NO_FIELDS, "filters": {}}))
    return result.model_copy(update={"request": request})


async def writes_while_reading(adapter, sound, request):
    """Remembers the question, as systems that learn from queries do."""
    result = await sound(request)
    record = {
        "text": request.query,
        "kind": "message",
        "created_at": "2024-03-01T00:00:00+00:00",
        "labels": {},
    }
    await adapter.store.insert(adapter._space(request.scope), [record])
    return result


async def has_a_query_language(adapter, sound, request):
    """Hands the question to a parser."""
    if request.query.count('"') % 2:
        raise BackendRejected("unterminated string", sent=False)
    return await sound(request)


async def prints(adapter, sound, request):
    print(request.query)  # noqa: T201 (the mistake itself)
    return await sound(request)


async def dates_all_by_the_last(adapter, sound, request):
    """Keeps one date, of what it wrote last."""
    result = await sound(request)
    last = max((datetime.fromisoformat(row.created_at) for row in adapter.store.rows.values()), default=None)
    entries = tuple(replace(entry, timestamp=last) for entry in result.entries)
    return result.model_copy(update={"entries": entries})


async def names_the_asking_session(adapter, sound, request):
    result = await sound(request)
    entries = tuple(replace(entry, session_id=request.session_id) for entry in result.entries)
    return result.model_copy(update={"entries": entries})


async def claims_every_event(adapter, sound, request):
    """Names every event of the scope as the evidence of each entry."""
    result = await sound(request)
    labels = [row.labels for row in adapter.store._in(adapter._space(request.scope))]
    ids = tuple(dict.fromkeys(each["event_id"] for each in labels if "event_id" in each))
    entries = tuple(replace(entry, event_ids=ids) for entry in result.entries)
    return result.model_copy(update={"entries": entries})


async def leaks_while_pending(adapter, sound, request):
    """Shows the queue of what is still to be derived, whose ever it is."""
    result = await sound(request)
    waiting = [row.text for row in adapter.store.rows.values() if not adapter.store._findable(row)]
    return result.model_copy(update={"raw": {**result.raw, "waiting": waiting}})


async def lists_by_text(adapter, sound, request):
    """Lists in the order of the alphabet, and is declared to list by arrival."""
    result = await sound(request)
    rows = sorted(result.raw.get("rows", ()), key=lambda row: row["text"])
    return result.model_copy(update={"raw": {**result.raw, "rows": rows}})


class CachesAnswers(FakeBackend):
    """Keeps answers until it writes itself."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self._answers: dict[str, RetrieveResult] = {}

    async def record_event(self, event):
        self._answers.clear()
        return await super().record_event(event)

    async def retrieve(self, request):
        key = request.model_dump_json()
        if key not in self._answers:
            self._answers[key] = await super().retrieve(request)
        return self._answers[key]


class ForgedFence(FakeBackend):
    """Pastes stored text into the prompt as it is."""

    def format_context(self, result):
        if not result.included:
            return ""
        lines = "\n".join(f"- {entry.text}" for entry in result.context_entries)
        scope = result.request.scope.label
        return f'<memory-context backend="{self.backend_name}" scope="{scope}">\n{lines}\n</memory-context>'


class ImitatedEntry(FakeBackend):
    """Escapes the fence and forgets that a line break can imitate an entry."""

    def format_context(self, result):
        lines = [f"- {clean_text(entry.text)}" for entry in result.context_entries]
        return wrap_section(self.backend_name, result.request.scope.label, lines)


READING = {
    "has_a_query_language": (wrong("retrieve", has_a_query_language), "a_question_may_hold_any_sign"),
    "prints": (wrong("retrieve", prints), "user_text_reaches_no_log_and_no_output"),
    "dates_all_by_the_last": (
        wrong("retrieve", dates_all_by_the_last), "a_moment_is_kept_whatever_its_offset"
    ),
    "names_the_asking_session": (
        wrong("retrieve", names_the_asking_session), "an_entry_names_the_session_it_comes_from"
    ),
    "claims_every_event": (
        wrong("retrieve", claims_every_event), "entries_name_their_native_record_and_their_event"
    ),
    "lists_by_text": (
        wrong("native_query", lists_by_text), "a_list_in_order_is_in_the_order_of_arrival"
    ),
    "falls_back_to_all": (
        wrong("retrieve", falls_back_to_all), "a_filter_that_matches_nothing_finds_nothing"
    ),
    "caches_answers": (CachesAnswers, "writes_of_another_adapter_are_found"),
    "forged_fence": (ForgedFence, "stored_text_cannot_close_or_forge_the_section"),
    "imitated_entry": (ImitatedEntry, "stored_text_cannot_close_or_forge_the_section"),
    "filters_after_the_limit": (FiltersAfterTheLimit, "a_filter_narrows_before_the_limit"),
    "filters_by_pattern": (given("retrieve", with_patterns), "cs_fields_act_as_declared"),
    "ignores_cs_fields": (given("retrieve", lambda request: NO_FIELDS), "cs_fields_act_as_declared"),
    "takes_one_filter": (
        given("retrieve", lambda request: {**NO_FIELDS, "filters": dict(list(request.where.items())[-1:])}),
        "several_filters_narrow_together",
    ),
    "takes_one_operator": (given("retrieve", with_the_last_operator), "ranges_compare_numbers"),
    "ignores_ranges": (
        with_operators(dict.fromkeys(("gt", "gte", "lt", "lte"))), "ranges_compare_numbers"
    ),
    "wrong_bounds": (with_operators({"gt": "gte", "lt": "lte"}), "ranges_compare_numbers"),
    "ignores_budget": (given("retrieve", unlimited), "max_items_reaches_the_native_call"),
    "unlimited_in_its_session": (
        given("retrieve", lambda request: unlimited(request) if request.session_id == "session-1" else {}),
        "max_items_reaches_the_native_call",
    ),
}  # fmt: skip
"""Mutant name -> adapter, and the spec that must catch it."""
