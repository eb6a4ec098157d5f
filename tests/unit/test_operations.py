"""Native operations are declared once, and the slot refuses what is none: no adapter sees a wrong argument."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from slot_support import ALICE

from memory import (
    CapabilityNotSupported,
    InputError,
    MemoryScope,
    MemorySlot,
    NativeMutationRequest,
    NativeQueryRequest,
    ProvenanceRequest,
    SupportsNativeMutation,
    SupportsNativeQuery,
)
from memory.adapter import Operation
from memory.adapter.fields import AwareDatetime, NotBlank, parse_time, without_nul
from memory.adapter.stores import RecentKeys
from memory.testing import FakeBackend

FACTS = Operation(
    {"limit": int, "after": AwareDatetime, "flags": dict[str, bool], "until": AwareDatetime | None},
    required={"about": NotBlank},
)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"about": "tea"}, None),
        ({"about": "tea", "limit": 3, "after": "2024-01-01T00:00:00Z", "flags": {"old": True}}, None),
        ({}, "about: is required; it takes about, limit, after, flags, until"),
        ({"about": " "}, "about: must not be blank; it takes"),
        ({"about": 7}, "about: Input should be a valid string; it takes"),
        ({"about": "tea", "limit": "3"}, "limit: Input should be a valid integer"),
        ({"about": "tea", "limit": None}, "limit: Input should be a valid integer"),
        ({"about": "tea", "until": None}, None),
        ({"about": "tea", "limit": True}, "limit: Input should be a valid integer"),
        ({"about": "tea", "after": "2024-01-01T00:00:00"}, "after: must be timezone-aware"),
        ({"about": "tea", "flags": {"old": 1}}, "flags.old: Input should be a valid boolean"),
        ({"about": "tea", "secret": "x"}, "secret: is not a known field; it takes"),
    ],
)
def test_an_argument_is_as_declared_or_named(arguments, said):
    problem = FACTS.problem(arguments)
    assert (problem is None) if said is None else str(problem).startswith(said)


class Watched(FakeBackend):
    """Notes what reaches it."""

    def __init__(self):
        super().__init__()
        self.traits = replace(
            self.traits, native_queries={"count": Operation(), "list": Operation({"limit": int})}
        )
        self.reached: list[Any] = []

    async def native_query(self, request):
        self.reached.append(request)
        return await super().native_query(request)

    async def native_mutation(self, request):
        self.reached.append(request)
        return await super().native_mutation(request)


async def test_the_slot_refuses_what_is_not_declared_and_the_adapter_never_sees_it():
    adapter = Watched()
    async with MemorySlot(adapter) as slot:
        await slot.setup_scope(ALICE)
        query, change = slot.capability(SupportsNativeQuery), slot.capability(SupportsNativeMutation)
        assert query is not None
        assert change is not None
        with pytest.raises(CapabilityNotSupported, match="native_query knows count, list; not 'sql'"):
            await query.native_query(NativeQueryRequest(scope=ALICE, operation="sql"))
        with pytest.raises(InputError, match=r"NativeQueryRequest\.arguments\.limit: Input should be"):
            await query.native_query(
                NativeQueryRequest(scope=ALICE, operation="list", arguments={"limit": "1"})
            )
        for operation, native_id, arguments, said in (
            ("rename", "x", {}, "native_mutation knows update, delete; not 'rename'"),
            ("delete", None, {}, r"native_id: is required to delete; take it from an entry"),
            ("update", "x", {}, r"NativeMutationRequest\.arguments\.text: is required"),
            ("update", "x", {"text": ["secret"]}, r"arguments\.text: Input should be a valid string"),
        ):
            with pytest.raises((InputError, CapabilityNotSupported), match=said) as raised:
                await change.native_mutation(
                    NativeMutationRequest(
                        scope=ALICE, operation=operation, native_id=native_id, arguments=arguments
                    )
                )
            assert "secret" not in str(raised.value)
        assert adapter.reached == []
        await query.native_query(NativeQueryRequest(scope=ALICE, operation="list", arguments={"limit": 1}))
        assert [request.arguments for request in adapter.reached] == [{"limit": 1}]


async def test_health_says_what_is_declared_also_where_the_probe_fails():
    adapter = FakeBackend()
    async with MemorySlot(adapter) as slot:
        adapter.store.faults.add("500", times=1)
        down, up = await slot.health(), await slot.health()
    assert (down.status, up.status) == ("unavailable", "ok")
    for health in (down, up):
        assert health.native_memory_types == ("message", "feedback")
        assert health.native_query_modes == ("count", "list")
        assert health.cs_filtering == "hard"


@pytest.mark.parametrize(
    ("written", "hour"),
    [
        ("2024-01-01T12:00:00+02:00", 10),
        ("2024-01-01T12:00:00", None),
        ("0001-01-01T00:00:00+05:00", None),
        ("soon", None),
        (None, None),
        (7, None),
    ],
)
def test_a_time_is_read_in_utc_or_not_at_all(written, hour):
    moment = parse_time(written)
    assert (moment.hour if moment else None) == hour


def test_a_time_without_a_zone_may_be_known_to_be_utc():
    moment = parse_time("2024-01-01T12:00:00", naive_is_utc=True)
    assert (moment.hour, moment.utcoffset()) == (12, parse_time("2024-01-01T00:00:00Z").utcoffset())


def test_no_nul_is_left_at_any_depth():
    assert without_nul({"a\0": ["b\0", {"c": "\0d"}], "n": 1}) == {"a": ["b", {"c": "d"}], "n": 1}


SCOPE = MemoryScope(run_id="r", persona_id="p")
MARCH, APRIL, MAY = (datetime(2026, month, 1, tzinfo=UTC) for month in (3, 4, 5))


@pytest.mark.parametrize(
    ("since", "until", "changes", "included"),
    [
        (None, None, (), True),
        (None, None, (None,), True),
        (APRIL, None, (MARCH,), False),
        (APRIL, None, (MARCH, MAY), True),
        (None, APRIL, (MAY,), False),
        (None, APRIL, (APRIL,), True),
        (APRIL, APRIL, (APRIL,), True),
        (MARCH, APRIL, (None, None), False),
        (APRIL, APRIL, (MARCH, MAY), False),  # no single change lies in it
    ],
)
def test_a_record_is_in_the_range_of_any_of_its_changes(since, until, changes, included):
    assert ProvenanceRequest(scope=SCOPE, since=since, until=until).includes(*changes) is included


def test_recent_keys_are_forgotten_in_order():
    keys = RecentKeys(2)
    assert keys.add("a")
    assert keys.add("b")
    assert not keys.add("a")
    assert keys.add("c")
    assert keys.add("a")
    keys.discard("c")
    assert keys.add("c")
    keys.discard_where(lambda key: key == "a")
    assert keys.add("a")
    assert not keys.add("c")
