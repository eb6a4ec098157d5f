"""Filters may narrow, never widen (DESIGN section 5.2)."""

import pytest

from memory import CapabilityNotSupported, InputError, MemoryScope, RetrieveRequest, ScopeError
from memory.contract.traits import FILTER_OPERATORS
from memory.slot.rendering import check_filters

SCOPE = MemoryScope(run_id="r", persona_id="p")


def check(filters, operators=FILTER_OPERATORS):
    check_filters(RetrieveRequest(query="q", scope=SCOPE, session_id="s", filters=filters), operators)


@pytest.mark.parametrize(
    "filters",
    [
        {"user_id": "bob"},
        {"USER_ID": "bob"},
        {"run_id": {"ne": "r"}},
        {"group_id": "x"},
        {"namespace": "x"},
        {"metadata.user_id": "bob"},
        {"AND": [{"user_id": "bob"}]},
        {"or": "x"},
        {"$or": [{"color": "red"}]},
        {"NOT": {"color": "red"}},
        {"color": {"or": "x"}},
        {"color": {"$not": "red"}},
        {"color": {"eq": "*"}},
        {"color": "*"},
        {"color": {"in": ["red", "*"]}},
        {"*": "red"},
        {"": "red"},
    ],
    ids=str,
)
def test_what_could_widen_is_refused(filters):
    with pytest.raises(ScopeError, match="filters"):
        check(filters)


@pytest.mark.parametrize(
    "filters",
    [
        {"color": None},
        {"color": {"eq": [1]}},
        {"color": {"in": "red"}},
        {"color": {}},
        {"color": {"like": "red"}},
        {"color": {"eq": {"deep": 1}}},
        {"cross_context": "yes"},
    ],
    ids=str,
)
def test_what_is_malformed_names_the_filter(filters):
    with pytest.raises(InputError, match=r"filters\.\w+"):
        check(filters)


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"color": "red", "rank": 3, "open": True},
        {"rank": {"gte": 1, "lt": 5}},
        {"color": {"in": ["red", "blue"]}},
        {"info.context": "work"},
        {"cross_context": True},
    ],
    ids=str,
)
def test_what_narrows_passes(filters):
    check(filters)


def test_an_operator_the_backend_lacks_is_not_ignored():
    with pytest.raises(CapabilityNotSupported, match=r"filters.rank.gt: .* it can by: eq"):
        check({"rank": {"gt": 1}}, frozenset({"eq"}))
    with pytest.raises(CapabilityNotSupported, match="it can by: none"):
        check({"rank": 1}, frozenset())


def test_a_cs_field_is_not_overridden_by_a_filter():
    request = RetrieveRequest(
        query="q", scope=SCOPE, session_id="s", context="work", filters={"context": {"ne": "work"}}
    )
    with pytest.raises(InputError, match=r"filters\.context and the request's own context"):
        check_filters(request, FILTER_OPERATORS)


def test_a_cross_context_probe_drops_the_cs_filters_only():
    request = RetrieveRequest(
        query="q",
        scope=SCOPE,
        session_id="s",
        context="work",
        filters={"cross_context": True, "color": "red"},
    )
    assert request.cs_filters == {}
    assert request.metadata_filters == {"color": "red"}
    assert request.where == {"color": {"eq": "red"}}
    narrow = request.model_copy(update={"filters": {"rank": {"gte": 1, "lt": 5}}})
    assert narrow.cs_filters == {"context": "work"}
    assert narrow.where == {"context": {"eq": "work"}, "rank": {"gte": 1, "lt": 5}}
